package workers

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler that has nothing yet comes back later: the same attempt, with no retry to spare.
func TestWorkerDelaysAnExecution(t *testing.T) {
	k := fixture.NewKit(t)
	poll := engine.Kind[struct{}, string]{Name: "poll", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}}
	worker.Handle(k.Worker, poll, func(_ context.Context, job worker.Job[struct{}]) (string, error) {
		if job.Lease.Epoch < 3 {
			return "discarded", job.Delay(time.Hour)
		}
		return "found", nil
	})
	x := fftest.Create(k.Kit, poll, struct{}{}).ID
	for _, want := range []worker.Settlement{worker.Delayed, worker.Delayed, worker.Completed} {
		k.WantSettled(t, want)
		k.Advance(time.Hour)
	}
	fftest.RequireResult(t, k.Kit, poll, x, "found")
	if got := k.Stored(t, x); got.State != fixture.StateCompleted || got.AttemptCount != 1 || got.RetryCount != 0 || got.LeaseEpoch != 3 {
		t.Errorf("stored %+v", got)
	}
	if attempts := k.StoredAttempts(t, x); len(attempts) != 1 || attempts[0].Outcome != "success" {
		t.Errorf("attempts %+v", attempts)
	}
}

// A handler that waits for its upstreams is called again when they have ended.
func TestWorkerWaitsForChildren(t *testing.T) {
	k := fixture.NewKit(t)
	f := fixture.FlowsOn(k.Fixture)
	flow := f.NewFlowOf(t, engine.FlowSpec{
		ID: id.NewFlowID(),
		Nodes: []engine.Node{
			{Key: "a", Spec: engine.ExecutionSpec{Kind: "slow"}}, {Key: "b", Spec: engine.ExecutionSpec{Kind: "parent", Priority: 1}},
		},
		Edges: []engine.Edge{{From: "a", To: "b"}},
	})
	b := f.NodeID(flow, "b")
	k.SetExecution(t, b, "eligibility_state = 'eligible_now', public_state = 'waiting', blocking_reason = 'waiting_for_worker'")
	fixture.HandleKind(k.Worker, "slow", func(context.Context, worker.Job[struct{}]) (int, error) { return 7, nil })
	fixture.HandleKind(k.Worker, "parent", func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return 0, err
		}
		if upstreams[0].Outcome == "none" || upstreams[0].Outcome == "" {
			return 0, job.WaitForChildren()
		}
		return 1, nil
	})
	k.WantSettled(t, worker.WaitingForChildren, worker.Completed, worker.Completed)
	if attempts := k.StoredAttempts(t, b); len(attempts) != 1 || attempts[0].Outcome != "success" || attempts[0].LeaseEpoch != 2 {
		t.Errorf("attempts %+v", attempts)
	}
}
