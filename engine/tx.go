package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// impatient is e for transactions that must not wait for others: whatever is locked for longer than the moment that
// the commit of a neighbour takes ends them with [ErrBusy], without another try. What is certain to be held by
// others, they ask for by statements that skip it. In a caller's transaction the caller's lock_timeout decides.
func (e *Engine) impatient() *Engine {
	impatient := *e
	impatient.runner = e.runner.Impatient()
	return &impatient
}

// A step is one statement of a transaction: one call of a generated function.
type step = pgtx.Step

// txn is a transaction of an operation, or its savepoint in a caller's transaction, with the notifications that
// are due once it has been committed.
type txn struct {
	pgx.Tx
	due notifications
}

// inTx runs fn in a transaction that it begins, repeating it when the server aborts it in favour of
// others, or behind a savepoint of the caller's transaction, once. Either way all of fn happens or none.
// fn uses nothing but its transaction, and nothing slow or user-supplied runs in it.
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

// inStatement runs one statement as a transaction of its own, in one round trip, or behind a savepoint
// of the caller's transaction. [errFellThrough]: the statement met a row it does not serve and kept nothing.
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

// inStatements is [inStatement] for statements which need nothing of each other's results, and which the server alone
// refuses: they travel in one round trip, with the savepoint in a caller's transaction, and are kept together, or none is.
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

// outcomeOf names why a transaction of the engine's own was not committed. What leads to another form of the operation
// is told from it by [errors.Is].
func outcomeOf(op string, err error) error {
	if errors.Is(err, pgtx.ErrBusy) {
		return wrap(op, ErrBusy)
	}
	if contention, ok := errors.AsType[*pgtx.ContentionError](err); ok {
		return fmt.Errorf("%s: %w %w", op, ErrContention, contention)
	}
	return wrap(op, err)
}

// errFellThrough says that a fast path met a row it does not serve and kept nothing.
var errFellThrough = errors.New("the fast path does not serve a row")

// fellThrough recognises how a fast path says that it met a row it does not serve.
func fellThrough(err error) error {
	switch pgtx.SQLState(err) {
	case sqlDivisionByZero, sqlUniqueViolation:
		return &fallenThrough{err}
	}
	return err
}

// fallenThrough is [errFellThrough] with what the server said, which is the error of an operation that has no slow path.
type fallenThrough struct{ cause error }

func (e *fallenThrough) Error() string { return e.cause.Error() }

func (e *fallenThrough) Unwrap() error { return e.cause }

func (e *fallenThrough) Is(target error) bool { return target == errFellThrough }
