package operator

import (
	"context"
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ForkedFromTag is the tag of a fork with the id of the origin.
const ForkedFromTag = "ffx.forked_from"

// ForkSpec describes a fork. The zero value copies all finished steps.
type ForkSpec struct {
	// Before is the name of the first step to run again: only steps that began earlier are copied.
	Before string

	// ID is the id of the fork. Set ID to be able to repeat a call with an unknown outcome. Default: a new one.
	ID id.ExecutionID
}

// Fork creates an execution that starts after the finished steps of another one, the origin, in any state. The origin does
// not change. Copied are the kind, lane, namespace, payload, policy, creator, priority, budgets, quota policy, limits and
// tags, and the steps before [ForkSpec.Before] with their results, also ended waits with signals and calls with stored
// results. The fork gets the tag [ForkedFromTag], and occupies limits like any other execution.
//
// Not copied are keys, unused signals, an open wait, and the deadline unless the policy has one. In a fork,
// worker.IdempotencyKey returns other keys, so a step that runs again charges again.
//
// Errors: [fferr.ErrNotFound] for the execution or the step; [fferr.ErrInvalidInput], also for a member of a flow. Locks
// nothing of the origin, and emits no events. If the ID exists, Fork changes nothing and returns a duplicate.
func Fork(ctx context.Context, eng *engine.Engine, x id.ExecutionID, spec ForkSpec) (engine.Created, error) {
	const op = "fork execution"
	c := core.Of(eng)
	if err := c.CheckExecution(x); err != nil {
		return engine.Created{}, core.Wrap(op, err)
	}
	if err := core.CheckText("before", spec.Before, engine.MaxStepName); err != nil {
		return engine.Created{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, c, op, func(tx *core.Txn) (engine.Created, error) {
		origin, err := originOf(ctx, c, tx, x)
		if err != nil {
			return engine.Created{}, err
		}
		origin.ID = spec.ID
		fork, state, err := core.CreatorOf[engine.ExecutionSpec](c).Copy(ctx, tx, origin, func(fork id.ExecutionID) error {
			return copySteps(ctx, c, tx, x, fork, spec.Before)
		})
		if err != nil {
			return engine.Created{}, err
		}
		return engine.Created{ID: fork, State: state, Duplicate: state == ""}, nil
	})
}

// originOf returns the parts of an execution that a fork copies.
func originOf(ctx context.Context, c *core.Core, tx *core.Txn, x id.ExecutionID) (origin core.Stored, err error) {
	row, err := c.Q.GetOrigin(ctx, tx, db.GetOriginParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
	if err != nil {
		return origin, core.OrNotFound(err, x)
	}
	if row.FlowID != nil {
		return origin, core.Invalid("execution", "is a member of a flow, and a fork would not have the results of its upstreams")
	}
	tags := make(map[string]string)
	if len(row.Tags) > 0 {
		if err := json.Unmarshal(row.Tags, &tags); err != nil {
			return origin, core.Corrupt("ff_exec_core.raw_fields.tags", err)
		}
	}
	delete(tags, engine.CallerTag)
	delete(tags, engine.SequenceTag)
	tags[ForkedFromTag] = x.String()
	return core.Stored{
		Template: core.Template{
			Namespace: row.Namespace, Lane: row.LaneID, Kind: row.Kind, Payload: row.Payload, PayloadEncoding: row.PayloadEncoding,
			Priority: row.Priority, Creator: row.Creator, Tags: tags, Policy: row.Policy, Limits: row.Limits,
			Budgets: core.BudgetsOf(row.FfxBudgetIDs), QuotaPolicy: core.QuotaOf(row.FfxQuotaPolicyID),
		},
		Capabilities: row.RequiredCapabilities,
	}, nil
}

// copySteps copies the finished steps of an execution that began before a named one, or all finished steps, to its
// fork.
func copySteps(ctx context.Context, c *core.Core, tx *core.Txn, x, fork id.ExecutionID, before string) error {
	copied, err := c.Q.CopySteps(ctx, tx, db.CopyStepsParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(), Before: before,
		ForkPartitionKey: fork.Partition(), ForkExecutionID: core.PgUUID(fork.UUID()),
	})
	switch {
	case err != nil:
		return err
	case !copied.OriginExists:
		return &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	case before != "" && !copied.StepExists:
		return &fferr.NotFoundError{Entity: "step", ID: before}
	}
	return nil
}
