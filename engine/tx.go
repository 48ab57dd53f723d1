package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/db"
)

// hurried is e for transactions that must not wait for others: whatever is locked for longer than the moment that
// the commit of a neighbour takes ends them with [ErrBusy], without another try. What is certain to be held by
// others, they ask for by statements that skip it. In a caller's transaction the caller's lock_timeout decides.
func (e *Engine) hurried() *Engine {
	hurried := *e
	hurried.hasty = true
	return &hurried
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

const beginReadCommitted = "begin isolation level read committed"

func beginTx(ctx context.Context, e *Engine) (pgx.Tx, error) {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginReadCommitted + ";" + e.settings(conn.Conn(), false)})
	if err != nil {
		conn.Release()
		return nil, err
	}
	return pooledTx{tx, conn}, nil
}

// pooledTx is a transaction that gives its connection back to the pool when it ends.
type pooledTx struct {
	pgx.Tx
	conn *pgxpool.Conn
}

func (t pooledTx) Commit(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Commit(ctx)
}

func (t pooledTx) Rollback(ctx context.Context) error {
	defer t.conn.Release()
	return t.Tx.Rollback(ctx)
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
// of the caller's transaction. [errFellThrough]: the statement met a row it does not serve and kept nothing.
func inStatement[T any](ctx context.Context, e *Engine, op string, fn func(conn db.DBTX, due *rings) (T, error)) (T, error) {
	if e.tx != nil {
		return inSavepoint(ctx, e.tx, op, func(tx *txn) (T, error) {
			result, err := fn(tx, &tx.rings)
			return result, fellThrough(err)
		})
	}
	return retrying(ctx, e, op, func() (T, error) {
		var due rings
		result, err := fn(implicitTx{e}, &due)
		if err == nil {
			e.bell.ring(&due)
		}
		return result, fellThrough(err)
	})
}

// inStatements is [inStatement] for several statements, which need nothing of each other's results: they
// travel in one round trip and are committed together, or none is. begin is called for each try.
func inStatements(ctx context.Context, e *Engine, op string, begin func(due *rings) []step) error {
	if e.tx != nil {
		_, err := inSavepoint(ctx, e.tx, op, func(tx *txn) (struct{}, error) {
			return struct{}{}, fellThrough(inOneTrip(ctx, tx, begin(&tx.rings)...))
		})
		return err
	}
	_, err := retrying(ctx, e, op, func() (struct{}, error) {
		var due rings
		err := inOneTrip(ctx, implicitTx{e}, begin(&due)...)
		if err == nil {
			e.bell.ring(&due)
		}
		return struct{}{}, fellThrough(err)
	})
	return err
}

// fellThrough recognises how a fast path says that it met a row it does not serve.
func fellThrough(err error) error {
	switch sqlState(err) {
	case sqlDivisionByZero, sqlUniqueViolation:
		return errFellThrough
	}
	return err
}

// retrying repeats fn while the server aborts it in favour of others: three tries in all, 5 and 10
// milliseconds apart, plus up to half of that by chance.
func retrying[T any](ctx context.Context, e *Engine, op string, fn func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		result, err := fn()
		switch {
		case err == nil, errors.Is(err, errFellThrough), errors.Is(err, errFlowLock):
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
