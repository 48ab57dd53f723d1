package tests

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// operation is an operation that writes, as the tests of transactions see it.
type operation struct {
	name    string
	arrange func(*testing.T, *fixture) engine.Lease // what it acts on; only the execution where it needs no lease
	do      func(context.Context, *fixture, *engine.Engine, engine.Lease) error
	stored  string // the state that it leaves behind; "": none, the execution is deleted
	refused func(context.Context, *fixture, *engine.Engine, engine.Lease) error
	reason  error
	whole   bool // it looks at all rows: the test has a database of its own
	alone   bool // it acts on what other tests leave: each test of it has one
	patient bool // it queues for locks though it is whole
	lazy    bool // its commit does not wait for the disk
	beside  bool // it writes to no row of the execution that another program changes meanwhile
}

var errIdle = errors.New("the job did not act on one row")

// acted turns a job's count into an error unless it acted on one row.
func acted(n int, err error) error {
	if err == nil && n != 1 {
		return errIdle
	}
	return err
}

// completeAndClaim completes, and claims from a lane on which there is nothing.
func completeAndClaim(ctx context.Context, e *engine.Engine, l engine.Lease) error {
	claimer, err := e.NewClaimer(engine.ClaimSpec{Lane: l.Lane + ".next", Worker: "worker", Instance: l.Instance, LeaseTTL: leaseTTL})
	if err != nil {
		return err
	}
	outcomes, _, err := claimer.CompleteAndClaim(ctx, []engine.Completion{{Lease: l, Result: []byte("out")}}, 1)
	return errors.Join(append(outcomes, err)...)
}

// wholeJob is an operation of the background work, which is due an hour after what it acts on was arranged.
func wholeJob(
	name, stored string, arrange func(*testing.T, *fixture) engine.Lease, call func(engine.Maintenance, context.Context, int) (int, error),
) operation {
	return operation{
		name: name, stored: stored, whole: true, reason: engine.ErrInvalidInput,
		arrange: func(t *testing.T, f *fixture) engine.Lease {
			l := arrange(t, f)
			f.advance(time.Hour)
			return l
		},
		do: func(ctx context.Context, _ *fixture, e *engine.Engine, _ engine.Lease) error {
			return acted(call(e.Maintenance(), ctx, 10))
		},
		refused: func(ctx context.Context, _ *fixture, e *engine.Engine, _ engine.Lease) error {
			_, err := call(e.Maintenance(), ctx, 0)
			return err
		},
	}
}

func operations() []operation {
	started := func(t *testing.T, f *fixture) engine.Lease { return f.start(t).Lease }
	stale := func(call func(context.Context, *engine.Engine, engine.Lease) error) func(context.Context, *fixture, *engine.Engine, engine.Lease) error {
		return func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
			l.Epoch--
			return call(ctx, e, l)
		}
	}
	holder := func(name, stored string, call func(context.Context, *engine.Engine, engine.Lease) error) operation {
		return operation{
			name: name, arrange: started, stored: stored, refused: stale(call), reason: engine.ErrStaleLease,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error { return call(ctx, e, l) },
		}
	}
	cancelling := func(name string, call func(context.Context, *engine.Engine, engine.CancelSpec) error) operation {
		return operation{
			name: name, arrange: started, stored: stateCancelled, reason: engine.ErrStaleLease,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				return call(ctx, e, engine.CancelSpec{ID: l.Execution})
			},
			refused: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				l.Epoch--
				return call(ctx, e, engine.CancelSpec{ID: l.Execution, Fence: &l.Fence})
			},
		}
	}
	create := func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease, change func(*engine.ExecutionSpec)) error {
		spec := engine.ExecutionSpec{Kind: "test", ID: l.Execution, Lane: f.lane}
		change(&spec)
		created, err := e.CreateExecution(ctx, spec)
		if err == nil && created.Duplicate {
			return errors.New("duplicate")
		}
		return err
	}
	unborn := func(_ *testing.T, f *fixture) engine.Lease {
		return engine.Lease{Fence: engine.Fence{Execution: id.NewExecutionID(f.lane, id.Partitions{})}}
	}
	inUnknownFlow := func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
		_, err := e.CreateExecution(ctx, engine.ExecutionSpec{Kind: "test", Lane: f.lane, Flow: new(id.NewFlowID())})
		return err
	}
	beside := func(o operation) operation {
		o.beside = true
		return o
	}
	created := func(change func(*fixture, *engine.ExecutionSpec)) func(*testing.T, *fixture) engine.Lease {
		return func(t *testing.T, f *fixture) engine.Lease {
			return engine.Lease{Fence: engine.Fence{Execution: f.create(t, func(spec *engine.ExecutionSpec) { change(f, spec) })}}
		}
	}
	blocked := func(reason state.BlockingReason) func(*testing.T, *fixture) engine.Lease {
		return func(t *testing.T, f *fixture) engine.Lease {
			x := f.create(t)
			f.block(t, x, reason, "because")
			return engine.Lease{Fence: engine.Fence{Execution: x}}
		}
	}
	return slices.Concat(operatorOperations(), grantOperations(), housekeepingOperations(), flowOperations(), []operation{
		{
			name: "block", arrange: created(func(*fixture, *engine.ExecutionSpec) {}), stored: stateByOperator, reason: engine.ErrNotFound,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				blocking, err := e.Operator().BlockExecution(ctx, l.Execution, state.PausedByOperator, "because")
				if blocking.Rejected != "" {
					err = errors.New(string(blocking.Rejected))
				}
				return err
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				_, err := e.Operator().BlockExecution(ctx, id.NewExecutionID(f.lane, id.Partitions{}), state.PausedByOperator, "")
				return err
			},
		},
		{
			name: "unblock", arrange: blocked(state.PausedByOperator), stored: stateReady, reason: engine.ErrNotEligible,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				return e.Operator().UnblockExecution(ctx, l.Execution, state.PausedByOperator)
			},
			refused: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				return e.Operator().UnblockExecution(ctx, l.Execution, state.PausedByPolicy)
			},
		},
		wholeJob("unblock routes", stateReady, func(t *testing.T, f *fixture) engine.Lease {
			f.registered(t, f.name, "", 2*time.Hour, f.lane)
			return blocked(state.WaitingForCapableWorker)(t, f)
		}, engine.Maintenance.UnblockRoutes),
		{
			name: "create", arrange: unborn, stored: stateReady, refused: inUnknownFlow, reason: engine.ErrNotFound,
			do: func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease) error {
				return create(ctx, f, e, l, func(*engine.ExecutionSpec) {})
			},
		},
		{
			name: "create with a key", arrange: unborn, stored: stateReady, refused: inUnknownFlow, reason: engine.ErrNotFound,
			do: func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease) error {
				return create(ctx, f, e, l, func(spec *engine.ExecutionSpec) { spec.IdempotencyKey = f.key("key") })
			},
		},
		{
			name: "claim", arrange: created(func(*fixture, *engine.ExecutionSpec) {}), stored: stateRunning, reason: engine.ErrInvalidInput,
			do: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				claimed, err := e.Claim(ctx, f.worker(), 10)
				return acted(len(claimed), err)
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				_, err := e.Claim(ctx, f.worker(), 0)
				return err
			},
		},
		{
			name: "claim what another program left", stored: stateRunning, reason: engine.ErrInvalidInput,
			arrange: func(t *testing.T, f *fixture) engine.Lease {
				x := f.seed(t, columns{"lifecycle_phase": "runnable", "attempt_state": "attempt_interrupted", "ffx_lease_epoch": 1})
				f.seedAttempt(t, x, 0, columns{"lease_epoch": 5})
				return engine.Lease{Fence: engine.Fence{Execution: x}}
			},
			do: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				claimed, err := e.Claim(ctx, f.worker(), 10)
				return acted(len(claimed), err)
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				_, err := e.Claim(ctx, f.worker(), 0)
				return err
			},
		},
		holder("renew", stateRunning, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.RenewLease(ctx, l, time.Hour)
			return err
		}),
		holder("progress", stateRunning, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			return e.ReportProgress(ctx, l, engine.Progress{Percent: new(1)})
		}),
		holder("release", stateReturned, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			outcomes, err := e.ReleaseLeases(ctx, []engine.Lease{l})
			return errors.Join(append(outcomes, err)...)
		}),
		holder("delay", stateLater, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			return e.DelayExecution(ctx, l, start.Add(time.Hour))
		}),
		holder("delay in a batch", stateLater, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			outcomes, err := e.DelayExecutions(ctx, []engine.Delay{{Lease: l, For: time.Hour}})
			return errors.Join(append(outcomes, err)...)
		}),
		holder("wait for children", stateParked, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.WaitForChildren(ctx, l)
			return err
		}),
		holder("wait for children in a batch", stateParked, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			results, err := e.WaitForChildrenEach(ctx, []engine.Lease{l})
			for _, r := range results {
				err = errors.Join(err, r.Err)
			}
			return err
		}),
		holder("complete", stateCompleted, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			return e.CompleteExecution(ctx, l, []byte("out"))
		}),
		holder("complete and claim", stateCompleted, completeAndClaim),
		{
			name: "complete beside the pointer", stored: stateCompleted, reason: engine.ErrNotFound,
			arrange: func(t *testing.T, f *fixture) engine.Lease {
				l := f.start(t).Lease
				f.setExecution(t, l.Execution, "attempt_index = 1")
				return l
			},
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				return e.CompleteExecution(ctx, l, nil)
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, l engine.Lease) error {
				l.Attempt++
				return e.CompleteExecution(ctx, l, nil)
			},
		},
		holder("fail, with a retry", stateRetry, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.FailExecution(ctx, l, engine.Failure{})
			return err
		}),
		holder("fail for good", stateFailed, func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.FailExecution(ctx, l, engine.Failure{Class: policy.Permanent})
			return err
		}),
		{
			name: "set a tag", arrange: started, stored: stateRunning, reason: engine.ErrNotFound,
			do: func(ctx context.Context, _ *fixture, e *engine.Engine, l engine.Lease) error {
				return e.SetExecutionTag(ctx, l.Execution, "app.set", "v")
			},
			refused: func(ctx context.Context, f *fixture, e *engine.Engine, _ engine.Lease) error {
				return e.SetExecutionTag(ctx, id.NewExecutionID(f.lane, id.Partitions{}), "app.set", "v")
			},
		},
		cancelling("cancel", func(ctx context.Context, e *engine.Engine, spec engine.CancelSpec) error {
			return e.CancelExecution(ctx, spec)
		}),
		cancelling("cancel in a batch", func(ctx context.Context, e *engine.Engine, spec engine.CancelSpec) error {
			outcomes, err := e.CancelExecutions(ctx, []engine.CancelSpec{spec})
			return errors.Join(append(outcomes, err)...)
		}),
		wholeJob("expire leases", stateReturned, started, engine.Maintenance.ExpireLeases),
		wholeJob("expire attempts", stateExpired, func(t *testing.T, f *fixture) engine.Lease {
			return f.start(t, timingOutAfter(time.Millisecond, &policy.Retry{MaxRetries: policy.NoRetries})).Lease
		}, engine.Maintenance.ExpireAttempts),
		wholeJob("expire deadlines", stateUnstarted, created(func(f *fixture, spec *engine.ExecutionSpec) {
			spec.Deadline = f.now().Add(time.Second)
		}), engine.Maintenance.ExpireDeadlines),
		wholeJob("promote", stateReady, created(func(f *fixture, spec *engine.ExecutionSpec) {
			spec.DelayUntil = f.now().Add(time.Second)
		}), engine.Maintenance.PromoteDelayed),
		beside(wholeJob("prune keys", stateReady, created(func(f *fixture, spec *engine.ExecutionSpec) {
			spec.IdempotencyKey = f.key("key")
			spec.Policy = &policy.Execution{DedupWindow: time.Millisecond}
		}), engine.Maintenance.PruneCreationKeys)),
	})
}

// eachOperation arranges for every operation and runs the test with it. Those that look at all rows share
// a database of the test's own and run one after the other: none leaves a row behind that another would act on.
func eachOperation(t *testing.T, test func(t *testing.T, o operation, f *fixture, l engine.Lease, before string)) {
	t.Parallel()
	shared := newClone(t)
	for _, o := range operations() {
		t.Run(o.name, func(t *testing.T) {
			var f *fixture
			switch {
			case o.alone:
				f = newClone(t)
			case o.whole:
				f = fixtureOn(t, shared.pool, shared.url)
			default:
				f = newFixture(t)
			}
			l := o.arrange(t, f)
			test(t, o, f, l, f.dump(t, l.Execution))
		})
	}
}

// fixture returns one for the operation: on a database that make makes for it alone, or on that of the jobs, which act on
// whatever they find, or on that of the others.
func (o operation) fixture(t *testing.T, make func(*testing.T) *fixture, jobs, others *fixture) *fixture {
	on := others
	switch {
	case o.alone:
		on = make(t)
	case o.whole:
		on = jobs
	}
	return fixtureOn(t, on.pool, on.url)
}

// wantDone fails the test when the operation has not been done.
func (o operation) wantDone(t *testing.T, f *fixture, l engine.Lease, before string) {
	t.Helper()
	if o.stored == "" {
		f.wantKept(t, "gone", l.Execution)
	} else {
		f.wantState(t, l.Execution, o.stored)
	}
	if f.dump(t, l.Execution) == before {
		t.Error("nothing was written")
	}
}

func TestOperations_on_a_pool(t *testing.T) {
	eachOperation(t, func(t *testing.T, o operation, f *fixture, l engine.Lease, before string) {
		if err := o.refused(t.Context(), f, f.Engine, l); !errors.Is(err, o.reason) {
			t.Errorf("got %v, want %v", err, o.reason)
		}
		f.wantUnchanged(t, l.Execution, before)
		if err := o.do(t.Context(), f, f.Engine, l); err != nil {
			t.Fatal(err)
		}
		o.wantDone(t, f, l, before)
	})
}

func TestOperations_in_a_transaction_that_commits(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		t.Run(string(level), func(t *testing.T) {
			eachOperation(t, func(t *testing.T, o operation, f *fixture, l engine.Lease, before string) {
				tx := beginWith(t, f.pool, pgx.TxOptions{IsoLevel: level})
				if err := o.do(t.Context(), f, f.WithTx(tx), l); err != nil {
					t.Fatal(err)
				}
				f.wantUnchanged(t, l.Execution, before) // as others see it
				if got := texts(t, tx, "SHOW transaction_isolation")[0]; got != string(level) {
					t.Errorf("the transaction runs at %s", got)
				}
				commit(t, tx)
				o.wantDone(t, f, l, before)
			})
		})
	}
}

func TestOperations_in_a_transaction_that_rolls_back(t *testing.T) {
	eachOperation(t, func(t *testing.T, o operation, f *fixture, l engine.Lease, before string) {
		tx := f.begin(t)
		if err := o.do(t.Context(), f, f.WithTx(tx), l); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.wantUnchanged(t, l.Execution, before)
		if err := o.do(t.Context(), f, f.Engine, l); err != nil {
			t.Fatal(err)
		}
		o.wantDone(t, f, l, before)
	})
}

func TestOperations_in_a_transaction_that_goes_on_after_a_refusal(t *testing.T) {
	eachOperation(t, func(t *testing.T, o operation, f *fixture, l engine.Lease, before string) {
		tx := f.begin(t)
		execIn(t, tx, "INSERT INTO ff_lane_registry VALUES ($1, 0, 'the caller')", f.name+"-x")
		if err := o.refused(t.Context(), f, f.WithTx(tx), l); !errors.Is(err, o.reason) {
			t.Errorf("got %v, want %v", err, o.reason)
		}
		if err := o.do(t.Context(), f, f.WithTx(tx), l); err != nil {
			t.Fatal(err)
		}
		commit(t, tx)
		o.wantDone(t, f, l, before)
		if got := len(texts(t, f.pool, "SELECT lane_id FROM ff_lane_registry WHERE lane_id = $1", f.name+"-x")); got != 1 {
			t.Error("the caller's own write was lost")
		}
	})
}

// A caller's settings are the caller's again after an operation.
func TestWithTx_leaves_the_callers_settings(t *testing.T) {
	f := newFixture(t)
	l := f.start(t).Lease
	settings := func(tx pgx.Tx) string {
		return texts(t, tx, `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
			WHERE name IN ('plan_cache_mode', 'jit', 'enable_seqscan', 'enable_hashjoin', 'lock_timeout', 'synchronous_commit')`)[0]
	}
	tx := f.begin(t)
	before := settings(tx)
	if err := f.WithTx(tx).CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	if after := settings(tx); after != before {
		t.Errorf("settings became %s, were %s", after, before)
	}
}

// Several operations are one change.
func TestWithTx_ties_operations_together(t *testing.T) {
	f := newFixture(t)
	l := f.start(t).Lease
	tx := f.begin(t)
	bound := f.WithTx(tx)
	if err := bound.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	next, err := bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.lane})
	if err != nil {
		t.Fatal(err)
	}
	if snapshot, err := bound.DescribeExecution(t.Context(), next.ID); err != nil || snapshot == nil {
		t.Errorf("the transaction does not see its own creation: %v, %v", snapshot, err)
	}
	if claimed, err := bound.Claim(t.Context(), f.worker(), 1); err != nil || len(claimed) != 1 {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantState(t, l.Execution, stateRunning)
	if _, err := f.DescribeExecution(t.Context(), next.ID); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("got %v; want none", err)
	}
}

// A snapshot that is too old is the caller's to deal with: the error goes up, nothing is retried, nothing stays.
func TestOperations_in_a_transaction_with_an_old_snapshot(t *testing.T) {
	eachOperation(t, func(t *testing.T, o operation, f *fixture, l engine.Lease, _ string) {
		tx := beginWith(t, f.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		texts(t, tx, "SELECT lane_id FROM ff_lane_registry LIMIT 1") // takes the snapshot
		if touched := f.touch(t, l.Execution); !touched || o.beside {
			return // it writes to no row that was changed meanwhile
		}
		before := f.dump(t, l.Execution)
		err := o.do(t.Context(), f, f.WithTx(tx), l)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "40001" || errors.Is(err, engine.ErrContention) {
			t.Errorf("got %v, want the server's serialization failure", err)
		}
		if got := texts(t, tx, "SELECT 'usable'"); len(got) != 1 {
			t.Error("the transaction is not usable any more")
		}
		commit(t, tx)
		f.wantUnchanged(t, l.Execution, before)
		if err := o.do(t.Context(), f, f.Engine, l); err != nil {
			t.Fatal(err)
		}
		o.wantDone(t, f, l, before)
	})
}

// touch changes an execution and its attempt without a meaning; false: there is none yet.
func (f *fixture) touch(t *testing.T, x id.ExecutionID) bool {
	t.Helper()
	f.exec(t, "UPDATE ff_attempt SET usage = '{}' WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID())
	f.setExecution(t, x, "cancelled_by = cancelled_by")
	return f.kept(t, f.pool, x) == "kept"
}
