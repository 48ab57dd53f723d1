package operator

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ContinueSequence continues a stopped sequence after the failed execution, which doesn't change. If the sequence is not
// stopped, nothing changes. To run the failed execution again instead, [Replay] it.
//
// Errors: [fferr.ErrNotFound] if no execution is in the sequence; [fferr.ErrInvalidInput]; [fferr.ErrContention].
// Transaction: locks the sequence, and the next execution. If another transaction holds the next execution, it starts later.
// Safe to repeat.
func ContinueSequence(ctx context.Context, eng *engine.Engine, name engine.SequenceName) error {
	const op = "continue sequence"
	c := core.Of(eng)
	s, err := c.CheckSequence(name.Namespace, name.Key)
	if err != nil {
		return core.Wrap(op, err)
	}
	_, err = core.InTx(ctx, c, op, func(tx *core.Txn) (none struct{}, err error) {
		row, err := c.Q.LockSequence(ctx, tx, db.LockSequenceParams{PartitionKey: s.Partition(), SequenceID: s.PG()})
		switch {
		case core.IsNoRow(err):
			return none, &fferr.NotFoundError{Entity: "sequence", ID: name.Key}
		case err != nil || !row.Stopped:
			return none, err
		}
		nowMs, err := c.Q.GetNow(ctx, tx, c.NowMs())
		if err != nil {
			return none, err
		}
		if err := c.Q.PassOver(ctx, tx, db.PassOverParams{
			PartitionKey: s.Partition(), SequenceID: s.PG(), ExecutionID: row.StoppedExecutionID,
		}); err != nil {
			return none, err
		}
		busy, err := c.AdvanceSequences(ctx, tx, []core.SequenceID{s}, nowMs)
		if err != nil || !busy[s] {
			return none, err
		}
		return none, c.Q.InsertSequenceEnd(ctx, tx, db.InsertSequenceEndParams{PartitionKey: s.Partition(), SequenceID: s.PG()})
	})
	return err
}
