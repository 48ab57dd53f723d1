package tests

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

func TestExpireLeases_gives_the_attempt_back(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	f.advance(leaseTTL - time.Millisecond)
	run(t, f.Maintenance().ExpireLeases, 0) // live until the last millisecond
	f.advance(time.Millisecond)
	run(t, f.Maintenance().ExpireLeases, 1)
	run(t, f.Maintenance().ExpireLeases, 0)

	stored := f.stored(t, c.ID)
	if stored.State != stateReturned || stored.LeaseEpoch != 2 || stored.ReclaimCount != 1 || stored.RetryCount != 0 ||
		*stored.LastMutation != f.now().UnixMilli() || stored.AttemptIndex != 0 {
		t.Errorf("stored %+v", stored)
	}
	attempt := f.attempts(t, c.ID)[0]
	if attempt.Outcome != "lease_expired_reclaimable" || attempt.LeaseEpoch != 2 || attempt.LeaseExpiresAtMs != nil ||
		attempt.WorkerID != nil || attempt.WorkerInstanceID != nil || attempt.TerminalAtMs != nil {
		t.Errorf("attempt %+v", attempt)
	}
	f.wantEvents(t, c.ID, "lease acquired", "lease expired")
	next := f.claim(t)
	if !next.Resumed || next.Lease.Attempt != 0 || next.Lease.Epoch != 3 || next.Lease.AttemptID != c.Lease.AttemptID {
		t.Errorf("claimed %+v after %+v", next, c)
	}
	if got := f.describe(t, c.ID); got.LeasesLost != 1 || got.Attempts != 1 {
		t.Errorf("described as %+v", got)
	}
}

func TestExpireLeases_in_batches_oldest_first(t *testing.T) {
	f := cloneFixture(t)
	var held []engine.Claimed
	for range 5 {
		held = append(held, f.start(t))
		f.advance(time.Millisecond)
	}
	f.advance(leaseTTL)
	for round, want := range []int{2, 2, 1, 0} {
		if n, err := f.Maintenance().ExpireLeases(t.Context(), 2); err != nil || n != want {
			t.Errorf("acted on %d, %v; want %d", n, err, want)
		}
		for i, c := range held {
			want := stateRunning
			if i < 2*(round+1) {
				want = stateReturned
			}
			f.wantState(t, c.ID, want)
		}
	}
}

func TestExpireLeases_ends_what_is_lost_too_often(t *testing.T) {
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
			f := cloneFixture(t)
			held := f.start(t)
			f.setExecution(t, held.ID, fmt.Sprintf("policy = %s, lease_reclaim_count = %d", c.policy, c.lost))
			f.seedGrant(t, held.ID)
			f.advance(leaseTTL)
			run(t, f.Maintenance().ExpireLeases, 1)
			stored := f.stored(t, held.ID)
			if !c.ends {
				if stored.State != stateReturned || stored.ReclaimCount != int32(max(c.lost, 0)+1) {
					t.Errorf("stored %+v, want it returned", stored)
				}
				return
			}
			if stored.State != stateFailed || stored.ReclaimCount != int32(c.lost+1) || *stored.TerminalAtMs != f.now().UnixMilli() ||
				stored.LeaseEpoch != 2 || *stored.CancelReason != "reclaim_cap_exceeded" ||
				stored.raw(t, "last_failure_message") != "lease_reclaim_cap_exceeded" {
				t.Errorf("stored %+v, want it failed", stored)
			}
			attempt := f.attempts(t, held.ID)[0]
			if attempt.Outcome != "failed" || attempt.LeaseEpoch != 2 || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs == nil {
				t.Errorf("attempt %+v", attempt)
			}
			f.wantEvents(t, held.ID, "lease acquired", "lease expired", "completion failed")
			if f.grants(t, held.ID) != 0 {
				t.Error("the grant is still there")
			}
		})
	}
}

func (f *fixture) seedGrant(t *testing.T, x id.ExecutionID) {
	t.Helper()
	f.insert(t, "ff_claim_grant", columns{
		"partition_key": x.Partition(), "grant_id": []byte(x.String()), "execution_id": x.UUID(), "kind": "claim", "worker_id": "w",
		"worker_instance_id": "w1", "grant_ttl_ms": 1, "issued_at_ms": 1, "expires_at_ms": start.Add(time.Hour).UnixMilli(),
	}, nil)
}

func (f *fixture) grants(t *testing.T, x id.ExecutionID) int {
	t.Helper()
	return len(texts(t, f.pool, "SELECT kind FROM ff_claim_grant WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID()))
}

// The reference's reclaim leaves the superseded attempt its lease: its worker completes the execution, and the
// scan for expired leases throws out the new owner.
func TestE9_E10_superseded_attempt_is_only_fenced(t *testing.T) {
	f := cloneFixture(t)
	old := f.start(t)
	f.seedAttempt(t, old.ID, 1, columns{"lease_expires_at_ms": start.Add(time.Hour).UnixMilli()})
	f.setExecution(t, old.ID, "attempt_index = 1, lease_reclaim_count = 1")
	wantLeaseError(t, f.CompleteExecution(t.Context(), old.Lease, nil), engine.ErrStaleLease)
	f.advance(leaseTTL)
	run(t, f.Maintenance().ExpireLeases, 1)
	run(t, f.Maintenance().ExpireLeases, 0)

	if got := f.stored(t, old.ID); got.State != stateRunning || got.AttemptIndex != 1 || got.ReclaimCount != 1 || got.LeaseEpoch != 1 {
		t.Errorf("stored %+v, want it untouched", got)
	}
	attempts := f.attempts(t, old.ID)
	if a := attempts[0]; a.LeaseExpiresAtMs != nil || a.WorkerInstanceID != nil || a.LeaseEpoch != 2 || a.Outcome != "" {
		t.Errorf("superseded attempt %+v, want it fenced", a)
	}
	if a := attempts[1]; a.LeaseExpiresAtMs == nil || a.LeaseEpoch != 1 || a.WorkerInstanceID == nil {
		t.Errorf("current attempt %+v, want it untouched", a)
	}
	f.wantEvents(t, old.ID, "lease acquired")
	wantLeaseError(t, f.CompleteExecution(t.Context(), old.Lease, nil), engine.ErrStaleLease)
}

// Leases that were left on executions which nobody works on are cleared, and nothing else.
func TestExpireLeases_clears_stray_leases(t *testing.T) {
	f := cloneFixture(t)
	for name, set := range map[string]string{
		"completed": "lifecycle_phase = 'terminal', public_state = 'completed'",
		"cancelled": "lifecycle_phase = 'cancelled', public_state = 'cancelled'",
		"delayed":   "lifecycle_phase = 'runnable', eligibility_state = 'not_eligible_until_time', attempt_state = 'attempt_interrupted'",
		"suspended": "lifecycle_phase = 'suspended', attempt_state = 'attempt_interrupted'",
	} {
		c := f.start(t)
		f.setExecution(t, c.ID, set)
		f.setAttempt(t, c.ID, 0, "outcome = 'interrupted'")
		before := f.stored(t, c.ID)
		f.advance(leaseTTL)
		run(t, f.Maintenance().ExpireLeases, 1)
		if after := f.stored(t, c.ID); after.State != before.State || after.ReclaimCount != 0 || *after.LastMutation != *before.LastMutation {
			t.Errorf("%s: stored %+v, want it untouched", name, after)
		}
		if a := f.attempts(t, c.ID)[0]; a.LeaseExpiresAtMs != nil || a.LeaseEpoch != 2 || a.Outcome != "interrupted" {
			t.Errorf("%s: attempt %+v", name, a)
		}
		f.wantEvents(t, c.ID, "lease acquired")
		wantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), engine.ErrStaleLease)
	}
}

// The pointer of the reference stands above the attempt it leased.
func TestExpireLeases_beside_the_pointer(t *testing.T) {
	f := cloneFixture(t)
	x := f.seed(t, merged(claimedByReference, columns{"attempt_index": 1}))
	f.seedAttempt(t, x, 0, columns{"lease_epoch": 4, "lease_expires_at_ms": start.UnixMilli()})
	run(t, f.Maintenance().ExpireLeases, 1)
	if got := f.stored(t, x); got.State != stateReturned || got.AttemptIndex != 0 || got.LeaseEpoch != 5 {
		t.Errorf("stored %+v", got)
	}
	if c := f.claim(t); c.Lease.Epoch != 6 || c.Lease.Attempt != 0 {
		t.Errorf("claimed %+v", c)
	}
}

// An attempt above the pointer is none yet.
func TestExpireLeases_below_an_attempt_that_is_not_pointed_to(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	f.seedAttempt(t, c.ID, 3, nil)
	f.advance(leaseTTL)
	run(t, f.Maintenance().ExpireLeases, 1)
	if got := f.stored(t, c.ID); got.State != stateReturned || got.AttemptIndex != 0 {
		t.Errorf("stored %+v", got)
	}
}

func merged(parts ...columns) columns {
	row := columns{}
	for _, part := range parts {
		maps.Copy(row, part)
	}
	return row
}

// In the reference, chance decides between two scans whether a crashed worker's execution goes on or ends.
func TestE13_crash_is_no_timeout(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	f.advance(leaseTTL)
	run(t, f.Maintenance().ExpireAttempts, 0)
	run(t, f.Maintenance().ExpireLeases, 1)
	run(t, f.Maintenance().ExpireAttempts, 0)
	f.wantState(t, c.ID, stateReturned)
}
