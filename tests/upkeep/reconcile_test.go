package upkeep

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func awaitState(t *testing.T, f *fixture.Fixture, x id.ExecutionID, want string) {
	t.Helper()
	fixture.Await(t, x.String()+" to be "+want, func() bool { return f.Stored(t, x).State == want })
}

// Every job does its work, once, however many processes run it.
func TestReconcile(t *testing.T) {
	f := fixture.NewCloned(t)
	lost := f.StartMany(t, 20)
	timedOut := f.Start(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{
			Retry:          &policy.Retry{Backoff: policy.Fixed(0)},
			AttemptTimeout: time.Second,
		}
	})
	delayed := f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = fixture.Start.Add(time.Minute) })
	late := f.Create(t, func(s *engine.ExecutionSpec) { s.Deadline = fixture.Start.Add(time.Minute) })
	keyed := f.Create(t, func(s *engine.ExecutionSpec) {
		s.IdempotencyKey, s.Policy = "key", &policy.Execution{DedupWindow: time.Second}
	})
	fixture.ReconcileWith(t, f.Engine, 2)

	f.Advance(5 * time.Second)
	awaitState(t, f, timedOut.ID, fixture.StateRetry)
	keys := func() string { return fixture.Texts(t, f.Pool, "SELECT count(*)::text FROM ffx_create_dedup")[0] }
	fixture.Await(t, "the key to be forgotten", func() bool { return keys() == "0" })
	f.WantState(t, keyed, fixture.StateReady)
	f.WantState(t, lost[0].ID, fixture.StateRunning)
	f.WantState(t, delayed, fixture.StateDelayed)

	f.Advance(time.Hour)
	awaitState(t, f, delayed, fixture.StateReady)
	awaitState(t, f, late, fixture.StateUnstarted)
	for _, c := range lost {
		awaitState(t, f, c.ID, fixture.StateReturned)
		if n := f.Stored(t, c.ID).ReclaimCount; n != 1 {
			t.Errorf("%s lost its lease %d times", c.ID, n)
		}
		f.WantEvents(t, c.ID, "lease acquired", "lease expired")
	}
}

// A reconciler waits for a database that goes away.
func TestReconcileSurvivesKilledConnections(t *testing.T) {
	f := fixture.NewCloned(t)
	rival := f.Rival(t)
	fixture.ReconcileWith(t, rival.Engine, 1)
	for range 5 {
		c := f.Start(t)
		f.Advance(2 * fixture.LeaseTTL)
		f.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", rival.Name)
		awaitState(t, f, c.ID, fixture.StateReturned)
		f.SetExecution(t, c.ID, "eligibility_state = 'blocked_by_operator'")
	}
}
