package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// The commands on many executions change those that match, after a confirmation, and report the others.
func testCLIWhere(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	run := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"execution"}, args...)...)
	}
	var mail []id.ExecutionID
	for range 3 {
		mail = append(mail, mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"}))
	}
	other := mustCreate(t, eng, engine.ExecutionSpec{Lane: "other", Kind: "send", Tags: map[string]string{"app.order": "4=2"}})

	for _, args := range [][]string{
		{"cancel"},
		{"cancel", mail[0].String(), "--where", "lane=mail"},
		{"delete"},
		{"delete", mail[0].String(), "--where", "lane=mail"},
		{"priority", "5"},
		{"priority", mail[0].String(), "5", "--where", "lane=mail"},
		{"retry", mail[0].String(), "--where", "lane=mail"},
		{"retry", "--state", "failed", "--where", "lane=mail"},
		{"cancel", "--where", "owner=me", "--yes"},
		{"cancel", "--where", "lane", "--yes"},
		{"cancel", "--where", "lane=mail", "--where", "lane=other", "--yes"},
		{"cancel", "--where", "state=asleep", "--yes"},
		{"cancel", "--where", "kind=" + strings.Repeat("x", 300), "--yes"},
		{"retry", "--where", "state=completed", "--yes"},
	} {
		run(args...).fails(t, cliUsage, "where")
	}
	run("cancel", "--where", "lane=mail", "--after", "nowhere", "--yes").fails(t, cliUsage, "--after")
	run("cancel", "--where", "lane=mail", "--batch", "-1", "--yes").fails(t, cliUsage, "--batch")
	run("retry", "--from", "charge", "--where", "lane=mail").fails(t, cliUsage, "--from")
	run("move", "--where", "lane=mail", "--yes").fails(t, cliUsage, "--to")
	run("priority", "--where", "lane=mail", "high", "--yes").fails(t, cliUsage, "from 0 to")
	run("cancel", "--where", "lane=mail").fails(t, cliUsage, "pass --yes")
	run("cancel", "--where", "lane=mail", "--dry-run").succeeds(t, "3 executions matched.")
	for _, x := range append(mail, other) {
		wantPublic(t, eng, x, state.PublicWaiting)
	}

	run("priority", "--where", "lane=mail", "--where", "state=waiting", "100", "--yes").succeeds(t, "3 executions matched: 3 changed, 0 refused, 0 busy.")
	if s, err := eng.DescribeExecution(t.Context(), mail[1]); err != nil || s.Priority != 100 {
		t.Errorf("priority %+v, %v", s, err)
	}
	run("move", "--where", "tag=app.order=4=2", "--to", "mail", "--yes").succeeds(t, "1 execution matched: 1 changed, 0 refused, 0 busy.")
	elsewhere := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send", Namespace: "trial"})
	run("list", "--namespace", "trial", "--json").succeeds(t, `"id": "`+elsewhere.String())
	run("delete", "--where", "namespace=trial", "--dry-run").succeeds(t, "1 execution matched.")
	run("cancel", "--where", "namespace=trial", "--yes").succeeds(t, "1 execution matched: 1 changed")
	run("delete", "--where", "namespace=trial", "--yes").succeeds(t, "1 execution matched: 1 changed")
	failed := mustFail(t, eng, "mail")
	out := run("cancel", "--where", "lane=mail", "--reason", "sent twice", "--batch", "2", "--yes", "--json")
	if out.code != 1 || !strings.Contains(out.stderr, "1 of 4 executions were refused") || !strings.Contains(out.stdout, `"changed": 3`) {
		t.Errorf("cancelled: %+v", out)
	}
	if strings.Count(out.stderr, "4 executions matched: 3 changed, 1 refused, 0 busy.") != 1 {
		t.Errorf("progress: %q", out.stderr)
	}
	if s, err := eng.DescribeExecution(t.Context(), other); err != nil || s.State.Public != state.PublicCancelled || s.CancellationReason != "sent twice" {
		t.Errorf("cancelled: %+v, %v", s, err)
	}
	object := run("retry", "--where", "state=failed", "--where", "since=1h", "--yes", "--json").object(t)
	wantKeys(t, object, "matched", "changed", "refused", "busy", "dry_run")
	if object["changed"] != 1.0 || object["dry_run"] != false {
		t.Errorf("retried: %v", object)
	}
	wantPublic(t, eng, failed, state.PublicWaiting)
	run("delete", "--where", "kind=send", "--where", "state=cancelled", "--yes").succeeds(t, "3 executions matched: 3 changed")
	run("show", other.String()).fails(t, cliNotFound, "not found")
}

// On a terminal the commands on many executions ask first, with the number of matches, and show a progress bar.
func testCLIWhereAsks(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"})
	for _, c := range []struct {
		answer string
		code   int
		says   string
		want   state.PublicState
	}{
		{"\n", 1, "nothing was changed", state.PublicWaiting},
		{"n\n", 1, "nothing was changed", state.PublicWaiting},
		{"y\n", cliDone, "1 execution matched: 1 changed", state.PublicCancelled},
	} {
		cmd := ff.command(t.Context(), databaseURL, "execution", "cancel", "--where", "lane=mail")
		terminal, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := terminal.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		var shown bytes.Buffer
		_, _ = shown.ReadFrom(terminal) // ends with an error on Linux
		_ = cmd.Wait()
		_ = terminal.Close()
		for _, want := range []string{"Cancel 1 execution? [y/N]", c.says} {
			if !strings.Contains(shown.String(), want) {
				t.Errorf("after %q it shows %q, not %q", c.answer, shown.String(), want)
			}
		}
		if code := cmd.ProcessState.ExitCode(); code != c.code {
			t.Errorf("after %q: exit code %d, want %d", c.answer, code, c.code)
		}
		wantPublic(t, eng, x, c.want)
	}
}
