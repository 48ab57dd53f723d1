package core

import (
	"context"
	"errors"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
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

// CancelEach cancels the executions at the positions in valid, and stores an outcome for each. It cancels the executions
// of a transaction in one round trip if possible, otherwise by locking first.
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
	chunks := ExecutionChunks(ids, valid)
	return InChunks(len(chunks), 1, func(n, _ int) error {
		err := c.cancelAtOnce(ctx, op, cancels, chunks[n])
		if errors.Is(err, ErrFellThrough) && pgtx.SQLState(err) != SQLUniqueViolation || c.Runner.HasShortWait() && errors.Is(err, fferr.ErrBusy) {
			return t.Run(ctx, chunks[n:n+1], outcomes)
		}
		return err
	}, func(n int, err error) {
		for _, i := range chunks[n] {
			outcomes[i].Err = err
		}
	})
}

// cancelAtOnce cancels the executions of a chunk in one round trip. The error is [ErrFellThrough] if that can't be done,
// and nothing is written.
func (c *Core) cancelAtOnce(ctx context.Context, op string, cancels []Cancel, chunk []int) error {
	ends := new(Cancelling)
	ends.Params.NowMs = c.NowMs()
	for _, n := range chunk {
		if cancels[n].Check != nil {
			return ErrFellThrough
		}
		ends.Add(cancels[n].ID, cancels[n].Cancellation)
	}
	return c.cancelOutside(ctx, op, ends)
}
