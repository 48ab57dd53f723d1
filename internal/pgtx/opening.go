package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// openingTx is a caller's transaction for the function of [InCallers]. The first statements travel behind the savepoint
// and the settings, in the same round trip.
type openingTx struct {
	pgx.Tx
	opened bool // the savepoint was sent
	set    bool // the savepoint exists
}

// open sets the savepoint alone, for a call that doesn't travel in a batch.
func (t *openingTx) open(ctx context.Context) error {
	if t.opened {
		return nil
	}
	return t.SendBatch(ctx, new(pgx.Batch)).Close()
}

// SendBatch sends the batch and returns its results.
func (t *openingTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.opened {
		return t.Tx.SendBatch(ctx, b)
	}
	var whole pgx.Batch
	whole.Queue("savepoint " + savepoint)
	whole.Queue(takeSettings)
	for _, q := range b.QueuedQueries {
		whole.Queue(q.SQL, q.Arguments...) // new ones: the driver records how they were sent
	}
	t.opened = true
	results := t.Tx.SendBatch(ctx, &whole)
	_, err := results.Exec()
	if err == nil {
		t.set = true
		_, err = results.Exec()
	}
	if err != nil {
		_ = results.Close() // says the same
		return unsent{err}
	}
	return results
}

func (t *openingTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if hasOptions(args) {
		if err := t.open(ctx); err != nil {
			return nil, err
		}
	}
	if t.opened {
		return t.Tx.Query(ctx, sql, args...)
	}
	var batch pgx.Batch
	batch.Queue(sql, args...)
	results := t.SendBatch(ctx, &batch)
	return rowsOf(results)
}

func (t *openingTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tagOf(t.Query(ctx, sql, args...))
}

func (t *openingTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return rowOf(t.Query(ctx, sql, args...))
}

func (t *openingTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.open(ctx); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

func (t *openingTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *openingTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}
