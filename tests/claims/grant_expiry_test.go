package claims

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The reference's grants never expire back: the execution is lost. Nor are its left-over grants ever deleted: a later
// attempt can be claimed by one.
func TestExpiredGrantReturnsTheExecution_E4_I31(t *testing.T) {
	for _, c := range []struct {
		name  string
		state string // of the granted execution, assignments
		want  string
	}{
		{"never claimed", "priority = priority", fixture.StateReady},
		{"interrupted", "attempt_state = 'attempt_interrupted'", fixture.StateReturned},
		{
			"resumable", "attempt_state = 'attempt_interrupted', public_state = 'resumable', ownership_state = 'released'",
			"runnable unowned eligible_now resumable attempt_interrupted waiting_for_worker",
		},
		{
			"in a spelling of the reference", "lifecycle_phase = 'submitted', attempt_state = 'pending', blocking_reason = NULL",
			"runnable unowned eligible_now waiting pending waiting_for_worker",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			x := f.Create(t)
			grant := f.Issue(t, x)
			f.SetExecution(t, x, c.state)
			f.Advance(fixture.GrantTTL - time.Millisecond)
			before := f.Dump(t, x)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 0)
			f.WantUnchanged(t, x, before)
			f.Advance(time.Millisecond)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 1)
			f.WantState(t, x, c.want)
			if stored := f.Stored(t, x); f.CountGrants(t, x) != 0 || *stored.LastMutation != f.Time().UnixMilli() || stored.LeaseEpoch != 0 {
				t.Errorf("stored %+v", stored)
			}
			f.WantEvents(t, x)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 0)
			claimed := f.ClaimOne(t)
			if claimed.ID != x {
				t.Errorf("claimed %s", claimed.ID)
			}
			before = f.Dump(t, x)
			_, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(grant))
			if !errors.Is(err, fferr.ErrNotLeaseable) {
				t.Errorf("the old grant: %v", err)
			}
			f.WantUnchanged(t, x, before)
		})
	}
}

// Other expiries: grants beside a good one, of executions that are elsewhere or gone, and reclaim grants.
func TestExpireGrantsOfOtherExecutions_E4(t *testing.T) {
	f := fixture.GrantFixture(t)
	insert := func(x id.ExecutionID, kind string, expires time.Time) {
		f.Exec(t, `INSERT INTO ff_claim_grant (partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, grant_ttl_ms, issued_at_ms, expires_at_ms)
			VALUES ($1, $2, $3, $4, 'w', 'w', 1, 1, $5)`, x.Partition(), []byte(id.NewLeaseID().String()), x.UUID(), kind, expires.UnixMilli())
	}
	held := f.Start(t)
	granted, ready, gone := f.Create(t), f.Create(t), id.NewExecutionID(f.Lane, id.Partitions{})
	f.Issue(t, granted)
	for _, x := range []id.ExecutionID{held.ID, granted, ready, gone} {
		insert(x, "claim", fixture.Start)
		insert(x, "reclaim", fixture.Start)
	}
	insert(ready, "reclaim", fixture.Start.Add(time.Hour))
	states := [...]string{f.Stored(t, held.ID).State, f.Stored(t, granted).State, f.Stored(t, ready).State}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 4)
	if now := [...]string{f.Stored(t, held.ID).State, f.Stored(t, granted).State, f.Stored(t, ready).State}; now != states {
		t.Errorf("states %q, were %q", now, states)
	}
	for x, want := range map[id.ExecutionID]int{held.ID: 0, granted: 1, ready: 1, gone: 0} {
		if got := f.CountGrants(t, x); got != want {
			t.Errorf("%s has %d grants, want %d", x, got, want)
		}
	}
	// A reclaim grant reserves no claim.
	f.Exec(t, "UPDATE ff_claim_grant SET kind = 'reclaim' WHERE execution_id = $1", granted.UUID())
	insert(granted, "claim", fixture.Start)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 1)
	f.WantState(t, granted, fixture.StateReady)
}

// A batch has its size, and locked grants hide none after them.
func TestExpireGrantsInBatches_E4(t *testing.T) {
	const n, batch = 130, 100
	f := fixture.GrantFixture(t)
	held, gone := f.Create(t), id.NewExecutionID(f.Lane, id.Partitions{})
	f.Issue(t, held)
	f.Advance(time.Millisecond)
	for range n {
		f.Create(t)
	}
	for range n {
		if _, found, err := interop.ClaimForWorker(t.Context(), f.Engine, f.WorkerSpec()); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	f.SeedGrant(t, gone)
	f.Advance(2 * time.Hour)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, held)
	acted := 0
	for _, want := range []int{batch, n + 1 - batch, 0} {
		got, err := upkeep.Of(f.Engine).ExpireGrants(t.Context(), batch)
		if acted += got; got != want || err != nil {
			t.Errorf("acted on %d, %v; want %d", got, err, want)
		}
	}
	f.WantState(t, held, fixture.StateGranted)
	fixture.Commit(t, tx)
	tx = f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_claim_grant FOR UPDATE") // the execution goes back even so
	fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 1)
	f.WantState(t, held, fixture.StateReady)
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 1)
	if f.CountGrants(t, held) != 0 {
		t.Error("its grant is still there")
	}
	if left := len(claimAllOf(t, f)); left != n+1 {
		t.Errorf("%d are claimable, want %d", left, n+1)
	}
}

func claimAllOf(t *testing.T, f *fixture.Fixture) (claimed []engine.Claimed) {
	t.Helper()
	for {
		more, err := f.Claim(t.Context(), f.Worker(), engine.MaxBatch)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			return claimed
		}
		claimed = append(claimed, more...)
	}
}

// The sweep finds granted executions without a grant, which no expiry finds.
func TestSweepFindsExecutionsWithoutAGrant_E4(t *testing.T) {
	f := fixture.GrantFixture(t)
	lost, granted, expired, held := f.Create(t), f.Create(t), f.Create(t), f.Create(t)
	for _, x := range []id.ExecutionID{lost, granted, expired, held} {
		f.Issue(t, x)
	}
	f.Exec(t, "DELETE FROM ff_claim_grant WHERE execution_id = ANY ($1)", []id.ExecutionUUID{lost.UUID(), held.UUID()})
	f.Exec(t, "UPDATE ff_claim_grant SET expires_at_ms = 1 WHERE execution_id = $1", expired.UUID())
	suspended := f.Create(t)
	f.SetExecution(t, suspended, "lifecycle_phase = 'suspended', eligibility_state = 'pending_claim'")
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, held)
	fixture.Run(t, upkeep.Of(f.Engine).RepairQueue, 2)
	f.WantState(t, lost, fixture.StateReady)
	f.WantState(t, expired, fixture.StateReady)
	f.WantState(t, granted, fixture.StateGranted)
	f.WantState(t, held, fixture.StateGranted)
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).RepairQueue, 0) // the end of the sweep
	fixture.Run(t, upkeep.Of(f.Engine).RepairQueue, 1)
	f.WantState(t, held, fixture.StateReady)
	if got := len(claimAllOf(t, f)); got != 3 {
		t.Errorf("claimed %d, want 3", got)
	}
}

// A grant that expires while it is used.
func TestGrantExpiryRacesItsClaim(t *testing.T) {
	t.Run("claimed before it is given back", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		grant := f.Issue(t, f.Create(t))
		early := f.Earlier(t, f.Pool)
		f.Advance(fixture.GrantTTL)
		late := f.StoppedBefore(t, "TakeExecutions")
		expire := fixture.Async(t, func(ctx context.Context) error {
			n, err := upkeep.Of(late.Engine).ExpireGrants(ctx, 10)
			if n != 0 && err == nil {
				err = fmt.Errorf("acted on %d", n)
			}
			return err
		})
		late.AwaitStop(t)
		claimed, err := interop.ClaimExecution(t.Context(), early, f.Using(grant))
		if err != nil {
			t.Fatal(err)
		}
		before := f.Dump(t, grant.Execution)
		late.Resume()
		if err := expire(); err != nil {
			t.Error(err)
		}
		f.WantUnchanged(t, grant.Execution, before)
		if err := early.CompleteExecution(t.Context(), claimed.Lease, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("claimed while it is given back", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		x := f.Create(t)
		early := f.Earlier(t, f.Pool)
		grant := f.Issue(t, x)
		f.Advance(fixture.GrantTTL)
		held, release := f.Holding(t, "ExpireGrants") // with the row locked
		expire := fixture.Async(t, func(ctx context.Context) error { _, err := upkeep.Of(held.Engine).ExpireGrants(ctx, 10); return err })
		held.AwaitBlocked(t, f)
		claim := fixture.Async(t, func(ctx context.Context) error {
			_, err := interop.ClaimExecution(ctx, early, f.Using(grant))
			return err
		})
		release()
		if err := expire(); err != nil {
			t.Error(err)
		}
		wantGrantError(t, claim(), fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
		f.WantState(t, x, fixture.StateReady)
	})
	t.Run("granted anew before it is given back", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		x := f.Create(t)
		f.Issue(t, x)
		f.Advance(fixture.GrantTTL)
		late := f.StoppedBefore(t, "TakeExecutions")
		expire := fixture.Async(t, func(ctx context.Context) int { n, _ := upkeep.Of(late.Engine).ExpireGrants(ctx, 10); return n })
		late.AwaitStop(t)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 1)
		f.Issue(t, x)
		before := f.Dump(t, x)
		late.Resume()
		if n := expire(); n != 0 {
			t.Errorf("acted on %d", n)
		}
		f.WantUnchanged(t, x, before)
	})
}

// The sweep reads a page, and an execution of it is granted anew, or claimed, before it acts.
func TestSweepRacesGrants(t *testing.T) {
	f := fixture.GrantFixture(t)
	again, claimed := f.Create(t), f.Create(t)
	for _, x := range []id.ExecutionID{again, claimed} {
		f.Issue(t, x)
	}
	f.Exec(t, "DELETE FROM ff_claim_grant")
	late := f.StoppedBefore(t, "TakeExecutions")
	sweep := fixture.Async(t, func(ctx context.Context) int { n, _ := upkeep.Of(late.Engine).RepairQueue(ctx, 100); return n })
	late.AwaitStop(t)
	if _, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, claimed, "", fixture.LeaseTTL); err != nil {
		t.Fatal(err)
	}
	f.SetExecution(t, again, "eligibility_state = 'eligible_now'")
	f.Issue(t, again)
	late.Resume()
	if n := sweep(); n != 0 {
		t.Errorf("repaired %d", n)
	}
	f.WantState(t, again, fixture.StateGranted)
	f.WantState(t, claimed, fixture.StateRunning)
}

// A reclaim races every other operation on a lost lease.
func TestReclaimRaces_E10_E11(t *testing.T) {
	for _, c := range []struct {
		name  string
		then  func(t *testing.T, f *fixture.Fixture, early *engine.Engine, held engine.Claimed)
		want  error
		epoch int64
	}{
		{"swept before it", func(t *testing.T, f *fixture.Fixture, _ *engine.Engine, _ engine.Claimed) {
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
		}, nil, 3},
		{"renewed before it", func(t *testing.T, f *fixture.Fixture, early *engine.Engine, held engine.Claimed) {
			if _, err := early.RenewLease(t.Context(), held.Lease, time.Hour); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotReclaimable, 0},
		{"completed before it", func(t *testing.T, f *fixture.Fixture, early *engine.Engine, held engine.Claimed) {
			if err := early.CompleteExecution(t.Context(), held.Lease, nil); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotReclaimable, 0},
		{"swept and claimed before it", func(t *testing.T, f *fixture.Fixture, _ *engine.Engine, _ engine.Claimed) {
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.ClaimOne(t)
		}, fferr.ErrNotReclaimable, 0},
		{"reclaimed before it", func(t *testing.T, f *fixture.Fixture, _ *engine.Engine, held engine.Claimed) {
			if _, err := interop.ReclaimExecution(t.Context(), f.Engine, f.Reclaiming(interop.ReclaimGrant{Execution: held.ID})); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrInvalidGrant, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			early := f.Earlier(t, f.Pool)
			held := f.Start(t)
			f.Advance(fixture.LeaseTTL)
			grant := f.IssueReclaim(t, held.ID)
			late := f.StoppedBefore(t, "LockExecutions")
			type result struct {
				claimed engine.Claimed
				err     error
			}
			reclaim := fixture.Async(t, func(ctx context.Context) result {
				claimed, err := interop.ReclaimExecution(ctx, late.Rival.Engine, f.Reclaiming(grant))
				return result{claimed, err}
			})
			late.AwaitStop(t)
			c.then(t, f, early, held)
			before := f.Dump(t, held.ID)
			late.Resume()
			got := reclaim()
			if c.want != nil {
				if !errors.Is(got.err, c.want) {
					t.Errorf("got %v, want %v", got.err, c.want)
				}
				f.WantUnchanged(t, held.ID, before)
				return
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if n := f.Stored(t, held.ID).ReclaimCount; n != 1 {
				t.Errorf("%d lost leases are counted", n)
			}
			wantLease(t, f, got.claimed, 1, c.epoch, state.ReclaimAttempt, false)
		})
	}
	t.Run("the sweep after it", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		held := f.Start(t)
		f.Advance(fixture.LeaseTTL)
		grant := f.IssueReclaim(t, held.ID)
		late := f.StoppedBefore(t, "TakeExpiredLeases")
		sweep := fixture.Async(t, func(ctx context.Context) int { n, _ := upkeep.Of(late.Engine).ExpireLeases(ctx, 10); return n })
		late.AwaitStop(t)
		claimed, err := interop.ReclaimExecution(t.Context(), f.Engine, f.Reclaiming(grant))
		if err != nil {
			t.Fatal(err)
		}
		late.Resume()
		if n := sweep(); n != 0 {
			t.Errorf("swept %d", n)
		}
		wantLease(t, f, claimed, 1, 2, state.ReclaimAttempt, false)
	})
	t.Run("a renewal that waits for it", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		early := f.Earlier(t, f.Pool)
		held := f.Start(t)
		f.Advance(fixture.LeaseTTL)
		grant := f.IssueReclaim(t, held.ID)
		tx := f.BeginTx(t)
		if _, err := interop.ReclaimExecution(t.Context(), f.WithTx(tx), f.Reclaiming(grant)); err != nil {
			t.Fatal(err)
		}
		if _, err := early.RenewLease(t.Context(), held.Lease, 0); !errors.Is(err, fferr.ErrBusy) {
			t.Errorf("renewed: %v", err)
		}
		fixture.Commit(t, tx)
		if _, err := early.RenewLease(t.Context(), held.Lease, 0); !errors.Is(err, fferr.ErrStaleLease) {
			t.Errorf("renewed: %v", err)
		}
	})
}
