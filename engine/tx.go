package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/db"
)

// settings are local to a transaction, so they also hold behind a transaction pooler, and the pool's
// other users never meet them. Planner: one generic plan per statement, index order, nested loops from
// arrays into primary keys; anything else was slower or flipped with the statistics. ffx.defer_notify:
// the engine rings after the commit. A smaller lock_timeout and a stricter synchronous_commit are kept.
const (
	settings      = settingsBefore + "'2 s' then set_config('lock_timeout', '2s', true) end" + settingsAfter
	hastySettings = settingsBefore + "'50 ms' then set_config('lock_timeout', '50ms', true) end" + settingsAfter

	settingsBefore = `select
	set_config('ffx.defer_notify', 'on', true),
	set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('jit', 'off', true),
	set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true),
	set_config('enable_seqscan', 'off', true),
	set_config('enable_bitmapscan', 'off', true),
	set_config('idle_in_transaction_session_timeout', '60s', true),
	case when current_setting('lock_timeout')::interval not between '1 ms' and `

	settingsAfter = `,
	case when current_setting('synchronous_commit') = 'off'
		then set_config('synchronous_commit', 'on', true) end`
)

// hurried is e for transactions that must not wait for others: whatever is locked for longer than the moment that
// the commit of a neighbour takes ends them with [ErrBusy], without another try. What is certain to be held by
// others, they ask for by statements that skip it. In a caller's transaction the caller's lock_timeout decides.
func (e *Engine) hurried() *Engine {
	hurried := *e
	hurried.hasty = true
	return &hurried
}

// settings returns what a transaction of this engine begins with.
func (e *Engine) settings() string {
	if e.hasty {
		return hastySettings
	}
	return settings
}

const (
	maxTries   = 3
	firstPause = 5 * time.Millisecond
)

// txn is a transaction of an operation, or its savepoint in a caller's transaction, with the rings that
// are due once it has been committed.
type txn struct {
	pgx.Tx
	rings rings
}

// inTx runs fn in a transaction that it begins, repeating it when the server aborts it in favour of
// others, or behind a savepoint of the caller's transaction, once. Either way all of fn happens or none.
// fn uses nothing but its transaction, and nothing slow or user-supplied runs in it.
func inTx[T any](ctx context.Context, e *Engine, op string, fn func(tx *txn) (T, error)) (T, error) {
	if e.tx != nil {
		return inSavepoint(ctx, e.tx, op, fn)
	}
	return retrying(ctx, e, op, func() (T, error) {
		var none T
		conn, err := beginTx(ctx, e)
		if err != nil {
			return none, err
		}
		// Without effect after the commit; with a context of its own, so that a cancelled call does not
		// leave the transaction to the pool.
		defer rollback(conn)
		tx := &txn{Tx: conn}
		result, err := fn(tx)
		if err != nil {
			return none, err
		}
		if err := conn.Commit(ctx); err != nil {
			return none, err
		}
		e.bell.ring(&tx.rings)
		return result, nil
	})
}

func beginTx(ctx context.Context, e *Engine) (pgx.Tx, error) {
	return e.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin isolation level read committed;" + e.settings()})
}

func inSavepoint[T any](ctx context.Context, outer pgx.Tx, op string, fn func(tx *txn) (T, error)) (T, error) {
	var none T
	savepoint, err := outer.Begin(ctx)
	if err != nil {
		return none, wrap(op, err)
	}
	defer rollback(savepoint)
	result, err := fn(&txn{Tx: savepoint})
	if err != nil {
		return none, wrap(op, err)
	}
	if err := savepoint.Commit(ctx); err != nil {
		return none, wrap(op, err)
	}
	return result, nil
}

func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// inStatement runs one statement as a transaction of its own, in one round trip, or behind a savepoint
// of the caller's transaction. [errMissed]: the statement met a row it does not serve and kept nothing.
func inStatement[T any](ctx context.Context, e *Engine, op string, fn func(conn db.DBTX, due *rings) (T, error)) (T, error) {
	if e.tx != nil {
		return inSavepoint(ctx, e.tx, op, func(tx *txn) (T, error) {
			result, err := fn(tx, &tx.rings)
			return result, missed(err)
		})
	}
	return retrying(ctx, e, op, func() (T, error) {
		var due rings
		result, err := fn(implicitTx{e}, &due)
		if err == nil {
			e.bell.ring(&due)
		}
		return result, missed(err)
	})
}

// inStatements is [inStatement] for several statements, which need nothing of each other's results: they
// travel in one round trip and are committed together, or none is. begin is called for each try.
func inStatements(ctx context.Context, e *Engine, op string, begin func(due *rings) []step) error {
	if e.tx != nil {
		_, err := inSavepoint(ctx, e.tx, op, func(tx *txn) (struct{}, error) {
			return struct{}{}, missed(inOneTrip(ctx, tx, begin(&tx.rings)...))
		})
		return err
	}
	_, err := retrying(ctx, e, op, func() (struct{}, error) {
		var due rings
		steps := []step{func(conn db.DBTX) error {
			_, err := conn.Exec(ctx, e.settings())
			return err
		}}
		err := inOneTrip(ctx, e.pool, append(steps, begin(&due)...)...)
		if err == nil {
			e.bell.ring(&due)
		}
		return struct{}{}, missed(err)
	})
	return err
}

// missed recognises how a lean statement says that it met a row it does not serve.
func missed(err error) error {
	switch sqlState(err) {
	case sqlDivisionByZero, sqlUniqueViolation:
		return errMissed
	}
	return err
}

// retrying repeats fn while the server aborts it in favour of others: three tries in all, 5 and 10
// milliseconds apart, plus up to half of that by chance.
func retrying[T any](ctx context.Context, e *Engine, op string, fn func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		result, err := fn()
		switch {
		case err == nil, errors.Is(err, errMissed), errors.Is(err, errFlowLock):
			return result, err
		case e.hasty && sqlState(err) == sqlLockNotAvailable:
			return result, wrap(op, ErrBusy)
		case !isConflict(err):
			return result, wrap(op, err)
		case try == maxTries:
			return result, fmt.Errorf("%s: %w after %d tries: %w", op, ErrContention, maxTries, err)
		}
		pause := firstPause << (try - 1)
		pause += time.Duration(rand.Int64N(int64(pause) / 2))
		select {
		case <-ctx.Done():
			return result, wrap(op, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// implicitTx is a connection on which each statement is a transaction of its own with the engine's
// settings: both travel in one batch, which the server commits as one.
type implicitTx struct{ e *Engine }

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
	batch.Queue(c.e.settings())
	batch.Queue(sql, args...)
	results := c.e.pool.SendBatch(ctx, &batch)
	if _, err := results.Exec(); err != nil {
		return nil, errors.Join(err, results.Close())
	}
	rows, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	return &committedRows{Rows: rows, results: results}, nil
}

func (c implicitTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := c.Query(ctx, sql, args...)
	return singleRow{rows: rows, err: err}
}

// CopyFrom is a transaction of its own too, in more than one round trip.
func (c implicitTx) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	tx, err := beginTx(ctx, c.e)
	if err != nil {
		return 0, err
	}
	defer rollback(tx)
	n, err := tx.CopyFrom(ctx, table, columns, rows)
	if err != nil {
		return 0, err
	}
	return n, tx.Commit(ctx)
}

// committedRows ends without an error only when the implicit transaction has been committed: the server
// sends the last row before that.
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
