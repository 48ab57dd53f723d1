package tests

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler that has nothing yet comes back later: the same attempt, with no retry to spare.
func TestWorker_delay(t *testing.T) {
	c := newLoneCrew(t)
	epochs := make(chan int64, 10)
	c.work(t, worker.Config{}, func(w *worker.Worker) {
		on(w, "poll", func(_ context.Context, job worker.Job[struct{}]) (string, error) {
			epochs <- job.Lease.Epoch
			if len(epochs) < 3 {
				return "discarded", job.Delay(time.Millisecond)
			}
			return "found", nil
		})
	})
	x := c.create(t, func(s *engine.ExecutionSpec) {
		s.Kind, s.Policy = "poll", &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	})
	for i, s := range c.next(t, 3) {
		if want := []worker.Settlement{worker.Delayed, worker.Delayed, worker.Completed}[i]; s.Settlement != want || s.Err != nil || s.Lease.Attempt != 0 {
			t.Errorf("%d: settled %+v, want %s", i, s, want)
		}
	}
	got := c.stored(t, x)
	if got.State != stateCompleted || got.AttemptCount != 1 || got.RetryCount != 0 || string(got.Result) != `"found"` || got.LeaseEpoch != 3 {
		t.Errorf("stored %+v", got)
	}
	if attempts := c.attempts(t, x); len(attempts) != 1 || attempts[0].Outcome != "success" {
		t.Errorf("attempts %+v", attempts)
	}
}

// A handler that waits for what it depends on is handled again when that has ended.
func TestWorker_wait_for_children(t *testing.T) {
	c := newCrew(t)
	f := flowsOn(c.fixture)
	flow := f.createFlow(t, engine.FlowSpec{
		ID: chart(nil).ID,
		Nodes: []engine.Node{
			{Key: "a", Spec: engine.ExecutionSpec{Kind: "slow"}}, {Key: "b", Spec: engine.ExecutionSpec{Kind: "parent"}},
		},
		Edges: []engine.Edge{{From: "a", To: "b"}},
	})
	a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
	c.setExecution(t, b, "eligibility_state = 'eligible_now', public_state = 'waiting', blocking_reason = 'waiting_for_worker'")
	awaited := make(chan struct{})
	c.work(t, alone, func(w *worker.Worker) {
		on(w, "slow", func(context.Context, worker.Job[struct{}]) (int, error) {
			<-awaited
			return 7, nil
		})
		on(w, "parent", func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
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
	first := c.next(t, 1)[0]
	if first.ID != b || first.Settlement != worker.WaitingForChildren {
		t.Fatalf("settled %+v", first)
	}
	close(awaited)
	for _, s := range c.next(t, 2) {
		if s.Settlement != worker.Completed || s.ID != a && s.ID != b {
			t.Errorf("settled %+v", s)
		}
	}
	if attempts := c.attempts(t, b); len(attempts) != 1 || attempts[0].Outcome != "success" || attempts[0].LeaseEpoch != 2 {
		t.Errorf("attempts %+v", attempts)
	}
}
