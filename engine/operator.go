package engine

import (
	"cmp"
	"context"

	"github.com/flowfabric/flowfabric-go/id"
)

// Operator is what a person at a console does: take a lease away, run again what has ended, postpone or prefer what
// waits. A worker needs none of it. Each operation is one transaction, and says what becomes of work that is running.
// It queues for the rows it acts on and is refused with [ErrContention] rather than wait long.
//
// It comes from [Engine.Operator] and works where that engine does: in a caller's transaction, or on a pool.
type Operator struct {
	e *Engine
}

// Operator returns the calls of an operator upon e.
func (e *Engine) Operator() Operator { return Operator{e} }

// An operation is an operator's call for one execution. R is its answer.
type operation[R any] struct {
	op string // begins every error

	needsFlow bool // acts under the exclusive lock of a member's flow

	// judge decides by what was read under the locks: acts says that write is to act, and makes the answer; otherwise
	// answer or err is what becomes of the call, and nothing is written.
	judge func(x *heldExecution) (answer R, acts bool, err error)
	write func(tx *txn, x *heldExecution) (R, error)
}

// operate acts on an execution, and waits for what others hold.
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

// not refuses a call because of the state that the execution is in.
func (x *heldExecution) not(reason error) error {
	vector, err := x.vector()
	if err != nil {
		return err
	}
	return &StateError{Execution: x.id, State: vector, Err: reason}
}
