package signals

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestMain makes the test binary an actor when a test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*asActor {
		fixture.Main(m)
		return
	}
	if err := act(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// rows returns the number of rows of a table, in a database of the test's own.
func rows(t *testing.T, f *fixture.Fixture, table string) int {
	t.Helper()
	return len(fixture.Texts(t, f.Pool, "SELECT '' FROM "+table))
}
