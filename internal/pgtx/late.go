package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// BeginLate returns a transaction for a caller's function. It begins with its first statement, in the same round trip
// for Exec, Query or QueryRow. set is a statement to follow the begin. If the server can't even parse the first
// statement, the transaction ends. ctx is for the begin of methods without a context.
func BeginLate(ctx context.Context, conn *pgx.Conn, set string) pgx.Tx {
	return &lateTx{ctx: ctx, conn: conn, set: set}
}

type lateTx struct {
	ctx  context.Context
	conn *pgx.Conn
	set  string
	tx   pgx.Tx // nil until begun

	hasBegun bool // on the server
}

// begun begins the transaction, once.
func (t *lateTx) begun(ctx context.Context) (pgx.Tx, error) {
	if t.tx == nil {
		tx, err := t.conn.BeginTx(ctx, FunctionOptions(t.set))
		if err != nil {
			t.tx = endedTx(err)
			return t.tx, err
		}
		t.tx, t.hasBegun = tx, true
	}
	return t.tx, nil
}

// endedTx returns a transaction whose methods return [pgx.ErrTxClosed].
func endedTx(err error) pgx.Tx {
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(&batch, err).Tx()
}

func (t *lateTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.tx == nil && hasOptions(args) {
		if _, err := t.begun(ctx); err != nil {
			return nil, err
		}
	}
	if t.tx != nil {
		return t.tx.Query(ctx, sql, args...)
	}
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{BeginQuery: "begin", CommitQuery: commitFunction})
	batch.Queue(t.set)
	batch.Queue(setFunction)
	batch.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, &batch)
	t.tx = results.Tx()
	for range 3 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // says the same
			return nil, err
		}
	}
	t.hasBegun = true
	return rowsOf(results)
}

// hasOptions reports whether the first argument of a statement is an option, which a batch doesn't take.
func hasOptions(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return true
	}
	return false
}

func (t *lateTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.tx != nil {
		return t.tx.Exec(ctx, sql, args...)
	}
	return tagOf(t.Query(ctx, sql, args...))
}

func (t *lateTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.tx != nil {
		return t.tx.QueryRow(ctx, sql, args...)
	}
	return rowOf(t.Query(ctx, sql, args...))
}

func (t *lateTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	tx, err := t.begun(ctx)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return tx.SendBatch(ctx, b)
}

func (t *lateTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return 0, err
	}
	return tx.CopyFrom(ctx, table, columns, rows)
}

func (t *lateTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Prepare(ctx, name, sql)
}

func (t *lateTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Begin(ctx)
}

func (t *lateTx) LargeObjects() pgx.LargeObjects {
	tx, _ := t.begun(t.ctx) // its methods return the error
	return tx.LargeObjects()
}

// Conn implements [pgx.Tx]. Statements sent to the connection are part of the transaction, so Conn begins it.
func (t *lateTx) Conn() *pgx.Conn {
	_, _ = t.begun(t.ctx) // if a connection can't begin a transaction, it is closed, or the next statement returns the error
	return t.conn
}

// Commit implements [pgx.Tx]. Without a statement there is nothing to commit.
func (t *lateTx) Commit(ctx context.Context) error {
	if t.tx == nil {
		t.tx = endedTx(pgx.ErrTxClosed)
		return nil
	}
	if t.hasBegun && t.conn.PgConn().TxStatus() == 'E' { // or the driver would close the connection
		Rollback(t.tx)
		return pgx.ErrTxCommitRollback
	}
	return t.tx.Commit(ctx)
}

func (t *lateTx) Rollback(ctx context.Context) error {
	if t.tx == nil {
		t.tx = endedTx(pgx.ErrTxClosed)
		return nil
	}
	return t.tx.Rollback(ctx)
}
