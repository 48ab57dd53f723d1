package tests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// TestExamples builds and runs every program in examples/ on a database of its own.
func TestExamples(t *testing.T) {
	t.Parallel()
	output := map[string][]string{ // the lines it prints, sorted
		"quickstart":            {"hello, Ada", "hello, Grace"},
		"fan-in":                {"best price: 50", "choose: completed", "survey: skipped"},
		"transactional-enqueue": {"order of one anvil: 1 bill"},
	}
	sources, err := filepath.Glob("../examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) != len(output) {
		t.Errorf("examples/ holds %q, and the test knows %d of them", sources, len(output))
	}
	programs := buildPrograms(t, "./examples/...")
	for name, want := range output {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), filepath.Join(programs, name))
			cmd.Env = append(os.Environ(), "DATABASE_URL="+pgtest.CloneURL(t))
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
			slices.Sort(lines)
			if !slices.Equal(lines, want) {
				t.Errorf("it prints %q, want %q", lines, want)
			}
		})
	}
}

// TestReadme_program keeps the program in the README the one that is built and run.
func TestReadme_program(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../examples/quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, slices.Concat([]byte("\n```go\n"), program, []byte("```\n"))) {
		t.Error("README.md does not contain examples/quickstart/main.go")
	}
}
