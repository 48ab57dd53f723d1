package pgtx

import (
	"context"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Refused returns a transaction that sends nothing: every call returns err. It replaces a missing transaction or pool,
// so the caller's mistake never runs elsewhere.
func Refused(err error) pgx.Tx { return refusedTx{err} }

// Refusal returns the error of a transaction made by [Refused], nil for any other.
func Refusal(tx pgx.Tx) error {
	if refused, ok := tx.(refusedTx); ok {
		return refused.err
	}
	return nil
}

// IsNil reports whether tx is nil, or an interface around a nil pointer.
func IsNil(tx pgx.Tx) bool {
	value := reflect.ValueOf(tx)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

type refusedTx struct{ err error }

func (r refusedTx) Begin(context.Context) (pgx.Tx, error) { return nil, r.err }

func (r refusedTx) Commit(context.Context) error { return r.err }

func (r refusedTx) Rollback(context.Context) error { return r.err }

func (r refusedTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, r.err
}

func (r refusedTx) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, r.err }

func (r refusedTx) QueryRow(context.Context, string, ...any) pgx.Row { return singleRow{err: r.err} }

func (r refusedTx) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return unsent(r) }

func (r refusedTx) CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error) {
	return 0, r.err
}

func (r refusedTx) Prepare(context.Context, string, string) (*pgconn.StatementDescription, error) {
	return nil, r.err
}

func (refusedTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

func (refusedTx) Conn() *pgx.Conn { return nil }
