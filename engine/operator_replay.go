package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/state"
)

// Replayed is what became of a replayed execution.
type Replayed struct {
	// State is what it waits for: waiting, for a worker; waiting_children, for what it depends on; rate_limited, for its
	// budget or quota.
	State   state.PublicState
	Replays int // how often it has been replayed, this time included
}

// ReplayOption allows a replay what it may not do by default.
type ReplayOption string

// ReplayCompleted allows a replay of an execution that has completed: everything that it did is done once more.
const ReplayCompleted ReplayOption = "completed"

// ReplayExecution sets an execution that has ended back to run again: with the same id, payload and tags, all its retries,
// and without its result, its failure and what cancelled it. A deadline that has passed goes, one to come stays. Its last
// attempt begins again; earlier ones are kept as history. One that has completed is replayed only with [ReplayCompleted].
//
// In a flow, what depends on it and has not been started waits for it again, and what was skipped because of it may be
// replayed next; what has been started or ended otherwise is not touched, and its next end counts nothing there. An
// execution that was skipped, or ended before it ever ran, waits for its dependencies again: successes count, and each
// other upstream once it has ended again.
//
// Errors: [ErrNotFound]; [ErrNotEnded] and [ErrCompleted], in a [*StateError]; [ErrInvalidInput] for an unknown option;
// [ErrMaxReplays] after ten replays, or as many as its policy allows; [ErrFlowTerminal] for a member of a flow that was
// cancelled; [ErrPruned] if an upstream was pruned, and its result with it; [ErrContention] if another transaction holds
// its flow, its row, or what depends on it.
// Transaction: locks the flow exclusively, the execution, its attempt, then edge groups and what depends on it; deletes
// its grants, suspension and waitpoints; emits an operator event. Not idempotent by itself, but a repetition is refused:
// the execution has not ended any more.
func (o Operator) ReplayExecution(ctx context.Context, x id.ExecutionID, options ...ReplayOption) (Replayed, error) {
	completedToo := slices.Contains(options, ReplayCompleted)
	for _, option := range options {
		if option != ReplayCompleted {
			return Replayed{}, wrap("replay execution", invalid("options", fmt.Sprintf("has no option %q", option)))
		}
	}
	return operate(ctx, o.e, x, operation[Replayed]{
		op:        "replay execution",
		needsFlow: true,
		judge: func(x *heldExecution) (Replayed, bool, error) {
			if !x.terminal() {
				return Replayed{}, false, x.not(ErrNotEnded)
			}
			if x.outcome() == state.OutcomeSuccess && !completedToo {
				return Replayed{}, false, x.not(ErrCompleted)
			}
			if n, most := x.replays(), maxReplays(x.Policy); n >= most {
				return Replayed{}, false, fmt.Errorf("execution %s: %w: %d of %d", x.id, ErrMaxReplays, n, most)
			}
			return Replayed{}, true, nil
		},
		write: func(tx *txn, x *heldExecution) (Replayed, error) { return o.e.replay(ctx, tx, x) },
	})
}

// replay sets an ended execution back under the lock of its flow.
func (e *Engine) replay(ctx context.Context, tx *txn, x *heldExecution) (replayed Replayed, err error) {
	replayed.Replays = x.replays() + 1
	details := replayDetails{Branch: "normal"}
	waits := false
	if x.FlowID != nil {
		if err := e.replayIn(ctx, tx, x, *x.FlowID); err != nil {
			return replayed, err
		}
		if skipped := x.outcome() == state.OutcomeSkipped; skipped || x.StartedAtMs == nil && !x.started() {
			var reset int
			if waits, reset, err = e.reopenInbound(ctx, tx, x, skipped); err != nil {
				return replayed, err
			}
			if skipped || reset > 0 {
				details = replayDetails{Branch: "skipped_flow_member", GroupsReset: &reset}
			}
		}
	}
	text, err := json.Marshal(details)
	if err != nil {
		return replayed, err
	}
	if err := e.q.DiscardWaiting(ctx, tx, db.DiscardWaitingParams{
		PartitionKeys: []int16{x.id.Partition()}, ExecutionIDs: []pgtype.UUID{pgUUID(x.id.UUID())},
	}); err != nil {
		return replayed, err
	}
	pointer, beginsAgain := x.replayedAttempt()
	row, err := e.q.ReplayExecution(ctx, tx, db.ReplayExecutionParams{
		PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(), Waits: waits, AttemptIndex: pointer, BeginsAgain: beginsAgain,
		RaisedEpoch: x.raisedEpoch(), ReplayCount: int64(replayed.Replays), Details: string(text), NowMs: x.NowMs,
	})
	if err != nil {
		return replayed, err
	}
	tx.due.operatorEvents()
	if row.Claimable {
		tx.due.lane(row.LaneID)
	}
	replayed.State = state.PublicState(row.PublicState)
	return replayed, nil
}

// replayDetails are the details of an operator event of a replay.
type replayDetails struct {
	Branch      string `json:"branch"`
	GroupsReset *int   `json:"groups_reset,omitempty"`
}

// replayedAttempt is the index of the attempt that a replay is claimed with, and whether that stands there and begins
// again: the current one, unless another was scheduled after it and never claimed.
func (x *heldExecution) replayedAttempt() (index int32, beginsAgain bool) {
	switch {
	case !x.started():
		return x.Pointer, false
	case x.CurrentIndex < x.Pointer && x.finished() && (x.CurrentOutcome == "retry" || x.CurrentOutcome == "interrupted"):
		return x.Pointer, false
	}
	return x.CurrentIndex, true
}

// replays is how often the execution has been replayed; what nobody can read counts as never.
func (x *heldExecution) replays() int {
	return int(max(number(json.RawMessage(x.RawReplayCount)), 0))
}

// maxReplays is how often the policy of an execution allows it to be replayed. Other programs store some of them.
func maxReplays(policyDocument []byte) int {
	var stored struct {
		Most json.RawMessage `json:"max_replay_count"`
	}
	if json.Unmarshal(policyDocument, &stored) == nil {
		if most := number(stored.Most); most >= 0 {
			return int(most)
		}
	}
	return int(document.DefaultMaxReplayCount)
}
