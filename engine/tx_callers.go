package engine

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// InTx begins a transaction, runs fn with the transaction and an engine bound to it, and commits. Then it notifies the
// workers of lanes with new work. The statements of fn and the engine's operations all happen or none.
//
//	err := eng.InTx(ctx, func(tx pgx.Tx, eng *engine.Engine) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		_, err := Invoice.Create(ctx, eng, order)
//		return err
//	})
//
// fn must not commit or roll back: both are refused, and a COMMIT sent as a statement is [fferr.ErrInvalidInput],
// although its writes stay. fn may bind other engines to tx. As with [Engine.WithTx], nothing is retried. Keep the
// transaction short. The isolation level is the connection's default. On an engine bound to a transaction, fn runs in
// a savepoint.
//
// Errors: fn's, unchanged; the server's if the commit is refused. Nothing was written then. [fferr.ErrTransport] if
// the answer to the commit was lost: check whether the commit took effect.
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
	e.c.Forward(ctx, bound.Due)
	return nil
}
