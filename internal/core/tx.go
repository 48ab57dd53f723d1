package core

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// A Step is one statement of a transaction: one call of a generated function.
type Step = pgtx.Step

// Txn is an operation's transaction, or its savepoint in a caller's transaction, with the notifications to send after
// the commit.
type Txn struct {
	pgx.Tx
	Due Notifications
}

// Nested returns the transaction for an engine whose operations become part of tx. Their notifications are sent after the
// commit of tx.
func (tx *Txn) Nested() NotingTx { return NotingTx{tx.Tx, &tx.Due} }

// InTx runs fn in a new transaction and retries it if the server aborts it in favour of others, or runs it once behind
// a savepoint of the caller's transaction. Either way all of fn happens or none. fn uses only its transaction, and runs
// nothing slow or supplied by users.
func InTx[T any](ctx context.Context, c *Core, op string, fn func(tx *Txn) (T, error)) (T, error) {
	var tx Txn
	try := func(conn pgx.Tx) (T, error) {
		tx = Txn{Tx: conn}
		return fn(&tx)
	}
	if c.Tx != nil {
		result, err := pgtx.InCallers(ctx, c.Tx, try)
		if err == nil {
			c.Forward(ctx, &tx.Due)
		}
		return result, Wrap(op, err)
	}
	result, err := pgtx.InTx(ctx, &c.Runner, try)
	if err != nil {
		return result, OutcomeOf(op, err)
	}
	c.Notify(ctx, &tx.Due)
	return result, nil
}

// InStatement runs one statement as its own transaction, in one round trip, or behind a savepoint of the caller's
// transaction. The error is [ErrFellThrough] if the statement met an unsupported row; nothing was written then.
func InStatement[T any](
	ctx context.Context, c *Core, op string, fn func(conn db.DBTX, due *Notifications) (T, error),
) (T, error) {
	if c.Tx != nil {
		return InTx(ctx, c, op, func(tx *Txn) (T, error) {
			result, err := fn(tx, &tx.Due)
			return result, FellThrough(err)
		})
	}
	var due Notifications
	result, err := pgtx.InStatement(ctx, &c.Runner, func(conn db.DBTX) (T, error) {
		due = Notifications{}
		return fn(conn, &due)
	})
	if err != nil {
		return result, OutcomeOf(op, FellThrough(err))
	}
	c.Notify(ctx, &due)
	return result, nil
}

// InStatements is [InStatement] for statements independent of each other's results, which only the server can refuse.
// The statements share one round trip, with the savepoint in a caller's transaction, and all happen or none. Under a
// short wait a lock held by another transaction is [fferr.ErrBusy], also in a caller's transaction. begin is called for
// each try.
func InStatements(ctx context.Context, c *Core, op string, begin func(due *Notifications) []Step) error {
	if c.Tx != nil {
		var due Notifications
		send := pgtx.InCallersAtOnce
		if c.Runner.HasShortWait() {
			send = pgtx.InCallersBriefly
		}
		err := send(ctx, c.Tx, begin(&due)...)
		switch {
		case err == nil:
			c.Forward(ctx, &due)
		case c.Runner.HasShortWait() && pgtx.IsLocked(err):
			err = fferr.ErrBusy
		}
		return Wrap(op, FellThrough(err))
	}
	var due Notifications
	err := pgtx.InStatements(ctx, &c.Runner, func() []Step {
		due = Notifications{}
		return begin(&due)
	})
	if err != nil {
		return OutcomeOf(op, FellThrough(err))
	}
	c.Notify(ctx, &due)
	return nil
}
