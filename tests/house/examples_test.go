package house

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/checkout"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestExamples runs every program in examples/ on a database of its own.
func TestExamples(t *testing.T) {
	t.Parallel()
	output := map[string][]string{ // the lines it prints, sorted
		"agent": {
			"done: old account is deleted, approved by ada", "paid for: ask", "paid for: delete", "paid for: look",
			"step: ask", "step: delete", "step: model/0", "step: model/1", "step: model/2", "step: signal approved",
		},
		"await": {"no answer: nothing to count", "words: 6"},
		"batch": {
			"50%: 500 items", "counted: 1000", "items: 1000, twice: 21, more often: 0", "the first worker stops",
		},
		"budget":       {"salt answers: 2", "salt stops at 120 of 150", "tea answers: 3", "tea stops at 70 of 100", "the user has used 120 of 150"},
		"cancel":       {"cancelled: the customer changed his mind", "cancelled: the file is removed"},
		"delay":        {"attempt 0: not yet", "attempt 0: not yet", "attempts: 1, retries: 0", "done: https://example.com/video-7"},
		"error-branch": {"hotel in Oslo: have a good journey", `hotel on the moon: we are sorry, given back: ["train"]`},
		"fair":         {"bob's turn was number 2", "imported the only one"},
		"fan-in":       {"best price: 50"},
		"feed":         {"audited: 3 told twice: 1", "feed: <nil>", "feed: the audit is down"},
		"first-answer": {
			"a piano goes by-air for 900 euros", `by air: 200 OK {"closed":false,"decided":"offer"}`,
			`by sea: 409 Conflict {"closed":true,"decided":""}`,
		},
		"first-of-n":      {"first price: 70", "slow shop: cancelled"},
		"graceful-worker": {"asleep", "awake", "drained"},
		"grow":            {"4 of 4 ended", "words: 8"},
		"limits": {
			"at most 1 of ada at once", "bikes is in sync", "books is in sync", "globes is in sync", "globes waits for sync/tenant ada behind 1",
			"maps is in sync",
		},
		"order": {
			"ada: book in attempt 0", "ada: charge in attempt 0", "bob: book in attempt 0", "bob: charge in attempt 0", "bob: refund in attempt 1",
			"charged ada", "charged bob", "lamp is on its way", "refunded: charge of bob", "unicorn is sold out",
		},
		"poll": {
			"ask/1 success", "ask/2 success", "ask/3 success", "done: https://example.com/film-7", "pause/1 slept", "pause/2 slept",
			"question 1: not yet", "question 2: not yet", "submit success", "submitted film-7",
		},
		"projection":            {"failed: 1", "success: 3"},
		"quorum":                {"published, copies: 2"},
		"quickstart":            {"hello, Ada", "hello, Grace"},
		"replay":                {"failed: no address of Ada", "on its way to London, attempt 0", "replayed 1 times"},
		"retention":             {"behind by 0s, 0 deleted", "charged 7", "small cat", "thumbnails: kept for 1h0m0s"},
		"retries":               {`to Ada: "taken at attempt 2", failed: false`, `to nobody: "", failed: true`},
		"sequence":              {"ada has 30", "ada has 40", "ada: not enough money", "bob has 30", "waits behind 1"},
		"schedule":              {"hello, Ada", "hello, Ada", "hello, Grace"},
		"saga":                  {"guide to Oslo:", "guide to the moon: hotel undone train undone"},
		"approval":              {"answer: 200", "answer: 200", "done: an article: approved"},
		"thumbnails":            {"no cover (the photo is torn): small fog", "small beach: small sea, small sand, small sun"},
		"tokens":                {"Once upon a time there was a queue.", "ended: attempt_success"},
		"transactional-enqueue": {"order of one anvil: 1 bill"},
		"two-of-three":          {"approved by Ada and Grace"},
		"review-links":          {"ada: 200", "ada: 200", "approved by 2 reviewers", "linus: 200"},
		"unique": {
			"index letter: replaced true", "index letter: replaced true", "indexed Dear Ada, hello", "rebuild toys again: duplicate false",
			"rebuild toys: duplicate true, the same true", "rebuild toys: duplicate true, the same true", "rebuilt toys", "rebuilt toys",
		},
		"webhook": {"events: 1", "paid 30 euros by evt_1", "sending the goods"},
		"why-it-failed": {
			"attempt 0: retry: transient failure: the post office is closed", "attempt 1: failed: permanent failure: no such address",
		},
	}
	terminatedAt := map[string]string{"graceful-worker": "asleep"} // after it has printed this line
	sources, err := filepath.Glob("../../examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) != len(output) {
		t.Errorf("examples/ holds %q, and the test knows %d of them", sources, len(output))
	}
	program := buildExamples(t, slices.Sorted(maps.Keys(output)))
	for name, want := range output {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, name)
			cmd.Env = append(os.Environ(), "DATABASE_URL="+pgtest.CloneURL(t))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for printed := bufio.NewScanner(stdout); printed.Scan(); {
				lines = append(lines, printed.Text())
				if printed.Text() == terminatedAt[name] {
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%q\n%s", err, lines, &stderr)
			}
			if name == "quickstart" && strings.Contains(stderr.String(), "WARN") { // F3: README's first program
				t.Errorf("it warns:\n%s", &stderr)
			}
			slices.Sort(lines)
			if !slices.Equal(lines, want) {
				t.Errorf("it prints %q, want %q", lines, want)
			}
		})
	}
}

// buildExamples builds one program that runs the example that its argument names. Linking each example by itself takes longer
// than all else that this package does. go vet compiles the examples as they are.
func buildExamples(t *testing.T, names []string) (program string) {
	t.Helper()
	files := make(map[string]string)
	var imports, cases strings.Builder
	for i, name := range names {
		path := "examples/" + name + "/main.go"
		files[path] = exampleAsPackage(t, path)
		fmt.Fprintf(&imports, "import e%d %q\n", i, fixture.Module+"/examples/"+name)
		fmt.Fprintf(&cases, "case %q:\ne%d.Main()\n", name, i)
	}
	files["examples/all/main.go"] = fmt.Sprintf("package main\n\nimport \"os\"\n%s\nfunc main() {\nswitch os.Args[1] {\n%sdefault:\npanic(os.Args[1])\n}\n}\n", &imports, &cases)
	return buildWith(t, files, "./examples/all")
}

// exampleAsPackage returns the text of an example whose main function others can call.
func exampleAsPackage(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout.Root(t), filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range [][2]string{{"\npackage main\n", "\npackage example\n"}, {"\nfunc main() {\n", "\nfunc Main() {\n"}} {
		if bytes.Count(text, []byte(of[0])) != 1 {
			t.Fatalf("%s does not have one %q", path, of[0])
		}
		text = bytes.Replace(text, []byte(of[0]), []byte(of[1]), 1)
	}
	return string(text)
}

// buildWith builds a program of this repository. The go command reads the files given instead of those of the repository.
func buildWith(t *testing.T, files map[string]string, target string) (program string) {
	t.Helper()
	root, folder := checkout.Root(t), t.TempDir()
	replaced := make(map[string]string)
	for path, text := range files {
		instead := filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(instead, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(root, filepath.FromSlash(path))] = instead
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(folder, "program")
	checkout.Run(t, root, nil, "go", "build", "-overlay", filepath.Join(folder, "overlay.json"), "-ldflags=-s -w", "-o", program, target)
	return program
}

// TestReadmeProgram keeps the program in the README the one that is built and run.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("../../examples/quickstart/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(readme, slices.Concat([]byte("\n```go\n"), program, []byte("```\n"))) {
		t.Error("README.md does not contain examples/quickstart/main.go")
	}
}
