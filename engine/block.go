package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// blocks are the reasons that an operator blocks for, and where an execution stands that is blocked for them.
var blocks = map[state.BlockingReason]state.EligibilityState{
	state.WaitingForBudget:        state.BlockedByBudget,
	state.WaitingForQuota:         state.BlockedByQuota,
	state.WaitingForCapableWorker: state.BlockedByRoute,
	state.PausedByPolicy:          state.BlockedByLaneState,
	state.PausedByOperator:        state.BlockedByOperator,
}

// Blocking is what became of [Operator.BlockExecution].
type Blocking struct {
	Rejected Rejection // "": the execution is blocked for the reason that was given
}

// Rejection is why an execution was not blocked.
type Rejection string

// The rejections.
const (
	RejectedEnded       Rejection = "execution_not_active"   // it has ended
	RejectedNotEligible Rejection = "execution_not_eligible" // it runs, is granted to a worker, or waits for something else
)

// BlockExecution keeps an execution that is ready to be claimed from being claimed, until [Operator.UnblockExecution].
// The reason is one of [state.PausedByOperator], [state.PausedByPolicy], [state.WaitingForCapableWorker],
// [state.WaitingForBudget] and [state.WaitingForQuota]; the detail, of up to 1,024 bytes, is for people. An execution that
// is blocked for that reason already stays as it is. What runs is not touched, and neither is what waits for something
// else: that it could not be blocked is an answer, not an error. A deadline ends a blocked execution as any other.
//
// Blocked for [state.WaitingForCapableWorker] it is set free by [Maintenance.UnblockRoutes] too. What admitted it past a
// budget or quota is taken back, with its slot; where it names one, a block for that reason brings it before the gate.
//
// Errors: [ErrInvalidInput], for another reason too; [ErrNotFound]; [ErrCorruption] for a state that cannot be read;
// [ErrContention] where somebody else holds its row.
// Transaction: locks the execution, and deletes its grants and its quota slot. Emits nothing. Safe to repeat.
func (o Operator) BlockExecution(ctx context.Context, x id.ExecutionID, reason state.BlockingReason, detail string) (Blocking, error) {
	const op = "block execution"
	e := o.e
	eligibility, ok := blocks[reason]
	if !ok {
		return Blocking{}, wrap(op, invalid("blocking reason", "must be one of those that an operator may block for"))
	}
	if err := checkText("blocking detail", detail, maxFreeText); err != nil {
		return Blocking{}, wrap(op, err)
	}
	answer, err := interveneAlone(ctx, e, x, intervention[Outcome[Blocking]]{
		op: op,
		judge: func(_ int, x *heldExecution) (answer Outcome[Blocking], acts bool, err error) {
			if err := x.check(); err != nil {
				return answer, false, err
			}
			switch {
			case x.runnable() && x.EligibilityState == string(eligibility) && x.BlockingReason == string(reason):
				return answer, false, nil
			case x.terminal():
				answer.Value.Rejected = RejectedEnded
				return answer, false, nil
			case !x.runnable() || !x.free() || x.EligibilityState != string(state.EligibleNow):
				answer.Value.Rejected = RejectedNotEligible
				return answer, false, nil
			}
			return answer, true, nil
		},
		write: func(tx *txn, items []heldItem, _ []Outcome[Blocking]) error {
			x := items[0]
			partition, execution := x.id.Partition(), x.id.UUID()
			if err := e.q.BlockExecution(ctx, tx, db.BlockExecutionParams{
				EligibilityState: string(eligibility),
				PublicState:      string(state.Derive(state.Runnable, eligibility, state.OutcomeNone)),
				BlockingReason:   string(reason),
				Detail:           detail,
				NowMs:            x.NowMs,
				PartitionKey:     partition,
				ExecutionID:      execution,
			}); err != nil {
				return err
			}
			if err := e.q.DropGrants(ctx, tx, db.DropGrantsParams{PartitionKey: partition, ExecutionID: execution}); err != nil || !x.HasQuota {
				return err
			}
			var slot executionArrays
			slot.add(partition, execution)
			return e.q.ReleaseQuotaSlots(ctx, tx, db.ReleaseQuotaSlotsParams{PartitionKeys: slot.partitions, ExecutionIDs: slot.executions})
		},
		refused: func(err error) Outcome[Blocking] { return Outcome[Blocking]{Err: err} },
	})
	return answer.Value, cmp.Or(err, answer.Err)
}

// UnblockExecution makes an execution claimable that is blocked by a budget, a quota, its route, its lane or an operator,
// whatever it waits for: a gate is passed without a slot. expected is the reason that it must be blocked for, "" for any
// of them; only where it is [state.WaitingForChildren] an execution is set free that waits for others. In a caller's
// transaction nobody is woken: after the commit the caller may call [Engine.Wake].
//
// Errors: [ErrInvalidInput]; [ErrNotFound]; in a [*StateError] [ErrNotEligible] for an execution that is not blocked, or for
// another reason; [ErrContention] where somebody else holds its row.
// Transaction: locks the execution. Emits nothing. A repetition is refused.
func (o Operator) UnblockExecution(ctx context.Context, x id.ExecutionID, expected state.BlockingReason) error {
	const op = "unblock execution"
	e := o.e
	if expected != "" && expected != state.WaitingForChildren && blocks[expected] == "" {
		return wrap(op, invalid("expected reason", "is none that an execution is blocked for"))
	}
	refusal, err := interveneAlone(ctx, e, x, intervention[error]{
		op: op,
		judge: func(_ int, x *heldExecution) (error, bool, error) {
			if err := x.check(); err != nil {
				return nil, false, err
			}
			blocked := isBlock(x.EligibilityState) ||
				x.EligibilityState == string(state.BlockedByDependencies) && expected == state.WaitingForChildren
			if !x.runnable() || !blocked || expected != "" && x.BlockingReason != string(expected) {
				return nil, false, x.not(ErrNotEligible)
			}
			return nil, true, nil
		},
		write: func(tx *txn, items []heldItem, _ []error) error {
			x := items[0]
			tx.due.lane(x.LaneID)
			return e.q.UnblockExecution(ctx, tx, db.UnblockExecutionParams{
				NowMs: x.NowMs, PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(),
			})
		},
		refused: func(err error) error { return err },
	})
	if err != nil {
		return err
	}
	return refusal
}

func isBlock(eligibility string) bool {
	for _, e := range blocks {
		if eligibility == string(e) {
			return true
		}
	}
	return false
}

// interveneAlone is [intervene] for one execution.
func interveneAlone[R any](ctx context.Context, e *Engine, x id.ExecutionID, v intervention[R]) (answer R, err error) {
	answers, err := intervene(ctx, e, []id.ExecutionID{x}, nil, v)
	if err != nil {
		return answer, err
	}
	return answers[0], nil
}

// BlockedFilter says which blocked executions are listed. Its zero value is all of them.
type BlockedFilter struct {
	Lane   id.LaneID            // "": of every lane
	Reason state.BlockingReason // "": any; of the others as many are read as are passed over
}

// BlockedExecution is an execution that waits until somebody sets it free.
type BlockedExecution struct {
	ID           id.ExecutionID
	Lane         id.LaneID
	Kind         string
	Reason       state.BlockingReason
	Detail       string // "": none
	Since        time.Time
	Capabilities id.Capabilities // what it requires of a worker
}

// ListBlockedExecutions returns the executions that are blocked by their route, their lane or an operator: by lane, the
// longest blocked first, after a cursor: [Page.Next] of the page before with the same filter, "" for the first page. A
// limit of 0, or above [MaxPage], is taken as that. What waits for a budget or quota is not among them.
//
// Errors: [ErrInvalidInput] for a negative limit, a reason that is not of these or a cursor of another listing;
// [ErrCorruption]. One statement; locks nothing.
func (o Operator) ListBlockedExecutions(
	ctx context.Context, filter BlockedFilter, after string, limit int,
) (Page[BlockedExecution], error) {
	const op = "list blocked executions"
	page, err := o.listBlocked(ctx, filter, after, limit)
	return page, wrap(op, err)
}

// BlockedExecutions goes through the blocked executions as [Operator.ListBlockedExecutions] lists them, a page at a time.
func (o Operator) BlockedExecutions(ctx context.Context, filter BlockedFilter) iter.Seq2[BlockedExecution, error] {
	return pages(func(after string) (Page[BlockedExecution], error) {
		return o.ListBlockedExecutions(ctx, filter, after, MaxPage)
	})
}

// afterLanes is a text that follows every lane.
const afterLanes = "\x7f"

// listedReasons are those of the executions in the list of what is blocked.
var listedReasons = []state.BlockingReason{state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator}

func (o Operator) listBlocked(
	ctx context.Context, filter BlockedFilter, after string, limit int,
) (page Page[BlockedExecution], err error) {
	list := "blocked executions\x00" + string(filter.Lane) + "\x00" + string(filter.Reason)
	params := db.ListBlockedParams{
		AfterLaneID: string(filter.Lane), AfterBlockedAtMs: math.MinInt64, AfterPartitionKey: -1,
		AfterExecutionID: pgUUID(id.ExecutionUUID{}), LastLaneID: afterLanes,
	}
	if filter.Lane != "" {
		if err := filter.Lane.Validate(); err != nil {
			return page, invalidBecause("lane", err)
		}
		params.LastLaneID = string(filter.Lane)
	}
	if filter.Reason != "" {
		if !slices.Contains(listedReasons, filter.Reason) {
			return page, invalid("reason", "is none that executions are listed for")
		}
		params.EligibilityState = new(string(blocks[filter.Reason]))
	}
	if limit, err = pageSize(limit); err != nil {
		return page, err
	}
	key, err := readCursor(list, after)
	if err != nil {
		return page, err
	}
	if key != nil && !readPlace(key, &params) {
		return page, invalid("after", "is no cursor of this listing")
	}
	params.PageSize = int32(limit) + 1
	rows, err := o.e.q.ListBlocked(ctx, o.e.reader(), params)
	if err != nil {
		return page, err
	}
	blocked := make([]BlockedExecution, len(rows))
	for i, row := range rows {
		blocked[i] = BlockedExecution{
			ID:   id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
			Lane: id.LaneID(row.LaneID), Kind: row.ExecutionKind, Reason: state.BlockingReason(row.BlockingReason),
			Detail: row.BlockingDetail, Since: time.UnixMilli(row.BlockedAtMs), Capabilities: row.RequiredCapabilities,
		}
		if err := blocked[i].Lane.Validate(); err != nil {
			return page, corrupt("ff_exec_core.lane_id", err)
		}
	}
	return pageOf(blocked, limit, func(b *BlockedExecution) string { return cursorOf(list, placeOf(b)) }), nil
}

// placeOf is the place of an execution in the list: since when, partition, id, lane.
func placeOf(b *BlockedExecution) []byte {
	place := binary.BigEndian.AppendUint64(nil, uint64(b.Since.UnixMilli()))
	place = binary.BigEndian.AppendUint16(place, uint16(b.ID.Partition()))
	u := b.ID.UUID()
	return append(append(place, u[:]...), b.Lane...)
}

func readPlace(place []byte, params *db.ListBlockedParams) bool {
	const fixed = 8 + 2 + 16
	if len(place) <= fixed {
		return false
	}
	params.AfterBlockedAtMs = int64(binary.BigEndian.Uint64(place))
	params.AfterPartitionKey = int16(binary.BigEndian.Uint16(place[8:]))
	params.AfterExecutionID = pgUUID(id.ExecutionUUID(place[10:fixed]))
	params.AfterLaneID = string(place[fixed:])
	return true
}

// UnblockRoutes makes executions claimable that were blocked for want of a capable worker, at most batch of them, where
// a live worker serves their lane and has what they require; one that names a budget or quota goes to its gate. Workers are
// those of the registry, ff_worker_registry, where FlowFabric's enter themselves; those of this library do not yet, and
// what waits for them is freed by [Operator.UnblockExecution]. It returns on how many it acted; the caller repeats it
// while that equals batch. Safe to repeat and to run in any number of processes.
//
// Errors: [ErrInvalidInput]; [ErrBusy] as [Maintenance.PromoteDelayed]. Transaction: one statement; locks the executions.
// Those that others hold it passes over, however many there are.
func (m Maintenance) UnblockRoutes(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e.impatient(), "unblock routes", func(conn db.DBTX, due *notifications) (int, error) {
		rows, err := e.q.UnblockRoutes(ctx, conn, db.UnblockRoutesParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		for _, row := range rows {
			if row.Claimable {
				due.lane(row.LaneID)
			}
		}
		return len(rows), err
	})
}
