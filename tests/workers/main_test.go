package workers

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// processes makes the test binary a process of a test, if the environment says so.
var processes = func() bool { return false }

func TestMain(m *testing.M) {
	if !processes() {
		fixture.Main(m)
	}
}
