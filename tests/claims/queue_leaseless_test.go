package claims

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// No scan finds an execution that another program left active without a lease. The sweep returns it like one with a
// lost lease.
func TestLeaselessExecutionIsReturned(t *testing.T) {
	const given = "lifecycle_phase = 'active', ownership_state = '%s', eligibility_state = 'not_applicable', public_state = 'running'"
	for _, ownership := range []string{"leased", "lease_expired_reclaimable", "lease_revoked", "unowned"} {
		t.Run(ownership, func(t *testing.T) {
			f := fixture.NewCloned(t)
			c := f.Start(t)
			f.SetExecution(t, c.ID, fmt.Sprintf(given, ownership))
			f.SetAttempt(t, c.ID, 0, "lease_expires_at_ms = NULL, outcome = 'lease_expired_reclaimable'")
			f.Advance(time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
			if repaired := f.Repair(t, 2); repaired != 1 {
				t.Errorf("repaired %d", repaired)
			}
			if got := f.Stored(t, c.ID); got.State != fixture.StateReturned || got.LeaseEpoch != 2 || got.ReclaimCount != 1 {
				t.Errorf("stored %+v", got)
			}
			if a := f.StoredAttempts(t, c.ID)[0]; a.LeaseEpoch != 2 || a.Outcome != "lease_expired_reclaimable" || a.WorkerInstanceID != nil {
				t.Errorf("attempt %+v", a)
			}
			f.WantEvents(t, c.ID, "lease acquired", "lease expired")
			fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), fferr.ErrStaleLease)
			if repaired := f.Repair(t, 2); repaired != 0 {
				t.Errorf("repaired %d the second time", repaired)
			}
			if next := f.ClaimOne(t); !next.Resumed || next.Lease.Attempt != 0 || next.Lease.Epoch != 3 {
				t.Errorf("claimed %+v", next)
			}
		})
	}
}

// The attempts vary: none, one below the pointer, one that was lost too often.
func TestLeaselessExecutionWithUnusualAttempts(t *testing.T) {
	for _, c := range []struct {
		name    string
		row     fixture.Columns
		seed    func(t *testing.T, f *fixture.Fixture, x id.ExecutionID)
		state   string
		pointer int32
		epoch   int64 // of the next claim; 0: there is none
	}{
		{"without an attempt", nil, func(*testing.T, *fixture.Fixture, id.ExecutionID) {}, fixture.StateReturned, 0, 2},
		{"below the pointer, as the reference leaves it", fixture.Columns{"attempt_index": 1}, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 4})
		}, fixture.StateReturned, 0, 6},
		{
			"without an attempt, lost too often",
			fixture.Columns{"policy": `{"max_reclaim_count":0}`},
			func(*testing.T, *fixture.Fixture, id.ExecutionID) {},
			"terminal unowned not_applicable failed none -", 0, 0,
		},
		{"lost too often", fixture.Columns{"policy": `{"max_reclaim_count":0}`}, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SeedAttempt(t, x, 0, nil)
		}, fixture.StateFailed, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Seed(t, fixture.Merged(fixture.ClaimedByReference, c.row))
			c.seed(t, f, x)
			if repaired := f.Repair(t, 10); repaired != 1 {
				t.Errorf("repaired %d", repaired)
			}
			if got := f.Stored(t, x); got.State != c.state || got.AttemptIndex != c.pointer || got.ReclaimCount != 1 {
				t.Errorf("stored %+v", got)
			}
			if c.epoch == 0 {
				f.WantEvents(t, x, "lease expired", "completion failed")
				f.WantNothingClaimable(t)
			} else if next := f.ClaimOne(t); next.Lease.Epoch != c.epoch || next.Lease.Attempt != 0 {
				t.Errorf("claimed %+v, want epoch %d", next, c.epoch)
			}
			if repaired := f.Repair(t, 10); repaired != 0 {
				t.Errorf("repaired %d the second time", repaired)
			}
		})
	}
}

// A member that was lost too often ends under its flow's lock.
func TestLeaselessMemberEndsUnderTheFlowLock(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := fixture.Chart(nil, "a>b")
	spec.Nodes[0].Spec.Policy = &policy.Execution{MaxReclaims: policy.NoReclaims}
	flow := f.NewFlowOf(t, spec)
	x := f.Lease(t, flow, "a").Execution
	f.SetAttempt(t, x, 0, "lease_expires_at_ms = NULL")
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1::uuid))", flow)
	if repaired := f.Repair(t, 10); repaired != 0 {
		t.Errorf("repaired %d while the flow is held", repaired)
	}
	fixture.Commit(t, tx)
	if repaired := f.Repair(t, 10); repaired != 1 {
		t.Errorf("repaired %d", repaired)
	}
	f.WantState(t, x, fixture.StateFailed)
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateSkipped)
}

// The sweep takes no lease away, and never waits for a locked row.
func TestLeaselessSweepTakesNoLease(t *testing.T) {
	f := fixture.NewCloned(t)
	live := f.Start(t)
	superseded := f.Start(t)
	f.SeedAttempt(t, superseded.ID, 1, nil) // the current one; the first still has a lease
	f.SetExecution(t, superseded.ID, "attempt_index = 1")
	above := f.Seed(t, fixture.ClaimedByReference) // leased above its pointer
	f.SeedAttempt(t, above, 1, fixture.Columns{"lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
	heldExecution, heldAttempt := f.Start(t).ID, f.Start(t).ID
	f.SetAttempt(t, heldExecution, 0, "lease_expires_at_ms = NULL")
	f.SetAttempt(t, heldAttempt, 0, "lease_expires_at_ms = NULL")
	before := make(map[id.ExecutionID]string)
	for _, x := range []id.ExecutionID{live.ID, superseded.ID, above, heldExecution, heldAttempt} {
		before[x] = f.Dump(t, x)
	}
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, heldExecution)
	fixture.LockAttempt(t, tx, heldAttempt, 0)
	if repaired := f.Repair(t, 10); repaired != 0 {
		t.Errorf("repaired %d", repaired)
	}
	for x, rows := range before {
		f.WantUnchanged(t, x, rows)
	}
	fixture.Commit(t, tx)
	if repaired := f.Repair(t, 10); repaired != 2 {
		t.Errorf("repaired %d, want the two that were held", repaired)
	}
	f.WantState(t, heldExecution, fixture.StateReturned)
	f.WantState(t, heldAttempt, fixture.StateReturned)
}

// An attempt that gets its lease, or ends, after the sweep has seen it without one keeps it.
func TestLeaselessSweepDecidesUnderLocks(t *testing.T) {
	for name, since := range map[string]func(t *testing.T, f *fixture.Fixture, x id.ExecutionID){
		"leased": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SetAttempt(t, x, 0, fmt.Sprintf("lease_expires_at_ms = %d", fixture.Start.Add(time.Hour).UnixMilli()))
		},
		"leased as a new attempt": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SeedAttempt(t, x, 1, fixture.Columns{"lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
			f.SetExecution(t, x, "attempt_index = 1")
		},
		"ended": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) { f.SetExecution(t, x, fixture.ForeignCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Start(t).ID
			f.SetAttempt(t, x, 0, "lease_expires_at_ms = NULL")
			held, release := f.Holding(t, "ScanRepairs")
			wait := fixture.Async(t, func(ctx context.Context) error {
				n, err := upkeep.Of(held.Engine).RepairQueue(ctx, 10)
				if n != 0 {
					err = errors.Join(err, fmt.Errorf("repaired %d", n))
				}
				return err
			})
			held.AwaitBlocked(t, f)
			since(t, f, x)
			was := f.Dump(t, x)
			release()
			if err := wait(); err != nil {
				t.Error(err)
			}
			f.WantUnchanged(t, x, was)
		})
	}
}
