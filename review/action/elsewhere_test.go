package action_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/review/report"
)

// monorepo is a clone of a repository with several projects, whose change is a blocking one in the folder dir.
func monorepo(t *testing.T, dir string) (clone string) {
	t.Helper()
	clone = shallow(t, advice)
	git(t, clone, "fetch", "-q", "--unshallow")
	for _, project := range []string{"services/other", dir} {
		write(t, clone, project+"/db/migrations/1_items.sql",
			"-- migrate:up\nCREATE TABLE item (id bigint PRIMARY KEY, name text);\n-- migrate:down\nDROP TABLE item;\n")
	}
	git(t, clone, "add", ".")
	git(t, clone, "commit", "-q", "-m", "projects")
	git(t, clone, "push", "-q", "origin", "HEAD:refs/heads/projects")
	write(t, clone, dir+"/db/migrations/2_change.sql", blocking)
	git(t, clone, "add", ".")
	git(t, clone, "commit", "-q", "-m", "change")
	return clone
}

func TestActionReviewsAProjectInAFolder(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.EmptyDatabase(t))
	t.Setenv("FF_POSTGRES", "url")
	dir := `services/it's "$(touch pwned)" a; shop`
	j := newJob(t, monorepo(t, dir))
	j.install()
	for _, step := range [][]string{
		{"history.sh", "BASE=projects", "DIR=" + dir},
		{"review.sh", "BASE=refs/remotes/origin/projects", "ROWS=1000", "DIR=" + dir, "NAME=schema-review-x"},
	} {
		if code, said := j.step(step[0], step[1:]...); code != 0 {
			t.Fatalf("%s: %d, %s", step[0], code, said)
		}
	}
	if got := j.read("output"); got != "name=schema-review-services.it-s-touch-pwned-a-shop-2581722121\nbase=refs/remotes/origin/projects\ncode=9\n" {
		t.Errorf("the output is %q", got)
	}
	if summary := j.read("summary"); !strings.HasPrefix(summary, report.Marker+"\n## Schema review of `"+dir+"`: not to be merged as it is\n") {
		t.Errorf("the summary is\n%s", summary)
	}
	var sarif struct {
		Runs []struct {
			Results []struct {
				Locations []struct {
					PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(j.read("reports/schema-review.sarif")), &sarif); err != nil || len(sarif.Runs) != 1 || len(sarif.Runs[0].Results) == 0 {
		t.Fatalf("%v, %s", err, j.read("reports/schema-review.sarif"))
	}
	for _, result := range sarif.Runs[0].Results {
		uri := result.Locations[0].PhysicalLocation.ArtifactLocation.URI
		if want := "services/it%27s%20%22$%28touch%20pwned%29%22%20a;%20shop/db/migrations/2_change.sql"; uri != want {
			t.Errorf("a finding is at %q, want %q", uri, want)
		}
	}
	checkUntouched(t, j)
}

// shell runs lines as the runners of GitLab do, each after the other until one fails.
func shell(t *testing.T, dir string, lines []string, env ...string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.Join(lines, "\n"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// gitlab is the template's job.
type gitlab struct {
	Variables map[string]string
	Script    []string
	Fail      struct {
		ExitCodes []int `yaml:"exit_codes"`
	} `yaml:"allow_failure"`
	Artifacts struct{ Paths []string }
}

func TestGitLabJobReviews(t *testing.T) {
	var file map[string]gitlab
	parse(t, "../gitlab/schema-review.yml", &file)
	job := file["schema-review"]
	if !slices.Equal(job.Fail.ExitCodes, []int{report.ExitAdvisory}) {
		t.Errorf("the exit codes %v are no failure", job.Fail.ExitCodes)
	}
	if !strings.HasPrefix(job.Script[0], "go install ") { // tests/house runs it
		t.Fatalf("the first line is %q", job.Script[0])
	}
	maps.Copy(job.Variables, map[string]string{"FF_POSTGRES": "url", "DATABASE_URL": pgtest.EmptyDatabase(t)})
	for _, c := range []struct {
		name, migration string
		fork            bool
		set             map[string]string
		code            int
	}{
		{"advice", advice, false, nil, 8},
		{"blocking, from a fork", blocking, true, nil, 9},
		{"a severity and flags", advice, false, map[string]string{"FAIL_ON": "advice", "SCHEMA_REVIEW_ARGS": "--tool dbmate --rows 1000"}, 9},
		{"a folder", blocking, false, map[string]string{"DIR": "db"}, 9},
		{"an unknown folder", blocking, false, map[string]string{"DIR": "x; touch pwned"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJob(t, shallow(t, c.migration))
			git(t, j.dir, "fetch", "-q", "--unshallow") // GIT_DEPTH is 0
			j.install()
			env := []string{"PATH=" + j.bin + string(os.PathListSeparator) + os.Getenv("PATH")}
			variables := map[string]string{
				"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_PROJECT_ID": "1", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
				"CI_MERGE_REQUEST_PROJECT_URL": "file:///nowhere",
			}
			if c.fork {
				target := filepath.Join(t.TempDir(), "target")
				git(t, j.dir, "clone", "-q", "--bare", git(t, j.dir, "remote", "get-url", "origin"), target+".git")
				git(t, j.dir, "remote", "set-url", "origin", "file:///nowhere")
				variables["CI_MERGE_REQUEST_PROJECT_ID"], variables["CI_MERGE_REQUEST_PROJECT_URL"] = "2", "file://"+target
			}
			maps.Copy(variables, job.Variables)
			maps.Copy(variables, c.set)
			for name, value := range variables {
				env = append(env, name+"="+value)
			}
			code, said := shell(t, j.dir, job.Script[1:], env...)
			if code != c.code {
				t.Fatalf("%d, want %d: %s", code, c.code, said)
			}
			checkUntouched(t, j)
			for _, path := range job.Artifacts.Paths {
				text, err := os.ReadFile(filepath.Join(j.dir, path))
				if made := code >= 8; made && (err != nil || !strings.Contains(string(text), "2_change.sql")) {
					t.Errorf("%s: %v, %s", path, err, text)
				}
			}
		})
	}
}

// hook is the entry for pre-commit.
type hook struct {
	ID, Entry, Language string
	Args                []string
}

// A program of another name, which is schema-review to the script, is built in its place: the codes are its.
func TestHookPassesAdviceOnly(t *testing.T) {
	var hooks []hook
	parse(t, "../../.pre-commit-hooks.yaml", &hooks)
	if len(hooks) != 1 || hooks[0].Language != "script" {
		t.Fatalf("the hooks are %+v", hooks)
	}
	script, err := os.ReadFile(filepath.Join("../..", hooks[0].Entry))
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int]int{0: 0, 1: 1, 2: 2, 8: 0, 9: 9, 10: 10, 130: 130} {
		j := newJob(t, t.TempDir())
		hook := filepath.Join(j.temp, hooks[0].Entry)
		write(t, j.temp, hooks[0].Entry, string(script))
		write(t, j.temp, "go.mod", "module example.com/m\n\ngo 1.26\n")
		write(t, j.temp, "go.work", "go 1.26\n\nuse .\n")
		write(t, j.temp, "review/cmd/schema-review/main.go", fmt.Sprintf("package main\n\nimport \"os\"\n\nfunc main() { println(len(os.Args), os.Args[3]); os.Exit(%d) }\n", code))
		lines := []string{"sh " + hook + " " + strings.Join(hooks[0].Args, " ") + ` "a b"`}
		if got, said := shell(t, j.dir, lines, "GIT_DIR=/nowhere"); got != want || said != "4 a b\n" {
			t.Errorf("with code %d the hook ends with %d: %s", code, got, said)
		}
	}
}

// A push runs the hook in the project's repository, with git's variables. The clone of pre-commit is this repository.
func TestHookReviewsAPush(t *testing.T) {
	t.Setenv("DATABASE_URL", pgtest.EmptyDatabase(t))
	t.Setenv("FF_POSTGRES", "url")
	var hooks []hook
	parse(t, "../../.pre-commit-hooks.yaml", &hooks)
	script, err := filepath.Abs(filepath.Join("../..", hooks[0].Entry))
	if err != nil {
		t.Fatal(err)
	}
	for migration, want := range map[string]int{advice: 0, blocking: 1} {
		clone := shallow(t, migration)
		git(t, clone, "fetch", "-q", "--unshallow", "origin", "+refs/heads/*:refs/remotes/origin/*")
		write(t, clone, ".git/hooks/pre-push", "#!/bin/sh\nexec '"+script+"' "+strings.Join(hooks[0].Args, " ")+"\n")
		if err := os.Chmod(filepath.Join(clone, ".git/hooks/pre-push"), 0o755); err != nil {
			t.Fatal(err)
		}
		code, said := shell(t, clone, []string{"git push origin HEAD:refs/heads/pushed"})
		if code != want || !strings.Contains(said, report.Marker) {
			t.Errorf("the push ends with %d, want %d: %s", code, want, said)
		}
		pushed := strings.Contains(git(t, clone, "ls-remote", "origin"), "refs/heads/pushed")
		if pushed != (want == 0) {
			t.Errorf("the branch is pushed: %v", pushed)
		}
	}
}
