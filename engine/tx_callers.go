package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// InTx begins a transaction, runs fn with it and with the engine bound to it, commits, and then wakes the workers of
// lanes with new work. fn's own statements and the engine's operations all happen or none.
//
//	err := eng.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := Invoice.Create(ctx, eng, order)
//		return err
//	})
//
// fn must not commit or roll back; both are refused. Sent as a statement, a COMMIT is [fferr.ErrInvalidInput], although its writes
// stay; also if a BEGIN follows. fn may bind other engines and handles of this engine to tx, as
// Job.Complete of package worker does. As with [Engine.WithTx], nothing is retried, and the transaction should be
// short. It uses the connection's default isolation level. On an engine already bound to a transaction, fn runs behind
// a savepoint.
//
// Errors: fn's, unchanged, or the server's if it refuses the commit: nothing was written. [fferr.ErrTransport] if the answer
// to the commit was lost: check whether it took effect.
func (e *Engine) InTx(ctx context.Context, fn func(tx pgx.Tx, eng *Engine) error) error {
	if fn == nil {
		return wrap("begin transaction", invalid("fn", "is nil"))
	}
	var tx pgx.Tx
	var err error
	if e.tx != nil {
		tx, err = e.tx.Begin(ctx)
	} else {
		tx, err = e.pool.BeginTx(ctx, pgtx.FunctionOptions(deferNotify))
	}
	if err != nil {
		return wrap("begin transaction", err)
	}
	defer pgtx.Rollback(tx) // no effect after the commit
	bound := &callersTx{notingTx{tx, new(notifications)}}
	if err := e.orEnded(tx, fn(bound, e.WithTx(bound))); err != nil {
		return err
	}
	if err := commitBound(ctx, tx); err != nil {
		return err
	}
	e.passOn(bound.due)
	return nil
}

// orEnded returns the error of a caller's function, or one that says that the function has ended its transaction by a statement.
func (e *Engine) orEnded(tx pgx.Tx, err error) error {
	if !pgtx.HasEnded(tx, err != nil, e.tx != nil) {
		return err
	}
	ended := errEnded()
	if err != nil {
		ended = fmt.Errorf("%w: %w", ended, err)
	}
	return ended
}

// errEnded returns the error of a function that has ended its transaction.
func errEnded() error {
	return wrap(opCommitBound, invalid("transaction",
		"was ended by a COMMIT or ROLLBACK among the statements of its function: the committed writes stay, and nothing else is written"))
}

const opCommitBound = "commit transaction"

// commitBound commits a transaction to which an engine was bound.
func commitBound(ctx context.Context, tx pgx.Tx) error {
	err := pgtx.CommitFunction(ctx, tx)
	switch {
	case pgtx.IsNoSavepoint(err):
		return errEnded()
	case errors.Is(err, pgx.ErrTxCommitRollback):
		err = fmt.Errorf("%w: one of its statements had failed", err)
	}
	return wrap(opCommitBound, err)
}

// deferNotify begins a transaction in which the outboxes' triggers don't notify, because the engine does so after the commit.
const deferNotify = "select set_config('ffx.defer_notify', 'on', true)"

// notingTx is a transaction of [Engine.InTx], or a savepoint in it.
type notingTx struct {
	pgx.Tx
	due *notifications
}

func (t notingTx) note(due *notifications) { t.due.add(due) }

// Begin begins a savepoint whose operations add their notifications too. If it is rolled back, workers are woken for
// nothing.
func (t notingTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return notingTx{tx, t.due}, nil
}

// callersTx is the transaction that fn of [Engine.InTx] gets.
type callersTx struct{ notingTx }

var errNotToEnd = errors.New("InTx ends the transaction")

func (*callersTx) Commit(context.Context) error { return errNotToEnd }

func (*callersTx) Rollback(context.Context) error { return errNotToEnd }
