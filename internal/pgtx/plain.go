package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
)

// Plain returns a connection on which each statement is sent alone, without the settings of a transaction.
func (r *Runner) Plain() db.DBTX { return plain{r} }

type plain struct{ r *Runner }

func (c plain) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	conn, err := c.r.acquire(ctx)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer conn.Release()
	return conn.Exec(ctx, sql, args...)
}

func (c plain) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, err := c.r.acquire(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		conn.Release()
		return nil, err
	}
	return &releasingRows{rows, conn}, nil
}

func (c plain) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := c.Query(ctx, sql, args...)
	return singleRow{rows: rows, err: err}
}

// releasingRows returns the connection to the pool when the rows are closed.
type releasingRows struct {
	pgx.Rows
	conn *pgxpool.Conn // nil after Close
}

func (r *releasingRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *releasingRows) Close() {
	r.Rows.Close()
	if r.conn != nil {
		r.conn.Release()
		r.conn = nil
	}
}
