package limits

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Once SetQuotaPolicy or DeleteQuotaPolicy has returned, nothing is admitted by the policy before. L17.
func TestNothingIsAdmittedByAQuotaPolicyThatWasReplaced_L17(t *testing.T) {
	set := func(ctx context.Context, e *engine.Engine, q id.QuotaPolicyID) error {
		return interop.SetQuotaPolicy(ctx, e, interop.QuotaPolicySpec{ID: q, MaxRunning: 1})
	}
	remove := func(ctx context.Context, e *engine.Engine, q id.QuotaPolicyID) error {
		return interop.DeleteQuotaPolicy(ctx, e, q)
	}
	for _, c := range []struct {
		name, statement string
		change          func(context.Context, *engine.Engine, id.QuotaPolicyID) error
		admits          int // by the policy after
	}{
		{"set during a pass before TakeWaiting", "TakeWaiting", set, 1},
		{"set during a pass before AdmitExecutions", "AdmitExecutions", set, 1},
		{"deleted during a pass", "AdmitExecutions", remove, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 5})
			create(t, f, 6, under(q))
			r := f.StoppedBefore(t, c.statement)
			pass := passing(t, r.Engine)
			r.AwaitStop(t)
			admitted := countedAfter(t, f, countAdmitted, func(ctx context.Context, e *engine.Engine) error {
				return c.change(ctx, e, q)
			}, func() { r.Resume(); pass() })
			admit(t, f.Engine)
			if now := admittedNow(t, f); now != max(admitted, c.admits) {
				t.Errorf("%d are admitted, but %d were when the change returned", now, admitted)
			}
			if c.admits > 1 && admitted < 5 {
				t.Errorf("it returned while a pass admitted: %d are admitted", admitted)
			}
		})
	}
	t.Run("set during a call", func(t *testing.T) {
		f := fixture.NewCloned(t)
		q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 5})
		ids := create(t, f, 2)
		r := f.StoppedBefore(t, "InsertGateUses")
		call := fixture.Async(t, func(ctx context.Context) error {
			_, err := interop.CheckAdmission(ctx, r.Rival.Engine, q, ids[0], interop.AdmissionSpec{})
			return err
		})
		r.AwaitStop(t)
		const uses = "SELECT count(*)::int FROM ffx_gate_use"
		admitted := countedAfter(t, f, uses, func(ctx context.Context, e *engine.Engine) error { return set(ctx, e, q) }, func() {
			r.Resume()
			if err := call(); err != nil {
				t.Error(err)
			}
		})
		if admitted != 1 {
			t.Errorf("SetQuotaPolicy returned while a call admitted: %d are admitted", admitted)
		}
		if result, err := interop.CheckAdmission(t.Context(), f.Engine, q, ids[1], interop.AdmissionSpec{}); err != nil || result.Outcome != interop.ConcurrencyExceeded {
			t.Error(result, err)
		}
	})
}

// A pass reads a policy once it has locked it: its snapshot may be older. L17.
func TestPassReadsAQuotaPolicyAsOfItsLock_L17(t *testing.T) {
	f := fixture.NewCloned(t)
	first, second := id.QuotaPolicyID{1}, id.QuotaPolicyID{2}
	for _, q := range []id.QuotaPolicyID{first, second} {
		quota(t, f, interop.QuotaPolicySpec{ID: q, MaxRunning: 5})
		create(t, f, 1, under(q))
	}
	complete(t, f, wantClaimable(t, f, 2, "to make the rows of the policies")...)
	create(t, f, 6, under(first))
	create(t, f, 6, under(second))
	r, release := f.Holding(t, "TakeGates") // after it has locked the first policy
	pass := passing(t, r.Engine)
	r.AwaitBlocked(t, f)
	if err := interop.SetQuotaPolicy(t.Context(), f.Engine, interop.QuotaPolicySpec{ID: second, MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	release()
	pass()
	admit(t, f.Engine)
	if now := admittedNow(t, f); now != 5+1 {
		t.Errorf("%d are admitted by both policies, want 5 by the first and 1 by the second", now)
	}
}

// A window that was shortened holds at once, also if an execution was admitted after the statement had begun: the time of the
// change is that of its lock, or a pass would believe when the longer window has room again. L17.
func TestShortenedWindowHoldsAtOnce_L17(t *testing.T) {
	t.Run("of a quota policy", func(t *testing.T) {
		f := fixture.NewCloned(t)
		e := realClock(t, f.Pool)
		q := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 1, Window: time.Hour})
		for range 3 {
			if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", QuotaPolicy: &q}); err != nil {
				t.Fatal(err)
			}
		}
		tx := f.BeginTx(t)
		fixture.ExecIn(t, tx, "SELECT FROM ff_quota_policy FOR UPDATE")
		shortened(t, f, e, func(ctx context.Context, e *engine.Engine) error {
			return interop.SetQuotaPolicy(ctx, e, interop.QuotaPolicySpec{ID: q, MaxStarts: 1, Window: time.Hour / 2})
		}, func() { fixture.Commit(t, tx) })
	})
	t.Run("of a limit", func(t *testing.T) {
		f := fixture.NewCloned(t)
		e := realClock(t, f.Pool)
		kind := kindOf(f, engine.Rate[sync](1, time.Hour).Per("tenant", tenantOf))
		tx := f.BeginTx(t)
		for range 3 {
			created(t, e.WithTx(tx), kind, sync{})
		}
		fixture.Commit(t, tx)
		f.Exec(t, `CREATE OR REPLACE FUNCTION ffx_limit_key(namespace text, name text) RETURNS bigint LANGUAGE plpgsql SET lock_timeout = 0 AS $$
			BEGIN
				IF current_query() LIKE '-- name: SetLimit %' THEN
					PERFORM pg_advisory_xact_lock_shared(4712);
				END IF;
				RETURN 1;
			END $$`)
		tx = f.BeginTx(t)
		fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(4712)")
		shortened(t, f, e, func(ctx context.Context, e *engine.Engine) error {
			return limit.Set(ctx, e, perTenant, limit.Setting{Units: 1, Window: time.Hour / 2})
		}, func() { fixture.Commit(t, tx) })
	})
}

// shortened shortens a window of an hour by a statement that waits, admits an execution meanwhile, as it seems 40 minutes ago, lets
// the statement go on, and wants one more to be admitted.
func shortened(
	t *testing.T, f *fixture.Fixture, e *engine.Engine, shorten func(context.Context, *engine.Engine) error, release func(),
) {
	t.Helper()
	r := f.Rival(t)
	rival := realClock(t, r.Pool)
	wait := fixture.Async(t, func(ctx context.Context) error { return shorten(ctx, rival) })
	r.AwaitBlocked(t, f)
	fixture.Await(t, "the next millisecond", func() bool {
		return len(fixture.Texts(t, f.Pool, `SELECT pid::text FROM pg_stat_activity
			WHERE application_name = $1 AND wait_event_type = 'Lock' AND clock_timestamp() > query_start + interval '1 ms'`, r.Name)) > 0
	})
	admitOne := func() int {
		admit(t, e)
		claimed, err := e.Claim(t.Context(), f.Worker(), 10)
		if err != nil {
			t.Fatal(err)
		}
		admit(t, e) // notes when the window has room again
		return len(claimed)
	}
	admitOne()
	f.Exec(t, "UPDATE ffx_gate_use SET started_at_ms = started_at_ms - 40 * 60 * 1000")
	f.Exec(t, "UPDATE ffx_gate SET next_at_ms = next_at_ms - 40 * 60 * 1000 WHERE next_at_ms IS NOT NULL")
	release()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if n := admitOne(); n != 1 {
		t.Errorf("%d were admitted within the shorter window, want 1", n)
	}
}

// realClock returns an engine that reads the clock of the database.
func realClock(t *testing.T, pool *pgxpool.Pool) *engine.Engine {
	t.Helper()
	e, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// countedAfter makes a change in another process, and calls finish once that waits or has returned. It returns what the query
// counted when the change returned.
func countedAfter(
	t *testing.T, f *fixture.Fixture, query string, change func(context.Context, *engine.Engine) error, finish func(),
) (counted int) {
	t.Helper()
	r := f.Rival(t)
	returned, wait := fixture.Watched(t, func(ctx context.Context) error {
		err := change(ctx, r.Engine)
		if err == nil {
			err = r.Pool.QueryRow(ctx, query).Scan(&counted)
		}
		return err
	})
	r.AwaitBlockedOr(t, f, returned)
	finish()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	return counted
}

// A transaction whose snapshot is older than a change of the policy admits nothing by the policy before. L17
func TestAdmissionInATransactionNeverFollowsAnOlderPolicy_L17(t *testing.T) {
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			f := fixture.NewCloned(t)
			q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 2})
			ids := create(t, f, 2)
			tx := fixture.BeginWith(t, f.Pool, pgx.TxOptions{IsoLevel: level})
			if _, err := tx.Exec(t.Context(), "SELECT count(*) FROM ff_quota_policy"); err != nil {
				t.Fatal(err)
			}
			if err := interop.SetQuotaPolicy(t.Context(), f.Engine, interop.QuotaPolicySpec{ID: q, MaxRunning: 1}); err != nil {
				t.Fatal(err)
			}
			admit := func(n int) (interop.AdmissionOutcome, error) {
				result, err := interop.CheckAdmission(t.Context(), f.WithTx(tx), q, ids[n], interop.AdmissionSpec{})
				return result.Outcome, err
			}
			first, err := admit(0)
			if level != pgx.ReadCommitted {
				if !errors.Is(err, fferr.ErrContention) {
					t.Errorf("%q, %v", first, err)
				}
				return
			}
			second, err2 := admit(1)
			if err := errors.Join(err, err2); err != nil || first != interop.Admitted || second != interop.ConcurrencyExceeded {
				t.Errorf("%q and %q, %v", first, second, err)
			}
		})
	}
}
