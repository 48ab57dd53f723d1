package limits

import (
	"context"
	"testing"

	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Once Set has returned, nothing is admitted by the rule before: it waits for the transactions that have read that rule, and
// a pass after it reads the new one. L17.
func TestNothingIsAdmittedByARuleThatWasReplaced_L17(t *testing.T) {
	for _, statement := range []string{"TakeWaiting", "AdmitExecutions"} {
		t.Run("pass stopped before "+statement, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(5))
			tx := f.BeginTx(t) // in which nothing is admitted
			for range 6 {
				created(t, f.WithTx(tx), kind, sync{})
			}
			fixture.Commit(t, tx)
			r := f.StoppedBefore(t, statement)
			pass := passing(t, r.Engine)
			r.AwaitStop(t)
			admitted := setWhile(t, f, 1, func() { r.Resume(); pass() })
			admit(t, f.Engine)
			if now := admittedNow(t, f); now != max(admitted, 1) {
				t.Errorf("%d are admitted, but %d were when Set returned", now, admitted)
			}
		})
	}
	t.Run("creation", func(t *testing.T) {
		f := fixture.NewCloned(t)
		kind := kindOf(f, atOnce(5))
		known(t, f, kind, "")
		r := f.StoppedBefore(t, "InsertAlikeAdmitted")
		create := fixture.Async(t, func(ctx context.Context) error {
			_, err := kind.Create(ctx, r.Engine, sync{})
			return err
		})
		r.AwaitStop(t)
		admitted := setWhile(t, f, 0, func() {
			r.Resume()
			if err := create(); err != nil {
				t.Error(err)
			}
		})
		if now := admittedNow(t, f); now != admitted {
			t.Errorf("%d are admitted, but %d were when Set returned", now, admitted)
		}
	})
	t.Run("end", func(t *testing.T) {
		f := fixture.NewCloned(t)
		kind := kindOf(f, atOnce(2))
		known(t, f, kind, "")
		for range 6 {
			created(t, f.Engine, kind, sync{})
		}
		running := wantClaimable(t, f, 2, "at first") // this process knows now that executions wait
		f.Exec(t, `CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$
			BEGIN PERFORM pg_advisory_xact_lock(17); RETURN NULL; END $$`)
		f.Exec(t, `CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON ffx_gate_use
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()`)
		hold := f.BeginTx(t)
		fixture.ExecIn(t, hold, "SELECT pg_advisory_xact_lock(17)")
		end := fixture.Async(t, func(ctx context.Context) error { return f.CompleteExecution(ctx, running[0].Lease, nil) })
		fixture.Await(t, "the end to wait for its commit", func() bool {
			return len(fixture.Texts(t, f.Pool, "SELECT mode FROM pg_locks WHERE locktype = 'advisory' AND objid = 17 AND NOT granted")) > 0
		})
		admitted := setWhile(t, f, 0, func() {
			fixture.Commit(t, hold)
			if err := end(); err != nil {
				t.Error(err)
			}
		})
		if now := admittedNow(t, f); now != admitted {
			t.Errorf("%d are admitted, but %d were when Set returned", now, admitted)
		}
	})
}

// setWhile sets the units of the tenants' limit, and calls finish once Set waits or has returned. It returns how many
// executions were admitted when it returned.
func setWhile(t *testing.T, f *fixture.Fixture, units int, finish func()) (admitted int) {
	t.Helper()
	r := f.Rival(t)
	returned, wait := fixture.Watched(t, func(ctx context.Context) error {
		err := limit.Set(ctx, r.Engine, perTenant, limit.Setting{Units: units})
		if err == nil {
			err = r.Pool.QueryRow(ctx, countAdmitted).Scan(&admitted)
		}
		return err
	})
	r.AwaitBlockedOr(t, f, returned)
	finish()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	return admitted
}

const countAdmitted = "SELECT count(*)::int FROM ff_exec_core WHERE ffx_admitted AND lifecycle_phase = 'runnable'"

func admittedNow(t *testing.T, f *fixture.Fixture) int {
	t.Helper()
	var n int
	if err := f.Pool.QueryRow(t.Context(), countAdmitted).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
