package cli

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Waits are listed, signalled and resumed.
func testCLISignals(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "wait", "list").succeeds(t, "None waits.")
	suspend := func(asked string) string {
		t.Helper()
		x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send", Tags: map[string]string{"app.tenant": asked}})
		work := mustClaim(t, eng, "mail")
		if _, err := eng.Suspend(t.Context(), engine.SuspendSpec{
			Lease: work.Lease, Condition: engine.Received("approved"), Timeout: time.Hour, Asked: asked,
		}); err != nil {
			t.Fatal(err)
		}
		return x.UUID().String()
	}
	first, second := suspend("one"), suspend("two")
	out := ff.run(t, databaseURL, "wait", "list")
	out.fitsATerminal(t)
	out.succeeds(t, first)
	for args, want := range map[*[]string]int{
		{"--name", "approved"}: 2, {"--name", "other"}: 0, {"--tag", "app.tenant=two"}: 1, {"--limit", "1"}: 1,
	} {
		listed := ff.run(t, databaseURL, append([]string{"wait", "list", "--json"}, *args...)...).object(t)["waits"].([]any)
		if len(listed) != want {
			t.Errorf("%q lists %v, want %d", *args, listed, want)
		}
	}
	ff.run(t, databaseURL, "wait", "list", "--tag", "two").fails(t, 2, "key=value")
	ff.run(t, databaseURL, "wait", "list", "--limit", "0").fails(t, 2, "--limit")
	ff.run(t, databaseURL, "execution", "signal", first, "other").succeeds(t, "Signal other is kept for a later wait.")
	ff.run(t, databaseURL, "execution", "signal", first, "approved", "--payload", "{").fails(t, 2, "not JSON")
	signal := []string{"execution", "signal", first, "approved", "--payload", `{"By": "ada"}`, "--once", "k", "--from", "ada"}
	ff.run(t, databaseURL, signal...).succeeds(t, "received; the execution continues.")
	if again := ff.run(t, databaseURL, append(signal, "--json")...).object(t); again["duplicate"] != true {
		t.Error(again)
	}
	ff.run(t, databaseURL, "execution", "resume", first).fails(t, 1, "not suspended")
	ff.run(t, databaseURL, "execution", "resume", second, "--after", "1h").succeeds(t, "delayed")
}
