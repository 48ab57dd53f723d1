package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// fitsATerminal fails the test where a line is longer than 80 columns.
func (o cliOutput) fitsATerminal(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(o.stdout) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
}

// cliEngine is an engine on a database of its own, by the database's clock.
func cliEngine(t *testing.T) (*engine.Engine, string) {
	t.Helper()
	databaseURL := pgtest.CloneURL(t)
	eng, err := engine.New(fixture.OpenPool(t, databaseURL, nil), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return eng, databaseURL
}

func mustCreate(t *testing.T, eng *engine.Engine, spec engine.ExecutionSpec) id.ExecutionID {
	t.Helper()
	created, err := eng.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return created.ID
}

func mustClaim(t *testing.T, eng *engine.Engine, lane id.LaneID) engine.Claimed {
	t.Helper()
	claimed, err := eng.Claim(t.Context(), engine.ClaimSpec{
		Lane: lane, Worker: "mailer", Instance: "mailer-7f9c-with-a-long-name", LeaseTTL: time.Minute,
	}, 1)
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	return claimed[0]
}

func testCLILists(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	ff.run(t, databaseURL, "execution", "list").succeeds(t, "None found.")
	ff.run(t, databaseURL, "lane", "list").succeeds(t, "There are no lanes.")
	const long = id.LaneID("a lane with a name that is rather long for a terminal")
	first := mustCreate(t, eng, engine.ExecutionSpec{Lane: long, Kind: "a kind as long as the name of its lane is", Tags: map[string]string{"order": "4=2"}})
	second := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send", DelayUntil: time.Now().Add(time.Hour)})
	third := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"})

	ids := func(want []id.ExecutionID, args ...string) {
		t.Helper()
		out := ff.run(t, databaseURL, append([]string{"execution", "list"}, args...)...)
		out.fitsATerminal(t)
		place := 0
		for _, x := range want {
			at := strings.Index(out.stdout[place:], x.UUID().String())
			if at < 0 {
				t.Errorf("ff execution list %q does not list %v in this order, but\n%s%s", args, want, out.stdout, out.stderr)
				return
			}
			place += at
		}
		if n := strings.Count(out.stdout, "-7"); len(want) == 0 && n > 0 {
			t.Errorf("ff execution list %q lists\n%s", args, out.stdout)
		}
		listed := ff.run(t, databaseURL, append([]string{"execution", "list", "--json"}, args...)...).object(t)["executions"].([]any)
		if len(listed) != len(want) {
			t.Errorf("ff execution list %q lists %d, want %d", args, len(listed), len(want))
		}
	}
	ids([]id.ExecutionID{third, second, first})
	ids([]id.ExecutionID{first, second, third}, "--order", "oldest")
	ids([]id.ExecutionID{third, second}, "--lane", "mail", "--since", "1h")
	ids(nil, "--lane", "mail", "--until", "2020-01-01T00:00:00Z")
	ids([]id.ExecutionID{second}, "--state", "delayed")
	ids([]id.ExecutionID{first}, "--tag", "order=4=2")
	ids([]id.ExecutionID{third}, "--lane", "mail", "--order", "claim")
	ids(nil, "--worker", "mailer")
	claimed := mustClaim(t, eng, "mail")
	ids([]id.ExecutionID{claimed.ID}, "--worker", "mailer")
	ids([]id.ExecutionID{claimed.ID}, "--instance", "mailer-7f9c-with-a-long-name", "--state", "active")
	ids(nil, "--order", "ended")
	ff.run(t, databaseURL, "execution", "list", "--order", "ended", "--state", "active").fails(t, cliUsage, "state")
	ff.run(t, databaseURL, "execution", "list", "--wide").succeeds(t, first.String())

	page := ff.run(t, databaseURL, "execution", "list", "--limit", "2", "--json").object(t)
	wantKeys(t, page["executions"].([]any)[0].(map[string]any), "id", "flow", "lane", "kind", "state", "outcome", "leases_lost", "created_at")
	next := page["next"].(string)
	ids([]id.ExecutionID{first}, "--after", next)
	ff.run(t, databaseURL, "execution", "list", "--limit", "2").succeeds(t, "--after "+next)
	ff.run(t, databaseURL, "execution", "list", "--after", next, "--kind", "send").fails(t, cliUsage, "after")
	ff.run(t, databaseURL, "execution", "list", "--order", "claim").fails(t, cliUsage, "lane")

	if err := operator.PauseLane(t.Context(), eng, long, operator.LanePause{Reason: "a whim"}); err != nil {
		t.Fatal(err)
	}
	out := ff.run(t, databaseURL, "lane", "list")
	out.fitsATerminal(t)
	out.succeeds(t, "… is paused: a whim\n")
	ff.run(t, databaseURL, "lane", "list", "--wide").succeeds(t, fmt.Sprintf("%s is paused: a whim\n%[1]s: No registered worker claims from lane %[1]s.\n", long))
	lanes := ff.run(t, databaseURL, "lane", "list", "--json").object(t)["lanes"].([]any)
	lane := lanes[0].(map[string]any)
	wantKeys(t, lane, "id", "paused", "paused_since", "pause_reason", "waiting", "waiting_since", "delayed", "blocked", "active", "limited", "suspended", "dependent", "ended_per_minute", "causes")
	if len(lanes) != 2 || lane["id"] != string(long) || lane["paused"] != true || lane["waiting"].(map[string]any)["n"] != 1.0 {
		t.Errorf("lanes %v", lanes)
	}
}

func testCLIAttempts(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	x := mustCreate(t, eng, engine.ExecutionSpec{
		Lane: "mail", Kind: "send", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: 40, Backoff: policy.Fixed(0)}},
	})
	show := func() cliOutput {
		t.Helper()
		out := ff.run(t, databaseURL, "execution", "show", x.UUID().String())
		out.succeeds(t, x.String())
		out.fitsATerminal(t)
		return out
	}
	show().lacks(t, "ATTEMPT")
	c := mustClaim(t, eng, "mail")
	if err := eng.ReportProgress(t.Context(), c.Lease, engine.Progress{Percent: new(40), Message: new("at M")}); err != nil {
		t.Fatal(err)
	}
	out := show()
	out.succeeds(t, "running")
	out.succeeds(t, "40 %, at M")
	if _, err := eng.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "no route", Category: "network"}); err != nil {
		t.Fatal(err)
	}
	show().succeeds(t, "transient network: no route")
	for range 21 {
		c = mustClaim(t, eng, "mail")
		if _, err := eng.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "again"}); err != nil {
			t.Fatal(err)
		}
	}
	out = show()
	out.succeeds(t, "2 earlier attempts")
	out.succeeds(t, "transient: again")
	out.lacks(t, "no route")
	c = mustClaim(t, eng, "mail")
	if _, err := eng.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "a bad\x1b[2J address", Class: policy.Permanent}); err != nil {
		t.Fatal(err)
	}
	out = show()
	out.succeeds(t, "permanent: ")
	out.lacks(t, "\x1b")
	object := ff.run(t, databaseURL, "execution", "show", x.String(), "--json").object(t)
	list := object["attempt_list"].([]any)
	if len(list) != 23 {
		t.Fatalf("%d attempts", len(list))
	}
	wantKeys(t, list[0].(map[string]any), "index", "id", "type", "current", "worker", "worker_instance", "epoch", "started_at", "ended_at",
		"next_at", "outcome", "failure", "lease")
	if f := list[0].(map[string]any)["failure"].(map[string]any); f["message"] != "no route" || f["class"] != "transient" || f["category"] != "network" {
		t.Errorf("failure %v", f)
	}
}

func testCLIOperator(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"})
	uuid := x.UUID().String()
	public := func(want state.PublicState) {
		t.Helper()
		if got, err := eng.ExecutionState(t.Context(), x); got != want || err != nil {
			t.Errorf("it is %s, %v; want %s", got, err, want)
		}
	}
	execution := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"execution"}, args...)...)
	}
	execution("delay", uuid, "--for", "1h").succeeds(t, "is delayed until")
	public(state.PublicDelayed)
	object := execution("delay", x.String(), "--until", "2999-01-02T03:04:05Z", "--json").object(t)
	if object["state"] != "delayed" || object["delay_until"] != "2999-01-02T03:04:05.000Z" || object["id"] != x.String() {
		t.Errorf("delayed: %v", object)
	}
	execution("retry", uuid).succeeds(t, "is waiting")
	public(state.PublicWaiting)

	lane := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"lane"}, args...)...)
	}
	lane("pause", "mail", "--reason", "the relay is down").succeeds(t, "Lane mail is paused.")
	claimed, err := eng.Claim(t.Context(), engine.ClaimSpec{Lane: "mail", Worker: "w", Instance: "w", LeaseTTL: time.Minute}, 1)
	if err != nil || len(claimed) != 0 {
		t.Errorf("claimed %v, %v from a paused lane", claimed, err)
	}
	if object := lane("pause", "mail", "--json").object(t); object["id"] != "mail" || object["paused"] != true {
		t.Errorf("paused: %v", object)
	}
	// Waiters for the lane are notified of its end, although the program ends at once.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	received := make(chan struct{}, 100)
	listening := make(chan struct{}, 100)
	go eng.Listen(ctx, func(lane id.LaneID) {
		if lane == "" {
			listening <- struct{}{}
		} else {
			received <- struct{}{}
		}
	})
	<-listening
	if object := lane("resume", "mail", "--json").object(t); object["paused"] != false {
		t.Errorf("resumed: %v", object)
	}
	<-received
	lane("pause", "größe").fails(t, cliUsage, "lane")
	// A lane of a mistaken name is not paused, resumed or kept for another span.
	for _, args := range [][]string{{"pause", "nosuchlane"}, {"resume", "nosuchlane"}, {"show", "nosuchlane"}, {"retention", "nosuchlane", "--keep", "1h"}} {
		lane(args...).fails(t, cliNotFound, "lane nosuchlane not found")
	}
	lane("pause", "nosuchlane").fails(t, cliNotFound, "--create")
	// A pause with an end.
	lane("pause", "mail", "--until", "2999-01-02T03:04:05Z").succeeds(t, "Lane mail is paused until 2999-01-02T03:04:05.000Z.")
	lane("show", "mail").succeeds(t, "until    2999-01-02T03:04:05.000Z")
	listed := lane("list")
	listed.fitsATerminal(t)
	listed.succeeds(t, "mail is paused until 2999-01-02T03:04:05.000Z\n")
	if object := lane("show", "mail", "--json").object(t); object["paused_until"] != "2999-01-02T03:04:05.000Z" {
		t.Errorf("shown: %v", object)
	}
	if object := lane("pause", "mail", "--for", "1h", "--json").object(t); object["paused"] != true || object["until"] == nil {
		t.Errorf("paused: %v", object)
	}
	lane("pause", "mail", "--for", "1h", "--until", "2999-01-02T03:04:05Z").fails(t, cliUsage, "either --for or --until")
	lane("pause", "mail", "--until", "tomorrow").fails(t, cliUsage, "--until")
	lane("pause", "mail", "--until", "2020-01-02T03:04:05Z").fails(t, cliUsage, "--until")
	lane("resume", "mail").succeeds(t, "Lane mail is resumed.")
	lane("pause", "nextlane", "--create").succeeds(t, "Lane nextlane is paused.")
	lane("resume", "nextlane").succeeds(t, "Lane nextlane is resumed.")

	c := mustClaim(t, eng, "mail")
	execution("delay", uuid, "--for", "1h").fails(t, 1, "not eligible")
	execution("retry", uuid).fails(t, 1, "not eligible")
	execution("cancel", uuid, "--reason", "sent twice").succeeds(t, "is cancelled")
	public(state.PublicCancelled)
	if err := eng.CompleteExecution(t.Context(), c.Lease, nil); err == nil {
		t.Error("its holder completed it")
	}
	execution("show", uuid).succeeds(t, "sent twice")
	if object := execution("cancel", uuid, "--json").object(t); object["state"] != "cancelled" {
		t.Errorf("cancelled again: %v", object)
	}
	execution("retry", uuid).succeeds(t, "is waiting")
	c = mustClaim(t, eng, "mail")
	if err := eng.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	execution("cancel", uuid).fails(t, 1, "success")
	// A completed execution is not run again by mistake.
	execution("retry", uuid).fails(t, 1, "--completed")
	public(state.PublicCompleted)
	execution("retry", uuid, "--completed").succeeds(t, "is waiting")
	missing := id.NewExecutionUUID().String()
	for _, args := range [][]string{{"show", missing}, {"cancel", missing}, {"retry", missing}, {"delay", missing, "--for", "1m"}} {
		execution(args...).fails(t, cliNotFound, "not found")
	}
}
