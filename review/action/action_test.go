// Package action_test runs the steps of the GitHub action, and checks the files that run schema-review elsewhere.
package action_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// job is a run of the action's steps in a working folder.
type job struct {
	t                      *testing.T
	dir, temp, action, bin string
}

func newJob(t *testing.T, dir string) job {
	t.Helper()
	action, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	return job{t, dir, temp, action, filepath.Join(temp, "bin")}
}

// built has the folder in which the command was installed, for all tests.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// install installs the command, for the first job by its step.
func (j *job) install() {
	j.t.Helper()
	if built == "" {
		folder, err := os.MkdirTemp("", "schema-review-")
		if err != nil {
			j.t.Fatal(err)
		}
		j.bin = folder
		if code, said := j.step("install.sh"); code != 0 || !strings.HasPrefix(said, "schema-review ") {
			j.t.Fatalf("install: %d, %s", code, said)
		}
		built = folder
	}
	j.bin = built
}

// step runs a script with variables added to the environment, and returns its exit code and its output.
func (j job) step(script string, env ...string) (code int, output string) {
	j.t.Helper()
	cmd := exec.CommandContext(j.t.Context(), filepath.Join(j.action, script))
	cmd.Dir = j.dir
	cmd.Env = append(os.Environ(), "ACTION_PATH="+j.action, "BIN="+j.bin, "REPORTS="+filepath.Join(j.temp, "reports"),
		"GITHUB_OUTPUT="+filepath.Join(j.temp, "output"), "GITHUB_STEP_SUMMARY="+filepath.Join(j.temp, "summary"), "GITHUB_EVENT_NAME=pull_request")
	cmd.Env = append(append(cmd.Env, cgo(j.t), "NAME="), env...)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return 0, string(out)
}

// cgo is the setting with which the tests were compiled, so that their packages can be used again.
func cgo(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "CGO_ENABLED").Output()
	if err != nil {
		t.Fatal(err)
	}
	return "CGO_ENABLED=" + strings.TrimSpace(string(out))
}

func (j job) read(name string) string {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.temp, name))
	if err != nil {
		j.t.Fatal(err)
	}
	return string(text)
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// shallow returns a clone with one commit of a branch that adds a migration. The branch left main two commits ago, and
// main has gone on.
func shallow(t *testing.T, migration string) string {
	t.Helper()
	origin := t.TempDir()
	commit := func() {
		git(t, origin, "add", ".")
		git(t, origin, "commit", "-q", "-m", "change")
	}
	git(t, origin, "init", "-q", "-b", "main")
	write(t, origin, "db/migrations/1_items.sql",
		"-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY, name text);\n-- migrate:down\nDROP TABLE item;\n")
	commit()
	git(t, origin, "checkout", "-q", "-b", "change")
	write(t, origin, "db/migrations/2_change.sql", migration)
	commit()
	write(t, origin, "README", "a change")
	commit()
	git(t, origin, "checkout", "-q", "main")
	write(t, origin, "NEWS", "main goes on")
	commit()
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, ".", "clone", "-q", "--depth=1", "--single-branch", "--branch", "change", "file://"+origin, clone)
	return clone
}

const (
	advice   = "-- migrate:up\nALTER TABLE item ADD COLUMN colour text;\n-- migrate:down\nALTER TABLE item DROP COLUMN colour;\n"
	blocking = "-- migrate:up\nCREATE INDEX item_name ON item (name);\n-- migrate:down\nDROP INDEX item_name;\n"
)

// The tests set the environment, so they run one after another.

func TestActionReviewsAShallowClone(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.EmptyDatabase(t))
	t.Setenv("FF_POSTGRES", "url")
	for _, c := range []struct {
		name, migration, code string
		verdict               int
	}{
		{"advice", advice, "8", 0},
		{"blocking", blocking, "9", 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, shallow(t, c.migration))
			if code, stderr := j.step("history.sh", "BASE=main"); code != 0 {
				t.Fatalf("history: %d, %s", code, stderr)
			}
			if got := j.read("output"); got != "name=schema-review\nbase=refs/remotes/origin/main\n" {
				t.Fatalf("the output is %q", got)
			}
			git(t, j.dir, "merge-base", "refs/remotes/origin/main", "HEAD")
			j.install()
			if code, stderr := j.step("review.sh", "BASE=refs/remotes/origin/main", "ROWS=1000"); code != 0 {
				t.Fatalf("review: %d, %s", code, stderr)
			}
			if got := j.read("output"); !strings.HasSuffix(got, "\ncode="+c.code+"\n") {
				t.Errorf("the output is %q, want code %s", got, c.code)
			}
			if summary := j.read("summary"); !strings.HasPrefix(summary, "<!-- schema-review -->") || summary != j.read("reports/schema-review.md") {
				t.Errorf("the summary is\n%s", summary)
			}
			if !strings.Contains(j.read("reports/schema-review.sarif"), "2_change.sql") {
				t.Error("the SARIF report does not name the migration")
			}
			if code, stderr := j.step("verdict.sh", "CODE="+c.code); code != c.verdict {
				t.Errorf("verdict: %d, want %d: %s", code, c.verdict, stderr)
			}
		})
	}
}

func TestReviewStepFailsWithTheReview(t *testing.T) {
	j := newJob(t, shallow(t, advice))
	j.install()
	code, said := j.step("review.sh", "BASE=nowhere")
	if code != 1 || !strings.Contains(said, "nowhere") || !strings.Contains(said, "::error::") {
		t.Errorf("review: %d, %s", code, said)
	}
}

func TestHistoryStepRefuses(t *testing.T) {
	clone := shallow(t, advice)
	for _, c := range []struct {
		name, dir, says string
		env             []string
	}{
		{"an event with secrets", clone, "pull_request_target", []string{"BASE=main", "GITHUB_EVENT_NAME=pull_request_target"}},
		{"no base", clone, "no base", []string{"BASE="}},
		{"an unknown base", clone, "nowhere", []string{"BASE=nowhere"}},
		{"no repository", t.TempDir(), "actions/checkout", []string{"BASE=main"}},
	} {
		j := newJob(t, c.dir)
		if code, stderr := j.step("history.sh", c.env...); code == 0 || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, %s", c.name, code, stderr)
		}
		// The name lets a later step change the comment of an earlier run.
		if strings.Contains(c.says, "base") || c.says == "nowhere" {
			if got := j.read("output"); got != "name=schema-review\n" {
				t.Errorf("%s: the outputs are %q", c.name, got)
			}
		}
	}
}

// action is the part of action.yml that the tests look at.
type action struct {
	Inputs map[string]struct{ Description, Default string }
	Runs   struct {
		Using string
		Steps []struct {
			ID, Shell, Run, Uses string
			Env                  map[string]string
		}
	}
}

func parse(t *testing.T, file string, into any) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return string(text)
}

var (
	inputUsed   = regexp.MustCompile(`inputs\.([a-z-]+)`)
	scriptRun   = regexp.MustCompile(`^"\$ACTION_PATH/([a-z]+\.sh)"$`)
	variable    = regexp.MustCompile(`\$\{?([A-Z][A-Z_]+)`)
	flagUsed    = regexp.MustCompile(`(?:^|\s)--([a-z-]+)`)
	fromRunner  = []string{"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_EVENT_NAME", "PWD", "ACTION_PATH"}
	setInScript = []string{"CGO_ENABLED"}
)

func TestActionSetsEveryVariableOfItsScripts(t *testing.T) {
	var a action
	text := parse(t, "action.yml", &a)
	for _, match := range inputUsed.FindAllStringSubmatch(text, -1) {
		if _, ok := a.Inputs[match[1]]; !ok {
			t.Errorf("there is no input %s", match[1])
		}
	}
	for name, input := range a.Inputs {
		if !strings.Contains(text, "inputs."+name+" ") || input.Description == "" {
			t.Errorf("input %s is not used, or not described", name)
		}
	}
	var run []string
	for _, step := range a.Runs.Steps {
		if step.Uses != "" {
			continue
		}
		match := scriptRun.FindStringSubmatch(step.Run)
		if match == nil || step.Shell != "sh" {
			t.Errorf("a step runs %q in %q, not a script", step.Run, step.Shell)
			continue
		}
		run = append(run, match[1])
		script, err := os.ReadFile(match[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, used := range variable.FindAllStringSubmatch(string(script), -1) {
			if _, ok := step.Env[used[1]]; !ok && !slices.Contains(fromRunner, used[1]) && !slices.Contains(setInScript, used[1]) {
				t.Errorf("%s uses %s, which its step does not set", match[1], used[1])
			}
		}
	}
	scripts, err := filepath.Glob("*.sh")
	slices.Sort(run)
	if err != nil || !slices.Equal(run, scripts) {
		t.Errorf("the action runs %v, the scripts are %v", run, scripts)
	}
}

func TestFlagsExist(t *testing.T) {
	j := newJob(t, t.TempDir())
	j.install()
	help, err := exec.CommandContext(t.Context(), filepath.Join(j.bin, "schema-review"), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	var gitlab map[string]struct{ Script []string }
	parse(t, "../gitlab/schema-review.yml", &gitlab)
	var hooks []hook
	parse(t, "../../.pre-commit-hooks.yaml", &hooks)
	script, err := os.ReadFile("review.sh")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"review.sh": string(script), ".pre-commit-hooks.yaml": strings.Join(hooks[0].Args, " ")}
	for _, line := range gitlab["schema-review"].Script {
		if strings.HasPrefix(line, "schema-review ") {
			texts["gitlab"] = line
		}
	}
	if len(texts) != 3 {
		t.Fatalf("the GitLab template does not run schema-review: %q", gitlab)
	}
	for of, text := range texts {
		flags := flagUsed.FindAllStringSubmatch(text, -1)
		if len(flags) == 0 {
			t.Errorf("%s uses no flag", of)
		}
		for _, flag := range flags {
			if !strings.Contains(string(help), " --"+flag[1]+" ") {
				t.Errorf("%s uses --%s, which schema-review does not have", of, flag[1])
			}
		}
	}
}
