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

// Replayed is the result of a replay.
type Replayed struct {
	// State is waiting (for a worker), waiting_children (for dependencies) or rate_limited (for a budget or quota).
	State   state.PublicState
	Replays int // number of replays, including this one
}

// ReplayOption permits a replay that is refused by default.
type ReplayOption string

// ReplayCompleted permits the replay of a completed execution, which repeats all its effects.
const ReplayCompleted ReplayOption = "completed"

// ReplayExecution runs an ended execution again. It keeps id, payload, tags and a future deadline, gets all its retries
// back, and loses its result, failure, cancellation and a past deadline. Its last attempt restarts; earlier ones are
// kept. A completed execution requires [ReplayCompleted]. In a flow, unstarted dependents wait for it again, and
// skipped ones may be replayed next; other dependents ignore its next end. A member that was skipped or never ran waits
// for its dependencies again: successes count, other upstreams must end again.
//
// Errors: [ErrNotFound]; [*StateError] with [ErrNotEnded] or [ErrCompleted]; [ErrInvalidInput] for an unknown option;
// [ErrMaxReplays] after ten replays, or the policy's limit; [ErrFlowTerminal] if its flow was cancelled; [ErrPruned] if
// an upstream was pruned with its result; [ErrContention]. A repetition is refused with [ErrNotEnded].
// Transaction: locks the flow exclusively, the execution, its attempt, then edge groups and dependents; deletes its
// grants, suspension and waitpoints; emits an operator event.
func (o Operator) ReplayExecution(ctx context.Context, x id.ExecutionID, options ...ReplayOption) (Replayed, error) {
	completedToo := slices.Contains(options, ReplayCompleted)
	for _, option := range options {
		if option != ReplayCompleted {
			return Replayed{}, wrap("replay execution", invalid("options", fmt.Sprintf("has no option %q", option)))
		}
	}
	return operate(ctx, o.e, x, operation[Replayed]{
		op:        "replay execution",
		needsFlow: func(*heldExecution) bool { return true },
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

// replay resets an ended execution under the lock of its flow.
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

// replayDetails are the details of a replay's operator event.
type replayDetails struct {
	Branch      string `json:"branch"`
	GroupsReset *int   `json:"groups_reset,omitempty"`
}

// replayedAttempt returns the index of the attempt that the claim after a replay uses, and whether an existing attempt
// restarts. This is the current one, unless another was scheduled after it and never claimed.
func (x *heldExecution) replayedAttempt() (index int32, beginsAgain bool) {
	switch {
	case !x.started():
		return x.Pointer, false
	case x.CurrentIndex < x.Pointer && x.finished() && (x.CurrentOutcome == "retry" || x.CurrentOutcome == "interrupted"):
		return x.Pointer, false
	}
	return x.CurrentIndex, true
}

// replays returns how often the execution was replayed; an unreadable number counts as 0.
func (x *heldExecution) replays() int {
	return int(max(number(json.RawMessage(x.RawReplayCount)), 0))
}

// maxReplays returns the largest number of replays that the policy allows. Other programs store some of these policies.
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
