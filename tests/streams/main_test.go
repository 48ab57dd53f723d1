package streams

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestMain makes the test binary a worker when a test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*asWorker {
		fixture.Main(m)
		return
	}
	if err := beWorker(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
