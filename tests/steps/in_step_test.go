package steps

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// booking is a fixture with a user's table, whose entries must be different once the transaction is committed.
func booking(t *testing.T) *fixture.Fixture {
	t.Helper()
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE booked (item text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	return f
}

// bookInStep books an item and stores a step of the same name in one transaction.
func bookInStep(ctx context.Context, e *engine.Engine, l engine.Lease, item string, calls *int) (engine.Recorded, error) {
	return e.InStep(ctx, func(tx pgx.Tx, _ *engine.Engine) (engine.StepRecord, error) {
		*calls++
		_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1)", item)
		return engine.StepRecord{Lease: l, Name: item, Result: []byte(item + "!")}, err
	}, nil)
}

func wantInBooked(t *testing.T, f *fixture.Fixture, want ...string) {
	t.Helper()
	rows, err := f.Pool.Query(t.Context(), "SELECT item FROM booked ORDER BY item")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(got, want) {
		t.Errorf("booked %q, want %q, error %v", got, want, err)
	}
}

// A step that ends nothing is sent with the commit.
func TestInStepIsStoredWithTheCommit(t *testing.T) {
	f := booking(t)
	c := f.Start(t)
	var log fixture.StatementLog
	traced := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &log })
	e, err := engine.New(traced, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	var kept pgx.Tx
	sent := log.During(func() {
		recorded, err := e.InStep(t.Context(), func(tx pgx.Tx, _ *engine.Engine) (engine.StepRecord, error) {
			kept = tx
			calls++
			_, err := tx.Exec(t.Context(), "INSERT INTO booked VALUES ('lamp')")
			return engine.StepRecord{Lease: c.Lease, Name: "lamp", Result: []byte("lamp!")}, err
		}, nil)
		if err != nil || recorded.Repeated || string(recorded.Result) != "lamp!" {
			t.Errorf("%+v, error %v", recorded, err)
		}
	})
	if names := fixture.Names(sent); slices.Contains(names, "RecordSteps") || !slices.Contains(names, "StoreStep") {
		t.Errorf("statements %q", names)
	}
	if _, err := kept.Exec(t.Context(), "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("the transaction is over, and says %v", err)
	}
	wantInBooked(t, f, "lamp")
	wantSteps(t, f.Engine, c.ID, "lamp=lamp!")

	// The second is repeated, and nothing of it is written.
	recorded, err := bookInStep(t.Context(), e, c.Lease, "lamp", &calls)
	if err != nil || !recorded.Repeated || string(recorded.Result) != "lamp!" || calls != 2 {
		t.Errorf("%+v after %d calls, error %v", recorded, calls, err)
	}
	wantInBooked(t, f, "lamp")
}

// If another transaction holds the attempt, the step waits for it; the function is not called again.
func TestInStepWaitsForTheAttempt(t *testing.T) {
	f := booking(t)
	c := f.Start(t)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_attempt WHERE execution_id = $1 FOR UPDATE", c.ID.UUID())
	rival := f.Rival(t)
	calls := 0
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := bookInStep(ctx, rival.Engine, c.Lease, "lamp", &calls)
		return err
	})
	rival.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if err := wait(); err != nil || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
	wantInBooked(t, f, "lamp")
	wantSteps(t, f.Engine, c.ID, "lamp=lamp!")
}

// Nothing is written for a stale lease, by a function that fails, or if the server refuses the commit.
func TestInStepLeavesNothing(t *testing.T) {
	f := booking(t)
	c := f.Start(t)
	calls := 0
	stale := c.Lease
	stale.Epoch--
	_, err := bookInStep(t.Context(), f.Engine, stale, "lamp", &calls)
	fixture.WantLeaseError(t, err, fferr.ErrStaleLease)

	wrong := errors.New("out of stock")
	_, err = f.InStep(t.Context(), func(tx pgx.Tx, _ *engine.Engine) (engine.StepRecord, error) {
		_, err := tx.Exec(t.Context(), "INSERT INTO booked VALUES ('lamp')")
		return engine.StepRecord{Lease: c.Lease, Name: "lamp"}, errors.Join(err, wrong)
	}, nil)
	if !errors.Is(err, wrong) {
		t.Error(err)
	}

	f.Exec(t, "INSERT INTO booked VALUES ('chair')")
	_, err = bookInStep(t.Context(), f.Engine, c.Lease, "chair", &calls)
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != "23505" {
		t.Errorf("a deferred constraint: %v", err)
	}

	_, err = f.InStep(t.Context(), func(pgx.Tx, *engine.Engine) (engine.StepRecord, error) {
		return engine.StepRecord{Lease: c.Lease}, nil
	}, nil)
	fixture.WantInputError(t, err, "step")
	_, err = f.InStep(t.Context(), func(pgx.Tx, *engine.Engine) (engine.StepRecord, error) {
		return engine.StepRecord{Lease: c.Lease, Name: "lamp", Ends: true}, nil
	}, nil)
	fixture.WantInputError(t, err, "end")
	_, err = f.InStep(t.Context(), nil, nil)
	fixture.WantInputError(t, err, "fn")
	wantInBooked(t, f, "chair")
	wantSteps(t, f.Engine, c.ID)
}

// In the caller's transaction the step and the writes are the caller's to commit.
func TestInStepOfCaller(t *testing.T) {
	f := booking(t)
	c := f.Start(t)
	calls := 0
	for _, commit := range []bool{false, true} {
		tx := f.BeginTx(t)
		if _, err := bookInStep(t.Context(), f.WithTx(tx), c.Lease, "lamp", &calls); err != nil {
			t.Fatal(err)
		}
		wantInBooked(t, f)
		if commit {
			fixture.Commit(t, tx)
		} else if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantInBooked(t, f, "lamp")
	wantSteps(t, f.Engine, c.ID, "lamp=lamp!")
}

// A lease that has expired stores no step with the commit, although nothing has claimed or expired it yet.
func TestInStepRefusesAnExpiredLease(t *testing.T) {
	f := booking(t)
	c := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	calls := 0
	_, err := bookInStep(t.Context(), f.Engine, c.Lease, "lamp", &calls)
	if !errors.Is(err, fferr.ErrLeaseExpired) || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
	wantInBooked(t, f)
	if steps, err := f.Steps(t.Context(), c.ID); err != nil || len(steps) > 0 {
		t.Errorf("%+v, error %v", steps, err)
	}
}
