package project

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A link or a submodule that the tools would follow is reported, at a revision as in the working folder.
func TestOpenReportsLinksAndSubmodules(t *testing.T) {
	dir := t.TempDir()
	run := func(arguments ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, arguments...)...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	lay(t, dir, shop)
	for _, folder := range []string{"docs", "queries/sub", "other", "testdata"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"db/migrations/20260101000003_x.sql": "../../other/x.sql", "queries/more.sql": "/etc/passwd", "sqlc.dev.yaml": "../sqlc.yaml",
		"docs/README": "../README", "testdata/a.sql": "b.sql",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	commit := strings.Repeat("1", 40)
	run("init", "-q", "-b", "main")
	run("add", ".")
	run("update-index", "--add", "--cacheinfo", "160000,"+commit+",queries/sub")
	run("commit", "-q", "-m", "base")
	var sides []*Side
	for _, revision := range []string{"main", ""} {
		side, err := openAt(t.Context(), dir, revision, filepath.Join(t.TempDir(), "side"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		sides = append(sides, side)
		want := []string{"db/migrations/20260101000003_x.sql", "queries/more.sql if changed", "queries/sub if changed", "sqlc.dev.yaml if changed"}
		if got := unreadOf(side); !slices.Equal(got, want) {
			t.Errorf("at %q, unread are %q, want %q", revision, got, want)
		}
		if o := side.Omitted["queries/sub"]; o != (Omitted{Target: commit}) {
			t.Errorf("at %q, the submodule is %+v", revision, o)
		}
	}
	if !maps.Equal(sides[0].Omitted, sides[1].Omitted) {
		t.Errorf("of the same links, one side has %+v, the other %+v", sides[0].Omitted, sides[1].Omitted)
	}
}

func TestOmittedChanged(t *testing.T) {
	base := &Side{Omitted: map[string]Omitted{"q/a.sql": {Link: true, Target: "../x.sql"}, "q/sub": {Target: "1"}, "q/out": {Link: true, Target: "/etc"}}}
	head := &Side{Omitted: map[string]Omitted{"q/a.sql": {Link: true, Target: "../x.sql"}, "q/sub": {Target: "2"}, "q/out": {Link: true, Target: "/etc"}, "q/new": {}}}
	for name, want := range map[string]bool{"q/a.sql": true, "q/sub": true, "q/out": false, "q/new": true, "q": true, "other": false} {
		if got := OmittedChanged(base, head, name, func(to string) bool { return to == "x.sql" }); got != want {
			t.Errorf("%s is changed: %v", name, got)
		}
	}
}
