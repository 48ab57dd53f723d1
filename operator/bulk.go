package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Bulk configures a bulk operation. The zero value changes all matching executions, in batches of [DefaultBulkBatch].
type Bulk struct {
	DryRun bool // only count matching executions
	Batch  int  // executions in a transaction, up to [engine.MaxBatch]. Default [DefaultBulkBatch]

	// After continues an earlier run with the same filter: [BulkProgress].Next. Default: the start.
	After string

	// Progress is called after each batch. The operation ends with its error. Default: not called.
	Progress func(BulkProgress) error
}

// DefaultBulkBatch is the default of [Bulk].Batch.
const DefaultBulkBatch = 500

// BulkProgress counts the results of a bulk operation so far.
type BulkProgress struct {
	Matched int // executions that matched the filter
	Changed int // executions now as requested, whether changed or not
	Refused int // executions whose state doesn't allow the change, or deleted in the meantime
	Busy    int // executions held by another transaction: run the operation again

	// Next is the position after the last batch, for [Bulk].After. Empty at the end.
	Next string
}

// CancelWhere cancels the executions that match a filter, as [engine.Engine.CancelExecutions] does, including members of
// flows and running work. Executions with another outcome are refused.
//
// The operation reads pages in the filter's order. Each page is changed in a transaction that locks and checks the
// executions, so other operations may run at the same time. Executions that start to match before the current position don't
// change. A stopped operation continues with [Bulk].After, or starts again.
//
// Errors: [fferr.ErrInvalidInput] for an empty filter, ClaimOrder, a bad option, or in a caller's transaction, which would
// keep the locks of all batches. Later errors come with the counts so far. Transaction: one for each batch.
func CancelWhere(ctx context.Context, eng *engine.Engine, filter engine.ExecutionFilter, reason string, bulk Bulk) (BulkProgress, error) {
	const op = "cancel executions by filter"
	if err := core.CheckText("reason", reason, engine.MaxCancelReason); err != nil {
		return BulkProgress{}, core.Wrap(op, err)
	}
	return where(ctx, eng, op, filter, bulk, func(_ *core.Core, ids []id.ExecutionID) ([]error, error) {
		specs := make([]engine.CancelSpec, len(ids))
		for i, x := range ids {
			specs[i] = engine.CancelSpec{ID: x, Reason: reason}
		}
		return eng.CancelExecutions(ctx, specs)
	})
}

// ReplayWhere replays the executions that match a filter, as [Replay] does with these options. Batches, errors and
// repetition: see [CancelWhere]. An execution is refused if it can't be replayed: members of cancelled flows, executions
// without the step of [ReplayFromStep], and executions whose unique key another execution has. An execution that fails again
// after its replay may match another run.
func ReplayWhere(ctx context.Context, eng *engine.Engine, filter engine.ExecutionFilter, bulk Bulk, options ...ReplayOption) (BulkProgress, error) {
	const op = "replay executions by filter"
	given, err := replayOptionsOf(options)
	if err != nil {
		return BulkProgress{}, core.Wrap(op, err)
	}
	return where(ctx, eng, op, filter, bulk, func(c *core.Core, ids []id.ExecutionID) ([]error, error) {
		replay := replaying(ctx, c, op, given)
		t := replay.Transition(c, ids)
		t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldExecution, outcomes []fferr.Outcome[Replayed]) error {
			for _, x := range items { // each replay changes the execution's attempts, waits and dependents
				refused, err := replayApart(ctx, tx, x, replay, given)
				if err != nil {
					return err
				}
				outcomes[x.N].Err = core.Wrap(op, refused)
			}
			return nil
		}
		return runEach(ctx, c, ids, t)
	})
}

// replayApart replays one of several executions. If only this execution is refused, refused has the reason, and the execution
// doesn't change.
func replayApart(
	ctx context.Context, tx *core.Txn, x *core.HeldExecution, replay core.Operation[Replayed], given replayOptions,
) (refused, err error) {
	if !x.FfxUniqueKey.Valid && given.fromStep == "" {
		_, err = replay.Write(tx, x)
		return nil, err
	}
	inner := core.Txn{}
	err = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
		inner.Tx = savepoint
		_, err := replay.Write(&inner, x)
		return err
	})
	switch {
	case err == nil:
		tx.Due.Include(&inner.Due)
	case errors.Is(err, fferr.ErrKeyConflict), errors.Is(err, fferr.ErrNotFound):
		return err, nil
	}
	return nil, err
}

// PrioritizeWhere changes the priority of the claimable executions that match a filter, as [Prioritize] does. Other
// executions are refused. Batches, errors and repetition: see [CancelWhere].
func PrioritizeWhere(ctx context.Context, eng *engine.Engine, filter engine.ExecutionFilter, priority int, bulk Bulk) (BulkProgress, error) {
	const op = "change priorities by filter"
	return where(ctx, eng, op, filter, bulk, func(c *core.Core, ids []id.ExecutionID) ([]error, error) {
		return operateEach(ctx, c, ids, whileClaimable(op), func(ctx context.Context, tx *core.Txn, items []*core.HeldExecution) error {
			return prioritize(ctx, c, tx, items, priority)
		})
	})
}

// MoveWhere moves the claimable executions that match a filter to another lane, including members of flows. Priority and age
// stay. Running, delayed and blocked executions are refused. An idempotency key still belongs to the lane of the creation.
// Batches, errors and repetition: see [CancelWhere]. Emits nothing.
func MoveWhere(ctx context.Context, eng *engine.Engine, filter engine.ExecutionFilter, to id.LaneID, bulk Bulk) (BulkProgress, error) {
	const op = "move executions by filter"
	if err := to.Validate(); err != nil {
		return BulkProgress{}, core.Wrap(op, core.InvalidBecause("lane", err))
	}
	return where(ctx, eng, op, filter, bulk, func(c *core.Core, ids []id.ExecutionID) ([]error, error) {
		return operateEach(ctx, c, ids, whileClaimable(op), func(ctx context.Context, tx *core.Txn, items []*core.HeldExecution) error {
			return move(ctx, c, tx, items, to)
		})
	})
}

// DeleteWhere deletes the ended executions that match a filter, with their attempts, steps, output, waits and keys, as
// retention would later. Refused are executions that have not ended, members of flows, because a flow is kept and deleted as
// a whole, and called executions until their caller has ended or stored their results. Events stay until trimmed. Batches,
// errors and repetition: see [CancelWhere].
func DeleteWhere(ctx context.Context, eng *engine.Engine, filter engine.ExecutionFilter, bulk Bulk) (BulkProgress, error) {
	const op = "delete executions by filter"
	deletable := core.Operation[struct{}]{
		Op: op,
		ReadMore: func(ctx context.Context, conn db.DBTX, items []*core.HeldExecution) error {
			return readAwaited(ctx, core.Of(eng), conn, items)
		},
		Judge: func(x *core.HeldExecution) (none struct{}, acts bool, err error) {
			switch {
			case !x.Terminal():
				return none, false, x.Not(fferr.ErrNotEnded)
			case x.FlowID != nil, x.Awaited:
				return none, false, x.Not(fferr.ErrNotEligible)
			}
			return none, true, nil
		},
	}
	return where(ctx, eng, op, filter, bulk, func(c *core.Core, ids []id.ExecutionID) ([]error, error) {
		if err := shortenEach(ctx, c, ids, deletable); err != nil {
			return nil, err
		}
		return operateEach(ctx, c, ids, deletable, func(ctx context.Context, tx *core.Txn, items []*core.HeldExecution) error {
			used, err := c.Q.GetRetainedTables(ctx, tx)
			if err != nil {
				return err
			}
			var dropped int64
			return pgtx.InOneTrip(ctx, tx, c.DropEnded(ctx, core.HeldArrays(items), used, &dropped)...)
		})
	})
}

// readAwaited reads which locked executions have a caller that still needs their results.
func readAwaited(ctx context.Context, c *core.Core, conn db.DBTX, items []*core.HeldExecution) error {
	arrays := core.HeldArrays(items)
	ords, err := c.Q.ListAwaited(ctx, conn, db.ListAwaitedParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, Ords: arrays.Ords(),
	})
	for _, ord := range ords {
		items[ord].Awaited = true
	}
	return err
}

// shortenEach deletes most frames of executions about to be deleted, in separate transactions, if there are too many for one.
func shortenEach(ctx context.Context, c *core.Core, ids []id.ExecutionID, deletable core.Operation[struct{}]) error {
	var x core.ExecutionArrays
	for _, execution := range ids {
		x.Add(execution.Partition(), execution.UUID())
	}
	sizes, err := c.Q.ListStreamSizes(ctx, c.Reader(), db.ListStreamSizesParams{PartitionKeys: x.Partitions, ExecutionIDs: x.Executions})
	var frames int64
	for _, row := range sizes {
		frames += row.Frames
	}
	for left := frames > core.MaxDroppedFrames; left && err == nil; {
		left = false
		_, err = operateEach(ctx, c, ids, deletable, func(ctx context.Context, tx *core.Txn, items []*core.HeldExecution) error {
			later, err := c.Shorten(ctx, tx, core.HeldArrays(items))
			left = left || len(later) > 0
			return err
		})
	}
	return err
}

// where runs change for the executions that match a filter, a page at a time.
func where(
	ctx context.Context, eng *engine.Engine, op string, filter engine.ExecutionFilter, bulk Bulk,
	change func(c *core.Core, ids []id.ExecutionID) ([]error, error),
) (done BulkProgress, err error) {
	c := core.Of(eng)
	batch := cmp.Or(bulk.Batch, DefaultBulkBatch)
	switch {
	case c.Tx != nil:
		return done, core.Wrap(op, core.Invalid("WithTx", "has one transaction, and a bulk operation needs one for each batch"))
	case batch < 1 || batch > engine.MaxBatch:
		return done, core.Wrap(op, core.Invalid("Batch", fmt.Sprintf("must be between 1 and %d", engine.MaxBatch)))
	case filter == engine.ExecutionFilter{Order: filter.Order, Examined: filter.Examined}:
		return done, core.Wrap(op, core.Invalid("filter", "is empty, and would match every execution"))
	case filter.Order == engine.ClaimOrder:
		return done, core.Wrap(op, core.Invalid("order", "must not be that of the queue, which the operation changes"))
	}
	done.Next = bulk.After
	for {
		page, err := eng.ListExecutions(ctx, filter, done.Next, batch)
		if err != nil {
			return done, core.Wrap(op, err)
		}
		ids := make([]id.ExecutionID, len(page.Items))
		for i, x := range page.Items {
			ids[i] = x.ID
		}
		if len(ids) > 0 && !bulk.DryRun {
			outcomes, err := change(c.ShortWait(), ids)
			if err != nil {
				return done, core.Wrap(op, err)
			}
			if err := done.count(outcomes); err != nil {
				return done, core.Wrap(op, err)
			}
		}
		done.Matched += len(ids)
		if done.Next = page.Next; bulk.Progress != nil {
			if err := bulk.Progress(done); err != nil {
				return done, err
			}
		}
		if done.Next == "" {
			return done, nil
		}
	}
}

// count adds the outcomes of a batch. It returns errors about more than one execution.
func (p *BulkProgress) count(outcomes []error) error {
	for _, err := range outcomes {
		switch {
		case err == nil:
			p.Changed++
		case errors.Is(err, fferr.ErrBusy), errors.Is(err, fferr.ErrContention):
			p.Busy++
		case refusedByState(err):
			p.Refused++
		default:
			return err
		}
	}
	return nil
}

// refusedByState reports whether an execution's state, or its absence, refuses a change.
func refusedByState(err error) bool {
	for _, reason := range []error{
		fferr.ErrEnded, fferr.ErrNotEnded, fferr.ErrNotEligible, fferr.ErrCompleted, fferr.ErrMaxReplays, fferr.ErrFlowTerminal, fferr.ErrPruned, fferr.ErrNotFound, fferr.ErrCorruption,
		fferr.ErrKeyConflict,
	} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// operateEach runs an operation on many executions, up to [engine.MaxBatch] in a transaction. write changes the accepted
// executions, in lock order.
func operateEach[R any](
	ctx context.Context, c *core.Core, ids []id.ExecutionID, o core.Operation[R], write func(context.Context, *core.Txn, []*core.HeldExecution) error,
) ([]error, error) {
	t := o.Transition(c, ids)
	t.Write = func(ctx context.Context, tx *core.Txn, items []*core.HeldExecution, _ []fferr.Outcome[R]) error {
		return write(ctx, tx, items)
	}
	return runEach(ctx, c, ids, t)
}

// runEach runs a transition on many executions, up to [engine.MaxBatch] in a transaction.
func runEach[R any](ctx context.Context, c *core.Core, ids []id.ExecutionID, t core.Transition[*core.HeldExecution, R]) ([]error, error) {
	outcomes := make([]fferr.Outcome[R], len(ids))
	err := t.Run(ctx, core.ExecutionChunks(ids, core.ValidItems(outcomes, func(n int) error { return c.CheckExecution(ids[n]) })), outcomes)
	return core.ErrorsOf(outcomes), err
}
