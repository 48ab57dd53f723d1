package tests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// The reference's grants never expire back: the execution is lost. Nor are its left-over grants ever deleted: a later
// attempt can be claimed by one.
func TestE4_I31_an_expired_grant_gives_the_execution_back(t *testing.T) {
	for _, c := range []struct {
		name  string
		state string // of the granted execution, assignments
		want  string
	}{
		{"never claimed", "priority = priority", stateReady},
		{"interrupted", "attempt_state = 'attempt_interrupted'", stateReturned},
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
			f := grantFixture(t)
			x := f.create(t)
			grant := f.issue(t, x)
			f.setExecution(t, x, c.state)
			f.advance(grantTTL - time.Millisecond)
			before := f.dump(t, x)
			run(t, f.Maintenance().ExpireGrants, 0)
			f.wantUnchanged(t, x, before)
			f.advance(time.Millisecond)
			run(t, f.Maintenance().ExpireGrants, 1)
			f.wantState(t, x, c.want)
			if stored := f.stored(t, x); f.grants(t, x) != 0 || *stored.LastMutation != f.now().UnixMilli() || stored.LeaseEpoch != 0 {
				t.Errorf("stored %+v", stored)
			}
			f.wantEvents(t, x)
			run(t, f.Maintenance().ExpireGrants, 0)
			claimed := f.claim(t)
			if claimed.ID != x {
				t.Errorf("claimed %s", claimed.ID)
			}
			before = f.dump(t, x)
			_, err := f.Grants().ClaimExecution(t.Context(), f.using(grant))
			if !errors.Is(err, engine.ErrNotLeaseable) {
				t.Errorf("the old grant: %v", err)
			}
			f.wantUnchanged(t, x, before)
		})
	}
}

// What else expires: grants beside one that is good, of executions that are somewhere else or gone, and to reclaim.
func TestE4_expiry_of_grants_that_hold_nothing(t *testing.T) {
	f := grantFixture(t)
	insert := func(x id.ExecutionID, kind string, expires time.Time) {
		f.exec(t, `INSERT INTO ff_claim_grant (partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, grant_ttl_ms, issued_at_ms, expires_at_ms)
			VALUES ($1, $2, $3, $4, 'w', 'w', 1, 1, $5)`, x.Partition(), []byte(id.NewLeaseID().String()), x.UUID(), kind, expires.UnixMilli())
	}
	held := f.start(t)
	granted, ready, gone := f.create(t), f.create(t), id.NewExecutionID(f.lane, id.Partitions{})
	f.issue(t, granted)
	for _, x := range []id.ExecutionID{held.ID, granted, ready, gone} {
		insert(x, "claim", start)
		insert(x, "reclaim", start)
	}
	insert(ready, "reclaim", start.Add(time.Hour))
	states := [...]string{f.stored(t, held.ID).State, f.stored(t, granted).State, f.stored(t, ready).State}
	run(t, f.Maintenance().ExpireGrants, 4)
	if now := [...]string{f.stored(t, held.ID).State, f.stored(t, granted).State, f.stored(t, ready).State}; now != states {
		t.Errorf("states %q, were %q", now, states)
	}
	for x, want := range map[id.ExecutionID]int{held.ID: 0, granted: 1, ready: 1, gone: 0} {
		if got := f.grants(t, x); got != want {
			t.Errorf("%s has %d grants, want %d", x, got, want)
		}
	}
	// A reclaim grant holds nobody's claim.
	f.exec(t, "UPDATE ff_claim_grant SET kind = 'reclaim' WHERE execution_id = $1", granted.UUID())
	insert(granted, "claim", start)
	run(t, f.Maintenance().ExpireGrants, 1)
	f.wantState(t, granted, stateReady)
}

// A batch is a batch, and what is held hides nothing behind it.
func TestE4_expiry_of_grants_in_batches(t *testing.T) {
	const n = 1300
	f := grantFixture(t)
	held, gone := f.create(t), id.NewExecutionID(f.lane, id.Partitions{})
	f.issue(t, held)
	f.advance(time.Millisecond)
	for range n {
		f.create(t)
	}
	for range n {
		if _, found, err := f.Grants().ClaimForWorker(t.Context(), f.workerSpec()); !found || err != nil {
			t.Fatal(found, err)
		}
	}
	f.seedGrant(t, gone)
	f.advance(2 * time.Hour)
	tx := f.begin(t)
	lockExecution(t, tx, held)
	acted := 0
	for _, want := range []int{1000, n + 1 - 1000, 0} {
		got, err := f.Maintenance().ExpireGrants(t.Context(), 1000)
		if acted += got; got != want || err != nil {
			t.Errorf("acted on %d, %v; want %d", got, err, want)
		}
	}
	f.wantState(t, held, stateGranted)
	commit(t, tx)
	tx = f.begin(t)
	execIn(t, tx, "SELECT FROM ff_claim_grant FOR UPDATE") // the execution goes back even so
	run(t, f.Maintenance().ExpireGrants, 1)
	f.wantState(t, held, stateReady)
	commit(t, tx)
	run(t, f.Maintenance().ExpireGrants, 1)
	if f.grants(t, held) != 0 {
		t.Error("its grant is still there")
	}
	if left := len(f.claimAllOf(t)); left != n+1 {
		t.Errorf("%d are claimable, want %d", left, n+1)
	}
}

func (f *fixture) claimAllOf(t *testing.T) (claimed []engine.Claimed) {
	t.Helper()
	for {
		more, err := f.Claim(t.Context(), f.worker(), engine.MaxBatch)
		if err != nil {
			t.Fatal(err)
		}
		if len(more) == 0 {
			return claimed
		}
		claimed = append(claimed, more...)
	}
}

// What is granted without a grant, which no expiry finds, is found by the sweep.
func TestE4_the_sweep_finds_what_is_granted_to_nobody(t *testing.T) {
	f := grantFixture(t)
	lost, granted, expired, held := f.create(t), f.create(t), f.create(t), f.create(t)
	for _, x := range []id.ExecutionID{lost, granted, expired, held} {
		f.issue(t, x)
	}
	f.exec(t, "DELETE FROM ff_claim_grant WHERE execution_id = ANY ($1)", []id.ExecutionUUID{lost.UUID(), held.UUID()})
	f.exec(t, "UPDATE ff_claim_grant SET expires_at_ms = 1 WHERE execution_id = $1", expired.UUID())
	suspended := f.create(t)
	f.setExecution(t, suspended, "lifecycle_phase = 'suspended', eligibility_state = 'pending_claim'")
	tx := f.begin(t)
	lockExecution(t, tx, held)
	run(t, f.Maintenance().RepairQueue, 2)
	f.wantState(t, lost, stateReady)
	f.wantState(t, expired, stateReady)
	f.wantState(t, granted, stateGranted)
	f.wantState(t, held, stateGranted)
	commit(t, tx)
	run(t, f.Maintenance().RepairQueue, 0) // the end of the sweep
	run(t, f.Maintenance().RepairQueue, 1)
	f.wantState(t, held, stateReady)
	if got := len(f.claimAllOf(t)); got != 3 {
		t.Errorf("claimed %d, want 3", got)
	}
}

// A grant that expires while it is used.
func TestInterleaving_expiry_of_a_grant_and_its_claim(t *testing.T) {
	t.Run("claimed before it is given back", func(t *testing.T) {
		f := grantFixture(t)
		grant := f.issue(t, f.create(t))
		early := f.earlier(t, f.pool)
		f.advance(grantTTL)
		late := f.stoppedBefore(t, "TakeExecutions")
		expire := async(t, func(ctx context.Context) error {
			n, err := late.Maintenance().ExpireGrants(ctx, 10)
			if n != 0 && err == nil {
				err = fmt.Errorf("acted on %d", n)
			}
			return err
		})
		late.awaitStop(t)
		claimed, err := early.Grants().ClaimExecution(t.Context(), f.using(grant))
		if err != nil {
			t.Fatal(err)
		}
		before := f.dump(t, grant.Execution)
		late.resume()
		if err := expire(); err != nil {
			t.Error(err)
		}
		f.wantUnchanged(t, grant.Execution, before)
		if err := early.CompleteExecution(t.Context(), claimed.Lease, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("claimed while it is given back", func(t *testing.T) {
		f := grantFixture(t)
		x := f.create(t)
		early := f.earlier(t, f.pool)
		grant := f.issue(t, x)
		f.advance(grantTTL)
		held, release := f.holding(t, "ExpireGrants") // with the row locked
		expire := async(t, func(ctx context.Context) error { _, err := held.Maintenance().ExpireGrants(ctx, 10); return err })
		held.awaitBlocked(t, f)
		claim := async(t, func(ctx context.Context) error {
			_, err := early.Grants().ClaimExecution(ctx, f.using(grant))
			return err
		})
		release()
		if err := expire(); err != nil {
			t.Error(err)
		}
		wantGrantError(t, claim(), engine.ErrInvalidGrant, id.ReasonUnknownGrant)
		f.wantState(t, x, stateReady)
	})
	t.Run("granted anew before it is given back", func(t *testing.T) {
		f := grantFixture(t)
		x := f.create(t)
		f.issue(t, x)
		f.advance(grantTTL)
		late := f.stoppedBefore(t, "TakeExecutions")
		expire := async(t, func(ctx context.Context) int { n, _ := late.Maintenance().ExpireGrants(ctx, 10); return n })
		late.awaitStop(t)
		run(t, f.Maintenance().ExpireGrants, 1)
		f.issue(t, x)
		before := f.dump(t, x)
		late.resume()
		if n := expire(); n != 0 {
			t.Errorf("acted on %d", n)
		}
		f.wantUnchanged(t, x, before)
	})
}

// The sweep reads a page, and an execution of it is granted anew, or claimed, before it acts.
func TestInterleaving_sweep_and_grants(t *testing.T) {
	f := grantFixture(t)
	again, claimed := f.create(t), f.create(t)
	for _, x := range []id.ExecutionID{again, claimed} {
		f.issue(t, x)
	}
	f.exec(t, "DELETE FROM ff_claim_grant")
	late := f.stoppedBefore(t, "TakeExecutions")
	sweep := async(t, func(ctx context.Context) int { n, _ := late.Maintenance().RepairQueue(ctx, 100); return n })
	late.awaitStop(t)
	if _, err := f.Grants().IssueGrantAndClaim(t.Context(), claimed, "", leaseTTL); err != nil {
		t.Fatal(err)
	}
	f.setExecution(t, again, "eligibility_state = 'eligible_now'")
	f.issue(t, again)
	late.resume()
	if n := sweep(); n != 0 {
		t.Errorf("repaired %d", n)
	}
	f.wantState(t, again, stateGranted)
	f.wantState(t, claimed, stateRunning)
}

// A reclaim beside what else can happen to a lost lease.
func TestE10_E11_interleavings_of_a_reclaim(t *testing.T) {
	for _, c := range []struct {
		name  string
		then  func(t *testing.T, f *fixture, early *engine.Engine, held engine.Claimed)
		want  error
		epoch int64
	}{
		{"swept before it", func(t *testing.T, f *fixture, _ *engine.Engine, _ engine.Claimed) {
			run(t, f.Maintenance().ExpireLeases, 1)
		}, nil, 3},
		{"renewed before it", func(t *testing.T, f *fixture, early *engine.Engine, held engine.Claimed) {
			if _, err := early.RenewLease(t.Context(), held.Lease, time.Hour); err != nil {
				t.Fatal(err)
			}
		}, engine.ErrNotReclaimable, 0},
		{"completed before it", func(t *testing.T, f *fixture, early *engine.Engine, held engine.Claimed) {
			if err := early.CompleteExecution(t.Context(), held.Lease, nil); err != nil {
				t.Fatal(err)
			}
		}, engine.ErrNotReclaimable, 0},
		{"swept and claimed before it", func(t *testing.T, f *fixture, _ *engine.Engine, _ engine.Claimed) {
			run(t, f.Maintenance().ExpireLeases, 1)
			f.claim(t)
		}, engine.ErrNotReclaimable, 0},
		{"reclaimed before it", func(t *testing.T, f *fixture, _ *engine.Engine, held engine.Claimed) {
			if _, err := f.Grants().ReclaimExecution(t.Context(), f.reclaiming(engine.ReclaimGrant{Execution: held.ID})); err != nil {
				t.Fatal(err)
			}
		}, engine.ErrInvalidGrant, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := grantFixture(t)
			early := f.earlier(t, f.pool)
			held := f.start(t)
			f.advance(leaseTTL)
			grant := f.issueReclaim(t, held.ID)
			late := f.stoppedBefore(t, "LockExecutions")
			type result struct {
				claimed engine.Claimed
				err     error
			}
			reclaim := async(t, func(ctx context.Context) result {
				claimed, err := late.Grants().ReclaimExecution(ctx, f.reclaiming(grant))
				return result{claimed, err}
			})
			late.awaitStop(t)
			c.then(t, f, early, held)
			before := f.dump(t, held.ID)
			late.resume()
			got := reclaim()
			if c.want != nil {
				if !errors.Is(got.err, c.want) {
					t.Errorf("got %v, want %v", got.err, c.want)
				}
				f.wantUnchanged(t, held.ID, before)
				return
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if n := f.stored(t, held.ID).ReclaimCount; n != 1 {
				t.Errorf("%d lost leases are counted", n)
			}
			f.wantLease(t, got.claimed, 1, c.epoch, state.ReclaimAttempt, false)
		})
	}
	t.Run("the sweep after it", func(t *testing.T) {
		f := grantFixture(t)
		held := f.start(t)
		f.advance(leaseTTL)
		grant := f.issueReclaim(t, held.ID)
		late := f.stoppedBefore(t, "TakeExpiredLeases")
		sweep := async(t, func(ctx context.Context) int { n, _ := late.Maintenance().ExpireLeases(ctx, 10); return n })
		late.awaitStop(t)
		claimed, err := f.Grants().ReclaimExecution(t.Context(), f.reclaiming(grant))
		if err != nil {
			t.Fatal(err)
		}
		late.resume()
		if n := sweep(); n != 0 {
			t.Errorf("swept %d", n)
		}
		f.wantLease(t, claimed, 1, 2, state.ReclaimAttempt, false)
	})
	t.Run("a renewal that waits for it", func(t *testing.T) {
		f := grantFixture(t)
		early := f.earlier(t, f.pool)
		held := f.start(t)
		f.advance(leaseTTL)
		grant := f.issueReclaim(t, held.ID)
		tx := f.begin(t)
		if _, err := f.WithTx(tx).Grants().ReclaimExecution(t.Context(), f.reclaiming(grant)); err != nil {
			t.Fatal(err)
		}
		if _, err := early.RenewLease(t.Context(), held.Lease, 0); !errors.Is(err, engine.ErrBusy) {
			t.Errorf("renewed: %v", err)
		}
		commit(t, tx)
		if _, err := early.RenewLease(t.Context(), held.Lease, 0); !errors.Is(err, engine.ErrStaleLease) {
			t.Errorf("renewed: %v", err)
		}
	})
}
