package engine

import (
	"cmp"
	"context"

	"github.com/flowfabric/flowfabric-go/id"
)

// An operation is an operator's call for one execution. R is its answer.
type operation[R any] struct {
	op string // prefix of every error

	needsFlow bool // needs the exclusive lock of a member's flow

	// judge decides from the values read under the locks. If acts, write changes the execution and returns the answer.
	// Otherwise nothing is written, and answer or err is the result.
	judge func(x *heldExecution) (answer R, acts bool, err error)
	write func(tx *txn, x *heldExecution) (R, error)
}

// operate runs an operation on an execution, waiting for locks.
func operate[R any](ctx context.Context, e *Engine, x id.ExecutionID, o operation[R]) (R, error) {
	v := intervention[Outcome[R]]{
		op: o.op,
		judge: func(_ int, x *heldExecution) (Outcome[R], bool, error) {
			if err := x.check(); err != nil {
				return Outcome[R]{}, false, err
			}
			answer, acts, err := o.judge(x)
			return Outcome[R]{Value: answer}, acts, err
		},
		write: func(tx *txn, items []heldItem, answers []Outcome[R]) (err error) {
			answers[items[0].n].Value, err = o.write(tx, items[0].heldExecution)
			return err
		},
		refused: func(err error) Outcome[R] { return Outcome[R]{Err: err} },
	}
	if o.needsFlow {
		v.needsFlow = func(int, forecast) bool { return true }
	}
	answer, err := interveneAlone(ctx, e, x, v)
	return answer.Value, cmp.Or(err, answer.Err)
}
