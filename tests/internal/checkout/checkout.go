// Package checkout finds the repository that a test belongs to, and runs programs in it.
package checkout

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/modules"
)

// Root returns the repository's root folder.
func Root(t testing.TB) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOWORK").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// Run runs a program in a folder, with variables added to the environment, and returns its output.
func Run(t testing.TB, folder string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		var stderr []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = exit.Stderr
		}
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(name), strings.Join(args, " "), err, out, stderr)
	}
	return string(out)
}

// List runs go list in the root, where go.work joins the modules, and returns the lines it prints.
func List(t testing.TB, args ...string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(Run(t, Root(t), nil, "go", append([]string{"list"}, args...)...)), "\n")
}

// Folder returns a package's path below the module's root.
func Folder(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, modules.Root), "/")
}

// Own reports whether a module or package is of this repository.
func Own(path string) bool {
	return path == modules.Root || strings.HasPrefix(path, modules.Root+"/")
}
