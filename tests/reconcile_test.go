package tests

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/reconcile"
)

// reconcileWith runs n reconcilers in a hurry until the test ends.
func reconcileWith(t *testing.T, eng *engine.Engine, n int) {
	t.Helper()
	r, err := reconcile.New(eng, reconcile.Config{
		Interval: time.Millisecond,
		Batch:    7, // so that loops go round
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for range n {
		running.Go(func() { r.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (f *fixture) awaitState(t *testing.T, x id.ExecutionID, want string) {
	t.Helper()
	await(t, x.String()+" to be "+want, func() bool { return f.stored(t, x).State == want })
}

// Every job does its work, once, however many processes run it.
func TestReconcile(t *testing.T) {
	f := cloneFixture(t)
	lost := f.startMany(t, 20)
	timedOut := f.start(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{
			Retry:          &policy.Retry{Backoff: policy.Fixed(0)},
			AttemptTimeout: time.Second,
		}
	})
	delayed := f.create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = start.Add(time.Minute) })
	late := f.create(t, func(s *engine.ExecutionSpec) { s.Deadline = start.Add(time.Minute) })
	keyed := f.create(t, func(s *engine.ExecutionSpec) {
		s.IdempotencyKey, s.Policy = "key", &policy.Execution{DedupWindow: time.Second}
	})
	reconcileWith(t, f.Engine, 2)

	f.advance(5 * time.Second)
	f.awaitState(t, timedOut.ID, stateRetry)
	keys := func() string { return texts(t, f.pool, "SELECT count(*)::text FROM ffx_create_dedup")[0] }
	await(t, "the key to be forgotten", func() bool { return keys() == "0" })
	f.wantState(t, keyed, stateReady)
	f.wantState(t, lost[0].ID, stateRunning)
	f.wantState(t, delayed, stateDelayed)

	f.advance(time.Hour)
	f.awaitState(t, delayed, stateReady)
	f.awaitState(t, late, stateUnstarted)
	for _, c := range lost {
		f.awaitState(t, c.ID, stateReturned)
		if n := f.stored(t, c.ID).ReclaimCount; n != 1 {
			t.Errorf("%s lost its lease %d times", c.ID, n)
		}
		f.wantEvents(t, c.ID, "lease acquired", "lease expired")
	}
}

// A reconciler waits for a database that goes away.
func TestReconcile_killed_connections(t *testing.T) {
	f := cloneFixture(t)
	rival := f.rival(t)
	reconcileWith(t, rival.Engine, 1)
	for range 5 {
		c := f.start(t)
		f.advance(2 * leaseTTL)
		f.exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", rival.name)
		f.awaitState(t, c.ID, stateReturned)
		f.setExecution(t, c.ID, "eligibility_state = 'blocked_by_operator'")
	}
}
