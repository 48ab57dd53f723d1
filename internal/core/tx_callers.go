package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// OrEnded returns the error of a caller's function, with [ErrEnded] if the function has ended its transaction by a
// statement.
func (c *Core) OrEnded(tx pgx.Tx, err error) error {
	if !pgtx.HasEnded(tx, err != nil, c.Tx != nil) {
		return err
	}
	ended := ErrEnded()
	if err != nil {
		ended = fmt.Errorf("%w: %w", ended, err)
	}
	return ended
}

// ErrEnded returns the error of a function that has ended its transaction.
func ErrEnded() error {
	return Wrap(OpCommitBound, Invalid("transaction",
		"was ended by a COMMIT or ROLLBACK among the statements of its function: the committed writes stay, and nothing else is written"))
}

// OpCommitBound begins the errors of a commit.
const OpCommitBound = "commit transaction"

// CommitBound commits a transaction to which an engine was bound.
func CommitBound(ctx context.Context, tx pgx.Tx) error {
	err := pgtx.CommitFunction(ctx, tx)
	switch {
	case pgtx.IsNoSavepoint(err):
		return ErrEnded()
	case errors.Is(err, pgx.ErrTxCommitRollback):
		err = fmt.Errorf("%w: one of its statements had failed", err)
	}
	return Wrap(OpCommitBound, err)
}

// DeferNotify begins a transaction in which the outboxes' triggers don't notify, because the engine does so after the commit.
const DeferNotify = "select set_config('ffx.defer_notify', 'on', true)"

// NotingTx is a transaction of InTx, or a savepoint in it.
type NotingTx struct {
	pgx.Tx
	Due *Notifications
}

func (t NotingTx) note(due *Notifications) { t.Due.Include(due) }

// Begin begins a savepoint whose operations add their notifications too. After a rollback, workers are notified for
// nothing, but no event is reported to the observer.
func (t NotingTx) Begin(ctx context.Context) (pgx.Tx, error) {
	return t.begin(ctx, nil)
}

func (t NotingTx) begin(ctx context.Context, around *savepoint) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{NotingTx: NotingTx{tx, t.Due}, around: around}, nil
}

// savepoint is a savepoint in a NotingTx. Its events are noted at once: the transaction may commit without its release.
type savepoint struct {
	NotingTx
	around *savepoint // nil for none
	events Notifications
}

func (s *savepoint) note(due *Notifications) {
	s.NotingTx.note(due)
	for in := s; in != nil; in = in.around {
		in.events.observeAll(due.observed)
	}
}

// Begin begins a savepoint in the savepoint.
func (s *savepoint) Begin(ctx context.Context) (pgx.Tx, error) { return s.begin(ctx, s) }

// Rollback rolls back to the savepoint.
func (s *savepoint) Rollback(ctx context.Context) error {
	if err := s.Tx.Rollback(ctx); err != nil {
		return err
	}
	events := s.events.observed
	s.Due.forget(events)
	for in := s.around; in != nil; in = in.around {
		in.events.forget(events)
	}
	return nil
}

// CallersTx is the transaction given to the function of InTx.
type CallersTx struct{ NotingTx }

// NewCallersTx returns the transaction for the function of InTx, on one that has begun.
func NewCallersTx(tx pgx.Tx) *CallersTx { return &CallersTx{NotingTx{tx, new(Notifications)}} }

var errNotToEnd = errors.New("InTx ends the transaction")

func (*CallersTx) Commit(context.Context) error { return errNotToEnd }

func (*CallersTx) Rollback(context.Context) error { return errNotToEnd }
