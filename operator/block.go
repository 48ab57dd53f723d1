package operator

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// blocks maps the reasons an operator may block for to the resulting eligibility state.
var blocks = map[state.BlockingReason]state.EligibilityState{
	state.WaitingForBudget:        state.BlockedByBudget,
	state.WaitingForQuota:         state.BlockedByQuota,
	state.WaitingForCapableWorker: state.BlockedByRoute,
	state.PausedByPolicy:          state.BlockedByLaneState,
	state.PausedByOperator:        state.BlockedByOperator,
}

// Blocking is the outcome of [Block].
type Blocking struct {
	Rejected Rejection // "" if the execution is blocked for the given reason
}

// Rejection is the reason an execution was not blocked.
type Rejection string

// The rejections.
const (
	RejectedEnded       Rejection = "execution_not_active"   // already ended
	RejectedNotEligible Rejection = "execution_not_eligible" // running, granted to a worker, or waiting for something else
)

// Block keeps a claimable execution from being claimed until [Unblock]. The reason is one of [state.PausedByOperator],
// [state.PausedByPolicy], [state.WaitingForCapableWorker], [state.WaitingForBudget] and [state.WaitingForQuota]; the detail
// is free text of up to 1,024 bytes. Running and waiting executions don't change, and are reported in [Blocking.Rejected],
// not as an error. A deadline still ends a blocked execution.
//
// The job unblock_routes also releases executions blocked for [state.WaitingForCapableWorker]. Blocking revokes an admission
// by budgets and limits. An execution that names a budget or limit and is blocked for that reason returns to the gate.
//
// Errors: [fferr.ErrInvalidInput], also for any other reason; [fferr.ErrNotFound]; [fferr.ErrCorruption] if the state can't
// be read; [fferr.ErrContention] if another transaction holds the row. Transaction: locks the execution, and deletes its
// grants. Emits nothing. Safe to repeat.
func Block(ctx context.Context, eng *engine.Engine, x id.ExecutionID, reason state.BlockingReason, detail string) (Blocking, error) {
	const op = "block execution"
	c := core.Of(eng)
	eligibility, ok := blocks[reason]
	if !ok {
		return Blocking{}, core.Wrap(op, core.Invalid("blocking reason", "is not one that an operator can block for"))
	}
	if err := core.CheckText("blocking detail", detail, core.MaxFreeText); err != nil {
		return Blocking{}, core.Wrap(op, err)
	}
	return core.Operate(ctx, c, x, core.Operation[Blocking]{
		Op: op,
		Judge: func(x *core.HeldExecution) (answer Blocking, acts bool, err error) {
			switch {
			case x.Runnable() && x.EligibilityState == string(eligibility) && x.BlockingReason == string(reason):
				return answer, false, nil
			case x.Terminal():
				return Blocking{Rejected: RejectedEnded}, false, nil
			case !x.Runnable() || !x.Free() || x.EligibilityState != string(state.EligibleNow):
				return Blocking{Rejected: RejectedNotEligible}, false, nil
			}
			return answer, true, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (answer Blocking, err error) {
			partition, execution := x.ID.Partition(), x.ID.UUID()
			if err := c.Q.BlockExecution(ctx, tx, db.BlockExecutionParams{
				EligibilityState: string(eligibility),
				PublicState:      string(state.Derive(state.Runnable, eligibility, state.OutcomeNone)),
				BlockingReason:   string(reason),
				Detail:           detail,
				NowMs:            x.NowMs,
				PartitionKey:     partition,
				ExecutionID:      execution,
			}); err != nil {
				return answer, err
			}
			if x.HasLimits {
				tx.Due.Gated()
			}
			return answer, c.Q.DropGrants(ctx, tx, db.DropGrantsParams{PartitionKey: partition, ExecutionID: execution})
		},
	})
}

// Unblock makes an execution claimable if a budget, a quota, its route, its lane or an operator blocks it. The execution
// skips the gate without taking a slot. If expected is not "", the execution must be blocked for that reason.
// [state.WaitingForChildren] also releases an execution that waits for dependencies, but none in a sequence. In a caller's
// transaction workers are not notified: call [engine.Engine.Wake] after the commit.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrNotFound]; [*fferr.StateError] with [fferr.ErrNotEligible] if the execution is
// not blocked, or for another reason; [fferr.ErrContention] if another transaction holds the row. Transaction: locks the
// execution. Emits nothing. A repetition is refused.
func Unblock(ctx context.Context, eng *engine.Engine, x id.ExecutionID, expected state.BlockingReason) error {
	const op = "unblock execution"
	c := core.Of(eng)
	if expected != "" && expected != state.WaitingForChildren && blocks[expected] == "" {
		return core.Wrap(op, core.Invalid("expected reason", "is not one that executions are blocked for"))
	}
	_, err := core.Operate(ctx, c, x, core.Operation[struct{}]{
		Op: op,
		Judge: func(x *core.HeldExecution) (none struct{}, acts bool, err error) {
			blocked := isBlock(x.EligibilityState) ||
				x.EligibilityState == string(state.BlockedByDependencies) && expected == state.WaitingForChildren && !x.FfxSequence.Valid
			if !x.Runnable() || !blocked || expected != "" && x.BlockingReason != string(expected) {
				return none, false, x.Not(fferr.ErrNotEligible)
			}
			return none, true, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (none struct{}, err error) {
			tx.Due.Lane(x.LaneID)
			return none, c.Q.UnblockExecution(ctx, tx, db.UnblockExecutionParams{
				NowMs: x.NowMs, PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(),
			})
		},
	})
	return err
}

func isBlock(eligibility string) bool {
	for _, e := range blocks {
		if eligibility == string(e) {
			return true
		}
	}
	return false
}

// BlockedFilter selects blocked executions. The zero value selects all.
type BlockedFilter struct {
	Lane   id.LaneID            // "" for every lane
	Reason state.BlockingReason // "" for any reason; entries with other reasons are read and skipped
}

// BlockedExecution is an execution waiting to be unblocked.
type BlockedExecution struct {
	ID           id.ExecutionID
	Lane         id.LaneID
	Kind         string
	Reason       state.BlockingReason
	Detail       string // "" if none
	Since        time.Time
	Capabilities id.Capabilities // capabilities required of a worker
}

// BlockedExecutions iterates over the executions blocked by route, lane or operator, by lane, the longest blocked first,
// reading a page at a time. Executions waiting for a budget or quota are not included.
//
// Errors: [fferr.ErrInvalidInput] for any other reason; [fferr.ErrCorruption]. Takes no locks.
func BlockedExecutions(ctx context.Context, eng *engine.Engine, filter BlockedFilter) iter.Seq2[BlockedExecution, error] {
	c := core.Of(eng)
	return core.All("list blocked executions", func(after *db.ListBlockedRow) ([]db.ListBlockedRow, error) {
		params, err := filter.params()
		if err != nil {
			return nil, err
		}
		if after != nil {
			params.AfterLaneID, params.AfterBlockedAtMs = after.LaneID, after.BlockedAtMs
			params.AfterPartitionKey, params.AfterExecutionID = after.PartitionKey, core.PgUUID(after.ExecutionID)
		}
		return c.Q.ListBlocked(ctx, c.Reader(), params)
	}, func(row *db.ListBlockedRow) (BlockedExecution, bool, error) {
		b := BlockedExecution{
			ID:   id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
			Lane: id.LaneID(row.LaneID), Kind: row.ExecutionKind, Reason: state.BlockingReason(row.BlockingReason),
			Detail: row.BlockingDetail, Since: time.UnixMilli(row.BlockedAtMs), Capabilities: row.RequiredCapabilities,
		}
		if err := b.Lane.Validate(); err != nil {
			return b, false, core.Corrupt("ff_exec_core.lane_id", err)
		}
		return b, true, nil
	})
}

// afterLanes sorts after every lane.
const afterLanes = "\x7f"

// listedReasons are the blocking reasons in the listing.
var listedReasons = []state.BlockingReason{state.WaitingForCapableWorker, state.PausedByPolicy, state.PausedByOperator}

// params returns the parameters for the first page.
func (f *BlockedFilter) params() (db.ListBlockedParams, error) {
	params := db.ListBlockedParams{
		AfterLaneID: string(f.Lane), AfterBlockedAtMs: math.MinInt64, AfterPartitionKey: -1,
		AfterExecutionID: core.PgUUID(id.ExecutionUUID{}), LastLaneID: afterLanes, PageSize: core.MaxPage,
	}
	if f.Lane != "" {
		if err := f.Lane.Validate(); err != nil {
			return params, core.InvalidBecause("lane", err)
		}
		params.LastLaneID = string(f.Lane)
	}
	if f.Reason != "" {
		if !slices.Contains(listedReasons, f.Reason) {
			return params, core.Invalid("reason", "is not one that executions are listed for")
		}
		params.EligibilityState = new(string(blocks[f.Reason]))
	}
	return params, nil
}
