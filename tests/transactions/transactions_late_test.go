package transactions

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lateFirst are the ways in which a transaction may write its first row, 1, into the table late.
var lateFirst = map[string]func(ctx context.Context, tx pgx.Tx) error{
	"exec": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO late VALUES ($1)", 1)
		return err
	},
	"exec with an option": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO late VALUES ($1)", pgx.QueryExecModeExec, 1)
		return err
	},
	"exec with named arguments": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO late VALUES (@n)", pgx.NamedArgs{"n": 1})
		return err
	},
	"query": func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "INSERT INTO late VALUES ($1) RETURNING n", 1)
		if err != nil {
			return err
		}
		_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	},
	"query row": func(ctx context.Context, tx pgx.Tx) error {
		var n int
		return tx.QueryRow(ctx, "INSERT INTO late VALUES ($1) RETURNING n", 1).Scan(&n)
	},
	"batch": func(ctx context.Context, tx pgx.Tx) error {
		var batch pgx.Batch
		batch.Queue("INSERT INTO late VALUES ($1)", 1)
		return tx.SendBatch(ctx, &batch).Close()
	},
	"copy": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"late"}, []string{"n"}, pgx.CopyFromRows([][]any{{int32(1)}}))
		return err
	},
	"savepoint": func(ctx context.Context, tx pgx.Tx) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO late VALUES (1)")
			return err
		})
	},
	"prepare": func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Prepare(ctx, "add_late", "INSERT INTO late VALUES ($1)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "add_late", 1)
		return err
	},
	"connection": func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Conn().Exec(ctx, "INSERT INTO late VALUES (1)")
		return err
	},
	"large object": func(ctx context.Context, tx pgx.Tx) error {
		objects := tx.LargeObjects()
		if _, err := objects.Create(ctx, 0); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO late VALUES (1)")
		return err
	},
}

const setLate = "select set_config('app.late', 'on', true)"

// A transaction that begins with its first statement has all of them, whatever the first one is, in each query mode.
func TestLateTransactionHasAllItsStatements(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, "CREATE TABLE late (n integer)")
	for _, mode := range fixture.QueryModes {
		conn, err := fixture.OpenInMode(t, f.Url, mode).Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, first := range lateFirst {
			if name == "prepare" && mode == pgx.QueryExecModeSimpleProtocol {
				continue // this mode has no prepared statements
			}
			for _, commit := range []bool{false, true} {
				t.Run(mode.String()+"/"+name, func(t *testing.T) {
					ctx := t.Context()
					tx := pgtx.BeginLate(ctx, conn.Conn(), setLate)
					if err := first(ctx, tx); err != nil {
						t.Fatal(err)
					}
					var late string
					if err := tx.QueryRow(ctx, "SELECT current_setting('app.late')").Scan(&late); err != nil || late != "on" {
						t.Errorf("the setting is %q, error %v", late, err)
					}
					want := 0
					if commit {
						want, err = 1, tx.Commit(ctx)
					} else {
						err = tx.Rollback(ctx)
					}
					got := -1
					if err := errors.Join(err, f.Pool.QueryRow(ctx, "SELECT count(*) FROM late").Scan(&got)); err != nil || got != want {
						t.Errorf("%d rows, want %d, error %v", got, want, err)
					}
					f.Exec(t, "TRUNCATE late")
					if _, err := tx.Exec(ctx, "SELECT 1"); err == nil {
						t.Error("a statement after the end")
					}
				})
			}
		}
		conn.Release()
	}
}

// If the first statement fails, so do all that follow, and the connection can be used again.
func TestLateTransactionFails(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, mode := range fixture.QueryModes {
		for name, sql := range map[string]string{"run": "SELECT 1 / $1::int", "parse": "SELECT nothing FROM nowhere WHERE 1 = $1"} {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				ctx := t.Context()
				conn, err := fixture.OpenInMode(t, f.Url, mode).Acquire(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				tx := pgtx.BeginLate(ctx, conn.Conn(), setLate)
				if _, err := tx.Exec(ctx, sql, 0); err == nil {
					t.Error("the statement succeeded")
				}
				if _, err := tx.Exec(ctx, "SELECT 1"); err == nil {
					t.Error("the next statement succeeded")
				}
				if err := tx.Commit(ctx); err == nil {
					t.Error("the commit succeeded")
				}
				if status := conn.Conn().PgConn().TxStatus(); status != 'I' {
					t.Errorf("the connection is in state %c", status)
				}
			})
		}
	}
}
