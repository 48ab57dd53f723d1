package tests

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// waitingOperations are the operations that wait for a row that another transaction holds, and that row.
func waitingOperations() []struct {
	operation
	hold func(*testing.T, *fixture, pgx.Tx, engine.Lease)
	what string
} {
	type waiting = struct {
		operation
		hold func(*testing.T, *fixture, pgx.Tx, engine.Lease)
		what string
	}
	execution := func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) { lockExecution(t, tx, l.Execution) }
	attempt := func(t *testing.T, _ *fixture, tx pgx.Tx, l engine.Lease) { lockAttempt(t, tx, l.Execution, 0) }
	var found []waiting
	for _, o := range operations() {
		switch o.name {
		case "create":
			found = append(found, waiting{o, func(t *testing.T, f *fixture, tx pgx.Tx, l engine.Lease) {
				if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: l.Execution, Lane: f.lane}); err != nil {
					t.Fatal(err)
				}
			}, "a creation of the same id"})
		case "create with a key":
			found = append(found, waiting{o, func(t *testing.T, f *fixture, tx pgx.Tx, l engine.Lease) {
				other := engine.ExecutionSpec{Kind: "test", Lane: f.lane, IdempotencyKey: f.key("key")}
				if _, err := f.WithTx(tx).CreateExecution(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}, "a creation with the same key"})
		case "pause a lane":
			found = append(found, waiting{o, func(t *testing.T, f *fixture, tx pgx.Tx, _ engine.Lease) {
				if err := f.WithTx(tx).Operator().PauseLane(t.Context(), f.lane, "another's"); err != nil {
					t.Fatal(err)
				}
			}, "a pause of the same lane"})
		case "resume a lane", "resume a worker":
			found = append(found, waiting{o, func(t *testing.T, f *fixture, tx pgx.Tx, _ engine.Lease) {
				execIn(t, tx, "SELECT FROM ffx_pause WHERE name = ANY ($1) FOR UPDATE", []string{string(f.lane), f.name})
			}, "the pause"})
		case "set a tag", "block", "unblock", "change priority", "delay what waits", "issue a grant", "claim by a grant", "claim by an operator":
			found = append(found, waiting{o, execution, "its execution"})
		case "progress", "complete", "complete beside the pointer", "fail, with a retry", "fail for good", "delay", "wait for children", "cancel",
			"revoke a lease", "replay", "resume by a grant", "issue a reclaim grant", "reclaim":
			found = append(found, waiting{o, execution, "its execution"}, waiting{o, attempt, "its attempt"})
		}
		for _, what := range flowWaits[o.name] {
			found = append(found, waiting{o, flowHolds[what], what})
		}
	}
	return found
}

// repeat does it until it has an effect: what waits for nobody passes over a row as long as anybody holds it, and the
// server may take a moment to let go of the locks of a session that has gone.
func (o operation) repeat(t *testing.T, f *fixture, e *engine.Engine, l engine.Lease) {
	t.Helper()
	await(t, o.name, func() bool {
		err := o.do(t.Context(), f, e, l)
		if err != nil && !errors.Is(err, errIdle) && !errors.Is(err, engine.ErrBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// A statement that takes longer than the server lets it is told, leaves nothing half-done, and may be repeated.
func TestOperations_whose_statement_times_out(t *testing.T) {
	for _, o := range waitingOperations() {
		t.Run(o.name+" waiting for "+o.what, func(t *testing.T) {
			f := newFixture(t)
			l := o.arrange(t, f)
			before := f.dump(t, l.Execution)
			hasty := f.rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["statement_timeout"] = "100ms" })
			tx := f.begin(t)
			o.hold(t, f, tx, l)
			err := o.do(t.Context(), f, hasty.Engine, l)
			if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "57014" || !errors.Is(err, engine.ErrTransport) {
				t.Errorf("got %v, want a transport error that says why", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.wantUnchanged(t, l.Execution, before)
			o.repeat(t, f, f.Engine, l)
			o.wantDone(t, f, l, before)
		})
	}
}

// A connection that is cut in the middle is told, leaves nothing half-done, and the call may be repeated.
func TestOperations_whose_connection_is_cut(t *testing.T) {
	for _, o := range waitingOperations() {
		t.Run(o.name+" waiting for "+o.what, func(t *testing.T) {
			f := newFixture(t)
			l := o.arrange(t, f)
			before := f.dump(t, l.Execution)
			victim := f.rival(t)
			tx := f.begin(t)
			o.hold(t, f, tx, l)
			wait := async(t, func(ctx context.Context) error { return o.do(ctx, f, victim.Engine, l) })
			victim.awaitBlocked(t, f)
			victim.kill(t, f)
			if err := wait(); !errors.Is(err, engine.ErrTransport) {
				t.Errorf("got %v, want a transport error", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.wantUnchanged(t, l.Execution, before)
			o.repeat(t, f, victim.Engine, l)
			o.wantDone(t, f, l, before)
		})
	}
}

// So does a call whose context ends. Had it gone through at the last moment, a repetition would say so.
func TestOperations_whose_context_ends(t *testing.T) {
	for _, o := range waitingOperations() {
		t.Run(o.name+" waiting for "+o.what, func(t *testing.T) {
			f := newFixture(t)
			l := o.arrange(t, f)
			before := f.dump(t, l.Execution)
			waiter := f.rival(t)
			tx := f.begin(t)
			o.hold(t, f, tx, l)
			ctx, cancel := context.WithCancel(t.Context())
			wait := async(t, func(context.Context) error { return o.do(ctx, f, waiter.Engine, l) })
			waiter.awaitBlocked(t, f)
			cancel()
			if err := wait(); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want the context's error", err)
			}
			waiter.awaitSessions(t, f, 0) // the server has given up, too
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.wantUnchanged(t, l.Execution, before)
			o.repeat(t, f, f.Engine, l)
			o.wantDone(t, f, l, before)
		})
	}
}

func TestWithTx_whose_connection_is_cut(t *testing.T) {
	f := newFixture(t)
	l := f.start(t).Lease
	before := f.dump(t, l.Execution)
	victim := f.rival(t)
	held := f.begin(t)
	lockExecution(t, held, l.Execution)
	tx := beginWith(t, victim.pool, pgx.TxOptions{})
	wait := async(t, func(ctx context.Context) error { return victim.WithTx(tx).CompleteExecution(ctx, l, nil) })
	victim.awaitBlocked(t, f)
	victim.kill(t, f)
	if err := wait(); !errors.Is(err, engine.ErrTransport) {
		t.Errorf("got %v, want a transport error", err)
	}
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("the transaction was committed")
	}
	commit(t, held)
	f.wantUnchanged(t, l.Execution, before)
}

// atCommit makes every change of an execution, and of what operations change beside it, run a statement when it is
// committed.
func (f *fixture) atCommit(t *testing.T, statement string) {
	t.Helper()
	f.exec(t, `CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+statement+`; RETURN NULL; END $$`)
	for table, change := range map[string]string{
		"ff_exec_core": "INSERT OR UPDATE OR DELETE", "ff_claim_grant": "INSERT OR UPDATE OR DELETE",
		"ff_flow_core": "INSERT OR UPDATE OR DELETE", "ff_cancel_backlog_member": "INSERT OR DELETE",
		"ff_lease_event": "DELETE", "ffx_pause": "INSERT OR UPDATE OR DELETE", "ffx_lane_retention": "INSERT OR UPDATE OR DELETE",
		"ff_flow_summary": "INSERT OR UPDATE",
	} {
		f.exec(t, `CREATE CONSTRAINT TRIGGER at_commit AFTER `+change+` ON `+table+`
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()`)
	}
}

// eachCommit runs a test with every operation that writes to the execution, in one statement or in several, in a database
// in which what changes an execution runs a statement when it is committed.
func eachCommit(t *testing.T, statement string, test func(t *testing.T, o operation, f *fixture), setup ...string) {
	t.Parallel()
	prepared := func(t *testing.T) *fixture {
		f := newClone(t)
		for _, sql := range setup {
			f.exec(t, sql)
		}
		f.atCommit(t, statement)
		return f
	}
	jobs, others := prepared(t), prepared(t)
	for _, o := range operations() {
		if o.name == "renew" || o.name == "prune keys" {
			continue // these do not
		}
		t.Run(o.name, func(t *testing.T) {
			test(t, o, o.fixture(t, prepared, jobs, others))
		})
	}
}

// The server answers the statement before it commits: what is lost in between is not reported as done.
func TestOperations_whose_connection_is_cut_at_the_commit(t *testing.T) {
	eachCommit(t, "PERFORM pg_advisory_xact_lock_shared(4711)", func(t *testing.T, o operation, f *fixture) {
		l := o.arrange(t, f)
		before := f.dump(t, l.Execution)
		victim := f.rival(t)
		tx := f.begin(t)
		execIn(t, tx, "SELECT pg_advisory_xact_lock(4711)")
		var over atomic.Bool
		wait := async(t, func(ctx context.Context) error {
			defer over.Store(true)
			return o.do(ctx, f, victim.Engine, l)
		})
		// What waits for nobody may have given up before it was seen, or cut.
		await(t, "it to wait for a lock", func() bool { return victim.blocked(t, f) == 1 || over.Load() })
		victim.kill(t, f)
		if err := wait(); !errors.Is(err, engine.ErrTransport) && !errors.Is(err, engine.ErrBusy) && !errors.Is(err, errIdle) {
			t.Errorf("got %v, want a transport error", err)
		}
		f.wantUnchanged(t, l.Execution, before)
		commit(t, tx)
		o.repeat(t, f, f.Engine, l)
		o.wantDone(t, f, l, before)
	})
}

func TestOperations_whose_commit_is_refused(t *testing.T) {
	const refuse = "IF current_setting('test.refuse', true) = 'on' THEN RAISE EXCEPTION 'not today'; END IF"
	eachCommit(t, refuse, func(t *testing.T, o operation, f *fixture) {
		l := o.arrange(t, f)
		before := f.dump(t, l.Execution)
		refused := f.rival(t, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["test.refuse"] = "on" })
		err := o.do(t.Context(), f, refused.Engine, l)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "P0001" || !errors.Is(err, engine.ErrTransport) {
			t.Errorf("got %v, want a transport error that says why", err)
		}
		f.wantUnchanged(t, l.Execution, before)
	})
}

// A closed pool, and a server that is not there.
func TestOperations_without_a_connection(t *testing.T) {
	f := newFixture(t)
	nowhere := openPool(t, "postgres://nobody@127.0.0.1:1/nothing?connect_timeout=2", nil)
	for name, pool := range map[string]*pgxpool.Pool{"no server": nowhere, "no database": openPool(t, f.url+"&dbname=missing", nil)} {
		e := f.engineOn(t, pool, engine.Config{})
		for _, err := range []error{
			e.Prepare(t.Context()),
			func() error { _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test"}); return err }(),
			func() error { _, err := e.Claim(t.Context(), f.worker(), 1); return err }(),
			func() error {
				_, err := e.DescribeExecution(t.Context(), id.NewExecutionID("a", id.Partitions{}))
				return err
			}(),
		} {
			if !errors.Is(err, engine.ErrUnavailable) {
				t.Errorf("%s: got %v, want unavailable", name, err)
			}
		}
	}
}
