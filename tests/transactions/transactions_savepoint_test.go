package transactions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// keeps is a step that inserts numbers, each only once.
func keeps(ctx context.Context, numbers ...int32) pgtx.Step {
	return func(conn db.DBTX) error {
		_, err := conn.Exec(ctx, "INSERT INTO kept SELECT unnest($1::integer[])", numbers)
		return err
	}
}

// Statements sent together behind a savepoint are all kept, or none, and the caller's transaction goes on. An earlier
// failure stays.
func TestInCallersAtOnce(t *testing.T) {
	refused := errors.New("refused")
	many := make([]int32, 20_000) // more than is sent in one go
	for i := range many {
		many[i] = 100 + int32(i)
	}
	for name, c := range map[string]struct {
		before string // by the caller, which has inserted 1; it may fail
		steps  []pgtx.Step
		err    string // SQLSTATE
		is     error
		kept   []string // of the numbers below 100, when the caller commits
	}{
		"one statement":          {steps: []pgtx.Step{keeps(t.Context(), 2)}, kept: []string{"1", "2"}},
		"several":                {steps: []pgtx.Step{keeps(t.Context(), 2), keeps(t.Context(), 3)}, kept: []string{"1", "2", "3"}},
		"none":                   {kept: []string{"1"}},
		"one that fails":         {steps: []pgtx.Step{keeps(t.Context(), 1)}, err: "23505", kept: []string{"1"}},
		"the first that fails":   {steps: []pgtx.Step{keeps(t.Context(), 1), keeps(t.Context(), 2)}, err: "23505", kept: []string{"1"}},
		"a later one that fails": {steps: []pgtx.Step{keeps(t.Context(), 2), keeps(t.Context(), 3, 1), keeps(t.Context(), 4)}, err: "23505", kept: []string{"1"}},
		"one that sends nothing": {steps: []pgtx.Step{keeps(t.Context(), 2), func(db.DBTX) error { return refused }}, is: refused, kept: []string{"1"}},
		"one that is large":      {steps: []pgtx.Step{keeps(t.Context(), many...), keeps(t.Context(), 2)}, kept: []string{"1", "2"}},
		"a large one that fails": {steps: []pgtx.Step{keeps(t.Context(), 2), keeps(t.Context(), append(many, 1)...)}, err: "23505", kept: []string{"1"}},
		"after a failure":        {before: "SELECT 1 / 0", steps: []pgtx.Step{keeps(t.Context(), 2)}, err: "25P02"},
		"after a failure behind a savepoint of the same name": {
			before: "SAVEPOINT ffx_operation; SELECT 1 / 0", steps: []pgtx.Step{keeps(t.Context(), 2)}, err: "25P02",
		},
		"behind a savepoint of the same name": {
			before: "SAVEPOINT ffx_operation; INSERT INTO kept VALUES (5)", steps: []pgtx.Step{keeps(t.Context(), 2, 1)}, err: "23505", kept: []string{"1", "5"},
		},
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
			t.Run(name+", "+mode.String(), func(t *testing.T) {
				f := fixture.NewCloned(t)
				f.Exec(t, "CREATE TABLE kept (number integer PRIMARY KEY)")
				config := f.Pool.Config().ConnConfig
				config.DefaultQueryExecMode = mode
				conn, err := pgx.ConnectConfig(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.WithoutCancel(t.Context()))
				tx, err := conn.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				fixture.ExecIn(t, tx, "INSERT INTO kept VALUES (1)")
				_, _ = tx.Exec(t.Context(), c.before, pgx.QueryExecModeSimpleProtocol)
				err = pgtx.InCallersAtOnce(t.Context(), tx, c.steps...)
				if pgtx.SQLState(err) != c.err || c.is != nil && !errors.Is(err, c.is) || c.err == "" && c.is == nil && err != nil {
					t.Errorf("got %v, want %q, %v", err, c.err, c.is)
				}
				if err != nil && strings.Contains(err.Error(), "\n") {
					t.Errorf("says it twice: %v", err)
				}
				if c.kept == nil {
					if err := tx.Commit(t.Context()); !errors.Is(err, pgx.ErrTxCommitRollback) {
						t.Errorf("committed: %v; want that what had failed is rolled back", err)
					}
				} else {
					if _, err := tx.Exec(t.Context(), "SAVEPOINT own; RELEASE SAVEPOINT own", pgx.QueryExecModeSimpleProtocol); err != nil {
						t.Errorf("the transaction cannot go on: %v", err)
					}
					fixture.Commit(t, tx)
				}
				if kept := fixture.Texts(t, f.Pool, "SELECT number::text FROM kept WHERE number < 100 ORDER BY number"); !slices.Equal(kept, c.kept) {
					t.Errorf("kept %q, want %q", kept, c.kept)
				}
			})
		}
	}
}

// Behind a savepoint of the caller's own it undoes only the statements behind its own savepoint, and leaves none
// there.
func TestInCallersAtOnceInsideAnotherSavepoint(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE kept (number integer PRIMARY KEY)")
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "INSERT INTO kept VALUES (1)")
	for _, keep := range []bool{false, true} {
		inner, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fixture.ExecIn(t, inner, "INSERT INTO kept VALUES (2)")
		if err := pgtx.InCallersAtOnce(t.Context(), inner, keeps(t.Context(), 3), keeps(t.Context(), 2)); pgtx.SQLState(err) != "23505" {
			t.Errorf("got %v, want that 2 is there", err)
		}
		if err := pgtx.InCallersAtOnce(t.Context(), inner, keeps(t.Context(), 4)); err != nil {
			t.Error(err)
		}
		if _, err := inner.Exec(t.Context(), "RELEASE SAVEPOINT ffx_operation"); pgtx.SQLState(err) != "3B001" {
			t.Errorf("got %v, want that there is no such savepoint", err)
		}
		if err := inner.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !keep {
			continue
		}
		if err := pgtx.InCallersAtOnce(t.Context(), inner, keeps(t.Context(), 5)); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("got %v behind a savepoint that has ended", err)
		}
		if err := pgtx.InCallersAtOnce(t.Context(), tx, keeps(t.Context(), 6)); err != nil {
			t.Error(err)
		}
	}
	fixture.Commit(t, tx)
	if kept := fixture.Texts(t, f.Pool, "SELECT number::text FROM kept ORDER BY number"); !slices.Equal(kept, []string{"1", "6"}) {
		t.Errorf("kept %q, want 1 and 6", kept)
	}
	if err := pgtx.InCallersAtOnce(t.Context(), tx, keeps(t.Context(), 7)); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("got %v in a transaction that has ended", err)
	}
}

// The end of the connection, or of the caller's context, ends the transaction.
func TestInCallersAtOnceWithoutItsConnection(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE kept (number integer PRIMARY KEY)")
	for name, end := range map[string]func(cancel func(), r *fixture.Rival){
		"terminated": func(_ func(), r *fixture.Rival) { r.Kill(t, f) },
		"cancelled":  func(cancel func(), _ *fixture.Rival) { cancel() },
	} {
		holder := f.BeginTx(t)
		fixture.ExecIn(t, holder, "INSERT INTO kept VALUES (3)")
		r := f.Rival(t)
		tx := fixture.BeginWith(t, r.Pool, pgx.TxOptions{})
		fixture.ExecIn(t, tx, "INSERT INTO kept VALUES (1)")
		ctx, cancel := context.WithCancel(t.Context())
		result := fixture.Async(t, func(context.Context) error {
			return pgtx.InCallersAtOnce(ctx, tx, keeps(ctx, 2), keeps(ctx, 3))
		})
		r.AwaitBlocked(t, f)
		end(cancel, r)
		if err := result(); err == nil || name == "cancelled" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", name, err)
		}
		if !tx.Conn().IsClosed() {
			t.Errorf("%s: the connection is open", name)
		}
		if err := tx.Commit(context.WithoutCancel(t.Context())); err == nil {
			t.Errorf("%s: committed", name)
		}
		cancel()
		if err := holder.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if kept := fixture.Texts(t, f.Pool, "SELECT number::text FROM kept"); len(kept) > 0 {
			t.Errorf("%s: kept %q", name, kept)
		}
	}
}
