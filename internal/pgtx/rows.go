package pgtx

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// rowsOf returns the rows of the next statement, the last one whose rows are read.
func rowsOf(results pgx.BatchResults) (pgx.Rows, error) {
	rows, err := results.Query()
	if err != nil {
		_ = results.Close() // says the same
		return nil, err
	}
	return &committedRows{Rows: rows, results: results}, nil
}

// tagOf reads rows to their end.
func tagOf(rows pgx.Rows, err error) (pgconn.CommandTag, error) {
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// rowOf returns the first of the rows.
func rowOf(rows pgx.Rows, err error) pgx.Row { return singleRow{rows: rows, err: err} }

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
