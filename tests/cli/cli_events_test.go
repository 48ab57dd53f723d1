package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
)

func testCLIEvents(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "consumer", "list").succeeds(t, "There are no consumers.")
	ff.run(t, databaseURL, "event", "tail", "completions", "--after", "beginning", "--once").succeeds(t, "")
	ff.run(t, databaseURL, "event", "tail", "completion").fails(t, 2, `there are no events "completion"`)
	ff.run(t, databaseURL, "event", "tail", "leases", "--after", "12").fails(t, 2, `--after "12" is not a cursor`)
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send", Tags: map[string]string{"app.tenant": "7"}})
	if err := eng.CompleteExecution(t.Context(), mustClaim(t, eng, "mail").Lease, nil); err != nil {
		t.Fatal(err)
	}

	out := ff.run(t, databaseURL, "event", "tail", "completions", "--after", "beginning", "--once")
	out.succeeds(t, x.UUID().String())
	out.fitsATerminal(t)
	out = ff.run(t, databaseURL, "event", "tail", "completions", "--after", "beginning", "--once", "--long")
	out.succeeds(t, "send, lane mail, app.tenant=7")
	out.fitsATerminal(t)
	out = ff.run(t, databaseURL, "event", "tail", "leases", "--after", "beginning", "--once", "--json")
	out.succeeds(t, "")
	var leases []map[string]any
	for line := range strings.Lines(out.stdout) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		leases = append(leases, event)
	}
	if len(leases) != 2 || leases[0]["type"] != "acquired" || leases[0]["execution"] != x.String() || leases[1]["type"] != "revoked" {
		t.Fatalf("printed %v", leases)
	}
	if leases[0]["kind"] != "send" || leases[0]["lane"] != "mail" || leases[0]["node"] != nil || fmt.Sprint(leases[0]["tags"]) != "map[app.tenant:7]" {
		t.Errorf("printed %v, want the kind, lane and tags of the execution", leases[0])
	}
	after, _ := leases[0]["cursor"].(string)
	if out := ff.run(t, databaseURL, "event", "tail", "leases", "--after", after, "--once"); strings.Count(out.stdout, "\n") != 1 {
		t.Errorf("behind %s it printed\n%s%s", after, out.stdout, out.stderr)
	}

	ctx, stop := context.WithCancel(t.Context())
	err := events.HandleWith(ctx, eng, events.Consumer{Name: "billing", From: events.Beginning}, events.Completions(events.Filter{}),
		func(context.Context, pgx.Tx, events.Completion) error { stop(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	out = ff.run(t, databaseURL, "consumer", "list")
	out.succeeds(t, "billing")
	out.fitsATerminal(t)
	ff.run(t, databaseURL, "consumer", "list", "--json").succeeds(t, `"lag": 0`)
	ff.run(t, databaseURL, "consumer", "move", "completion", "billing", "--to", "oldest").succeeds(t, "continues after")
	ff.run(t, databaseURL, "consumer", "list", "--json").succeeds(t, `"lag": 1`)
	ff.run(t, databaseURL, "consumer", "set-aside", "completion", "billing").succeeds(t, "None found.")
	ff.run(t, databaseURL, "consumer", "remove", "completion", "billing").succeeds(t, "is deleted")
	ff.run(t, databaseURL, "consumer", "remove", "completion", "billing").fails(t, 3, "billing")

	ff.run(t, databaseURL, "event", "keep", "lost").fails(t, 2, "leases=lost")
	ff.run(t, databaseURL, "event", "keep", "leases=some").fails(t, 2, `"leases=some" is not`)
	ff.run(t, databaseURL, "event", "keep", "leases=lost").succeeds(t, "Lease events kept from now on: lost.")
	ff.run(t, databaseURL, "retention", "show", "--json").succeeds(t, `"kept": "lost"`)
	ff.run(t, databaseURL, "event", "tail", "leases", "--after", after).fails(t, 1, "ff event keep leases=all")
	ff.run(t, databaseURL, "event", "tail", "lost-leases", "--once").succeeds(t, "")
	ff.run(t, databaseURL, "event", "keep", "leases=all").succeeds(t, "all.")
	if _, err := eng.Pool().Exec(t.Context(), "DELETE FROM ff_lease_event"); err != nil {
		t.Fatal(err)
	}
	ff.run(t, databaseURL, "event", "tail", "leases", "--after", after).fails(t, 1, "the remaining events start with --after")
}
