package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// A Cancel is the cancellation of one execution.
type Cancel struct {
	ID id.ExecutionID
	Cancellation

	// Check decides whether to cancel an execution that hasn't ended, or returns the reason not to. nil: always cancel.
	Check func(x *HeldExecution, phase state.LifecyclePhase) (cancels bool, err error)

	Once bool // an already cancelled execution is an error too
}

// CancelEach cancels the executions at the positions in valid, and stores an outcome for each.
func (c *Core) CancelEach(ctx context.Context, op string, cancels []Cancel, valid []int, outcomes []fferr.Outcome[struct{}]) error {
	ids := make([]id.ExecutionID, len(cancels))
	for n := range cancels {
		ids[n] = cancels[n].ID
	}
	t := Transition[*HeldExecution, struct{}]{
		Op: op, Reader: ExecutionReader(c, ids),
		Needs: func(x *HeldExecution) FlowLock {
			if x.Terminal() {
				return NoFlow
			}
			return ExclusiveFlow
		},
		Judge: func(x *HeldExecution) (none struct{}, acts bool, err error) {
			phase, err := x.Phase()
			how := &cancels[x.N]
			switch {
			case err != nil:
				return none, false, err
			case !phase.Terminal() && how.Check == nil:
				return none, true, nil
			case !phase.Terminal():
				acts, err = how.Check(x, phase)
				return none, acts, err
			case x.Outcome() == state.OutcomeCancelled && !how.Once:
				return none, false, nil
			}
			return none, false, x.Ended()
		},
		Write: func(ctx context.Context, tx *Txn, items []*HeldExecution, _ []fferr.Outcome[struct{}]) error {
			ends := NewCancelling(items[0].NowMs)
			for _, x := range items {
				ends.Add(x.ID, cancels[x.N].Cancellation)
			}
			_, err := c.EndCancelled(ctx, tx, ends)
			return err
		},
	}
	return t.Run(ctx, ExecutionChunks(ids, valid), outcomes)
}
