package house

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// TestPackageExamples runs the examples in the documentation of the packages, and compares their output. The examples are in
// a module that can't start a server. Each example that connects must state its output, because the go command runs no others.
func TestPackageExamples(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile(`(?s)\nfunc (Example\w*)\(\) \{\n.*?\n\}\n`)
	for _, room := range []string{"budget", "engine", "events", "explain", "interop", "limit", "operator", "schedule", "stream"} {
		t.Run(room, func(t *testing.T) {
			t.Parallel()
			program := filepath.Join(t.TempDir(), room+".test")
			build := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "./"+room)
			build.Dir = "../.."
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}

			run := exec.CommandContext(t.Context(), program, "-test.run=^Example", "-test.v")
			run.Env = append(os.Environ(), "FF_EXAMPLES="+pgtest.CloneURL(t))
			out, err := run.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			files, err := filepath.Glob("../../" + room + "/example*_test.go")
			if err != nil {
				t.Fatal(err)
			}
			connected := 0
			for _, file := range files {
				source, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, match := range example.FindAllSubmatch(source, -1) {
					if !bytes.Contains(match[0], []byte("pool.Close()")) {
						continue
					}
					connected++
					if !bytes.Contains(out, append([]byte("--- PASS: "), append(match[1], ' ')...)) {
						t.Errorf("%s did not run, or failed", match[1])
					}
				}
			}
			if connected == 0 {
				t.Error("no example connects to the database")
			}
		})
	}
}
