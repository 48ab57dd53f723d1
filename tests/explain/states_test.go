package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func anUnknownExecutionIsNotFound(t *testing.T, f *place) {
	x := id.NewExecutionID("a", id.Partitions{})
	why, err := explain.Execution(t.Context(), f.Engine, x)
	if err != nil || why.Execution.ID != x || len(why.Causes) != 1 || why.Causes[0].Code != explain.NotFound {
		t.Fatalf("%+v, %v", why, err)
	}
	if _, err := explain.Execution(t.Context(), f.Engine, id.ExecutionID{}); err == nil {
		t.Error("the zero id is accepted")
	}
}

func endedExecutionsSayHowTheyEnded(t *testing.T, f *place) {
	want(t, f, f.Ended(t), explain.EndedSuccess, true, "It succeeded 0 ms ago in attempt 1.")

	failed := f.Start(t)
	f.Fail(t, failed.Lease, engine.Failure{Message: "no such order", Category: "order", Class: policy.Permanent})
	f.Advance(26 * time.Second)
	want(t, f, failed.ID, explain.EndedFailed, true, "It failed 26 s ago in attempt 1: no such order.")

	cancelled := f.Create(t)
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: cancelled, Reason: "sent twice", Source: "ada"}); err != nil {
		t.Fatal(err)
	}
	want(t, f, cancelled, explain.EndedCancelled, true, "by ada: sent twice.")
}

func aSkippedExecutionNamesItsUpstream(t *testing.T, f *place) {
	flows := fixture.FlowsOn(f.Fixture)
	flow := flows.Draw(t, nil, "final>after")
	flows.Fail(t, flow, "final")
	want(t, f, flows.NodeID(flow, "after"), explain.EndedSkipped, true, `upstream "final" failed`)
}

func aRunningExecutionNamesItsWorker(t *testing.T, f *place) {
	c := f.Start(t)
	f.Register(t)
	if err := f.ReportProgress(t.Context(), c.Lease, engine.Progress{Percent: new(40), Message: new("page 4 of 10")}); err != nil {
		t.Fatal(err)
	}
	f.Advance(3 * time.Second)
	want(t, f, c.ID, explain.Running, true, "runs it for 3 s, 40 %", `"page 4 of 10"`, "its lease runs for another 7 s.")
	f.Exec(t, "UPDATE ff_worker_registry SET liveness_ttl_ms = 1000")
	want(t, f, c.ID, explain.HolderSilent, false, "has not reported for 3 s")
	f.Advance(20 * time.Second)
	want(t, f, c.ID, explain.LeaseRanOut, true, "lost the lease 13 s ago", "No background work runs")
	hold(t, f, "expire_leases")
	want(t, f, c.ID, explain.LeaseRanOut, true, "A process does the job expire_leases")
}

// hold makes a live process hold a background job.
func hold(t *testing.T, f *place, job string) {
	t.Helper()
	f.Exec(t, "INSERT INTO ffx_job (name, holder, held_until_ms) VALUES ($1, 'w', $2)", job, f.Time().Add(time.Hour).UnixMilli())
}

func delaysSayUntilWhen(t *testing.T, f *place) {
	delayed := f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = f.Time().Add(time.Hour) })
	f.Advance(time.Minute)
	c := want(t, f, delayed, explain.Delayed, true, "It is delayed for another 59 min.")
	if !c.Until.Equal(f.Time().Add(59 * time.Minute)) {
		t.Errorf("until %s", c.Until)
	}
	f.Advance(time.Hour)
	want(t, f, delayed, explain.DelayOverdue, true, "It was due 60 s ago", "No background work runs")

	retried := f.Start(t, fixture.Retrying(policy.Retry{MaxRetries: 3, Backoff: policy.Fixed(time.Hour)}))
	f.Fail(t, retried.Lease, engine.Failure{Message: "the bank answered 502", Category: "bank"})
	want(t, f, retried.ID, explain.RetryBackoff, true, "Attempt 1 failed: the bank answered 502; the next is due in 60 min.")

	sleeping := f.Start(t)
	until := f.Time().Add(2 * time.Hour)
	if _, err := f.RecordStep(t.Context(), engine.StepRecord{
		Lease: sleeping.Lease, Name: "cool down", Form: engine.FormSleep, Outcome: engine.StepSlept, Result: []byte(unixMilli(until)),
	}); err != nil {
		t.Fatal(err)
	}
	if err := f.DelayExecution(t.Context(), sleeping.Lease, until); err != nil {
		t.Fatal(err)
	}
	want(t, f, sleeping.ID, explain.Sleeping, true, `It pauses in step "cool down" for another 2 h.`)
}

func suspendedExecutionsSayWhatTheyWaitFor(t *testing.T, f *place) {
	l := f.Suspend(t, engine.Received("approved"), func(s *engine.SuspendSpec) { s.Asked = "Pay 4,000 EUR?" })
	f.Advance(55 * time.Second)
	c := want(t, f, l.Execution, explain.Signal, true, `"approved"`, "for 55 s", `asking "Pay 4,000 EUR?"`, "Times out in 59 min.")
	if !slices.Contains(c.Do, "ff execution signal "+l.Execution.Short()+" approved") {
		t.Errorf("%q", c.Do)
	}
	f.Advance(time.Hour)
	want(t, f, l.Execution, explain.WaitOverdue, true, "timed out 55 s ago", "No background work runs")
}

func aCallLeadsToTheCauseOfTheCallee(t *testing.T, f *place) {
	caller := f.Start(t)
	spec := engine.ExecutionSpec{Lane: f.Lane + "-elsewhere", Kind: "callee"}
	called, err := f.Call(t.Context(), engine.CallSpec{Lease: caller.Lease, Name: "resize", Executions: []engine.ExecutionSpec{spec, spec}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: caller.Lease, Call: "resize"}); err != nil {
		t.Fatal(err)
	}
	c := want(t, f, caller.ID, explain.Call, true, `Step "resize" waits for 2 of 2 called executions.`)
	if !slices.Equal(c.Holders, called) && !slices.Equal(c.Holders, []id.ExecutionID{called[1], called[0]}) {
		t.Errorf("%v, want %v", c.Holders, called)
	}
	if got := codes(t, f, caller.ID); got != "call no_worker" {
		t.Errorf("%s", got)
	}
}

func upstreamsAreNamedWithTheirStates(t *testing.T, f *place) {
	flows := fixture.FlowsOn(f.Fixture)
	flow := flows.Draw(t, nil, "busy>final", "flaky>final")
	want(t, f, flows.NodeID(flow, "final"), explain.Upstreams, true, "It waits for 2 of 2 upstreams", "busy waiting", "flaky waiting")
	flows.Succeed(t, flow, "busy")
	want(t, f, flows.NodeID(flow, "final"), explain.Upstreams, true, "It waits for 1 of 2 upstreams: flaky active.")
}

func sequencesNameTheirFirstMember(t *testing.T, f *place) {
	in := func(s *engine.ExecutionSpec) {
		s.Sequence = engine.Sequence{Key: "account 8"}
		s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	}
	first := f.Start(t, in)
	second := f.Create(t, in)
	want(t, f, second, explain.Sequence, true, `It waits in sequence "account 8" behind 1 execution`, first.ID.String())
	f.Fail(t, first.Lease, fixture.ForGood)
	f.Advance(57 * time.Second)
	c := want(t, f, second, explain.SequenceStopped, true, `Sequence "account 8" has stood still for 57 s: `+first.ID.String())
	if !slices.Contains(c.Do, "ff sequence continue 'account 8'") {
		t.Errorf("%q", c.Do)
	}
}

func operatorsAreNamed(t *testing.T, f *place) {
	x := f.Create(t)
	f.Block(t, x, state.PausedByOperator, "legal hold 17")
	f.Advance(56 * time.Second)
	want(t, f, x, explain.BlockedOperator, true, "An operator blocked it 56 s ago: legal hold 17.")

	waiting := f.Create(t)
	if err := operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Reason: "the bucket is being moved"}); err != nil {
		t.Fatal(err)
	}
	want(t, f, waiting, explain.LanePaused, true, "is paused for 0 ms: the bucket is being moved.")
	if got := codes(t, f, x); got != "blocked_operator lane_paused no_worker" {
		t.Errorf("%s", got)
	}
	until := f.Time().Add(time.Minute)
	if err := operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Reason: "the bucket", Until: until}); err != nil {
		t.Fatal(err)
	}
	f.Advance(20 * time.Second)
	if c := want(t, f, waiting, explain.LanePaused, true, "is paused for another 40 s: the bucket."); !c.Until.Equal(until) {
		t.Errorf("until %v, want %v", c.Until, until)
	}
	f.Advance(40 * time.Second)
	if got := codes(t, f, waiting); got != "no_worker" {
		t.Errorf("%s after the pause", got)
	}
}

func routesAndLanesBlock(t *testing.T, f *place) {
	routed, barred := f.Create(t), f.Create(t)
	f.Block(t, routed, state.WaitingForCapableWorker, "no gpu")
	f.Block(t, barred, state.PausedByPolicy, "")
	f.Advance(12 * time.Second)
	c := want(t, f, routed, explain.BlockedRoute, true, "It was set aside 12 s ago because no worker had its capabilities: no gpu.")
	if !slices.Contains(c.Do, "ff execution unblock "+routed.Short()) {
		t.Errorf("%q", c.Do)
	}
	want(t, f, barred, explain.BlockedLane, true, "It was blocked with its lane 12 s ago.")
}
