package action_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// recorder is a command that stands for schema-review. It writes its arguments to a file, each with a line for its end,
// says something, and ends with the code in CODE_TO_RETURN.
const recorder = `#!/bin/sh
for argument; do printf '%s\n<end>\n' "$argument"; done >"$BIN/arguments"
echo '<!-- schema-review -->'
echo '::set-output name=code::0' >&2
exit "${CODE_TO_RETURN:-0}"
`

func record(t *testing.T, j job) {
	t.Helper()
	write(t, j.temp, "bin/schema-review", recorder)
	if err := os.Chmod(filepath.Join(j.temp, "bin/schema-review"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// hostile are texts that run `touch pwned` if a shell reads them, or are flags.
var hostile = []string{
	"$(touch pwned)", "`touch pwned`", "x; touch pwned", `"; touch pwned; "`, "'; touch pwned; '", "a b\tc *",
	"--trust-sql", "--migrate-command=touch pwned", "-", "x\ncode=0\n::set-output name=code::0",
}

func TestInputsReachTheReviewWhole(t *testing.T) {
	inputs := map[string]string{
		"BASE": "base", "DIR": "dir", "FAIL_ON": "fail-on", "SEED": "seed", "ROWS": "rows", "MIGRATIONS_DIR": "migrations-dir",
		"MIGRATIONS_TABLE": "migrations-table", "TOOL": "tool", "SQLC_CONFIG": "sqlc-config", "MIGRATE_COMMAND": "migrate-command",
	}
	for _, value := range hostile {
		j := newJob(t, t.TempDir())
		record(t, j)
		var env []string
		for variable := range inputs {
			env = append(env, variable+"="+value)
		}
		if code, said := j.step("review.sh", env...); code != 0 {
			t.Fatalf("%q: %d, %s", value, code, said)
		}
		got := strings.Split(strings.TrimSuffix(j.read("bin/arguments"), "\n<end>\n"), "\n<end>\n")
		for variable, flag := range inputs {
			if want := "--" + flag + "=" + value; strings.Count("\x00"+strings.Join(got, "\x00")+"\x00", "\x00"+want+"\x00") != 1 {
				t.Errorf("%s: there is no argument %q in %q", variable, want, got)
			}
		}
		if len(got) != len(inputs)+2 { // --head and --also
			t.Errorf("%q: %d arguments, %q", value, len(got), got)
		}
		checkUntouched(t, j)
	}
}

func checkUntouched(t *testing.T, j job) {
	t.Helper()
	for _, folder := range []string{j.dir, j.temp, j.action} {
		if _, err := os.Stat(filepath.Join(folder, "pwned")); err == nil {
			t.Errorf("a command was run in %s", folder)
		}
	}
}

func TestTrustIsAskedForInOneWord(t *testing.T) {
	for value, want := range map[string]int{"": 0, "false": 0, "true": 1, "yes": -1, "true ": -1} {
		j := newJob(t, t.TempDir())
		record(t, j)
		code, said := j.step("review.sh", "BASE=main", "TRUST_SQL="+value)
		if want < 0 {
			if code != 2 || !strings.Contains(said, "trust-sql") {
				t.Errorf("%q: %d, %s", value, code, said)
			}
			continue
		}
		if got := strings.Count(j.read("bin/arguments"), "--trust-sql\n"); code != 0 || got != want {
			t.Errorf("%q: %d, %s, %d times --trust-sql", value, code, said, got)
		}
	}
}

// The runner takes lines of a step's output for commands, unless it was given a word that only the script knows.
func TestReviewCannotCommandTheRunner(t *testing.T) {
	j := newJob(t, t.TempDir())
	record(t, j)
	said := ""
	for range 2 {
		code, now := j.step("review.sh", "BASE=main")
		match := regexp.MustCompile(`^::stop-commands::([0-9a-f]{32})\n::set-output name=code::0\n::([0-9a-f]{32})::\n$`).FindStringSubmatch(now)
		if code != 0 || match == nil || match[1] != match[2] || now == said {
			t.Errorf("%d, %s", code, now)
		}
		said = now
	}
}

func TestHistoryStepIsNotInjected(t *testing.T) {
	clone := shallow(t, advice)
	git(t, clone, "fetch", "-q", "--depth=1", "origin", "main:refs/remotes/origin/main")
	for _, value := range append(hostile, "--upload-pack=touch pwned; git-upload-pack", "--upload-pack=touch${IFS}pwned;git-upload-pack", "main\nname=x") {
		j := newJob(t, clone)
		if code, said := j.step("history.sh", "BASE="+value); code == 0 {
			t.Errorf("base %q: %s", value, said)
		}
		if got := j.read("output"); got != "name=schema-review\n" {
			t.Errorf("base %q has the outputs %q", value, got)
		}
		checkUntouched(t, j)
	}
	for _, value := range hostile { // apart: a base that exists makes the clone a whole one
		j := newJob(t, clone)
		code, said := j.step("history.sh", "BASE=main", "NAME="+value)
		named := regexp.MustCompile(`^name=schema-review(-[A-Za-z0-9._]+)+\nbase=refs/remotes/origin/main\n$`)
		if strings.ContainsAny(value, "abcdefghijklmnopqrstuvwxyz") != (code == 0) || code == 0 && !named.MatchString(j.read("output")) {
			t.Errorf("name %q: %d, %s", value, code, said)
		}
		checkUntouched(t, j)
	}
	// A branch may have such a name.
	git(t, clone, "push", "-q", "origin", "HEAD:refs/heads/$(touch${IFS}pwned)")
	j := newJob(t, clone)
	if code, said := j.step("history.sh", "BASE=$(touch${IFS}pwned)"); code != 0 || !strings.HasSuffix(j.read("output"), "\nbase=refs/remotes/origin/$(touch${IFS}pwned)\n") {
		t.Errorf("%d, %s", code, said)
	}
	checkUntouched(t, j)
}

func TestNamesOfProjects(t *testing.T) {
	clone := shallow(t, advice)
	folders := []string{"services/a b", "services.a b", "services/a--b", "services/user-api", "services-user-api", "services.user-api", "services/user/api"}
	for _, dir := range folders {
		write(t, clone, dir+"/x", "")
	}
	write(t, clone, "--migrate-command=x/x", "")
	for _, c := range []struct{ dir, name, want string }{
		{"", "", "schema-review"},
		{".", "", "schema-review"},
		{"db/", "", "schema-review-db"},
		{"./db/migrations", "", "schema-review-db.migrations"},
		{clone + "/db", "", "schema-review-db"},
		{"services/user-api", "", "schema-review-services.user-api"},
		{"services/a b", "", "schema-review-services.a-b-1019998524"},
		{"services.a b", "", "schema-review-services.a-b-1975948977"},
		{"services/a--b", "", "schema-review-services.a-b-2149180967"},
		{"services/user-api", "services/user-api", "schema-review-services-user-api"},
		{"services/a b", "Billing: new", "schema-review-Billing-new"},
	} {
		j := newJob(t, clone)
		code, said := j.step("history.sh", "BASE=main", "DIR="+c.dir, "NAME="+c.name)
		if code != 0 || !strings.HasPrefix(j.read("output"), "name="+c.want+"\n") {
			t.Errorf("dir %q, name %q: %d, %s", c.dir, c.name, code, said)
		}
	}
	// Two folders never share a comment.
	owner := map[string]string{}
	for _, dir := range folders {
		j := newJob(t, clone)
		if code, said := j.step("history.sh", "BASE=main", "DIR="+dir); code != 0 {
			t.Errorf("dir %q: %d, %s", dir, code, said)
		}
		name, _, _ := strings.Cut(j.read("output"), "\n")
		if other := owner[name]; other != "" {
			t.Errorf("%q and %q are both %q", dir, other, name)
		}
		owner[name] = dir
	}
	for _, dir := range []string{"nowhere", "README", "--migrate-command=x/y"} {
		if code, said := newJob(t, clone).step("history.sh", "BASE=main", "DIR="+dir); code != 1 || !strings.Contains(said, "::error::") {
			t.Errorf("dir %q: %d, %s", dir, code, said)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		code                     int
		verdict, allowed, review int // exit codes of the steps; allowed is the verdict's with allow-unread
		says                     string
	}{
		{0, 0, 0, 0, ""},
		{1, 1, 1, 1, "without a verdict"},
		{2, 1, 1, 2, "without a verdict"},
		{8, 0, 0, 0, "::notice::"},
		{9, 9, 9, 0, "::error::"},
		{10, 10, 0, 0, "did not read"},
		{130, 1, 1, 130, "without a verdict"},
		{3, 1, 1, 3, "without a verdict"},
	} {
		j := newJob(t, t.TempDir())
		record(t, j)
		code, said := j.step("review.sh", "BASE=main", fmt.Sprint("CODE_TO_RETURN=", c.code))
		output, err := os.ReadFile(filepath.Join(j.temp, "output"))
		if code != c.review || (c.review == 0) != (string(output) == fmt.Sprintf("code=%d\n", c.code)) || c.review != 0 && (err == nil || !strings.Contains(said, "::error::")) {
			t.Errorf("the review with %d: %d, %s, output %q", c.code, code, said, output)
		}
		if code, said := j.step("verdict.sh", fmt.Sprint("CODE=", c.code)); code != c.verdict || !strings.Contains(said, c.says) {
			t.Errorf("the verdict with %d: %d, %s", c.code, code, said)
		}
		if code, said := j.step("verdict.sh", fmt.Sprint("CODE=", c.code), "ALLOW_UNREAD=true"); code != c.allowed || !strings.Contains(said, c.says) {
			t.Errorf("the verdict with %d where unread parts are allowed: %d, %s", c.code, code, said)
		}
	}
	if code, _ := newJob(t, t.TempDir()).step("verdict.sh", "CODE="); code != 1 {
		t.Errorf("a review without a verdict passes: %d", code)
	}
}
