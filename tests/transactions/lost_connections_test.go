package transactions

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// waitingOperations are the operations that wait for a row that another transaction holds, and that row.
func waitingOperations() []struct {
	fixture.Operation
	hold func(*testing.T, *fixture.Fixture, pgx.Tx, engine.Lease)
	what string
} {
	type waiting = struct {
		fixture.Operation
		hold func(*testing.T, *fixture.Fixture, pgx.Tx, engine.Lease)
		what string
	}
	execution := func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		fixture.LockExecution(t, tx, l.Execution)
	}
	attempt := func(t *testing.T, _ *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
		fixture.LockAttempt(t, tx, l.Execution, 0)
	}
	var found []waiting
	for _, o := range fixture.Operations() {
		switch o.Name {
		case "create":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
				if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: l.Execution, Lane: f.Lane}); err != nil {
					t.Fatal(err)
				}
			}, "a creation of the same id"})
		case "create with a key":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
				other := engine.ExecutionSpec{Kind: "test", Lane: f.Lane, IdempotencyKey: f.Key("key")}
				if _, err := f.WithTx(tx).CreateExecution(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}, "a creation with the same key"})
		case "pause a lane":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, _ engine.Lease) {
				if err := operator.PauseLane(t.Context(), f.WithTx(tx), f.Lane, operator.LanePause{Reason: "another's"}); err != nil {
					t.Fatal(err)
				}
			}, "a pause of the same lane"})
		case "resume a lane", "resume a worker", "resume workers":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, _ engine.Lease) {
				fixture.ExecIn(t, tx, "SELECT FROM ffx_pause WHERE name = ANY ($1) FOR UPDATE", []string{string(f.Lane), f.Name})
			}, "the pause"})
		case "set a schedule":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, l engine.Lease) {
				if err := o.Do(t.Context(), f, f.WithTx(tx), l); err != nil {
					t.Fatal(err)
				}
			}, "the same schedule"})
		case "declare schedules", "pause a schedule", "resume a schedule", "trigger a schedule", "delete a schedule":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, _ engine.Lease) {
				fixture.ExecIn(t, tx, "SELECT FROM ffx_schedule WHERE name = $1 FOR UPDATE", f.Name)
			}, "its schedule"})
		case "register a worker":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, _ engine.Lease) {
				if _, err := f.WithTx(tx).RegisterWorker(t.Context(), f.Registration()); err != nil {
					t.Fatal(err)
				}
			}, "a registration of the same instance"})
		case "mark a worker dead":
			found = append(found, waiting{o, func(t *testing.T, f *fixture.Fixture, tx pgx.Tx, _ engine.Lease) {
				fixture.ExecIn(t, tx, "SELECT FROM ff_worker_registry WHERE worker_instance_id = $1 FOR UPDATE", f.Name)
			}, "the worker's row"})
		case "set a tag", "block", "unblock", "change priority", "delay what waits", "issue a grant", "claim by a grant", "claim by an operator":
			found = append(found, waiting{o, execution, "its execution"})
		case "signal", "signal before the wait", "signal by a token":
			found = append(found, waiting{o, execution, "its execution"})
		case "record a step", "append frames":
			found = append(found, waiting{o, attempt, "its attempt"})
		case "append frames of all modes", "call", "suspend for a call", "record the result of a call":
			found = append(found, waiting{o, execution, "its execution"}, waiting{o, attempt, "its attempt"})
		case "suspend", "suspend after its signal", "resume", "create a waitpoint", "close a waitpoint":
			found = append(found, waiting{o, execution, "its execution"}, waiting{o, attempt, "its attempt"})
		case "progress", "complete", "complete beside the pointer", "fail, with a retry", "fail for good", "delay", "wait for children", "cancel",
			"revoke a lease", "replay", "resume by a grant", "issue a reclaim grant", "reclaim":
			found = append(found, waiting{o, execution, "its execution"}, waiting{o, attempt, "its attempt"})
		}
		for _, what := range flowWaits[o.Name] {
			found = append(found, waiting{o, flowHolds[what], what})
		}
	}
	return found
}

// A statement that exceeds the server's limit is reported, leaves nothing half-done, and may be repeated.
func TestOperationsReportAStatementTimeout(t *testing.T) {
	for _, o := range waitingOperations() {
		t.Run(o.Name+" waiting for "+o.what, func(t *testing.T) {
			f := fixture.New(t)
			l := o.Arrange(t, f)
			before := f.Dump(t, l.Execution)
			hasty := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["statement_timeout"] = "100ms" })
			tx := f.BeginTx(t)
			o.hold(t, f, tx, l)
			err := o.Do(t.Context(), f, hasty.Engine, l)
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "57014" || !errors.Is(err, fferr.ErrTransport) {
				t.Errorf("got %v, want a transport error that says why", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.WantUnchanged(t, l.Execution, before)
			o.Repeat(t, f, f.Engine, l)
			o.WantDone(t, f, l, before)
		})
	}
}

// A connection that is cut in the middle is reported, leaves nothing half-done, and the call may be repeated.
func TestOperationsReportACutConnection(t *testing.T) {
	for _, o := range waitingOperations() {
		t.Run(o.Name+" waiting for "+o.what, func(t *testing.T) {
			f := fixture.New(t)
			l := o.Arrange(t, f)
			before := f.Dump(t, l.Execution)
			victim := f.Rival(t)
			tx := f.BeginTx(t)
			o.hold(t, f, tx, l)
			wait := fixture.Async(t, func(ctx context.Context) error { return o.Do(ctx, f, victim.Engine, l) })
			victim.AwaitBlocked(t, f)
			victim.Kill(t, f)
			if err := wait(); !errors.Is(err, fferr.ErrTransport) {
				t.Errorf("got %v, want a transport error", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.WantUnchanged(t, l.Execution, before)
			o.Repeat(t, f, victim.Engine, l)
			o.WantDone(t, f, l, before)
		})
	}
}

// So does a call whose context ends. Had it gone through at the last moment, a repetition would say so.
func TestOperationsReportAnEndedContext(t *testing.T) {
	for _, o := range waitingOperations() {
		t.Run(o.Name+" waiting for "+o.what, func(t *testing.T) {
			f := fixture.New(t)
			l := o.Arrange(t, f)
			before := f.Dump(t, l.Execution)
			waiter := f.Rival(t)
			tx := f.BeginTx(t)
			o.hold(t, f, tx, l)
			ctx, cancel := context.WithCancel(t.Context())
			wait := fixture.Async(t, func(context.Context) error { return o.Do(ctx, f, waiter.Engine, l) })
			waiter.AwaitBlocked(t, f)
			cancel()
			if err := wait(); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the context's error", err)
			}
			waiter.AwaitSessions(t, f, 0) // the server has given up, too
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.WantUnchanged(t, l.Execution, before)
			o.Repeat(t, f, f.Engine, l)
			o.WantDone(t, f, l, before)
		})
	}
}

func TestWithTxReportsACutConnection(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	before := f.Dump(t, l.Execution)
	victim := f.Rival(t)
	held := f.BeginTx(t)
	fixture.LockExecution(t, held, l.Execution)
	tx := fixture.BeginWith(t, victim.Pool, pgx.TxOptions{})
	wait := fixture.Async(t, func(ctx context.Context) error { return victim.WithTx(tx).CompleteExecution(ctx, l, nil) })
	victim.AwaitBlocked(t, f)
	victim.Kill(t, f)
	if err := wait(); !errors.Is(err, fferr.ErrTransport) {
		t.Errorf("got %v, want a transport error", err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the transaction was committed")
	}
	fixture.Commit(t, held)
	f.WantUnchanged(t, l.Execution, before)
}

// eachCommit runs a test with every operation that writes to the execution, in one statement or in several, in a
// database in which changes of an execution run a statement at commit.
func eachCommit(t *testing.T, statement string, test func(t *testing.T, o fixture.Operation, f *fixture.Fixture), setup ...string) {
	t.Parallel()
	prepared := func(t *testing.T) *fixture.Fixture {
		f := fixture.Clone(t)
		for _, sql := range setup {
			f.Exec(t, sql)
		}
		f.AtCommit(t, statement)
		return f
	}
	jobs, others := prepared(t), prepared(t)
	for _, o := range fixture.Operations() {
		switch o.Name {
		case "renew", "prune keys", "record a step", "record steps in a batch", "record the result of a call",
			"append frames", "append frames of all modes", "append frames in a batch",
			"create a budget", "release a budget", "reset a budget", "set a budget", "delete a budget", "reset budgets", "prune usage keys",
			"report usage", "record a spend", "reserve", "settle", "release reservations",
			"check an admission", "release an admission", "set a quota policy", "delete a quota policy", "cancel executions over budget":
			continue // these do not
		}
		t.Run(o.Name, func(t *testing.T) {
			test(t, o, o.Fixture(t, prepared, jobs, others))
		})
	}
}

// The server answers the statement before it commits: a commit lost in between is not reported as done.
func TestOperationsReportALostCommitAnswer(t *testing.T) {
	eachCommit(t, "PERFORM pg_advisory_xact_lock_shared(4711)", func(t *testing.T, o fixture.Operation, f *fixture.Fixture) {
		l := o.Arrange(t, f)
		before := f.Dump(t, l.Execution)
		victim := f.Rival(t)
		tx := f.BeginTx(t)
		fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(4711)")
		var over atomic.Bool
		wait := fixture.Async(t, func(ctx context.Context) error {
			defer over.Store(true)
			return o.Do(ctx, f, victim.Engine, l)
		})
		// An operation that never waits may have given up before it was seen, or cut.
		fixture.Await(t, "it to wait for a lock", func() bool { return victim.Blocked(t, f) == 1 || over.Load() })
		victim.Kill(t, f)
		if err := wait(); !errors.Is(err, fferr.ErrTransport) && !errors.Is(err, fferr.ErrBusy) && !errors.Is(err, fixture.ErrIdle) {
			t.Errorf("got %v, want a transport error", err)
		}
		f.WantUnchanged(t, l.Execution, before)
		fixture.Commit(t, tx)
		o.Repeat(t, f, f.Engine, l)
		o.WantDone(t, f, l, before)
	})
}

func TestOperationsReportARefusedCommit(t *testing.T) {
	const refuse = "IF current_setting('test.refuse', true) = 'on' THEN RAISE EXCEPTION 'not today'; END IF"
	eachCommit(t, refuse, func(t *testing.T, o fixture.Operation, f *fixture.Fixture) {
		l := o.Arrange(t, f)
		before := f.Dump(t, l.Execution)
		refused := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["test.refuse"] = "on" })
		err := o.Do(t.Context(), f, refused.Engine, l)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "P0001" || !errors.Is(err, fferr.ErrTransport) {
			t.Errorf("got %v, want a transport error that says why", err)
		}
		f.WantUnchanged(t, l.Execution, before)
	})
}

// A closed pool, and a server that is not there.
func TestOperationsWithoutAConnection(t *testing.T) {
	f := fixture.New(t)
	nowhere := fixture.OpenPool(t, "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2", nil)
	closed := fixture.OpenPool(t, f.Url, nil)
	closed.Close()
	for name, pool := range map[string]*pgxpool.Pool{
		"no server": nowhere, "no database": fixture.OpenPool(t, f.Url+"&dbname=missing", nil), "a closed pool": closed,
	} {
		e := f.EngineOn(t, pool, engine.Config{})
		for _, err := range []error{
			e.Prepare(t.Context()),
			func() error { _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test"}); return err }(),
			func() error { _, err := e.Claim(t.Context(), f.Worker(), 1); return err }(),
			func() error {
				_, err := e.DescribeExecution(t.Context(), id.NewExecutionID("a", id.Partitions{}))
				return err
			}(),
			func() error { _, err := e.CreateFlow(t.Context(), engine.FlowSpec{}); return err }(),
			func() error {
				_, err := e.AwaitExecution(t.Context(), id.NewExecutionID("a", id.Partitions{}))
				return err
			}(),
			func() error { _, err := e.QueuedLanes(t.Context(), []id.LaneID{f.Lane}); return err }(),
			upkeep.Of(e).ReturnJobs(t.Context(), "nobody"),
			func() error {
				_, err := events.Subscribe(t.Context(), e, events.Leases(events.Filter{}), events.Options{})
				return err
			}(),
			func() error { _, err := events.Consumers(t.Context(), e); return err }(),
		} {
			if !errors.Is(err, fferr.ErrUnavailable) {
				t.Errorf("%s: got %v, want unavailable", name, err)
			}
		}
	}
}

// If the connection is lost during the commit of InTx, the error says that the outcome is unknown.
func TestInTxLosesItsCommit(t *testing.T) {
	for name, loss := range map[string]fixture.Loss{"answer": fixture.LosesAnswer, "commit": fixture.LosesCommit} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			eng := f.EngineOn(t, fixture.OpenPool(t, f.Url, fixture.Lossy), engine.Config{})
			var created engine.Created
			err := eng.InTx(t.Context(), func(tx pgx.Tx, eng *engine.Engine) (err error) {
				fixture.Lose(tx, loss)
				created, err = eng.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"})
				return err
			})
			if !errors.Is(err, fferr.ErrTransport) || errors.Is(err, fferr.ErrUnavailable) {
				t.Error(err)
			}
			_, err = f.DescribeExecution(t.Context(), created.ID)
			if (err == nil) != (loss == fixture.LosesAnswer) {
				t.Error(err)
			}
		})
	}
}
