package operator

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Prioritize changes the priority of a claimable execution, and so its place in the lane's queue. The priority is clamped to
// 0..[engine.MaxPriority], as at creation; higher goes first. Running work doesn't change.
//
// Errors: [fferr.ErrNotFound]; [*fferr.StateError] with [fferr.ErrNotEligible] if the execution is claimed, delayed, blocked,
// suspended or ended; [fferr.ErrContention] if another transaction holds the row. Transaction: locks the execution; emits an
// operator event, even if the priority stays the same. Safe to repeat.
func Prioritize(ctx context.Context, eng *engine.Engine, x id.ExecutionID, priority int) error {
	c := core.Of(eng)
	change := whileClaimable("change priority")
	change.Write = func(tx *core.Txn, x *core.HeldExecution) (none struct{}, err error) {
		return none, prioritize(ctx, c, tx, []*core.HeldExecution{x}, priority)
	}
	_, err := core.Operate(ctx, c, x, change)
	return err
}

// whileClaimable returns an operation, without its write, for claimable executions only.
func whileClaimable(op string) core.Operation[struct{}] {
	return core.Operation[struct{}]{Op: op, Judge: func(x *core.HeldExecution) (none struct{}, acts bool, err error) {
		if !x.Runnable() || x.EligibilityState != "eligible_now" {
			return none, false, x.Not(fferr.ErrNotEligible)
		}
		return none, true, nil
	}}
}

// prioritize clamps a priority and writes it to locked executions, with the events.
func prioritize(ctx context.Context, c *core.Core, tx *core.Txn, items []*core.HeldExecution, priority int) error {
	arrays := core.HeldArrays(items)
	params := db.ChangePrioritiesParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, NewPriority: int32(min(max(priority, 0), engine.MaxPriority)), NowMs: items[0].NowMs,
	}
	for _, x := range items {
		params.OldPriorities = append(params.OldPriorities, x.Priority)
	}
	tx.Due.OperatorEvents()
	return c.Q.ChangePriorities(ctx, tx, params)
}

// Move moves a claimable execution to another lane. Priority and age stay. Running work doesn't change.
//
// Errors: as [Prioritize], and [fferr.ErrInvalidInput] for the lane. Transaction: locks the execution. Emits nothing. Safe to
// repeat.
func Move(ctx context.Context, eng *engine.Engine, x id.ExecutionID, to id.LaneID) error {
	const op = "move execution"
	if err := to.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("lane", err))
	}
	c := core.Of(eng)
	change := whileClaimable(op)
	change.Write = func(tx *core.Txn, x *core.HeldExecution) (none struct{}, err error) {
		return none, move(ctx, c, tx, []*core.HeldExecution{x}, to)
	}
	_, err := core.Operate(ctx, c, x, change)
	return err
}

// move writes a lane to locked executions.
func move(ctx context.Context, c *core.Core, tx *core.Txn, items []*core.HeldExecution, to id.LaneID) error {
	arrays := core.HeldArrays(items)
	tx.Due.Lane(string(to))
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return c.Q.MoveExecutions(ctx, conn, db.MoveExecutionsParams{
				LaneID: string(to), PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, NowMs: items[0].NowMs,
			})
		},
		func(conn db.DBTX) error {
			return c.Q.EnsureLanes(ctx, conn, db.EnsureLanesParams{LaneIDs: []string{string(to)}, NowMs: c.NowMs()})
		},
	)
}

// Delay makes a claimable or delayed execution claimable at a given time, or at once if the time has passed. Delay replaces
// any earlier delay, including a retry's pause or a delay requested by the worker: the same attempt continues, and no retry
// is used. Running work doesn't change. Times are compared with the database's clock, in whole milliseconds.
//
// Errors: [fferr.ErrInvalidInput] for a time before 1970; [fferr.ErrNotFound]; [*fferr.StateError] with
// [fferr.ErrNotEligible] if the execution is claimed, granted, blocked, suspended or ended, or was created by another program
// and not adopted yet; [fferr.ErrContention] if another transaction holds the row. Transaction: locks the execution. Emits
// nothing. Safe to repeat.
func Delay(ctx context.Context, eng *engine.Engine, x id.ExecutionID, until time.Time) error {
	const op = "delay execution"
	c := core.Of(eng)
	if until.IsZero() {
		return core.Wrap(op, core.Invalid("until", "is empty"))
	}
	untilMs, err := core.Instant("until", until)
	if err != nil {
		return core.Wrap(op, err)
	}
	_, err = core.Operate(ctx, c, x, core.Operation[struct{}]{
		Op: op,
		Judge: func(x *core.HeldExecution) (none struct{}, acts bool, err error) {
			ready := x.EligibilityState == "eligible_now"
			if x.LifecyclePhase != "runnable" || !x.Free() || !ready && x.EligibilityState != "not_eligible_until_time" {
				return none, false, x.Not(fferr.ErrNotEligible)
			}
			return none, !ready || untilMs > x.NowMs, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (none struct{}, err error) {
			if untilMs > x.NowMs {
				return none, postpone(ctx, c, tx, x, untilMs)
			}
			promoted, err := c.Q.PromoteExecution(ctx, tx, db.PromoteExecutionParams{
				PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), NowMs: x.NowMs,
			})
			switch {
			case err != nil:
				return none, err
			case promoted.Claimable:
				tx.Due.Lane(promoted.LaneID)
			default:
				tx.Due.Gated()
			}
			return none, nil
		},
	})
	return err
}

// postpone delays a waiting execution and revokes its admission.
func postpone(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, untilMs int64) error {
	if err := c.Q.PostponeExecution(ctx, tx, db.PostponeExecutionParams{
		PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), DelayUntilMs: untilMs, NowMs: x.NowMs,
	}); err != nil {
		return err
	}
	if x.HasLimits {
		tx.Due.Gated()
	}
	return nil
}
