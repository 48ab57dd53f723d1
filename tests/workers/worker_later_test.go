package workers

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler that has nothing yet comes back later: the same attempt, with no retry to spare.
func TestWorkerDelaysAnExecution(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	epochs := make(chan int64, 10)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "poll", func(_ context.Context, job worker.Job[struct{}]) (string, error) {
			epochs <- job.Lease.Epoch
			if len(epochs) < 3 {
				return "discarded", job.Delay(time.Millisecond)
			}
			return "found", nil
		})
	})
	x := c.Create(t, func(s *engine.ExecutionSpec) {
		s.Kind, s.Policy = "poll", &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	})
	for i, s := range c.Next(t, 3) {
		if want := []worker.Settlement{worker.Delayed, worker.Delayed, worker.Completed}[i]; s.Settlement != want || s.Err != nil || s.Lease.Attempt != 0 {
			t.Errorf("%d: settled %+v, want %s", i, s, want)
		}
	}
	got := c.Stored(t, x)
	if got.State != fixture.StateCompleted || got.AttemptCount != 1 || got.RetryCount != 0 || string(got.Result) != `"found"` || got.LeaseEpoch != 3 {
		t.Errorf("stored %+v", got)
	}
	if attempts := c.StoredAttempts(t, x); len(attempts) != 1 || attempts[0].Outcome != "success" {
		t.Errorf("attempts %+v", attempts)
	}
}

// A handler that waits for its upstreams is called again when they have ended.
func TestWorkerWaitsForChildren(t *testing.T) {
	c := fixture.NewCrew(t)
	f := fixture.FlowsOn(c.Fixture)
	flow := f.NewFlowOf(t, engine.FlowSpec{
		ID: fixture.Chart(nil).ID,
		Nodes: []engine.Node{
			{Key: "a", Spec: engine.ExecutionSpec{Kind: "slow"}}, {Key: "b", Spec: engine.ExecutionSpec{Kind: "parent"}},
		},
		Edges: []engine.Edge{{From: "a", To: "b"}},
	})
	a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
	c.SetExecution(t, b, "eligibility_state = 'eligible_now', public_state = 'waiting', blocking_reason = 'waiting_for_worker'")
	awaited := make(chan struct{})
	c.Work(t, fixture.Alone, func(w *worker.Worker) {
		fixture.HandleKind(w, "slow", func(context.Context, worker.Job[struct{}]) (int, error) {
			<-awaited
			return 7, nil
		})
		fixture.HandleKind(w, "parent", func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
			upstreams, err := job.Upstreams(ctx)
			if err != nil {
				return 0, err
			}
			if upstreams[0].Outcome == "none" || upstreams[0].Outcome == "" {
				return 0, job.WaitForChildren()
			}
			return 1, nil
		})
	})
	first := c.Next(t, 1)[0]
	if first.ID != b || first.Settlement != worker.WaitingForChildren {
		t.Fatalf("settled %+v", first)
	}
	close(awaited)
	for _, s := range c.Next(t, 2) {
		if s.Settlement != worker.Completed || s.ID != a && s.ID != b {
			t.Errorf("settled %+v", s)
		}
	}
	if attempts := c.StoredAttempts(t, b); len(attempts) != 1 || attempts[0].Outcome != "success" || attempts[0].LeaseEpoch != 2 {
		t.Errorf("attempts %+v", attempts)
	}
}
