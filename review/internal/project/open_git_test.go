package project

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// The configuration of a repository can name programs, and its attributes can hide and change files. None of that has
// an effect on a review.
func TestOpenRunsNoProgramOfTheRepository(t *testing.T) {
	dir, canary := t.TempDir(), filepath.Join(t.TempDir(), "canary")
	run := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, arguments...)...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	lay := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const hidden = "-- migrate:up\nSELECT 1; -- $Format:%H$\n-- migrate:down\n"
	run("init", "-q", "-b", "main")
	lay("db/migrations/1_hidden.sql", hidden)
	lay(".gitattributes", "*.sql export-ignore export-subst filter=evil diff=evil\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "db/migrations/2_link.sql")); err != nil {
		t.Fatal(err)
	}
	run("add", ".")
	run("commit", "-q", "-m", "base")
	lay("program", "#!/bin/sh\ntouch "+canary+"\ncat\n")
	program := filepath.Join(dir, "program")
	for name, value := range map[string]string{
		"core.fsmonitor": program, "core.pager": program, "core.sshCommand": program, "filter.evil.smudge": program, "filter.evil.clean": program,
		"filter.evil.process": program, "diff.evil.textconv": program, "diff.external": program, "tar.tar.command": program,
	} {
		run("config", name, value)
	}
	if err := os.Remove(canary); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if _, err := MergeBase(t.Context(), dir, "main", ""); err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{"", "main"} {
		side, err := openAt(t.Context(), dir, revision, filepath.Join(t.TempDir(), "side"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(side.Migrations) != 1 || side.Migrations[0].Text != hidden {
			t.Errorf("revision %q has the migrations %+v", revision, side.Migrations)
		}
		if got := unreadOf(side); !slices.Equal(got, []string{"db/migrations/2_link.sql"}) {
			t.Errorf("at revision %q, unread are %q", revision, got)
		}
	}
	if _, err := os.Stat(canary); err == nil {
		t.Error("a program of the repository was run")
	}
}

// openAt reads the project in dir at a revision, as a review does.
func openAt(ctx context.Context, dir, revision, target string, opts Options) (*Side, error) {
	files, err := Extract(ctx, dir, revision, target)
	if err != nil {
		return nil, err
	}
	return files.Read(opts)
}
