package engine

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/core"
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
		return core.Wrap("begin transaction", core.Invalid("fn", "is nil"))
	}
	var tx pgx.Tx
	var err error
	if e.c.Tx != nil {
		tx, err = e.c.Tx.Begin(ctx)
	} else {
		tx, err = e.c.Pool.BeginTx(ctx, pgtx.FunctionOptions(core.DeferNotify))
	}
	if err != nil {
		return core.Wrap("begin transaction", err)
	}
	defer pgtx.Rollback(tx) // no effect after the commit
	bound := core.NewCallersTx(tx)
	if err := e.c.OrEnded(tx, fn(bound, e.WithTx(bound))); err != nil {
		return err
	}
	if err := core.CommitBound(ctx, tx); err != nil {
		return err
	}
	e.c.PassOn(bound.Due)
	return nil
}
