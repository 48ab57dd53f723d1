package signals

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// rows returns the number of rows of a table, in a database of the test's own.
func rows(t *testing.T, f *fixture.Fixture, table string) int {
	t.Helper()
	return len(fixture.Texts(t, f.Pool, "SELECT '' FROM "+table))
}
