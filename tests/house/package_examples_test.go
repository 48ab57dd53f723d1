package house

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// TestPackageExamples runs the examples in the documentation of the packages. They stand beside these, in a module that
// knows no way to a server.
func TestPackageExamples(t *testing.T) {
	t.Parallel()
	for _, room := range []string{"budget", "engine", "events", "interop", "operator"} {
		t.Run(room, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), room+".test")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "./"+room)
			build.Dir = "../.."
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}

			run := exec.CommandContext(t.Context(), program, "-test.run=^TestExamples$", "-test.v")
			run.Env = append(os.Environ(), "FF_EXAMPLES="+pgtest.CloneURL(t))
			out, err := run.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("--- PASS: TestExamples")) {
				t.Errorf("the examples were not run, or failed: %v\n%s", err, out)
			}
		})
	}
}
