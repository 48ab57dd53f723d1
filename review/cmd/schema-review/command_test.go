package main

import (
	"bytes"
	"context"
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

// start runs a command line.
func start(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = run(ctx, args, &out, &errOut, os.Getenv)
	return code, out.String(), errOut.String()
}

// project returns a project in a git repository with an uncommitted change.
func project(t *testing.T, change, back string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("db/migrations/1_items.sql",
		"-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY, name text);\n-- migrate:down\nDROP TABLE item;\n")
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
		write("db/migrations/2_change.sql", "-- migrate:up\n"+change+"\n-- migrate:down\n"+back+"\n")
	}
	return dir
}

// useServer passes the tests' server to the command, which otherwise starts an embedded one.
func useServer(t *testing.T) {
	t.Helper()
	t.Setenv("DATABASE_URL", pgtest.EmptyDatabase(t))
	t.Setenv("FF_POSTGRES", "url")
}

// The tests set the environment, so they run one after another.

func TestReviewExitsWithTheVerdict(t *testing.T) {
	useServer(t)
	const index, dropIndex = "CREATE INDEX item_name ON item (name);", "DROP INDEX item_name;"
	const timeout = "SET LOCAL lock_timeout = '2s';\n"
	const column, dropColumn = "ALTER TABLE item ADD COLUMN colour text;", "ALTER TABLE item DROP COLUMN colour;"
	accepted := "-- review: allow lock-blocks-writers until " + time.Now().AddDate(0, 1, 0).Format(time.DateOnly) + ": no writes at night\n"
	for _, c := range []struct {
		name, change, back, failOn string
		code                       int
	}{
		{"no change", "", "", "advice", exitDone},
		{"blocking", index, dropIndex, "blocking", report.ExitBlocked},
		{"accepted", timeout + accepted + index, dropIndex, "risk", exitDone},
		{"advice", column, dropColumn, "risk", report.ExitAdvisory},
		{"advice that fails", column, dropColumn, "advice", report.ExitBlocked},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := start(t.Context(), "--dir", project(t, c.change, c.back), "--base", "main",
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
			if c.code != exitDone && !strings.HasPrefix(lastLine(stderr), "schema-review: the") {
				t.Errorf("standard error does not end with the verdict:\n%s", stderr)
			}
		})
	}
}

// A report without findings is not green if a file beside the migrations was not read.
func TestReviewNamesUnreadFiles(t *testing.T) {
	useServer(t)
	dir := project(t, "", "")
	if err := os.WriteFile(filepath.Join(dir, "db/migrations/2_fill.py"), []byte("print(1)\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := start(t.Context(), "--dir", dir, "--base", "main", "--tool", "dbmate", "--rows", "100")
	if code != report.ExitIncomplete || !strings.Contains(stdout, "`db/migrations/2_fill.py`") || !strings.Contains(stderr, "not read") {
		t.Errorf("exit code %d, want %d\n%s%s", code, report.ExitIncomplete, stdout, stderr)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func TestReviewWritesEveryFormat(t *testing.T) {
	useServer(t)
	dir := project(t, "", "")
	for format, begins := range map[string]string{"md": report.Marker, "json": "{\n  \"verdict\": \"clean\"", "sarif": "{"} {
		code, stdout, stderr := start(t.Context(), "--dir", dir, "--base", "main", "--rows", "100", "--format", format)
		if code != exitDone || !strings.HasPrefix(stdout, begins) {
			t.Errorf("%s: exit code %d, %s%s", format, code, stdout, stderr)
		}
	}
}

func TestReviewAlsoWritesFiles(t *testing.T) {
	useServer(t)
	files := t.TempDir()
	args := []string{"--dir", project(t, "", ""), "--base", "main", "--rows", "100"}
	for _, format := range []string{"json", "sarif"} {
		args = append(args, "--also", format+"="+filepath.Join(files, format))
	}
	code, stdout, stderr := start(t.Context(), args...)
	if code != exitDone || !strings.HasPrefix(stdout, report.Marker) {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	for file, want := range map[string]string{"json": `"verdict": "clean"`, "sarif": `"version": "2.1.0"`} {
		if text, err := os.ReadFile(filepath.Join(files, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %s", file, err, text)
		}
	}
}

func TestReviewRefusesBadUsage(t *testing.T) {
	useServer(t)
	for _, c := range []struct {
		arguments []string
		says      string
		code      int
	}{
		{nil, "--base is missing", exitUsage},
		{[]string{"main"}, "takes no arguments", exitUsage},
		{[]string{"--bass", "main"}, "--bass", exitUsage},
		{[]string{"--base", "main", "--format", "pdf"}, "pdf", exitUsage},
		{[]string{"--base", "main", "--fail-on", "doom"}, "doom", exitUsage},
		{[]string{"--base", "main", "--also", "pdf=x"}, "pdf=x", exitUsage},
		{[]string{"--base", "main", "--also", "md"}, "FORMAT=FILE", exitUsage},
		{[]string{"--base", "main", "--rows", "-1"}, "rows", exitUsage},
		{[]string{"--base", "main", "--tool", "liquibase", "--dir", project(t, "", "")}, "liquibase", exitFailed},
		{[]string{"--base", "nowhere", "--dir", project(t, "", "")}, "nowhere", exitFailed},
	} {
		code, stdout, stderr := start(t.Context(), c.arguments...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%q: exit code %d, %q, want %d with %q", c.arguments, code, stdout+stderr, c.code, c.says)
		}
	}
}

func TestReviewInterrupted(t *testing.T) {
	useServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, stdout, stderr := start(ctx, "--dir", project(t, "", ""), "--base", "main")
	if code != exitInterrupted || stdout != "" || lastLine(stderr) != "schema-review: interrupted." {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestHelpFitsATerminal(t *testing.T) {
	code, stdout, stderr := start(t.Context(), "--help")
	if code != exitDone || stderr != "" {
		t.Fatalf("exit code %d, %s", code, stderr)
	}
	for line := range strings.Lines(stdout) {
		if line = strings.TrimRight(line, "\n"); len([]rune(line)) > 80 || strings.HasSuffix(line, " ") {
			t.Errorf("a line of %d columns: %q", len([]rune(line)), line)
		}
	}
	for _, want := range []string{"--base", "--fail-on", "130  interrupted"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the help lacks %s:\n%s", want, stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	code, stdout, stderr := start(t.Context(), "--version")
	if code != exitDone || !strings.HasPrefix(stdout, "schema-review ") || !strings.Contains(stdout, ", go1.") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func TestLicensesNameTheParser(t *testing.T) {
	code, stdout, stderr := start(t.Context(), "--licenses")
	if code != exitDone || !strings.Contains(stdout, "\nPostgreSQL, in github.com/wasilibs/go-pgquery\n") {
		t.Errorf("exit code %d, %.200q, %q", code, stdout, stderr)
	}
}
