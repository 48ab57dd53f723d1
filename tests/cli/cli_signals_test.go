package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// Links are reissued, and shown by no other command.
func testCLIWaitpoints(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"}).UUID().String()
	ff.run(t, databaseURL, "waitpoint", "list", x).succeeds(t, "No waitpoint is open.")
	ff.run(t, databaseURL, "key", "seed", "k1").succeeds(t, "Key k1 signs from now on.")
	w, err := eng.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: mustClaim(t, eng, "mail").Lease, Key: "decision", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ff.run(t, databaseURL, "key", "rotate", "k2", "--grace", "0s").succeeds(t, "1 of the first 10000 open waitpoints have links of it")
	ff.run(t, databaseURL, "waitpoint", "reissue", x).fails(t, 2, "takes an execution and a waitpoint")
	ff.run(t, databaseURL, "waitpoint", "reissue", x, "decision").fails(t, 2, "ff waitpoint list")
	ff.run(t, databaseURL, "waitpoint", "reissue", x, x).fails(t, cliNotFound, "not found")
	link := ff.run(t, databaseURL, "waitpoint", "reissue", x, w.ID.String(), "--url", "https://example.com/w/")
	link.succeeds(t, "https://example.com/w/")
	_, token, _ := strings.Cut(strings.TrimSpace(link.stdout), "?token=k2%3A")
	if len(token) != 64 {
		t.Fatalf("the link is %q", link.stdout)
	}
	again := ff.run(t, databaseURL, "waitpoint", "reissue", x, w.ID.String(), "--json").object(t)["link"].(string)
	if !strings.HasSuffix(again, token) {
		t.Error(again)
	}
	out := ff.run(t, databaseURL, "waitpoint", "list", x)
	out.fitsATerminal(t)
	out.succeeds(t, "decision")
	for _, args := range [][]string{{"waitpoint", "list", x}, {"waitpoint", "list", x, "--json"}, {"execution", "show", x, "--json"}} {
		ff.run(t, databaseURL, args...).lacks(t, token)
	}
}

// Waits are listed, signalled and resumed.
func testCLISignals(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "wait", "list").succeeds(t, "None waits.")
	suspend := func(asked string) string {
		t.Helper()
		x := mustCreate(t, eng, engine.ExecutionSpec{
			Lane: "mail", Kind: "send", Tags: map[string]string{"app.tenant": asked}, BusinessKey: id.BusinessKey{Name: "order", Value: asked},
		})
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
	out.succeeds(t, `"approved"`)
	out.succeeds(t, "59m") // left
	for args, want := range map[*[]string]int{
		{"--name", "approved"}: 2, {"--name", "other"}: 0, {"--tag", "app.tenant=two"}: 1, {"--limit", "1"}: 1,
		{"--older-than", "1h"}: 0,
	} {
		listed := ff.run(t, databaseURL, append([]string{"wait", "list", "--json"}, *args...)...).object(t)["waits"].([]any)
		if len(listed) != want {
			t.Errorf("%q lists %v, want %d", *args, listed, want)
		}
	}
	listed := ff.run(t, databaseURL, "wait", "list", "--json").object(t)["waits"].([]any)[0].(map[string]any)
	shown := ff.run(t, databaseURL, "execution", "show", first, "--json").object(t)["wait"].(map[string]any)
	for key, want := range map[string]any{
		"condition": `"approved"`, "received": 0.0, "asked": "one", "on_timeout": "auto_resume_with_timeout_signal", "reason": "waiting_for_signal",
	} {
		if listed[key] != want || shown[key] != want {
			t.Errorf("%s: listed %v, shown %v, want %v", key, listed[key], shown[key], want)
		}
	}
	for _, key := range []string{"suspension", "since", "until"} {
		if shown[key] == "" || shown[key] != listed[key] {
			t.Errorf("%s: listed %v, shown %v", key, listed[key], shown[key])
		}
	}
	text := ff.run(t, databaseURL, "execution", "show", first)
	for _, want := range []string{`condition      "approved"`, "asked          one", "signals        0 received", ", then it continues"} {
		text.succeeds(t, want)
	}
	ff.run(t, databaseURL, "wait", "list", "--older-than", "-1h").fails(t, 2, "--older-than")
	ff.run(t, databaseURL, "wait", "list", "--tag", "two").fails(t, 2, "key=value")
	ff.run(t, databaseURL, "wait", "list", "--limit", "0").fails(t, 2, "--limit")
	ff.run(t, databaseURL, "execution", "signal", first, "other").succeeds(t, "Signal other is kept for a later wait.")
	ff.run(t, databaseURL, "execution", "signal", first, "approved", "--payload", "{").fails(t, 2, "not JSON")
	signal := []string{"execution", "signal", first, "approved", "--payload", `{"By": "ada"}`, "--once", "k", "--from", "ada"}
	ff.run(t, databaseURL, signal...).succeeds(t, "received; the execution continues.")
	if again := ff.run(t, databaseURL, append(signal, "--json")...).object(t); again["duplicate"] != true {
		t.Error(again)
	}
	ff.run(t, databaseURL, "execution", "find", "order", "one").succeeds(t, "order=one")
	if found := ff.run(t, databaseURL, "execution", "find", "order", "one", "--json").object(t); !strings.HasSuffix(found["id"].(string), first) {
		t.Error(found)
	}
	ff.run(t, databaseURL, "execution", "find", "order", "none").fails(t, 3, "order=none")
	ff.run(t, databaseURL, "execution", "find", "order").fails(t, 2, "business key")
	ff.run(t, databaseURL, "execution", "find", "order", "").fails(t, 2, "business key value")
	ff.run(t, databaseURL, "execution", "resume", first).fails(t, 1, "not suspended")
	ff.run(t, databaseURL, "execution", "resume", second, "--after", "1h").succeeds(t, "delayed")
}
