package schedules

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestMain makes the test binary a process that runs schedules when a test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*asRunner {
		fixture.Main(m)
		return
	}
	if err := beRunner(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
