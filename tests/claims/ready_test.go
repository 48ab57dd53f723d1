package claims

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A claim returns when the execution became claimable, however it claims.
func TestClaimedHasTheTimeOfReadiness(t *testing.T) {
	eachWayOn(t, fixture.NewCloned, func(t *testing.T, f *fixture.Fixture) {
		want := func(claimed engine.Claimed, since time.Time) engine.Lease {
			t.Helper()
			if !claimed.ReadyAt.Equal(since) {
				t.Errorf("ready at %s, want %s", claimed.ReadyAt, since)
			}
			return claimed.Lease
		}
		promote := func() time.Time {
			t.Helper()
			f.Advance(time.Hour)
			if _, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			at := f.Time()
			f.Advance(time.Minute)
			return at
		}
		created := f.Time()
		x := f.Create(t)
		f.Advance(time.Minute)
		lease := want(f.ClaimOne(t), created)

		// A released attempt, on the slow path: the row of its attempt is another program's.
		f.Advance(time.Second)
		if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{lease}); err != nil {
			t.Fatal(err)
		}
		released := f.Time()
		f.SetAttempt(t, x, 0, "lease_epoch = lease_epoch - 1")
		f.Advance(time.Minute)
		lease = want(f.ClaimOne(t), released)

		// A retry after a pause. The background work puts it into the queue, later than the pause ends.
		if _, err := f.FailExecution(t.Context(), lease, engine.Failure{Message: "no"}); err != nil {
			t.Fatal(err)
		}
		retried := promote()
		if err := f.CompleteExecution(t.Context(), want(f.ClaimOne(t), retried), nil); err != nil {
			t.Fatal(err)
		}

		// A delayed creation.
		f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = f.Time().Add(time.Minute) })
		promoted := promote()
		if err := f.CompleteExecution(t.Context(), want(f.ClaimOne(t), promoted), nil); err != nil {
			t.Fatal(err)
		}

		// Fair work: its places are later than the creation.
		fair := f.Time()
		for range 3 {
			f.Create(t, func(s *engine.ExecutionSpec) { s.Fair = engine.FairShare{Tenant: "a"} })
		}
		f.Advance(time.Minute)
		for _, claimed := range f.ClaimN(t, 3) {
			want(claimed, fair)
		}
	})
}

// A grant takes the execution out of the queue.
func TestClaimByAGrantHasNoTimeOfReadiness(t *testing.T) {
	f := fixture.New(t)
	f.Signing(t)
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(f.Issue(t, f.Create(t))))
	if err != nil || !claimed.ReadyAt.IsZero() {
		t.Errorf("%+v, %v", claimed, err)
	}
}
