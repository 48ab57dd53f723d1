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
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

func (c implicitTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	var batch pgx.Batch
	batch.Queue(sql, args...)
	results := c.SendBatch(ctx, &batch)
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // says the same
		return nil, err
	}
	return &committedRows{Rows: rows, results: results}, nil
}

func (c implicitTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := c.Query(ctx, sql, args...)
	return singleRow{rows: rows, err: err}
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

// committedRows ends without an error only after the commit of the implicit transaction: the server sends the last row
// earlier.
type committedRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

func (r *committedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *committedRows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = r.Rows.Err()
	if err := r.results.Close(); r.err == nil {
		r.err = err
	}
}

func (r *committedRows) Err() error {
	if r.closed {
		return r.err
	}
	return r.Rows.Err()
}

type singleRow struct {
	rows pgx.Rows
	err  error
}

func (r singleRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
