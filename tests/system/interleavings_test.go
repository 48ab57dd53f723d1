package system

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A claim whose snapshot is older than another claim of the same execution, and all its effects, assigns no epoch a
// second time.
func TestClaimWithAnOldSnapshotRepeatsNoEpoch(t *testing.T) {
	for _, c := range []struct {
		name     string
		released bool // the execution was interrupted before
		since    func(t *testing.T, f *fixture.Fixture, l engine.Lease)
		attempt  int32
		epoch    int64
	}{
		{"claimed", false, func(*testing.T, *fixture.Fixture, engine.Lease) {}, -1, 0},
		{"claimed and expired", false, func(t *testing.T, f *fixture.Fixture, _ engine.Lease) {
			f.Advance(fixture.LeaseTTL)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
		}, 0, 3},
		{"an interrupted one claimed and expired", true, func(t *testing.T, f *fixture.Fixture, _ engine.Lease) {
			f.Advance(fixture.LeaseTTL)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
		}, 0, 4},
		{"claimed and released", false, func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil {
				t.Fatal(err)
			}
		}, 0, 2},
		{"claimed, failed and retried", false, func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.RetryAtOnce(t, l.Execution)
			f.Fail(t, l, engine.Failure{})
		}, 1, 2},
		{"claimed and completed", false, func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			before := f.Earlier(t, f.Pool)
			first, second := f.Create(t), f.Create(t)
			if c.released {
				claimed := f.ClaimN(t, 2)
				if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{claimed[0].Lease, claimed[1].Lease}); err != nil {
					t.Fatal(err)
				}
			}
			held, release := f.Holding(t, "ClaimFromHead")
			wait := fixture.Async(t, func(ctx context.Context) []engine.Claimed {
				claimed, err := held.Claim(ctx, f.Worker(), 10)
				if err != nil {
					t.Error(err)
				}
				return claimed
			})
			held.AwaitBlocked(t, f) // it holds the first, and is about to take the second

			other := f.ClaimOne(t)
			if other.ID != second {
				t.Fatalf("claimed %s, want %s", other.ID, second)
			}
			c.since(t, f, other.Lease)
			was := f.Dump(t, second)
			release()
			if got, want := fixture.ExecutionsOf(wait()), []id.ExecutionID{first}; !slices.Equal(got, want) {
				t.Errorf("the held claim took %v, want %v", got, want)
			}
			f.WantUnchanged(t, second, was)
			claimed, err := before.Claim(t.Context(), f.Worker(), 10)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case c.attempt < 0 && len(claimed) == 0:
			case len(claimed) != 1 || claimed[0].ID != second || claimed[0].Lease.Attempt != int(c.attempt) || claimed[0].Lease.Epoch != c.epoch:
				t.Errorf("claimed %+v, want attempt %d, epoch %d", claimed, c.attempt, c.epoch)
			}
		})
	}
}

// A completion keeps the present tags, not those of its snapshot. (A claim skips rows that changed since its own.)
func TestCompletionKeepsConcurrentTags(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Create(t)
	f.Create(t)
	var ends []engine.Completion
	for _, c := range f.ClaimN(t, 2) {
		ends = append(ends, engine.Completion{Lease: c.Lease})
	}
	held, release := f.Holding(t, "CompleteExecutions")
	wait := fixture.Async(t, func(ctx context.Context) error {
		outcomes, err := held.CompleteExecutions(ctx, ends)
		return errors.Join(append(outcomes, err)...)
	})
	held.AwaitBlocked(t, f)
	x := ends[1].Lease.Execution
	if err := f.SetExecutionTag(t.Context(), x, "app.since", "set"); err != nil {
		t.Fatal(err)
	}
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if value, _, err := f.ExecutionTag(t.Context(), x, "app.since"); err != nil || value != "set" {
		t.Errorf("the tag is %q, error %v", value, err)
	}
}

// A background job decides about the rows it locked, not about those in its snapshot.
func TestJobDecidesOnLockedRows(t *testing.T) {
	renew := func(t *testing.T, e *engine.Engine, l engine.Lease) {
		if _, err := e.RenewLease(t.Context(), l, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	complete := func(t *testing.T, e *engine.Engine, l engine.Lease) {
		if err := e.CompleteExecution(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
	}
	retry := func(t *testing.T, e *engine.Engine, l engine.Lease) {
		if _, err := e.FailExecution(t.Context(), l, engine.Failure{}); err != nil {
			t.Fatal(err)
		}
	}
	timeout := func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{
			AttemptTimeout: time.Second, Retry: &policy.Retry{Backoff: policy.Fixed(0)},
		}
	}
	deadline := func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) }
	delay := func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Second) }
	nothing := func(*engine.ExecutionSpec) {}
	for _, c := range []struct {
		name, statement string
		spec            func(*engine.ExecutionSpec)
		started         bool
		since           func(t *testing.T, e *engine.Engine, l engine.Lease)
		job             func(*upkeep.Upkeep, context.Context, int) (int, error)
	}{
		{"expiry and renewal", "TakeExpiredLeases", nothing, true, renew, (*upkeep.Upkeep).ExpireLeases},
		{"expiry and completion", "TakeExpiredLeases", nothing, true, complete, (*upkeep.Upkeep).ExpireLeases},
		{"expiry and retry", "TakeExpiredLeases", nothing, true, retry, (*upkeep.Upkeep).ExpireLeases},
		{"timeout and completion", "TakeTimedOut", timeout, true, complete, (*upkeep.Upkeep).ExpireAttempts},
		{"timeout and retry", "TakeTimedOut", timeout, true, retry, (*upkeep.Upkeep).ExpireAttempts},
		{"deadline and completion", "TakeOverdue", deadline, true, complete, (*upkeep.Upkeep).ExpireDeadlines},
		{"promotion and promotion", "PromoteDelayed", delay, false, func(t *testing.T, e *engine.Engine, _ engine.Lease) {
			if n, err := upkeep.Of(e).PromoteDelayed(t.Context(), 10); err != nil || n != 1 {
				t.Fatal(n, err)
			}
		}, (*upkeep.Upkeep).PromoteDelayed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := engine.Lease{Fence: id.Fence{Execution: f.Create(t, c.spec)}}
			if c.started {
				l = f.ClaimOne(t).Lease
			}
			before := f.Earlier(t, f.Pool) // by its clock the lease is live
			f.Advance(fixture.LeaseTTL)
			if !c.started {
				before = f.Engine
			}
			held, release := f.Holding(t, c.statement)
			wait := fixture.Async(t, func(ctx context.Context) int {
				n, err := c.job(upkeep.Of(held.Engine), ctx, 10)
				if err != nil {
					t.Error(err)
				}
				return n
			})
			held.AwaitBlocked(t, f)
			c.since(t, before, l)
			was := f.Dump(t, l.Execution)
			release()
			if n := wait(); n != 0 {
				t.Errorf("the job acted on %d rows", n)
			}
			f.WantUnchanged(t, l.Execution, was)
		})
	}
}

// An execution that was claimed while the deadline's job was on its way to it is ended with that attempt.
func TestDeadlineEndsAConcurrentClaim(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Second) })
	f.Advance(time.Second)
	held, release := f.Holding(t, "TakeOverdue")
	wait := fixture.Async(t, func(ctx context.Context) error { return fixture.Acted(upkeep.Of(held.Engine).ExpireDeadlines(ctx, 10)) })
	held.AwaitBlocked(t, f)
	c := f.ClaimOne(t)
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	f.WantState(t, x, fixture.StateExpired)
	if a := f.StoredAttempts(t, x)[0]; a.Outcome != "expired" || a.LeaseEpoch != 2 || a.LeaseExpiresAtMs != nil {
		t.Errorf("attempt %+v", a)
	}
	fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), fferr.ErrStaleLease)
}

// The reference's reclaim leaves the old attempt its expiry: the scan that saw it must not throw out the new owner.
func TestExpiryLeavesAForeignReclaimAlone(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	held, release := f.Holding(t, "TakeExpiredLeases")
	wait := fixture.Async(t, func(ctx context.Context) error { return fixture.Acted(upkeep.Of(held.Engine).ExpireLeases(ctx, 10)) })
	held.AwaitBlocked(t, f)
	f.SeedAttempt(t, c.ID, 1, fixture.Columns{"lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
	f.SetExecution(t, c.ID, "attempt_index = 1, lease_reclaim_count = 1")
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if got := f.Stored(t, c.ID); got.State != fixture.StateRunning || got.AttemptIndex != 1 || got.ReclaimCount != 1 {
		t.Errorf("stored %+v, want it untouched", got)
	}
	if a := f.StoredAttempts(t, c.ID); a[0].LeaseExpiresAtMs != nil || a[1].LeaseExpiresAtMs == nil || a[1].LeaseEpoch != 1 {
		t.Errorf("attempts %+v", a)
	}
	f.WantEvents(t, c.ID, "lease acquired")
}

// A renewal beside the transaction that expires the lease does not wait for it, and comes too late after it, though its
// own clock says otherwise.
func TestRenewalDuringAnExpiryNeverWaits(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	before := f.Earlier(t, f.Pool)
	f.Advance(fixture.LeaseTTL)
	tx := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(tx)).ExpireLeases(t.Context(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := before.RenewLease(t.Context(), c.Lease, 0); !errors.Is(err, fferr.ErrBusy) {
		t.Errorf("got %v, want that it is busy", err)
	}
	fixture.Commit(t, tx)
	_, err := before.RenewLease(t.Context(), c.Lease, 0)
	fixture.WantLeaseError(t, err, fferr.ErrStaleLease)
	f.WantState(t, c.ID, fixture.StateReturned)
}

// A change committed while a holder's call waits for the execution decides the call.
func TestHolderCallDecidesAfterTheLock(t *testing.T) {
	cancelled := `lifecycle_phase = 'cancelled', ownership_state = 'unowned', eligibility_state = 'not_applicable',
		public_state = 'cancelled', attempt_state = 'cancelled', blocking_reason = NULL, terminal_at_ms = 1`
	for _, change := range []struct {
		name, execution, attempt string
		want                     error
	}{
		{"a cancel", cancelled + ", ffx_lease_epoch = 2", "lease_epoch = 2, lease_expires_at_ms = NULL, outcome = 'cancelled'", fferr.ErrStaleLease},
		{"a cancel of the reference, which leaves the attempt", cancelled, "usage = '{}'", fferr.ErrNotActive},
		{"a tag", `raw_fields = raw_fields || '{"tags":{"app.set":"v"}}'`, "", nil},
		{"a priority", "priority = 9", "", nil},
	} {
		for call, do := range fixture.HolderCalls {
			if call == "renew" || call == "release" || call == "complete and claim" {
				continue // they never wait
			}
			if call == "reserve" || call == "settle" {
				continue // their lock of the attempt waits for no change but a deletion; what they reserve returns with the lease
			}
			if (call == "record step" || call == "append frames") && change.attempt == "" {
				continue // it waits for the attempt alone
			}
			t.Run(change.name+"/"+call, func(t *testing.T) {
				f := fixture.New(t)
				c := f.Start(t)
				late := f.Rival(t)
				tx := f.BeginTx(t)
				fixture.ExecIn(t, tx, fixture.UpdateExecution(change.execution), c.ID.Partition(), c.ID.UUID())
				if change.attempt != "" {
					fixture.ExecIn(t, tx, "UPDATE ff_attempt SET "+change.attempt+" WHERE partition_key = $1 AND execution_id = $2",
						c.ID.Partition(), c.ID.UUID())
				}
				wait := fixture.Async(t, func(context.Context) error { return do(t, late.Engine, c.Lease) })
				late.AwaitBlocked(t, f)
				fixture.Commit(t, tx)
				was := f.Dump(t, c.ID)
				err := wait()
				if change.want != nil {
					fixture.WantLeaseError(t, err, change.want)
					f.WantUnchanged(t, c.ID, was)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if call == "complete" {
					f.WantState(t, c.ID, fixture.StateCompleted)
				}
				if got := f.Stored(t, c.ID); change.name == "a tag" && got.Raw(t, "tags") != "map[app.set:v]" || change.name == "a priority" && got.Priority != 9 {
					t.Errorf("the other change was lost: %+v", got)
				}
			})
		}
	}
}

// An execution that joins a flow while its completion waits has its dependents released.
func TestCompletionResolvesAFlowJoinedConcurrently(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "up>down")
	up, down := f.NodeID(flow, "up"), f.NodeID(flow, "down")
	f.SetExecution(t, up, "flow_id = NULL")
	c := f.ClaimOne(t)
	if c.ID != up || c.Flow != nil {
		t.Fatalf("claimed %+v, want %s outside a flow", c, up)
	}
	late := f.Rival(t)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", up.Partition(), up.UUID(), flow)
	wait := fixture.Async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, c.Lease, nil) })
	late.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, up, fixture.StateCompleted)
	f.WantState(t, down, fixture.StateReady)
	if events := f.Fixture.CompletionEvents(t, up); len(events) != 1 || events[0].FlowID == nil || *events[0].FlowID != flow {
		t.Errorf("events %+v, want one of flow %s", events, flow)
	}
}

// Of two creations with one key, or of one id, the second waits for the first.
func TestConcurrentCreationsWaitForEachOther(t *testing.T) {
	type by struct{ key, id bool } // the values that the two share
	for _, c := range []struct {
		name          string
		first, second by
		expired       bool // an earlier execution has had the key
	}{
		{"with one key", by{key: true}, by{key: true}, false},
		{"with one key, the window of which has passed", by{key: true}, by{key: true}, true},
		{"of one id", by{id: true}, by{id: true}, false},
		{"of one id, the first with a key", by{key: true, id: true}, by{id: true}, false},
		{"of one id, the second with a key", by{id: true}, by{key: true, id: true}, false},
	} {
		for _, ends := range []string{"commits", "rolls back"} {
			t.Run(c.name+", the first "+ends, func(t *testing.T) {
				f := fixture.New(t)
				x := id.NewExecutionID(f.Lane, id.Partitions{})
				spec := func(by by) engine.ExecutionSpec {
					s := engine.ExecutionSpec{Kind: "test", Lane: f.Lane}
					if by.key {
						s.IdempotencyKey = f.Key("key")
					}
					if by.id {
						s.ID = x
					}
					return s
				}
				late := f.Rival(t)
				if _, err := late.CreateExecution(t.Context(), spec(by{})); err != nil { // the lane is known from now on
					t.Fatal(err)
				}
				if c.expired {
					f.Create(t, func(s *engine.ExecutionSpec) { s.IdempotencyKey = f.Key("key") })
					f.Advance(24 * time.Hour)
				}
				before := f.CountOnLane(t)

				tx := f.BeginTx(t)
				first, err := f.WithTx(tx).CreateExecution(t.Context(), spec(c.first))
				if err != nil || first.Duplicate {
					t.Fatal(first, err)
				}
				wait := fixture.Async(t, func(ctx context.Context) engine.Created {
					created, err := late.CreateExecution(ctx, spec(c.second))
					if err != nil {
						t.Error(err)
					}
					return created
				})
				late.AwaitBlocked(t, f)
				if ends == "commits" {
					fixture.Commit(t, tx)
				} else if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				second := wait()
				if want := ends == "commits"; second.Duplicate != want || want && second.ID != first.ID {
					t.Errorf("created %+v after %+v, want duplicate %t", second, first, want)
				}
				if got := f.CountOnLane(t) - before; got != 1 {
					t.Errorf("%d executions were created, want 1", got)
				}
			})
		}
	}
}
