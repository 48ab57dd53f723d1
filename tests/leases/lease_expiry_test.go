package leases

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestExpireLeasesReturnsTheAttempt(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Advance(fixture.LeaseTTL - time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // live until the last millisecond
	f.Advance(time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)

	stored := f.Stored(t, c.ID)
	if stored.State != fixture.StateReturned || stored.LeaseEpoch != 2 || stored.ReclaimCount != 1 || stored.RetryCount != 0 ||
		*stored.LastMutation != f.Time().UnixMilli() || stored.AttemptIndex != 0 {
		t.Errorf("stored %+v", stored)
	}
	attempt := f.StoredAttempts(t, c.ID)[0]
	if attempt.Outcome != "lease_expired_reclaimable" || attempt.LeaseEpoch != 2 || attempt.LeaseExpiresAtMs != nil ||
		attempt.WorkerID != nil || attempt.WorkerInstanceID != nil || attempt.TerminalAtMs != nil {
		t.Errorf("attempt %+v", attempt)
	}
	f.WantEvents(t, c.ID, "lease acquired", "lease expired")
	next := f.ClaimOne(t)
	if !next.Resumed || next.Lease.Attempt != 0 || next.Lease.Epoch != 3 || next.Lease.AttemptID != c.Lease.AttemptID {
		t.Errorf("claimed %+v after %+v", next, c)
	}
	if got := f.Describe(t, c.ID); got.LeasesLost != 1 || got.Attempts != 1 {
		t.Errorf("described as %+v", got)
	}
}

func TestExpireLeasesInBatchesOldestFirst(t *testing.T) {
	f := fixture.NewCloned(t)
	var held []engine.Claimed
	for range 5 {
		held = append(held, f.Start(t))
		f.Advance(time.Millisecond)
	}
	f.Advance(fixture.LeaseTTL)
	for round, want := range []int{2, 2, 1, 0} {
		if n, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 2); err != nil || n != want {
			t.Errorf("acted on %d, %v; want %d", n, err, want)
		}
		for i, c := range held {
			want := fixture.StateRunning
			if i < 2*(round+1) {
				want = fixture.StateReturned
			}
			f.WantState(t, c.ID, want)
		}
	}
}

func TestExpireLeasesFailsAfterTooManyLosses(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		lost         int // before
		ends         bool
	}{
		{"below the default", "NULL", policy.ReclaimLimit - 1, false},
		{"at the default", "NULL", policy.ReclaimLimit, true},
		{"below the policy's", `'{"max_reclaim_count":2}'`, 1, false},
		{"at the policy's", `'{"max_reclaim_count":2}'`, 2, true},
		{"at the timeout policy's", `'{"timeout_policy":{"max_reclaim_count":1}}'`, 1, true},
		{"at the smaller of both", `'{"max_reclaim_count":5,"timeout_policy":{"max_reclaim_count":1}}'`, 1, true},
		{"at the smaller of both, the other way round", `'{"max_reclaim_count":1,"timeout_policy":{"max_reclaim_count":5}}'`, 1, true},
		{"a cap of nothing", `'{"max_reclaim_count":0}'`, 0, true},
		{"a count below nothing", `'{"max_reclaim_count":1}'`, -3, false},
		{"a cap that is no number", `'{"max_reclaim_count":"2"}'`, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			held := f.Start(t)
			f.SetExecution(t, held.ID, fmt.Sprintf("policy = %s, lease_reclaim_count = %d", c.policy, c.lost))
			f.SeedGrant(t, held.ID)
			f.Advance(fixture.LeaseTTL)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			stored := f.Stored(t, held.ID)
			if !c.ends {
				if stored.State != fixture.StateReturned || stored.ReclaimCount != int32(max(c.lost, 0)+1) {
					t.Errorf("stored %+v, want it returned", stored)
				}
				return
			}
			if stored.State != fixture.StateFailed || stored.ReclaimCount != int32(c.lost+1) || *stored.TerminalAtMs != f.Time().UnixMilli() ||
				stored.LeaseEpoch != 2 || *stored.CancelReason != "reclaim_cap_exceeded" ||
				stored.Raw(t, "last_failure_message") != "lease_reclaim_cap_exceeded" {
				t.Errorf("stored %+v, want it failed", stored)
			}
			attempt := f.StoredAttempts(t, held.ID)[0]
			if attempt.Outcome != "failed" || attempt.LeaseEpoch != 2 || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs == nil {
				t.Errorf("attempt %+v", attempt)
			}
			f.WantEvents(t, held.ID, "lease acquired", "lease expired", "completion failed")
			if f.CountGrants(t, held.ID) != 0 {
				t.Error("the grant is still there")
			}
		})
	}
}

// The reference's reclaim leaves the superseded attempt its lease: its worker completes the execution, and the
// scan for expired leases throws out the new owner.
func TestSupersededAttemptIsFencedOnly_E9_E10(t *testing.T) {
	f := fixture.NewCloned(t)
	old := f.Start(t)
	f.SeedAttempt(t, old.ID, 1, fixture.Columns{"lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
	f.SetExecution(t, old.ID, "attempt_index = 1, lease_reclaim_count = 1")
	fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), old.Lease, nil), fferr.ErrStaleLease)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)

	if got := f.Stored(t, old.ID); got.State != fixture.StateRunning || got.AttemptIndex != 1 || got.ReclaimCount != 1 || got.LeaseEpoch != 1 {
		t.Errorf("stored %+v, want it untouched", got)
	}
	attempts := f.StoredAttempts(t, old.ID)
	if a := attempts[0]; a.LeaseExpiresAtMs != nil || a.WorkerInstanceID != nil || a.LeaseEpoch != 2 || a.Outcome != "" {
		t.Errorf("superseded attempt %+v, want it fenced", a)
	}
	if a := attempts[1]; a.LeaseExpiresAtMs == nil || a.LeaseEpoch != 1 || a.WorkerInstanceID == nil {
		t.Errorf("current attempt %+v, want it untouched", a)
	}
	f.WantEvents(t, old.ID, "lease acquired")
	fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), old.Lease, nil), fferr.ErrStaleLease)
}

// Only leases left on attempts that no longer run are cleared.
func TestExpireLeasesClearsStrayLeases(t *testing.T) {
	f := fixture.NewCloned(t)
	for name, set := range map[string]string{
		"completed": "lifecycle_phase = 'terminal', public_state = 'completed'",
		"cancelled": "lifecycle_phase = 'cancelled', public_state = 'cancelled'",
		"delayed":   "lifecycle_phase = 'runnable', eligibility_state = 'not_eligible_until_time', attempt_state = 'attempt_interrupted'",
		"suspended": "lifecycle_phase = 'suspended', attempt_state = 'attempt_interrupted'",
	} {
		c := f.Start(t)
		f.SetExecution(t, c.ID, set)
		f.SetAttempt(t, c.ID, 0, "outcome = 'interrupted'")
		before := f.Stored(t, c.ID)
		f.Advance(fixture.LeaseTTL)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
		if after := f.Stored(t, c.ID); after.State != before.State || after.ReclaimCount != 0 || *after.LastMutation != *before.LastMutation {
			t.Errorf("%s: stored %+v, want it untouched", name, after)
		}
		if a := f.StoredAttempts(t, c.ID)[0]; a.LeaseExpiresAtMs != nil || a.LeaseEpoch != 2 || a.Outcome != "interrupted" {
			t.Errorf("%s: attempt %+v", name, a)
		}
		f.WantEvents(t, c.ID, "lease acquired")
		fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), fferr.ErrStaleLease)
	}
}

// The pointer of the reference stands above the attempt it leased.
func TestExpireLeasesBesideThePointer(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Seed(t, fixture.Merged(fixture.ClaimedByReference, fixture.Columns{"attempt_index": 1}))
	f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 4, "lease_expires_at_ms": fixture.Start.UnixMilli()})
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	if got := f.Stored(t, x); got.State != fixture.StateReturned || got.AttemptIndex != 0 || got.LeaseEpoch != 5 {
		t.Errorf("stored %+v", got)
	}
	if c := f.ClaimOne(t); c.Lease.Epoch != 6 || c.Lease.Attempt != 0 {
		t.Errorf("claimed %+v", c)
	}
}

// An attempt above the pointer is none yet.
func TestExpireLeasesIgnoresAttemptsAboveThePointer(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.SeedAttempt(t, c.ID, 3, nil)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	if got := f.Stored(t, c.ID); got.State != fixture.StateReturned || got.AttemptIndex != 0 {
		t.Errorf("stored %+v", got)
	}
}

// In the reference, chance decides between two scans whether a crashed worker's execution goes on or ends.
func TestCrashIsNoTimeout_E13(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
	f.WantState(t, c.ID, fixture.StateReturned)
}
