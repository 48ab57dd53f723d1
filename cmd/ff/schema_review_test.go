package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// reviewed returns a project in a git repository with an uncommitted change.
func reviewed(t *testing.T, change, back string) string {
	t.Helper()
	dir := t.TempDir()
	lay := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lay("db/migrations/1_items.sql", "-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY, name text);\n-- migrate:down\nDROP TABLE item;\n")
	for _, arguments := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "."},
		{"-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "base"},
	} {
		command := exec.Command("git", arguments...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	if change != "" {
		lay("db/migrations/2_change.sql", "-- migrate:up\n"+change+"\n-- migrate:down\n"+back+"\n")
	}
	return dir
}

// serves passes the tests' server to the command, which otherwise looks for one in a container.
func serves(t *testing.T) {
	t.Helper()
	t.Setenv("DATABASE_URL", pgtest.EmptyDatabase(t))
	t.Setenv("FF_POSTGRES", "url")
}

func TestSchemaReview(t *testing.T) {
	serves(t)
	const index = "CREATE INDEX item_name ON item (name);"
	const timeout = "SET LOCAL lock_timeout = '2s';\n"
	accepted := "-- review: allow lock-blocks-writers until " + time.Now().AddDate(0, 1, 0).Format(time.DateOnly) + ": nobody writes at night\n"
	const back = "DROP INDEX item_name;"
	const column, columnBack = "ALTER TABLE item ADD COLUMN colour text;", "ALTER TABLE item DROP COLUMN colour;"
	for _, c := range []struct {
		name, change, back, failOn string
		code                       int
	}{
		{"no change", "", "", "advice", exitDone},
		{"a blocking one", index, back, "blocking", report.ExitBlocked},
		{"an accepted one", timeout + accepted + index, back, "risk", exitDone},
		{"advice", column, columnBack, "risk", report.ExitAdvisory},
		{"advice that is not taken", column, columnBack, "advice", report.ExitBlocked},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := start(t, t.Context(), "schema", "review", "--dir", reviewed(t, c.change, c.back), "--base", "main",
				"--rows", "1000", "--format", "json", "--fail-on", c.failOn)
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, stdout, stderr)
			}
			var r report.Report
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatalf("%v\n%s", err, stdout)
			}
			if (c.change == "") != (len(r.Migrations) == 0) {
				t.Errorf("the report has migrations %q", r.Migrations)
			}
		})
	}
}

func TestSchemaReviewRefusesBadUsage(t *testing.T) {
	serves(t)
	for _, c := range []struct {
		arguments []string
		says      string
		code      int
	}{
		{nil, "needs --base", exitUsage},
		{[]string{"--base", "main", "--format", "pdf"}, "pdf", exitUsage},
		{[]string{"--base", "main", "--fail-on", "doom"}, "doom", exitUsage},
		{[]string{"--base", "main", "--rows", "-1"}, "rows", exitUsage},
		{[]string{"--base", "nowhere", "--dir", reviewed(t, "", "")}, "nowhere", exitFailed},
	} {
		code, stdout, stderr := start(t, t.Context(), append([]string{"schema", "review"}, c.arguments...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: exit code %d, %q, want %d with %q", c.arguments, code, stdout+stderr, c.code, c.says)
		}
	}
}
