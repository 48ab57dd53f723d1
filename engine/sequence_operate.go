package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ContinueSequence lets a stopped sequence go on: it passes over the execution that failed, which stays as it is. It does
// nothing if the sequence is not stopped. To run the failed execution again instead, replay it.
//
// Errors: [fferr.ErrNotFound] if no execution is in the sequence; [fferr.ErrInvalidInput]; [fferr.ErrContention].
// Transaction: locks the sequence, and the next execution unless another transaction holds it, which then gets its turn
// later. Safe to repeat.
func (o Operator) ContinueSequence(ctx context.Context, name SequenceName) error {
	const op = "continue sequence"
	e := o.e
	s, err := name.check(e)
	if err != nil {
		return core.Wrap(op, err)
	}
	_, err = core.InTx(ctx, e.c, op, func(tx *core.Txn) (none struct{}, err error) {
		row, err := e.c.Q.LockSequence(ctx, tx, db.LockSequenceParams{PartitionKey: s.Partition(), SequenceID: s.PG()})
		if err != nil || !row.Stopped {
			return none, name.orNotFound(err)
		}
		nowMs, err := e.c.Q.GetNow(ctx, tx, e.c.NowMs())
		if err != nil {
			return none, err
		}
		if err := e.c.Q.PassOver(ctx, tx, db.PassOverParams{
			PartitionKey: s.Partition(), SequenceID: s.PG(), ExecutionID: row.StoppedExecutionID,
		}); err != nil {
			return none, err
		}
		busy, err := e.c.AdvanceSequences(ctx, tx, []core.SequenceID{s}, nowMs)
		if err != nil || !busy[s] {
			return none, err
		}
		return none, e.c.Q.InsertSequenceEnd(ctx, tx, db.InsertSequenceEndParams{PartitionKey: s.Partition(), SequenceID: s.PG()})
	})
	return err
}
