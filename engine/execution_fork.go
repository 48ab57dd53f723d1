package engine

import (
	"context"
	"encoding/json"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
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
func (e *Engine) Fork(ctx context.Context, x id.ExecutionID, spec ForkSpec) (Created, error) {
	const op = "fork execution"
	if err := e.c.CheckExecution(x); err != nil {
		return Created{}, core.Wrap(op, err)
	}
	if err := core.CheckText("before", spec.Before, MaxStepName); err != nil {
		return Created{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (Created, error) {
		row, err := e.c.Q.GetOrigin(ctx, tx, db.GetOriginParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
		if err != nil {
			return Created{}, core.OrNotFound(err, x)
		}
		c, err := e.forkOf(x, spec.ID, &row)
		if err != nil {
			return Created{}, err
		}
		created, err := e.insert(ctx, tx, []creation{c}, nil, e.c.NowMs(), &tx.Due)
		if err != nil {
			return Created{}, err
		}
		fork, isNew := created[c.id]
		if !isNew {
			return Created{ID: c.id, Duplicate: true}, nil
		}
		copied, err := e.c.Q.CopySteps(ctx, tx, db.CopyStepsParams{
			PartitionKey: x.Partition(), ExecutionID: x.UUID(), Before: spec.Before,
			ForkPartitionKey: c.id.Partition(), ForkExecutionID: core.PgUUID(c.id.UUID()),
		})
		switch {
		case err != nil:
			return Created{}, err
		case !copied.OriginExists:
			return Created{}, &fferr.NotFoundError{Entity: "execution", ID: x.String()}
		case spec.Before != "" && !copied.StepExists:
			return Created{}, &fferr.NotFoundError{Entity: "step", ID: spec.Before}
		}
		return fork, e.register(ctx, tx, registration{lanes: []string{c.lane}, period: c.retentionMs})
	})
}

// forkOf returns the creation of a fork, with the stored policy unchanged.
func (e *Engine) forkOf(origin, fork id.ExecutionID, row *db.GetOriginRow) (creation, error) {
	if row.FlowID != nil {
		return creation{}, core.Invalid("execution", "is a member of a flow, and a fork would not have the results of its upstreams")
	}
	tags := make(map[string]string)
	if len(row.Tags) > 0 {
		if err := json.Unmarshal(row.Tags, &tags); err != nil {
			return creation{}, core.Corrupt("ff_exec_core.raw_fields.tags", err)
		}
	}
	delete(tags, CallerTag)
	delete(tags, SequenceTag)
	tags[ForkedFromTag] = origin.String()
	spec := ExecutionSpec{
		ID: fork, Namespace: id.Namespace(row.Namespace), Lane: id.LaneID(row.LaneID), Kind: row.Kind, Payload: row.Payload,
		PayloadEncoding: row.PayloadEncoding, Priority: int(row.Priority), Creator: row.Creator, Tags: tags, setsOwnTags: true,
	}
	if err := spec.gatesOf(row); err != nil {
		return creation{}, err
	}
	c, err := e.prepare(spec)
	if err != nil || row.Policy == "" {
		return c, err
	}
	var stored document.Execution
	if err := json.Unmarshal([]byte(row.Policy), &stored); err != nil {
		return c, core.Corrupt("ff_exec_core.policy", err)
	}
	c.setDocument(row.Policy, &stored)
	c.capabilities = row.RequiredCapabilities
	return c, nil
}

// gatesOf sets the budgets, the quota policy and the limits of an execution. If the units exceed a limit by now, the
// execution takes all units.
func (s *ExecutionSpec) gatesOf(row *db.GetOriginRow) error {
	s.Budgets, s.QuotaPolicy = core.BudgetsOf(row.FfxBudgetIDs), core.QuotaOf(row.FfxQuotaPolicyID)
	if row.Limits == "" {
		return nil
	}
	var stored []rawLimit
	if err := json.Unmarshal([]byte(row.Limits), &stored); err != nil {
		return core.Corrupt("ff_exec_core.raw_fields.ffx_limits", err)
	}
	s.Limits = keysOf(stored)
	return nil
}
