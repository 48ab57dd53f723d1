package operator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/state"
)

// Replayed is the result of a replay.
type Replayed struct {
	// State is waiting (for a worker), waiting_children (for dependencies) or rate_limited (for a budget or quota).
	State   state.PublicState
	Replays int // number of replays, including this one
}

// ReplayOption is an option of [Replay].
type ReplayOption func(*replayOptions)

type replayOptions struct {
	completed bool
	dropSteps bool
	fromStep  string // the first step to drop; "": all steps
}

// ReplayCompleted permits the replay of a completed execution, which repeats all effects outside of the kept steps.
func ReplayCompleted(o *replayOptions) { o.completed = true }

// ReplayWithoutSteps deletes the steps of the execution, so all steps run again.
func ReplayWithoutSteps(o *replayOptions) { o.dropSteps, o.fromStep = true, "" }

// ReplayFromStep keeps the steps begun before the named one, and deletes the named step and later steps.
func ReplayFromStep(name string) ReplayOption {
	return func(o *replayOptions) { o.dropSteps, o.fromStep = true, name }
}

// Replay runs an ended execution again. The execution keeps its id, payload, tags and a future deadline, gets all retries
// back, and loses its result, failure, cancellation and a past deadline. The last attempt restarts. Earlier attempts are
// kept, and so are the steps, also of waits, unless [ReplayFromStep] or [ReplayWithoutSteps] is given. A completed execution
// requires [ReplayCompleted].
//
// In a flow, unstarted dependents wait for the execution again, and skipped dependents may be replayed next; other dependents
// ignore the next end. A member that was skipped or never ran waits for its dependencies again: successes count, other
// upstreams must end again.
//
// In a sequence, the execution the sequence stopped at runs at once, and the sequence continues after it. Any other execution
// waits at the end of the sequence.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrKeyConflict] naming the execution with the unique key; [*fferr.StateError] with
// [fferr.ErrNotEnded] or [fferr.ErrCompleted]; [fferr.ErrInvalidInput] for a nil option; [fferr.ErrNotFound] also for a
// missing step; [fferr.ErrMaxReplays] after ten replays, or the policy's limit; [fferr.ErrFlowTerminal] if the flow was
// cancelled; [fferr.ErrPruned] if an upstream was pruned with its result; [fferr.ErrContention]. A repetition is refused with
// [fferr.ErrNotEnded]. Transaction: locks the flow exclusively, the execution, the attempt, then edge groups and dependents,
// or the sequence; deletes grants, suspension and waitpoints; emits an operator event.
func Replay(ctx context.Context, eng *engine.Engine, x id.ExecutionID, options ...ReplayOption) (Replayed, error) {
	const op = "replay execution"
	c := core.Of(eng)
	given, err := replayOptionsOf(options)
	if err != nil {
		return Replayed{}, core.Wrap(op, err)
	}
	return core.Operate(ctx, c, x, replaying(ctx, c, op, given))
}

func replayOptionsOf(options []ReplayOption) (given replayOptions, err error) {
	for _, option := range options {
		if option == nil {
			return given, core.Invalid("options", "has a nil option")
		}
		option(&given)
	}
	return given, nil
}

// replaying is the replay of one execution.
func replaying(ctx context.Context, c *core.Core, op string, given replayOptions) core.Operation[Replayed] {
	return core.Operation[Replayed]{
		Op:        op,
		NeedsFlow: func(*core.HeldExecution) bool { return true },
		LockKeys: func(ctx context.Context, conn db.DBTX, items []*core.HeldExecution) error {
			arrays := core.HeldArrays(items)
			return c.Q.LockUniqueKeysOf(ctx, conn, db.LockUniqueKeysOfParams{
				PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
			})
		},
		Judge: func(x *core.HeldExecution) (Replayed, bool, error) {
			if !x.Terminal() {
				return Replayed{}, false, x.Not(fferr.ErrNotEnded)
			}
			if x.Outcome() == state.OutcomeSuccess && !given.completed {
				return Replayed{}, false, x.Not(fferr.ErrCompleted)
			}
			if n, most := x.Replays(), maxReplays(x.Policy); n >= most {
				return Replayed{}, false, fmt.Errorf("execution %s: %w: %d of %d", x.ID, fferr.ErrMaxReplays, n, most)
			}
			return Replayed{}, true, nil
		},
		Write: func(tx *core.Txn, x *core.HeldExecution) (Replayed, error) {
			if err := replaySteps(ctx, c, tx, x, given); err != nil {
				return Replayed{}, err
			}
			return replay(ctx, c, tx, x)
		},
	}
}

// replay resets an ended execution under the lock of its flow.
func replay(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution) (replayed Replayed, err error) {
	replayed.Replays = x.Replays() + 1
	details := replayDetails{Branch: "normal"}
	waits := false
	if x.FlowID != nil {
		if err := replayIn(ctx, c, tx, x, *x.FlowID); err != nil {
			return replayed, err
		}
		if skipped := x.Outcome() == state.OutcomeSkipped; skipped || x.StartedAtMs == nil && !x.Started() {
			var reset int
			if waits, reset, err = reopenInbound(ctx, c, tx, x, skipped); err != nil {
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
	if err := c.Q.DiscardWaiting(ctx, tx, db.DiscardWaitingParams{
		PartitionKeys: []int16{x.ID.Partition()}, ExecutionIDs: []pgtype.UUID{core.PgUUID(x.ID.UUID())},
	}); err != nil {
		return replayed, err
	}
	if err := c.Q.ForgetSignalKeys(ctx, tx, db.ForgetSignalKeysParams{PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID()}); err != nil {
		return replayed, err
	}
	if err := retakeUnique(ctx, c, tx, x); err != nil {
		return replayed, err
	}
	if x.FfxSequence.Valid {
		turn, err := requeue(ctx, c, tx, x)
		if err != nil {
			return replayed, err
		}
		waits = !turn
	}
	pointer, beginsAgain := x.ReplayedAttempt()
	row, err := c.Q.ReplayExecution(ctx, tx, db.ReplayExecutionParams{
		PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), Waits: waits, AttemptIndex: pointer, BeginsAgain: beginsAgain,
		RaisedEpoch: x.RaisedEpoch(), ReplayCount: int64(replayed.Replays), Details: string(text), NowMs: x.NowMs,
	})
	if err != nil {
		return replayed, err
	}
	tx.Due.OperatorEvents()
	if row.Claimable {
		tx.Due.Lane(row.LaneID)
	}
	if replayed.State = state.PublicState(row.PublicState); replayed.State == state.PublicRateLimited {
		tx.Due.Gated()
	}
	return replayed, nil
}

// requeue gives a locked execution that runs again a place in its sequence, and reports whether the execution has the turn.
func requeue(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution) (turn bool, err error) {
	sequence := core.SequenceID(x.FfxSequence.Bytes)
	err = pgtx.InOneTrip(ctx, tx, func(conn db.DBTX) error {
		return c.Q.ExtendSequence(ctx, conn, db.ExtendSequenceParams{
			PartitionKey: sequence.Partition(), SequenceID: sequence.PG(),
			ExecutionPartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(),
		})
	}, func(conn db.DBTX) (err error) {
		turn, err = c.Q.RequeueMember(ctx, conn, db.RequeueMemberParams{
			PartitionKey: sequence.Partition(), SequenceID: sequence.PG(),
			ExecutionPartitionKey: x.ID.Partition(), ExecutionID: core.PgUUID(x.ID.UUID()), NowMs: x.NowMs,
		})
		return err
	})
	return turn, err
}

// replaySteps deletes the steps to drop. Without any, a failed execution continues its failed calls, and waits for their
// executions again.
func replaySteps(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, given replayOptions) error {
	if given.dropSteps {
		return dropSteps(ctx, c, tx, x.ID, given.fromStep)
	}
	if x.Outcome() == state.OutcomeSuccess {
		return nil
	}
	_, err := c.Q.ReopenCalls(ctx, tx, db.ReopenCallsParams{PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID()})
	return err
}

// dropSteps deletes the steps of an execution from a named step on, or all steps.
func dropSteps(ctx context.Context, c *core.Core, tx *core.Txn, x id.ExecutionID, from string) error {
	dropped, err := c.Q.DropStepsFrom(ctx, tx, db.DropStepsFromParams{PartitionKey: x.Partition(), ExecutionID: x.UUID(), Name: from})
	if err == nil && dropped == 0 && from != "" {
		err = &fferr.NotFoundError{Entity: "step", ID: from}
	}
	return err
}

// replayDetails are the details of a replay's operator event.
type replayDetails struct {
	Branch      string `json:"branch"`
	GroupsReset *int   `json:"groups_reset,omitempty"`
}

// maxReplays returns the largest number of replays under a policy. Other programs store some of these policies.
func maxReplays(policyDocument []byte) int {
	var stored struct {
		Most json.RawMessage `json:"max_replay_count"`
	}
	if json.Unmarshal(policyDocument, &stored) == nil {
		if most := core.Number(stored.Most); most >= 0 {
			return int(most)
		}
	}
	return int(document.DefaultMaxReplayCount)
}

// retakeUnique gives a replayed execution its unique key again, unless the key was only held until the first start. The
// caller holds the execution's lock. retakeUnique waits for creators of the key.
//
// Errors: [*fferr.KeyConflictError] if another execution has the key.
func retakeUnique(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution) error {
	if !x.FfxUniqueKey.Valid || x.UniqueLasts == string(engine.WhileWaiting) {
		return nil
	}
	keys, lasts := []pgtype.UUID{x.FfxUniqueKey}, []string{x.UniqueLasts}
	partitions, ids := []int16{x.ID.Partition()}, []pgtype.UUID{core.PgUUID(x.ID.UUID())}
	for {
		got, err := c.Q.InsertUniqueKeys(ctx, tx, db.InsertUniqueKeysParams{
			UniqueKeys: keys, Lasts: lasts, HolderPartitionKeys: partitions, ExecutionIDs: ids,
		})
		if err != nil || len(got) > 0 {
			return err
		}
		holders, err := c.Q.ListUniqueKeys(ctx, tx, keys)
		if err != nil {
			return err
		}
		if len(holders) == 0 {
			continue // deleted meanwhile
		}
		holder := holders[0]
		existing := id.ExecutionIDFromRow(holder.HolderPartitionKey, id.ExecutionUUID(holder.ExecutionID.Bytes))
		if holder.InForce && existing != x.ID {
			return &fferr.KeyConflictError{Existing: existing, Differs: "has the unique key"}
		}
		got, err = c.Q.TakeOverUniqueKeys(ctx, tx, db.TakeOverUniqueKeysParams{
			UniqueKeys: keys, FormerIDs: []pgtype.UUID{holder.ExecutionID}, Taken: []int64{holder.Taken},
			Lasts: lasts, HolderPartitionKeys: partitions, ExecutionIDs: ids,
		})
		if err != nil || len(got) > 0 {
			return err
		}
	}
}
