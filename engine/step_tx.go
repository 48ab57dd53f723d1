package engine

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// InStep is [Engine.InTx] with a step: it runs fn in a transaction, and stores the step returned by fn in the same
// transaction. If the step has Ends, InStep then calls end, which must end the lease. If the execution has a step of
// this name already, InStep rolls back and returns the stored result. Package worker offers InStep as StepTx and Turn.
//
// Errors: fn's and end's, unchanged; as [Engine.RecordStep]; the server's if the commit is refused. Nothing was
// written then. [fferr.ErrTransport] if the answer to the commit was lost: repeat the call to find out.
func (e *Engine) InStep(
	ctx context.Context, fn func(tx pgx.Tx, eng *Engine) (StepRecord, error), end func(eng *Engine) error,
) (Recorded, error) {
	if fn == nil {
		return Recorded{}, core.Wrap("begin transaction", core.Invalid("fn", "is nil"))
	}
	tx, release, err := e.beginLate(ctx)
	if err != nil {
		return Recorded{}, core.Wrap("begin transaction", err)
	}
	defer release()
	bound := core.NewCallersTx(tx)
	defer func() { pgtx.Rollback(bound.Tx) }() // no effect after the commit
	eng := e.WithTx(bound)
	step, err := fn(bound, eng)
	if err = e.c.OrEnded(tx, err); err != nil {
		return Recorded{}, err
	}
	recorded := Recorded{Result: step.Result}
	stored := false
	if e.c.Tx == nil && !step.Ends && len(step.Taken) == 0 {
		stored, err = e.commitWithStep(ctx, bound, &step)
	}
	if err == nil && !stored {
		if recorded, err = eng.storeStep(ctx, &step, end); err == nil && !recorded.Repeated {
			err = core.CommitBound(ctx, tx)
		}
	}
	if err == nil && !recorded.Repeated {
		e.c.Forward(ctx, bound.Due)
	}
	return recorded, err
}

// commitWithStep stores a step and commits. It returns false if the step was refused; the transaction then continues.
func (e *Engine) commitWithStep(ctx context.Context, bound *core.CallersTx, s *StepRecord) (bool, error) {
	if err := e.checkStep(s); err != nil {
		return false, core.Wrap(opRecordSteps, err)
	}
	refused, err := pgtx.CommitWith(ctx, bound.Tx, func(conn db.DBTX) error {
		return e.c.Q.StoreStep(ctx, conn, db.StoreStepParams{
			NowMs: e.c.NowMs(), PartitionKey: s.Lease.Execution.Partition(), ExecutionID: s.Lease.Execution.UUID(),
			Name: s.Name, Seq: int32(s.Seq), AttemptIndex: int32(s.Lease.Attempt), LeaseEpoch: s.Lease.Epoch,
			Form: string(cmp.Or(s.Form, FormStep)), Outcome: string(cmp.Or(s.Outcome, StepSucceeded)), Result: s.Result, Error: s.Error, Tries: int32(max(s.Tries, 1)),
			TookMs: s.Took.Milliseconds(),
		})
	})
	switch {
	case pgtx.IsNoSavepoint(err):
		return false, core.ErrEnded()
	case refused != nil || err != nil:
		return false, core.Wrap(core.OpCommitBound, err)
	}
	bound.Tx = pgtx.Refused(pgx.ErrTxClosed)
	return true, nil
}

// storeStep stores a step in the caller's transaction, and calls end if the step has Ends.
func (e *Engine) storeStep(ctx context.Context, s *StepRecord, end func(eng *Engine) error) (Recorded, error) {
	if s.Ends && end == nil {
		return Recorded{}, core.Wrap(opRecordSteps, core.Invalid("end", "is nil, and the step has Ends"))
	}
	recorded, err := e.RecordStep(ctx, *s)
	if err == nil && !recorded.Repeated && s.Ends {
		err = end(e)
	}
	return recorded, err
}

// beginLate returns a transaction that begins with its first statement, or a savepoint of the caller's transaction,
// and a function to release the connection.
func (e *Engine) beginLate(ctx context.Context) (pgx.Tx, func(), error) {
	if e.c.Tx != nil {
		tx, err := e.c.Tx.Begin(ctx)
		return tx, func() {}, err
	}
	conn, err := e.c.Pool.Acquire(ctx)
	if err != nil {
		return nil, nil, &pgtx.AcquireError{Err: err}
	}
	return pgtx.BeginLate(ctx, conn.Conn(), core.DeferNotify), conn.Release, nil
}
