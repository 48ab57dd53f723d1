package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// What another program left active without a lease is found by no scan. The sweep gives it back, as a lost lease would be.
func TestA17_active_without_a_lease(t *testing.T) {
	const given = "lifecycle_phase = 'active', ownership_state = '%s', eligibility_state = 'not_applicable', public_state = 'running'"
	for _, ownership := range []string{"leased", "lease_expired_reclaimable", "lease_revoked", "unowned"} {
		t.Run(ownership, func(t *testing.T) {
			f := cloneFixture(t)
			c := f.start(t)
			f.setExecution(t, c.ID, fmt.Sprintf(given, ownership))
			f.setAttempt(t, c.ID, 0, "lease_expires_at_ms = NULL, outcome = 'lease_expired_reclaimable'")
			f.advance(time.Hour)
			run(t, f.Maintenance().ExpireLeases, 0)
			run(t, f.Maintenance().ExpireAttempts, 0)
			if repaired := f.repair(t, 2); repaired != 1 {
				t.Errorf("repaired %d", repaired)
			}
			if got := f.stored(t, c.ID); got.State != stateReturned || got.LeaseEpoch != 2 || got.ReclaimCount != 1 {
				t.Errorf("stored %+v", got)
			}
			if a := f.attempts(t, c.ID)[0]; a.LeaseEpoch != 2 || a.Outcome != "lease_expired_reclaimable" || a.WorkerInstanceID != nil {
				t.Errorf("attempt %+v", a)
			}
			f.wantEvents(t, c.ID, "lease acquired", "lease expired")
			wantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), engine.ErrStaleLease)
			if repaired := f.repair(t, 2); repaired != 0 {
				t.Errorf("repaired %d the second time", repaired)
			}
			if next := f.claim(t); !next.Resumed || next.Lease.Attempt != 0 || next.Lease.Epoch != 3 {
				t.Errorf("claimed %+v", next)
			}
		})
	}
}

// Whatever attempts there are: none, one below the pointer, one that was lost too often.
func TestA17_active_with_unusual_attempts(t *testing.T) {
	for _, c := range []struct {
		name    string
		row     columns
		seed    func(t *testing.T, f *fixture, x id.ExecutionID)
		state   string
		pointer int32
		epoch   int64 // of the next claim; 0: there is none
	}{
		{"without an attempt", nil, func(*testing.T, *fixture, id.ExecutionID) {}, stateReturned, 0, 2},
		{"below the pointer, as the reference leaves it", columns{"attempt_index": 1}, func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.seedAttempt(t, x, 0, columns{"lease_epoch": 4})
		}, stateReturned, 0, 6},
		{
			"without an attempt, lost too often",
			columns{"policy": `{"max_reclaim_count":0}`},
			func(*testing.T, *fixture, id.ExecutionID) {},
			"terminal unowned not_applicable failed none -", 0, 0,
		},
		{"lost too often", columns{"policy": `{"max_reclaim_count":0}`}, func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.seedAttempt(t, x, 0, nil)
		}, stateFailed, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.seed(t, merged(claimedByReference, c.row))
			c.seed(t, f, x)
			if repaired := f.repair(t, 10); repaired != 1 {
				t.Errorf("repaired %d", repaired)
			}
			if got := f.stored(t, x); got.State != c.state || got.AttemptIndex != c.pointer || got.ReclaimCount != 1 {
				t.Errorf("stored %+v", got)
			}
			if c.epoch == 0 {
				f.wantEvents(t, x, "lease expired", "completion failed")
				f.wantNothingClaimable(t)
			} else if next := f.claim(t); next.Lease.Epoch != c.epoch || next.Lease.Attempt != 0 {
				t.Errorf("claimed %+v, want epoch %d", next, c.epoch)
			}
			if repaired := f.repair(t, 10); repaired != 0 {
				t.Errorf("repaired %d the second time", repaired)
			}
		})
	}
}

// A member that was lost too often ends under its flow's lock.
func TestA17_of_a_flow(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	spec := chart(nil, "a>b")
	spec.Nodes[0].Spec.Policy = &policy.Execution{MaxReclaims: policy.NoReclaims}
	flow := f.createFlow(t, spec)
	x := f.lease(t, flow, "a").Execution
	f.setAttempt(t, x, 0, "lease_expires_at_ms = NULL")
	tx := f.begin(t)
	execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1::uuid))", flow)
	if repaired := f.repair(t, 10); repaired != 0 {
		t.Errorf("repaired %d while the flow is held", repaired)
	}
	commit(t, tx)
	if repaired := f.repair(t, 10); repaired != 1 {
		t.Errorf("repaired %d", repaired)
	}
	f.wantState(t, x, stateFailed)
	f.wantState(t, f.NodeID(flow, "b"), stateSkipped)
}

// Nothing is taken from anybody: who has a lease keeps it, and who holds a row is not waited for.
func TestA17_leaves_what_may_have_a_lease(t *testing.T) {
	f := cloneFixture(t)
	live := f.start(t)
	superseded := f.start(t)
	f.seedAttempt(t, superseded.ID, 1, nil) // the current one; the first still has a lease
	f.setExecution(t, superseded.ID, "attempt_index = 1")
	above := f.seed(t, claimedByReference) // leased above its pointer
	f.seedAttempt(t, above, 1, columns{"lease_expires_at_ms": start.Add(time.Hour).UnixMilli()})
	heldExecution, heldAttempt := f.start(t).ID, f.start(t).ID
	f.setAttempt(t, heldExecution, 0, "lease_expires_at_ms = NULL")
	f.setAttempt(t, heldAttempt, 0, "lease_expires_at_ms = NULL")
	before := make(map[id.ExecutionID]string)
	for _, x := range []id.ExecutionID{live.ID, superseded.ID, above, heldExecution, heldAttempt} {
		before[x] = f.dump(t, x)
	}
	tx := f.begin(t)
	lockExecution(t, tx, heldExecution)
	lockAttempt(t, tx, heldAttempt, 0)
	if repaired := f.repair(t, 10); repaired != 0 {
		t.Errorf("repaired %d", repaired)
	}
	for x, rows := range before {
		f.wantUnchanged(t, x, rows)
	}
	commit(t, tx)
	if repaired := f.repair(t, 10); repaired != 2 {
		t.Errorf("repaired %d, want the two that were held", repaired)
	}
	f.wantState(t, heldExecution, stateReturned)
	f.wantState(t, heldAttempt, stateReturned)
}

// An attempt that gets its lease, or ends, after the sweep has seen it without one keeps it.
func TestA17_decides_under_the_locks(t *testing.T) {
	for name, since := range map[string]func(t *testing.T, f *fixture, x id.ExecutionID){
		"leased": func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.setAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", start.Add(time.Hour).UnixMilli()))
		},
		"leased as a new attempt": func(t *testing.T, f *fixture, x id.ExecutionID) {
			f.seedAttempt(t, x, 1, columns{"lease_expires_at_ms": start.Add(time.Hour).UnixMilli()})
			f.setExecution(t, x, "attempt_index = 1")
		},
		"ended": func(t *testing.T, f *fixture, x id.ExecutionID) { f.setExecution(t, x, foreignCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.start(t).ID
			f.setAttempt(t, x, 0, "lease_expires_at_ms = NULL")
			held, release := f.holding(t, "RepairQueue")
			wait := async(t, func(ctx context.Context) error {
				n, err := held.Maintenance().RepairQueue(ctx, 10)
				if n != 0 {
					err = errors.Join(err, fmt.Errorf("repaired %d", n))
				}
				return err
			})
			held.awaitBlocked(t, f)
			since(t, f, x)
			was := f.dump(t, x)
			release()
			if err := wait(); err != nil {
				t.Error(err)
			}
			f.wantUnchanged(t, x, was)
		})
	}
}
