package engine

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// ChangePriority gives an execution that is ready to be claimed another priority: its place in the queue of its lane is
// another from the commit on. As at creation the priority is clamped to 0..[MaxPriority]; higher goes first. Work that
// is running is not touched.
//
// Errors: [ErrNotFound]; in a [*StateError] [ErrNotEligible] for an execution that is claimed, delayed, blocked,
// suspended or ended; [ErrContention] where somebody else holds its row.
// Transaction: locks the execution; emits an operator event, of an unchanged priority too. Safe to repeat.
func (o Operator) ChangePriority(ctx context.Context, x id.ExecutionID, priority int) error {
	next := clampPriority(priority)
	_, err := operate(ctx, o.e, x, operation[struct{}]{
		op: "change priority",
		judge: func(x *heldExecution) (none struct{}, acts bool, err error) {
			if !x.runnable() || x.EligibilityState != "eligible_now" {
				return none, false, x.not(ErrNotEligible)
			}
			return none, true, nil
		},
		write: func(tx *txn, x *heldExecution) (none struct{}, err error) {
			tx.due.operatorEvents()
			return none, o.e.q.ChangePriority(ctx, tx, db.ChangePriorityParams{
				PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(), OldPriority: x.Priority, NewPriority: next, NowMs: x.NowMs,
			})
		},
	})
	return err
}

// DelayExecution makes an execution that waits to be claimed, or is delayed, claimable at an instant and not before; at
// once when that has passed. What it waited for before, a retry's pause included, is replaced, and so is a delay that
// its worker asked for: the same attempt goes on, and no retry is used. Work that is running is not touched.
// The instant is judged by the database's clock, in whole milliseconds.
//
// Errors: [ErrInvalidInput] for an instant before 1970; [ErrNotFound]; in a [*StateError] [ErrNotEligible] for an
// execution that is claimed, granted to a worker, blocked, suspended or ended, or that no job of this library has
// taken over yet from the program that created it; [ErrContention] where somebody else holds its row.
// Transaction: locks the execution, and deletes its quota slot where it has one. Emits nothing. Safe to repeat.
func (o Operator) DelayExecution(ctx context.Context, x id.ExecutionID, until time.Time) error {
	const op = "delay execution"
	e := o.e
	if until.IsZero() {
		return wrap(op, invalid("until", "is empty"))
	}
	untilMs, err := instant("until", until)
	if err != nil {
		return wrap(op, err)
	}
	_, err = operate(ctx, e, x, operation[struct{}]{
		op: op,
		judge: func(x *heldExecution) (none struct{}, acts bool, err error) {
			ready := x.EligibilityState == "eligible_now"
			if x.LifecyclePhase != "runnable" || !x.free() || !ready && x.EligibilityState != "not_eligible_until_time" {
				return none, false, x.not(ErrNotEligible)
			}
			return none, !ready || untilMs > x.NowMs, nil
		},
		write: func(tx *txn, x *heldExecution) (none struct{}, err error) {
			if untilMs > x.NowMs {
				return none, e.postpone(ctx, tx, x, untilMs)
			}
			promoted, err := e.q.PromoteExecution(ctx, tx, db.PromoteExecutionParams{
				PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(), NowMs: x.NowMs,
			})
			if promoted.Claimable {
				tx.due.lane(promoted.LaneID)
			}
			return none, err
		},
	})
	return err
}

// postpone delays an execution that waits, and gives back what admitted it.
func (e *Engine) postpone(ctx context.Context, tx *txn, x *heldExecution, untilMs int64) error {
	if err := e.q.PostponeExecution(ctx, tx, db.PostponeExecutionParams{
		PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(), DelayUntilMs: untilMs, NowMs: x.NowMs,
	}); err != nil || !x.HasQuota {
		return err
	}
	var slot executionArrays
	slot.add(x.id.Partition(), x.id.UUID())
	return e.q.ReleaseQuotaSlots(ctx, tx, db.ReleaseQuotaSlotsParams{
		PartitionKeys: slot.partitions, ExecutionIDs: slot.executions,
	})
}
