package pgtx

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// implicitTx is a connection without explicit transactions. Each statement, and each batch of statements, is a
// transaction with the runner's settings: they travel together, and the server commits them as one.
type implicitTx struct{ r *Runner }

func (c implicitTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tagOf(c.Query(ctx, sql, args...))
}

func (c implicitTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	var batch pgx.Batch
	batch.Queue(sql, args...)
	results := c.SendBatch(ctx, &batch)
	return rowsOf(results)
}

func (c implicitTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return rowOf(c.Query(ctx, sql, args...))
}

// SendBatch sends the settings and the batch, and returns the results of the batch alone.
func (c implicitTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	conn, err := c.r.acquire(ctx)
	if err != nil {
		return unsent{err}
	}
	results, err := c.r.send(ctx, conn.Conn(), b)
	whole := &wholeTx{results, conn}
	if err != nil {
		whole.release()
		return unsent{err}
	}
	return whole
}

// send sends a batch as one transaction. If the connection turns out to default to another isolation level, nothing
// was done; from then on the runner's batches set the level, which takes two more statements.
func (r *Runner) send(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) (pgx.BatchResults, error) {
	for {
		var whole pgx.Batch
		explicit := r.explicit.Load() && !hasSession(conn)
		if explicit {
			whole.Queue(beginReadCommitted)
		}
		settings := r.settings(conn, true)
		if settings != "" {
			whole.Queue(settings)
		}
		for _, q := range b.QueuedQueries {
			whole.Queue(q.SQL, q.Arguments...) // new ones: the driver records how they were sent
		}
		if explicit {
			whole.Queue("commit")
		}
		results := conn.SendBatch(ctx, &whole)
		var err error
		if explicit {
			_, err = results.Exec()
		}
		if err == nil && settings != "" {
			_, err = results.Exec()
		}
		if err == nil {
			return results, nil
		}
		_ = results.Close() // says the same
		if explicit || SQLState(err) != sqlActiveTransaction {
			return nil, err
		}
		r.explicit.Store(true)
	}
}

// wholeTx is the results of a transaction sent at once. The transaction is committed once Close returns nil.
type wholeTx struct {
	pgx.BatchResults
	conn *pgxpool.Conn // nil after Close
}

func (w *wholeTx) Close() error {
	defer w.release()
	return w.BatchResults.Close()
}

// release returns the connection to the pool. The pool would close a connection in the middle of a transaction.
func (w *wholeTx) release() {
	if w.conn == nil {
		return
	}
	if conn := w.conn.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() == 'E' {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback")
	}
	w.conn.Release()
	w.conn = nil
}

// unsent is the results of a batch without a run.
type unsent struct{ err error }

func (u unsent) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, u.err }

func (u unsent) Query() (pgx.Rows, error) { return nil, u.err }

func (u unsent) QueryRow() pgx.Row { return singleRow{err: u.err} }

func (u unsent) Close() error { return u.err }

func (unsent) Tx() pgx.Tx { return nil }
