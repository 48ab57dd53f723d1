package engine

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// impatient returns e for transactions that must not wait. A lock that is held for longer than a concurrent commit
// takes ends them with [fferr.ErrBusy], without a retry. For rows that are often locked they use statements that skip locked
// rows. In a caller's transaction, the caller's lock_timeout applies.
func (e *Engine) impatient() *Engine {
	impatient := *e
	impatient.runner = e.runner.Impatient()
	return &impatient
}

// A step is one statement of a transaction: one call of a generated function.
type step = pgtx.Step

// txn is an operation's transaction, or its savepoint in a caller's transaction, with the notifications to send after
// the commit.
type txn struct {
	pgx.Tx
	due notifications
}

// inTx runs fn in a new transaction and retries it if the server aborts it in favour of others, or runs it once behind
// a savepoint of the caller's transaction. Either way all of fn happens or none. fn uses only its transaction, and runs
// nothing slow or supplied by users.
func inTx[T any](ctx context.Context, e *Engine, op string, fn func(tx *txn) (T, error)) (T, error) {
	var tx txn
	try := func(conn pgx.Tx) (T, error) {
		tx = txn{Tx: conn}
		return fn(&tx)
	}
	if e.tx != nil {
		result, err := pgtx.InCallers(ctx, e.tx, try)
		if err == nil {
			e.passOn(&tx.due)
		}
		return result, wrap(op, err)
	}
	result, err := pgtx.InTx(ctx, &e.runner, try)
	if err != nil {
		return result, outcomeOf(op, err)
	}
	e.notify(&tx.due)
	return result, nil
}

// inStatement runs one statement as its own transaction, in one round trip, or behind a savepoint of the caller's
// transaction. It returns [errFellThrough] if the statement met a row that it can't handle; nothing was written then.
func inStatement[T any](
	ctx context.Context, e *Engine, op string, fn func(conn db.DBTX, due *notifications) (T, error),
) (T, error) {
	if e.tx != nil {
		return inTx(ctx, e, op, func(tx *txn) (T, error) {
			result, err := fn(tx, &tx.due)
			return result, fellThrough(err)
		})
	}
	var due notifications
	result, err := pgtx.InStatement(ctx, &e.runner, func(conn db.DBTX) (T, error) {
		due = notifications{}
		return fn(conn, &due)
	})
	if err != nil {
		return result, outcomeOf(op, fellThrough(err))
	}
	e.notify(&due)
	return result, nil
}

// inStatements is [inStatement] for statements that don't need each other's results and that only the server can
// refuse. They share one round trip, with the savepoint in a caller's transaction, and all of them happen or none.
// begin is called for each try.
func inStatements(ctx context.Context, e *Engine, op string, begin func(due *notifications) []step) error {
	if e.tx != nil {
		var due notifications
		err := pgtx.InCallersAtOnce(ctx, e.tx, begin(&due)...)
		if err == nil {
			e.passOn(&due)
		}
		return wrap(op, fellThrough(err))
	}
	var due notifications
	err := pgtx.InStatements(ctx, &e.runner, func() []step {
		due = notifications{}
		return begin(&due)
	})
	if err != nil {
		return outcomeOf(op, fellThrough(err))
	}
	e.notify(&due)
	return nil
}
