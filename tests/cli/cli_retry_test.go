package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// mustFail claims the next execution of a lane and fails it for good.
func mustFail(t *testing.T, eng *engine.Engine, lane id.LaneID) id.ExecutionID {
	t.Helper()
	c := mustClaim(t, eng, lane)
	if _, err := eng.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "no", Class: policy.Permanent}); err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func wantPublic(t *testing.T, eng *engine.Engine, x id.ExecutionID, want state.PublicState) {
	t.Helper()
	if got, err := eng.ExecutionState(t.Context(), x); got != want || err != nil {
		t.Errorf("%s is %s, %v; want %s", x, got, err, want)
	}
}

// A filter retries many executions. Refused ones are reported, and do not keep the others from being retried.
func testCLIRetryMany(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	retry := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"execution", "retry"}, args...)...)
	}
	for _, lane := range []id.LaneID{"mail", "mail", "mail", "other", "done"} {
		mustCreate(t, eng, engine.ExecutionSpec{Lane: lane, Kind: "send"})
	}
	first, second, worn := mustFail(t, eng, "mail"), mustFail(t, eng, "mail"), mustFail(t, eng, "mail")
	other := mustFail(t, eng, "other")
	failed := ff.run(t, databaseURL, "execution", "list", "--lane", "other", "--json").object(t)["executions"].([]any)[0].(map[string]any)
	if failed["failure"] != "no" {
		t.Errorf("listed %v without its failure", failed)
	}
	done := mustClaim(t, eng, "done")
	if err := eng.CompleteExecution(t.Context(), done.Lease, nil); err != nil {
		t.Fatal(err)
	}
	execSQL(t, databaseURL, `UPDATE ff_exec_core SET raw_fields = raw_fields || '{"replay_count": "10", "ffx_replay_count": "10"}'
		WHERE execution_id = '`+worn.UUID().String()+`'`)

	retry().fails(t, cliUsage, "--state")
	retry(first.String(), "--lane", "mail").fails(t, cliUsage, "--lane")
	retry("--state", "active").fails(t, cliUsage, "--state")
	retry("--state", "completed").fails(t, cliUsage, "--completed")
	retry("--state", "asleep").fails(t, cliUsage, "--state")
	retry("--state", "expired").succeeds(t, "None found.")

	retry("--state", "failed", "--lane", "mail", "--dry-run").succeeds(t, first.UUID().String()+" would run again")
	wantPublic(t, eng, first, state.PublicFailed)
	out := retry("--state", "failed", "--lane", "mail", "--limit", "1")
	out.succeeds(t, first.UUID().String()+" runs again")
	wantPublic(t, eng, second, state.PublicFailed)
	out = retry("--state", "failed", "--lane", "mail")
	if out.code != 1 || !strings.Contains(out.stdout, second.UUID().String()+" runs again") ||
		!strings.Contains(out.stdout, worn.UUID().String()+" is refused") || !strings.Contains(out.stderr, "1 of 2") {
		t.Errorf("retried: %+v", out)
	}
	wantPublic(t, eng, first, state.PublicWaiting)
	wantPublic(t, eng, second, state.PublicWaiting)
	wantPublic(t, eng, other, state.PublicFailed)
	object := retry("--state", "failed", "--kind", "send", "--lane", "other", "--json").object(t)
	if list := object["retried"].([]any); len(list) != 1 || list[0] != other.String() || len(object["refused"].([]any)) != 0 {
		t.Errorf("retried: %v", object)
	}
	retry("--state", "completed", "--completed").succeeds(t, done.ID.UUID().String()+" runs again")
}

// A flow is retried from its failed members down, and completed ones stay.
func testCLIFlowRetry(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	flow := mustDraw(t, eng, "a", fixture.Chart(nil, "fetch>parse", "parse>load", "load>report", "fetch>note"))
	retry := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, append([]string{"flow", "retry", flow.String()}, args...)...)
	}
	member := func(key string, want state.PublicState) {
		t.Helper()
		wantPublic(t, eng, eng.NodeID(flow, key), want)
	}
	mustComplete(t, eng, "a")
	retry().succeeds(t, "None found.")
	var failed id.ExecutionID
	for failed != eng.NodeID(flow, "parse") {
		c := mustClaim(t, eng, "a")
		if failed = c.ID; failed != eng.NodeID(flow, "parse") {
			if err := eng.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := eng.FailExecution(t.Context(), c.Lease, engine.Failure{Class: policy.Permanent}); err != nil {
			t.Fatal(err)
		}
	}
	member("report", state.PublicSkipped)
	// It has one state, whichever command shows it.
	if _, err := upkeep.Of(eng).SummariseFlows(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	summed := ff.run(t, databaseURL, "flow", "list", "--json").object(t)["flows"].([]any)[0].(map[string]any)["state"]
	if shown := ff.run(t, databaseURL, "flow", "show", flow.String(), "--json").object(t)["state"]; shown != summed {
		t.Errorf("it is shown as %v and listed as %v", shown, summed)
	}
	retry("--dry-run").succeeds(t, "(load) would run again")
	member("load", state.PublicSkipped)
	out := retry()
	out.succeeds(t, "(report) runs again")
	out.lacks(t, "(fetch)")
	member("fetch", state.PublicCompleted)
	member("parse", state.PublicWaiting)
	member("load", state.PublicWaitingChildren)
	member("report", state.PublicWaitingChildren)

	if err := eng.CancelExecution(t.Context(), engine.CancelSpec{ID: eng.NodeID(flow, "parse")}); err != nil {
		t.Fatal(err)
	}
	retry().succeeds(t, "None found.")
	object := retry("--cancelled", "--json").object(t)
	if list := object["retried"].([]any); len(list) != 3 || list[0] != eng.NodeID(flow, "parse").String() {
		t.Errorf("retried: %v", object)
	}
	if _, err := eng.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
		t.Fatal(err)
	}
	retry("--cancelled").fails(t, 1, "flow has ended")
	ff.run(t, databaseURL, "flow", "retry", id.NewFlowID().String()).fails(t, cliNotFound, "not found")
}

// The commands of an operator that act on one execution, a lane or a worker.
func testCLIOperatorCalls(t *testing.T, ff cli) {
	eng, databaseURL := cliEngine(t)
	x := mustCreate(t, eng, engine.ExecutionSpec{Lane: "mail", Kind: "send"})
	uuid := x.UUID().String()
	run := func(args ...string) cliOutput {
		t.Helper()
		return ff.run(t, databaseURL, args...)
	}
	run("execution", "priority", uuid, "100").succeeds(t, "is waiting")
	if s, err := eng.DescribeExecution(t.Context(), x); err != nil || s.Priority != 100 {
		t.Errorf("priority %v, %v", s, err)
	}
	run("execution", "priority", uuid, "high").fails(t, cliUsage, "from 0 to")
	run("execution", "unblock", uuid).fails(t, 1, "not eligible")
	run("execution", "block", uuid, "--reason", strings.Repeat("x", 1025)).fails(t, cliUsage, "blocking detail")
	run("execution", "block", uuid, "--reason", "no price list").succeeds(t, "is waiting, blocked by an operator")
	if blocked, err := eng.Claim(t.Context(), engine.ClaimSpec{Lane: "mail", Worker: "mailer", Instance: "mailer-1", LeaseTTL: time.Minute}, 1); err != nil || len(blocked) != 0 {
		t.Errorf("a blocked execution was claimed: %v, %v", blocked, err)
	}
	run("execution", "show", uuid).succeeds(t, "no price list")
	run("execution", "unblock", uuid).succeeds(t, "is waiting")

	run("execution", "revoke", uuid).fails(t, 1, "it has no active lease")
	c := mustClaim(t, eng, "mail")
	run("execution", "block", uuid).fails(t, 1, "it was not blocked: it runs")
	run("execution", "revoke", uuid, "--instance", "another").fails(t, 1, "another instance holds it")
	run("execution", "revoke", uuid, "--lease", "00000000-0000-4000-8000-000000000000").fails(t, 1, "it has another lease")
	run("execution", "revoke", uuid, "--instance", string(c.Lease.Instance), "--reason", "it hangs").succeeds(t, "is waiting")
	if err := eng.CompleteExecution(t.Context(), c.Lease, nil); err == nil {
		t.Error("the former holder completed it")
	}

	run("worker", "list").succeeds(t, "There are no workers.")
	run("worker", "drain", string(c.Lease.Instance)).succeeds(t, "is drained")
	if claimed, err := eng.Claim(t.Context(), engine.ClaimSpec{Lane: "mail", Worker: "mailer", Instance: c.Lease.Instance, LeaseTTL: time.Minute}, 1); err != nil || len(claimed) != 0 {
		t.Errorf("a drained worker claimed %v, %v", claimed, err)
	}
	run("worker", "list").succeeds(t, string(c.Lease.Instance))
	run("worker", "resume", string(c.Lease.Instance), "--json").succeeds(t, `"drained": false`)
	if drained := run("worker", "list", "--json").object(t)["drained"].([]any); len(drained) != 0 {
		t.Errorf("drained: %v", drained)
	}

	run("lane", "show", "mail").succeeds(t, "default")
	run("lane", "retention", "mail").fails(t, cliUsage, "--keep")
	run("lane", "retention", "mail", "--keep", "1s").fails(t, cliUsage, "--keep")
	run("lane", "retention", "mail", "--keep", "72h").succeeds(t, "72h0m0s")
	run("lane", "retention", "quiet", "--keep", "forever", "--create", "--json").succeeds(t, `"keep": "forever"`)
	object := run("lane", "show", "mail", "--json").object(t)
	if object["keep"] != "72h0m0s" || object["id"] != "mail" || object["paused"] != false {
		t.Errorf("lane: %v", object)
	}
	out := run("retention", "show")
	out.fitsATerminal(t)
	out.succeeds(t, "quiet")
	kept := run("retention", "show", "--json").object(t)
	wantKeys(t, kept, "behind_seconds", "waiting", "deleted", "deleted_last_minute", "flows_deleted", "lanes", "outboxes")
	run("lane", "retention", "mail", "--keep", "default").succeeds(t, "default")
	missing := id.NewExecutionUUID().String()
	for _, args := range [][]string{{"priority", missing, "1"}, {"revoke", missing}, {"block", missing}, {"unblock", missing}} {
		run(append([]string{"execution"}, args...)...).fails(t, cliNotFound, "not found")
	}
}
