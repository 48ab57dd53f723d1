package transactions

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var mail = engine.Kind[string, int]{Name: "mail", Lane: "post"}

// InTx keeps the caller's statements and the engine's operations together, and wakes the lanes that got work once they are
// committed: those of operations on the engine it hands over, on another one bound to the transaction, and in savepoints.
func TestInTxWakesAfterTheCommit(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE orders (number integer)")
	eng := f.EngineOn(t, f.Pool, engine.Config{NoListener: true, Now: f.Time})
	create := func(t *testing.T, bound *engine.Engine, lane id.LaneID) {
		t.Helper()
		if _, err := bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: lane}); err != nil {
			t.Fatal(err)
		}
	}
	got := fixture.WakesOf(t, eng, func() {
		err := eng.InTx(t.Context(), func(tx pgx.Tx, bound *engine.Engine) error {
			fixture.ExecIn(t, tx, "INSERT INTO orders VALUES (1)")
			create(t, bound, "a")
			create(t, eng.WithTx(tx), "b")
			savepoint, err := tx.Begin(t.Context())
			if err != nil {
				return err
			}
			create(t, eng.WithTx(savepoint), "c")
			if err := savepoint.Commit(t.Context()); err != nil {
				return err
			}
			return bound.InTx(t.Context(), func(_ pgx.Tx, inner *engine.Engine) error {
				create(t, inner, "d")
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
	if want := []id.LaneID{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("woke %q, want %q", got, want)
	}
	refused := errors.New("refused")
	got = fixture.WakesOf(t, eng, func() {
		if err := eng.InTx(t.Context(), func(tx pgx.Tx, bound *engine.Engine) error {
			fixture.ExecIn(t, tx, "INSERT INTO orders VALUES (2)")
			create(t, bound, "e")
			return refused
		}); err != refused { //nolint:errorlint // as it was returned
			t.Errorf("got %v, want fn's error", err)
		}
		err := eng.InTx(t.Context(), func(_ pgx.Tx, bound *engine.Engine) error {
			return bound.InTx(t.Context(), func(tx pgx.Tx, inner *engine.Engine) error {
				create(t, inner, "f")
				return refused
			})
		})
		if !errors.Is(err, refused) {
			t.Errorf("got %v", err)
		}
	})
	if len(got) > 0 {
		t.Errorf("woke %q for what was rolled back", got)
	}
	stored := fixture.Texts(t, f.Pool, "SELECT lane_id FROM ff_exec_core UNION ALL SELECT number::text FROM orders ORDER BY 1")
	if want := []string{"1", "a", "b", "c", "d"}; !slices.Equal(stored, want) {
		t.Errorf("stored %q, want %q", stored, want)
	}
}

// fn does not end the transaction; any other misuse ends it as a whole.
func TestInTxIsItsOwnEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE orders (number integer)")
	insert := func(tx pgx.Tx) { fixture.ExecIn(t, tx, "INSERT INTO orders VALUES (1)") }
	if err := f.InTx(t.Context(), nil); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("no fn: got %v", err)
	}
	if err := f.WithTx(nil).InTx(t.Context(), func(pgx.Tx, *engine.Engine) error { return nil }); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("in no transaction: got %v", err)
	}
	if err := f.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error { insert(tx); return tx.Commit(t.Context()) }); err == nil {
		t.Error("fn has committed")
	}
	if err := f.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error { return tx.Rollback(t.Context()) }); err == nil {
		t.Error("fn has rolled back")
	}
	if err := f.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error {
		insert(tx)
		_, _ = tx.Exec(t.Context(), "SELECT 1 / 0")
		return nil
	}); !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("a failed statement that fn hid: got %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of fn is gone")
			}
		}()
		_ = f.InTx(t.Context(), func(tx pgx.Tx, _ *engine.Engine) error { insert(tx); panic("fn") })
	}()
	ctx, cancel := context.WithCancel(t.Context())
	if err := f.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error { insert(tx); cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if n := len(fixture.Texts(t, f.Pool, "SELECT number::text FROM orders")); n > 0 {
		t.Errorf("%d rows were committed", n)
	}
	if acquired := f.Pool.Stat().AcquiredConns(); acquired > 0 {
		t.Errorf("%d connections were not given back", acquired)
	}
}

// The options of a creation have the effect of the fields of a spec.
func TestKindCreateOptions(t *testing.T) {
	f := fixture.NewCloned(t)
	ctx := t.Context()
	created, err := mail.Create(ctx, f.Engine, "to ada", engine.WithKey("first"), engine.After(time.Hour), engine.WithTag("app.tenant", "7"),
		engine.WithTag("app.user", "8"), engine.WithPriority(9))
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.DescribeExecution(ctx, created.ID)
	if err != nil || got.Lane != "post" || got.Kind != "mail" || got.Priority != 9 || got.Tags["app.tenant"] != "7" || got.Tags["app.user"] != "8" ||
		!got.DelayUntil.Equal(f.Time().Add(time.Hour)) {
		t.Errorf("%+v, %v", got, err)
	}
	again, err := mail.Create(ctx, f.Engine, "to ada", engine.WithKey("first"))
	if err != nil || !again.Duplicate || again.ID != created.ID {
		t.Errorf("a repetition: %+v, %v", again, err)
	}
	if _, err := mail.Create(ctx, f.Engine, "to grace", engine.WithKey("first")); !errors.Is(err, fferr.ErrKeyConflict) {
		t.Errorf("another one with its key: %v", err)
	}
	for name, option := range map[string]engine.CreateOption{"nil": nil, "a negative delay": engine.After(-1), "an empty tag": engine.WithTag("", "v")} {
		if _, err := mail.Create(ctx, f.Engine, "x", option); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if x := f.NewExecutionID("post"); x.Partition() != (id.Partitions{}).LanePartition("post") || x == f.NewExecutionID("post") {
		t.Errorf("id %s", x)
	}
	if x := f.NewExecutionID(""); x.Partition() != (id.Partitions{}).LanePartition(engine.DefaultLane) {
		t.Errorf("id %s is of no default lane", x)
	}
}
