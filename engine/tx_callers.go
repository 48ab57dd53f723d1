package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// InTx runs fn in a transaction that it begins and commits, with the engine bound to that, and then wakes the workers of the
// lanes that fn created work on. fn's own statements and the engine's operations are kept together, or none is.
//
//	err := eng.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := Invoice.Create(ctx, eng, order)
//		return err
//	})
//
// fn neither commits nor rolls back: both are refused. It may bind other engines and handles of this engine to tx, as
// Job.Complete of package worker does. What [Engine.WithTx] says of the caller's transactions holds: nothing is retried, and
// it should be short. It runs at the isolation level that the connection defaults to. On an engine that is bound to a
// transaction already, fn runs behind a savepoint of that.
//
// Errors: fn's, as it returned it, and the server's, if it refuses the commit: nothing is kept. [ErrTransport] if the answer
// to the commit was lost: look whether it is kept.
func (e *Engine) InTx(ctx context.Context, fn func(tx pgx.Tx, eng *Engine) error) error {
	const op = "commit transaction"
	if fn == nil {
		return wrap("begin transaction", invalid("fn", "is nil"))
	}
	var tx pgx.Tx
	var err error
	if e.tx != nil {
		tx, err = e.tx.Begin(ctx)
	} else {
		tx, err = e.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginNotifying})
	}
	if err != nil {
		return wrap("begin transaction", err)
	}
	defer pgtx.Rollback(tx) // without effect after the commit
	bound := &callersTx{notingTx{tx, new(notifications)}}
	if err := fn(bound, e.WithTx(bound)); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		if errors.Is(err, pgx.ErrTxCommitRollback) {
			err = fmt.Errorf("%w: a statement of it had failed", err)
		}
		return wrap(op, err)
	}
	e.passOn(bound.due)
	return nil
}

// beginNotifying begins a transaction whose outboxes' triggers notify nobody: that is done after the commit.
const beginNotifying = "begin; select set_config('ffx.defer_notify', 'on', true)"

// passOn notifies of what was committed, or leaves that to the transaction around it.
func (e *Engine) passOn(due *notifications) {
	if e.tx == nil {
		e.notify(due)
		return
	}
	if around, ok := e.tx.(noter); ok {
		around.note(due)
	}
}

// noter is a transaction that remembers what to notify of after its commit.
type noter interface{ note(due *notifications) }

// notingTx is a transaction of [Engine.InTx], or a savepoint in it.
type notingTx struct {
	pgx.Tx
	due *notifications
}

func (t notingTx) note(due *notifications) { t.due.add(due) }

// Begin begins a savepoint whose operations are notified of too. If it is rolled back, a worker looks for nothing.
func (t notingTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return notingTx{tx, t.due}, nil
}

// callersTx is the transaction as fn of [Engine.InTx] has it.
type callersTx struct{ notingTx }

var errNotToEnd = errors.New("the transaction is ended by InTx")

func (*callersTx) Commit(context.Context) error { return errNotToEnd }

func (*callersTx) Rollback(context.Context) error { return errNotToEnd }
