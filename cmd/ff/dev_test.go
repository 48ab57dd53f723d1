package main

import (
	"os/exec"
	"testing"
)

// The line that dev prints can be pasted into a shell.
func TestDevPrintsALineForAShell(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://postgres:s3cret@127.0.0.1:5433/app?sslmode=disable&search_path=a,b", "postgres://o'neil:$HOME`x`@h/d",
	} {
		said, err := exec.CommandContext(t.Context(), "sh", "-ec", exportLine(url)+"\nsh -ec 'printf %s \"$DATABASE_URL\"'").Output()
		if err != nil || string(said) != url {
			t.Errorf("got %q, %v; want %q", said, err, url)
		}
	}
}
