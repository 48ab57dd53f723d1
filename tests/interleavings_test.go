package tests

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Each test makes one race happen: a statement is held after it has taken its snapshot, or waits for a row, while
// something else is committed. (A statement waiting for a row has its snapshot already.)

// holding returns a rival whose statements of one name stop where they read the clock, after their snapshot
// and before they lock what the clock decides about, until release is called, however impatient they are.
func (f *fixture) holding(t *testing.T, statement string) (held *rival, release func()) {
	t.Helper()
	f.exec(t, `CREATE OR REPLACE FUNCTION ffx_now_ms(now_ms bigint) RETURNS bigint LANGUAGE plpgsql STABLE SET lock_timeout = 0 AS $$
		BEGIN
			IF current_query() LIKE '-- name: ' || current_setting('test.hold', true) || ' %' THEN
				PERFORM pg_advisory_xact_lock_shared(4712);
			END IF;
			RETURN coalesce(now_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint);
		END $$`)
	tx := f.begin(t)
	execIn(t, tx, "SELECT pg_advisory_xact_lock(4712)")
	held = f.rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["test.hold"] = statement })
	return held, func() { t.Helper(); commit(t, tx) }
}

// earlier returns an engine whose clock stays where it is.
func (f *fixture) earlier(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	now := f.now()
	eng, err := engine.New(pool, engine.Config{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return eng
}

// A claim whose snapshot is older than another claim of the same execution, and whatever came of it, gives no epoch
// a second time.
func TestInterleaving_claim_with_an_old_snapshot(t *testing.T) {
	for _, c := range []struct {
		name     string
		released bool // the execution was interrupted before
		since    func(t *testing.T, f *fixture, l engine.Lease)
		attempt  int32
		epoch    int64
	}{
		{"claimed", false, func(*testing.T, *fixture, engine.Lease) {}, -1, 0},
		{"claimed and expired", false, func(t *testing.T, f *fixture, _ engine.Lease) {
			f.advance(leaseTTL)
			run(t, f.Maintenance().ExpireLeases, 1)
		}, 0, 3},
		{"an interrupted one claimed and expired", true, func(t *testing.T, f *fixture, _ engine.Lease) {
			f.advance(leaseTTL)
			run(t, f.Maintenance().ExpireLeases, 1)
		}, 0, 4},
		{"claimed and released", false, func(t *testing.T, f *fixture, l engine.Lease) {
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil {
				t.Fatal(err)
			}
		}, 0, 2},
		{"claimed, failed and retried", false, func(t *testing.T, f *fixture, l engine.Lease) {
			f.fail(t, l, engine.Failure{})
		}, 1, 2},
		{"claimed and completed", false, func(t *testing.T, f *fixture, l engine.Lease) {
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}, -1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			before := f.earlier(t, f.pool)
			first, second := f.create(t), f.create(t)
			if c.released {
				claimed := f.claimN(t, 2)
				if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{claimed[0].Lease, claimed[1].Lease}); err != nil {
					t.Fatal(err)
				}
			}
			held, release := f.holding(t, "ClaimFromHead")
			wait := async(t, func(ctx context.Context) []engine.Claimed {
				claimed, err := held.Claim(ctx, f.worker(), 10)
				if err != nil {
					t.Error(err)
				}
				return claimed
			})
			held.awaitBlocked(t, f) // it holds the first, and is about to take the second

			other := f.claim(t)
			if other.ID != second {
				t.Fatalf("claimed %s, want %s", other.ID, second)
			}
			c.since(t, f, other.Lease)
			was := f.dump(t, second)
			release()
			if got, want := executionsOf(wait()), []id.ExecutionID{first}; !slices.Equal(got, want) {
				t.Errorf("the held claim took %v, want %v", got, want)
			}
			f.wantUnchanged(t, second, was)
			claimed, err := before.Claim(t.Context(), f.worker(), 10)
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

// A completion leaves the tags as they are by then, not as its snapshot has them. (A claim passes over what was changed
// since its own.)
func TestInterleaving_tag_beside_a_completion(t *testing.T) {
	f := cloneFixture(t)
	f.create(t)
	f.create(t)
	var ends []engine.Completion
	for _, c := range f.claimN(t, 2) {
		ends = append(ends, engine.Completion{Lease: c.Lease})
	}
	held, release := f.holding(t, "CompleteExecutions")
	wait := async(t, func(ctx context.Context) error {
		outcomes, err := held.CompleteExecutions(ctx, ends)
		return errors.Join(append(outcomes, err)...)
	})
	held.awaitBlocked(t, f)
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

// A background job decides about what it locked, not about what its snapshot showed.
func TestInterleaving_job_with_an_old_snapshot(t *testing.T) {
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
	deadline := func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) }
	delay := func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Second) }
	nothing := func(*engine.ExecutionSpec) {}
	for _, c := range []struct {
		name, statement string
		spec            func(*engine.ExecutionSpec)
		started         bool
		since           func(t *testing.T, e *engine.Engine, l engine.Lease)
		job             func(engine.Maintenance, context.Context, int) (int, error)
	}{
		{"expiry and renewal", "TakeExpiredLeases", nothing, true, renew, engine.Maintenance.ExpireLeases},
		{"expiry and completion", "TakeExpiredLeases", nothing, true, complete, engine.Maintenance.ExpireLeases},
		{"expiry and retry", "TakeExpiredLeases", nothing, true, retry, engine.Maintenance.ExpireLeases},
		{"timeout and completion", "TakeTimedOut", timeout, true, complete, engine.Maintenance.ExpireAttempts},
		{"timeout and retry", "TakeTimedOut", timeout, true, retry, engine.Maintenance.ExpireAttempts},
		{"deadline and completion", "TakeOverdue", deadline, true, complete, engine.Maintenance.ExpireDeadlines},
		{"promotion and promotion", "PromoteDelayed", delay, false, func(t *testing.T, e *engine.Engine, _ engine.Lease) {
			if n, err := e.Maintenance().PromoteDelayed(t.Context(), 10); err != nil || n != 1 {
				t.Fatal(n, err)
			}
		}, engine.Maintenance.PromoteDelayed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			l := engine.Lease{Fence: engine.Fence{Execution: f.create(t, c.spec)}}
			if c.started {
				l = f.claim(t).Lease
			}
			before := f.earlier(t, f.pool) // by its clock the lease is live
			f.advance(leaseTTL)
			if !c.started {
				before = f.Engine
			}
			held, release := f.holding(t, c.statement)
			wait := async(t, func(ctx context.Context) int {
				n, err := c.job(held.Maintenance(), ctx, 10)
				if err != nil {
					t.Error(err)
				}
				return n
			})
			held.awaitBlocked(t, f)
			c.since(t, before, l)
			was := f.dump(t, l.Execution)
			release()
			if n := wait(); n != 0 {
				t.Errorf("the job acted on %d rows", n)
			}
			f.wantUnchanged(t, l.Execution, was)
		})
	}
}

// An execution that was claimed while the deadline's job was on its way to it is ended with that attempt.
func TestInterleaving_deadline_and_claim(t *testing.T) {
	f := cloneFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) })
	f.advance(time.Second)
	held, release := f.holding(t, "TakeOverdue")
	wait := async(t, func(ctx context.Context) error { return acted(held.Maintenance().ExpireDeadlines(ctx, 10)) })
	held.awaitBlocked(t, f)
	c := f.claim(t)
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	f.wantState(t, x, stateExpired)
	if a := f.attempts(t, x)[0]; a.Outcome != "expired" || a.LeaseEpoch != 2 || a.LeaseExpiresAtMs != nil {
		t.Errorf("attempt %+v", a)
	}
	wantLeaseError(t, f.CompleteExecution(t.Context(), c.Lease, nil), engine.ErrStaleLease)
}

// The reference's reclaim leaves the old attempt its expiry: the scan that saw it must not throw out the new owner.
func TestInterleaving_expiry_and_reclaim_by_the_reference(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	f.advance(leaseTTL)
	held, release := f.holding(t, "TakeExpiredLeases")
	wait := async(t, func(ctx context.Context) error { return acted(held.Maintenance().ExpireLeases(ctx, 10)) })
	held.awaitBlocked(t, f)
	f.seedAttempt(t, c.ID, 1, columns{"lease_expires_at_ms": start.Add(time.Hour).UnixMilli()})
	f.setExecution(t, c.ID, "attempt_index = 1, lease_reclaim_count = 1")
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if got := f.stored(t, c.ID); got.State != stateRunning || got.AttemptIndex != 1 || got.ReclaimCount != 1 {
		t.Errorf("stored %+v, want it untouched", got)
	}
	if a := f.attempts(t, c.ID); a[0].LeaseExpiresAtMs != nil || a[1].LeaseExpiresAtMs == nil || a[1].LeaseEpoch != 1 {
		t.Errorf("attempts %+v", a)
	}
	f.wantEvents(t, c.ID, "lease acquired")
}

// A renewal beside the transaction that expires the lease does not wait for it, and comes too late after it, though its
// own clock says otherwise.
func TestInterleaving_renewal_beside_an_expiry(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	before := f.earlier(t, f.pool)
	f.advance(leaseTTL)
	tx := f.begin(t)
	if n, err := f.WithTx(tx).Maintenance().ExpireLeases(t.Context(), 10); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := before.RenewLease(t.Context(), c.Lease, 0); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("got %v, want that it is busy", err)
	}
	commit(t, tx)
	_, err := before.RenewLease(t.Context(), c.Lease, 0)
	wantLeaseError(t, err, engine.ErrStaleLease)
	f.wantState(t, c.ID, stateReturned)
}

// What is committed while a holder's call waits for the execution decides the call.
func TestInterleaving_call_behind_another_change(t *testing.T) {
	cancelled := `lifecycle_phase = 'cancelled', ownership_state = 'unowned', eligibility_state = 'not_applicable',
		public_state = 'cancelled', attempt_state = 'cancelled', blocking_reason = NULL, terminal_at_ms = 1`
	for _, change := range []struct {
		name, execution, attempt string
		want                     error
	}{
		{"a cancel", cancelled + ", ffx_lease_epoch = 2", "lease_epoch = 2, lease_expires_at_ms = NULL, outcome = 'cancelled'", engine.ErrStaleLease},
		{"a cancel of the reference, which leaves the attempt", cancelled, "usage = '{}'", engine.ErrNotActive},
		{"a tag", `raw_fields = raw_fields || '{"tags":{"app.set":"v"}}'`, "", nil},
		{"a priority", "priority = 9", "", nil},
	} {
		for call, do := range holderCalls {
			if call == "renew" || call == "release" || call == "complete and claim" {
				continue // they wait for nobody
			}
			t.Run(change.name+"/"+call, func(t *testing.T) {
				f := newFixture(t)
				c := f.start(t)
				late := f.rival(t)
				tx := f.begin(t)
				execIn(t, tx, updateExecution(change.execution), c.ID.Partition(), c.ID.UUID())
				if change.attempt != "" {
					execIn(t, tx, "UPDATE ff_attempt SET "+change.attempt+" WHERE partition_key = $1 AND execution_id = $2",
						c.ID.Partition(), c.ID.UUID())
				}
				wait := async(t, func(context.Context) error { return do(t, late.Engine, c.Lease) })
				late.awaitBlocked(t, f)
				commit(t, tx)
				was := f.dump(t, c.ID)
				err := wait()
				if change.want != nil {
					wantLeaseError(t, err, change.want)
					f.wantUnchanged(t, c.ID, was)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if call == "complete" {
					f.wantState(t, c.ID, stateCompleted)
				}
				if got := f.stored(t, c.ID); change.name == "a tag" && got.raw(t, "tags") != "map[app.set:v]" || change.name == "a priority" && got.Priority != 9 {
					t.Errorf("the other change was lost: %+v", got)
				}
			})
		}
	}
}

// An execution that joins a flow while its completion waits has its dependents released.
func TestInterleaving_completion_and_joining_a_flow(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "up>down")
	up, down := f.NodeID(flow, "up"), f.NodeID(flow, "down")
	f.setExecution(t, up, "flow_id = NULL")
	c := f.claim(t)
	if c.ID != up || c.Flow != nil {
		t.Fatalf("claimed %+v, want %s outside a flow", c, up)
	}
	late := f.rival(t)
	tx := f.begin(t)
	execIn(t, tx, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", up.Partition(), up.UUID(), flow)
	wait := async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, c.Lease, nil) })
	late.awaitBlocked(t, f.fixture)
	commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	f.wantState(t, up, stateCompleted)
	f.wantState(t, down, stateReady)
	if events := f.fixture.completionEvents(t, up); len(events) != 1 || events[0].FlowID == nil || *events[0].FlowID != flow {
		t.Errorf("events %+v, want one of flow %s", events, flow)
	}
}

// Of two creations with one key, or of one id, the second waits for the first.
func TestInterleaving_two_creations(t *testing.T) {
	type by struct{ key, id bool } // what the two have in common
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
				f := newFixture(t)
				x := id.NewExecutionID(f.lane, id.Partitions{})
				spec := func(by by) engine.ExecutionSpec {
					s := engine.ExecutionSpec{Kind: "test", Lane: f.lane}
					if by.key {
						s.IdempotencyKey = f.key("key")
					}
					if by.id {
						s.ID = x
					}
					return s
				}
				late := f.rival(t)
				if _, err := late.CreateExecution(t.Context(), spec(by{})); err != nil { // the lane is known from now on
					t.Fatal(err)
				}
				if c.expired {
					f.create(t, func(s *engine.ExecutionSpec) { s.IdempotencyKey = f.key("key") })
					f.advance(24 * time.Hour)
				}
				before := f.countOnLane(t)

				tx := f.begin(t)
				first, err := f.WithTx(tx).CreateExecution(t.Context(), spec(c.first))
				if err != nil || first.Duplicate {
					t.Fatal(first, err)
				}
				wait := async(t, func(ctx context.Context) engine.Created {
					created, err := late.CreateExecution(ctx, spec(c.second))
					if err != nil {
						t.Error(err)
					}
					return created
				})
				late.awaitBlocked(t, f)
				if ends == "commits" {
					commit(t, tx)
				} else if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				second := wait()
				if want := ends == "commits"; second.Duplicate != want || want && second.ID != first.ID {
					t.Errorf("created %+v after %+v, want duplicate %t", second, first, want)
				}
				if got := f.countOnLane(t) - before; got != 1 {
					t.Errorf("%d executions were created, want 1", got)
				}
			})
		}
	}
}
