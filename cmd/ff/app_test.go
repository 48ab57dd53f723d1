package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/demo"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/state"
)

// start runs a command line without a database.
func start(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(ctx, args, strings.NewReader(""), &out, &errOut, func(string) string { return "" })
	return code, out.String(), errOut.String()
}

func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, _, stderr := start(t, ctx, "migrate", "up", "--database-url", "postgres://127.0.0.1:1/x")
	if code != exitInterrupted || stderr != "ff: interrupted.\n" {
		t.Errorf("run() = %d, %q", code, stderr)
	}
}

func TestRunEveryCommandHasExamples(t *testing.T) {
	t.Parallel()
	for _, command := range (&app{}).command().Commands() {
		for _, leaf := range append(command.Commands(), command) {
			if !leaf.HasSubCommands() && !leaf.Hidden && (leaf.Example == "" || leaf.Short == "") {
				t.Errorf("%s has no example or no description", leaf.CommandPath())
			}
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		err      error
		sentence string
		code     int
	}{
		{
			"usage", &usageError{problem: "no", next: "try"},
			"no: try.", exitUsage,
		},
		{
			"schema", &schema.StateError{Err: fferr.ErrNotMigrated, Database: "app", Schema: "public"},
			"the database is not migrated (database \"app\", schema \"public\"): run `ff migrate up`.", exitDatabase,
		},
		{
			"engine", fmt.Errorf("describe flow: %w: %w", fferr.ErrNotMigrated, errors.New("no such table")),
			"describe flow: the database is not migrated: no such table: run `ff migrate up`.", exitDatabase,
		},
		{
			"not found", &fferr.NotFoundError{Entity: "flow", ID: "x"},
			"flow x not found: check the id, the database URL and --schema; retention may have deleted it.", exitNotFound,
		},
		{
			"several lines", errors.New("one\n\ttwo."),
			"one two.", exitFailed,
		},
		{
			"interrupted", errors.Join(errInterrupted, errors.New("anything")),
			"interrupted.", exitInterrupted,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if sentence, code := inWords(c.err); sentence != c.sentence || code != c.code {
				t.Errorf("inWords() = %q, %d, want %q, %d", sentence, code, c.sentence, c.code)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, databaseURL, text, want string }{
		{"in_a_URL", "postgres://me:hunter2@db/app", "cannot reach postgres://me:hunter2@db/app", "cannot reach postgres://me:xxxxx@db/app"},
		{"alone", "postgres://me:hunter2@db/app", "password=hunter2", "password=xxxxx"},
		{"escaped", "postgres://me:a%20b@db/app", "a b, a+b and a%20b", "xxxxx, xxxxx and xxxxx"},
		{"in_the_query", "postgres://db/app?password=hunter2", "hunter2", "xxxxx"},
		{"no_secret", "postgres://postgres:postgres@db/app", "user postgres of postgres://postgres:postgres@db", "user postgres of postgres://xxxxx@db"},
		{"none", "postgres://db/app", "nothing", "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(c.databaseURL)
			if err != nil {
				t.Fatal(err)
			}
			a := &app{}
			a.keepSecret(u)
			if got := a.redact(c.text); got != c.want {
				t.Errorf("redact(%q) = %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestStepsBack(t *testing.T) {
	t.Parallel()
	held := schema.State{Migrations: []schema.Migration{
		{Version: "1", Applied: true}, {Version: "2", Applied: true}, {Version: "3", Applied: true}, {Version: "4"},
	}}
	for steps, want := range map[int]string{1: "2", 2: "1", 3: "", 4: ""} {
		if got := stepsBack(held, steps); got != want {
			t.Errorf("stepsBack(%d) = %q, want %q", steps, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"größe ok": "größe ok", "a\x1b[2J": `"a\x1b[2J"`, "a\nb": `"a\nb"`} {
		if got := printable(text); got != want {
			t.Errorf("printable(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestLineDisplay(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := (&app{stdout: &out}).newDisplay()
	at := func(elapsed time.Duration, waiting, completed int) {
		d.progress(demo.Progress{Elapsed: elapsed, Total: 10, Members: map[state.PublicState]int{
			state.PublicWaitingChildren: waiting, state.PublicCompleted: completed,
		}})
	}
	at(500*time.Millisecond, 9, 1)
	at(700*time.Millisecond, 8, 2) // too soon
	d.event("Something.")
	at(1600*time.Millisecond, 6, 4)
	at(1700*time.Millisecond, 0, 10) // the end is never too soon
	d.close()
	want := "  0.5 s  1 of 10, 2/s: waiting children 9, completed 1\n" +
		"Something.\n" +
		"  1.6 s  4 of 10, 2/s: waiting children 6, completed 4\n" +
		"  1.7 s  10 of 10, 6/s: completed 10\n"
	if out.String() != want {
		t.Errorf("it writes\n%swant\n%s", &out, want)
	}
}
