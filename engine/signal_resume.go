package engine

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Resume ends the wait of a suspended execution without a signal. Besides a timeout, only Resume ends [OperatorOnly].
// The attempt continues after the delay. Signals received so far stay readable; the tokens of the wait become invalid.
//
// Errors: [fferr.ErrNotFound]; [*fferr.StateError] with [fferr.ErrNotSuspended], also for a repetition;
// [fferr.ErrInvalidInput] for a negative delay.
//
// Transaction: one. Locks the execution and its attempt; waits for each up to two seconds, three times, then
// [fferr.ErrContention]. Emits a completion event of the outcome "resumable".
func (e *Engine) Resume(ctx context.Context, x id.ExecutionID, delay time.Duration) error {
	const op = "resume execution"
	if delay < 0 {
		return core.Wrap(op, core.Invalid("delay", "is negative"))
	}
	_, err := core.Operate(ctx, e.c, x, core.Operation[struct{}]{
		Op: op,
		Judge: func(x *core.HeldExecution) (none struct{}, acts bool, err error) {
			if x.LifecyclePhase != "suspended" {
				return none, false, x.Not(fferr.ErrNotSuspended)
			}
			return none, true, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (none struct{}, err error) {
			return none, e.c.Resume(ctx, tx, x.ID, nil, "waiting", delay.Milliseconds(), x.NowMs)
		},
	})
	return err
}
