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

// ForkedFromTag is the tag of a fork with the id of the execution that it was forked from.
const ForkedFromTag = "ffx.forked_from"

// ForkSpec describes a fork. The zero value copies all finished steps.
type ForkSpec struct {
	// Before is the name of the first step that is not copied: the fork runs it and those that began after it.
	Before string

	// ID is the id of the fork. With an ID of its own a call may be repeated after an unknown outcome. Default: a new one.
	ID id.ExecutionID
}

// Fork creates an execution that starts after the finished steps of another one, the origin. The state of the origin does not
// matter, and does not change. The fork has the origin's kind, lane, namespace, payload, policy, creator, priority, budgets,
// quota policy, limits and tags, and the tag [ForkedFromTag]. The fork takes places of its own, and waits while a limit is full.
// Its steps are the steps before [ForkSpec.Before] with results, ends of waits with signals, and results of calls. A call
// without a stored result is not copied, so the fork calls anew.
//
// Not copied are keys, the deadline unless the policy has one, signals that nothing has used, and a wait that is not over.
// worker.IdempotencyKey depends on the execution, so steps that run again have other keys in a fork: they charge again.
//
// Errors: [fferr.ErrNotFound] for the execution or the step; [fferr.ErrInvalidInput], also for a member of a flow, whose
// upstream results a fork would not have. Transaction: one; locks nothing of the origin. Emits no events. With an ID that exists
// Fork changes nothing, and returns a duplicate.
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

// forkOf returns the creation of a fork. The stored policy is kept as it is.
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

// core.GatesOf sets the budgets, the quota policy and the limits of an execution. Its units may be more than its limit has by now:
// then it takes all of them.
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
