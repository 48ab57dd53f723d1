package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxCalls is the largest number of executions in one call.
const MaxCalls = 1000

// StepCalled is the outcome of a call whose executions exist, but whose results are not stored yet.
const StepCalled StepOutcome = "called"

// CallerTag is the tag of a called execution with the caller's id.
const CallerTag = "ffx.caller"

// CallSpec describes a call: a step whose work is done by other executions.
type CallSpec struct {
	Lease Lease
	Name  string   // of the step: unique within the execution; 1 to [MaxStepName] bytes
	Seq   int      // as [StepRecord.Seq]
	Form  StepForm // [FormCall], the default, or [FormCallAll]

	// Executions are 1 to [MaxCalls] executions to create, outside flows, without ids and keys. Default namespace: the
	// caller's. Call adds the tag [CallerTag].
	Executions []ExecutionSpec
}

// Call creates executions for the holder of a lease, and stores a step of the outcome [StepCalled] with their ids, in one
// transaction. To wait for the executions, suspend with [SuspendSpec.Call]; worker.Call does both. Repeating is safe: if
// the step exists, Call creates nothing and returns the ids in the step, or none if the step is no call.
//
// Errors: [*fferr.LeaseError] with [fferr.ErrStaleLease], [fferr.ErrLeaseExpired], [fferr.ErrLeaseRevoked] or
// [fferr.ErrNotActive]: nothing was written. [fferr.ErrNotFound] if the execution or attempt no longer exists;
// [fferr.ErrInvalidInput]; [fferr.ErrContention] after waiting three times two seconds for the lock of either.
func (e *Engine) Call(ctx context.Context, spec CallSpec) ([]id.ExecutionID, error) {
	const op = "call executions"
	var err error
	if spec.Executions, err = e.delayAll(ctx, e.adaptAll(ctx, spec.Executions)); err != nil {
		return nil, core.Wrap(op, err)
	}
	if err := spec.check(); err != nil {
		return nil, core.Wrap(op, err)
	}
	return core.UnderLease(ctx, e.c, op, spec.Lease.Fence, func(ctx context.Context, tx *core.Txn, x *core.HeldLease) ([]id.ExecutionID, error) {
		namespace, err := e.c.Q.GetCaller(ctx, tx, db.GetCallerParams{PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID()})
		if err != nil {
			return nil, core.OrNotFound(err, x.ID)
		}
		key := db.GetCalledParams{PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), Name: spec.Name}
		stored, err := e.c.Q.GetCalled(ctx, tx, key)
		switch {
		case err == nil:
			return calledBy(stored.CalledPartitionKeys, stored.CalledExecutionIDs), nil
		case !core.IsNoRow(err):
			return nil, err
		}
		return e.createCalled(ctx, tx, x, &spec, id.Namespace(namespace))
	})
}

// createCalled creates the executions of a call, and stores the call. The caller's rows are locked.
func (e *Engine) createCalled(ctx context.Context, tx *core.Txn, x *core.HeldLease, call *CallSpec, namespace id.Namespace) ([]id.ExecutionID, error) {
	specs := make([]ExecutionSpec, len(call.Executions))
	for i, spec := range call.Executions {
		if err := spec.checkOwnTags(); err != nil {
			return nil, err
		}
		if spec.Namespace == "" {
			spec.Namespace = namespace
		}
		if spec.Tags = maps.Clone(spec.Tags); spec.Tags == nil {
			spec.Tags = make(map[string]string, 1)
		}
		spec.Tags[CallerTag], spec.setsOwnTags = x.ID.String(), true
		specs[i] = spec
	}
	created, err := e.WithTx(tx.Nested()).createExecutions(ctx, specs)
	if err != nil {
		return nil, err
	}
	called := make([]id.ExecutionID, len(created))
	var arrays core.ExecutionArrays
	for i, outcome := range created {
		if outcome.Err != nil {
			return nil, outcome.Err
		}
		called[i] = outcome.Value.ID
		arrays.Add(called[i].Partition(), called[i].UUID())
	}
	if _, err := e.c.Q.SetCaller(ctx, tx, db.SetCallerParams{
		CallerPartitionKey: x.ID.Partition(), CallerExecutionID: core.PgUUID(x.ID.UUID()), Step: call.Name,
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
	}); err != nil {
		return nil, err
	}
	_, err = e.c.Q.InsertCall(ctx, tx, db.InsertCallParams{
		PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), Name: call.Name, Seq: int32(call.Seq),
		AttemptIndex: int32(call.Lease.Attempt), Form: string(cmp.Or(call.Form, FormCall)), NowMs: x.Facts.NowMs,
		CalledPartitionKeys: arrays.Partitions, CalledExecutionIDs: arrays.Executions,
	})
	return called, err
}

func (s *CallSpec) check() error {
	if err := checkStepPlace(s.Name, s.Seq); err != nil {
		return err
	}
	switch {
	case s.Form != "" && s.Form != FormCall && s.Form != FormCallAll:
		return core.Invalid("form", fmt.Sprintf("is %q, must be %q or %q", s.Form, FormCall, FormCallAll))
	case len(s.Executions) == 0:
		return core.Invalid("executions", "are missing")
	case len(s.Executions) > MaxCalls:
		return core.Invalid("executions", fmt.Sprintf("are %d, a step calls at most %d", len(s.Executions), MaxCalls))
	}
	for _, spec := range s.Executions {
		if !spec.Sequence.IsZero() {
			return core.Invalid("sequence", "of a called execution: its caller would wait for all those before it")
		}
		if !spec.ID.IsZero() || spec.Flow != nil || spec.IdempotencyKey != "" || !spec.BusinessKey.IsZero() || spec.Unique != nil {
			return core.Invalid("executions", "have an id, a flow or a key, or are unique, but a call creates new executions outside flows")
		}
	}
	return nil
}

// calledBy returns the ids stored in a step.
func calledBy(partitions []int16, executions []pgtype.UUID) []id.ExecutionID {
	var called []id.ExecutionID
	for i, x := range executions {
		called = append(called, id.ExecutionIDFromRow(partitions[i], id.ExecutionUUID(x.Bytes)))
	}
	return called
}

// CalledResult is the result of a called execution, or the reason why there is none.
type CalledResult struct {
	Execution id.ExecutionID
	Result    []byte

	// Err is nil after success, an [*fferr.EndedError] after another end, [fferr.ErrNotEnded] before the end, and
	// [fferr.ErrPruned] after deletion.
	Err error
}

// CalledResults reads the results of called executions, in the order given.
//
// Errors: [fferr.ErrCorruption] naming the unreadable column.
func (e *Engine) CalledResults(ctx context.Context, called []id.ExecutionID) ([]CalledResult, error) {
	const op = "read results of a call"
	results := make([]CalledResult, len(called))
	var params db.ListEndedParams
	for i, x := range called {
		if err := e.c.CheckExecution(x); err != nil {
			return nil, core.Wrap(op, err)
		}
		results[i] = CalledResult{Execution: x, Err: fmt.Errorf("execution %s: %w", x, fferr.ErrNotEnded)}
		params.PartitionKeys = append(params.PartitionKeys, x.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
		params.WithResults = append(params.WithResults, true)
		params.Ords = append(params.Ords, int32(i))
	}
	rows, err := e.c.Q.ListEnded(ctx, e.c.Reader(), params)
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	for i := range rows {
		r := &results[rows[i].Ord]
		r.Result, r.Err = endOf(r.Execution, &rows[i])
		ended, _ := errors.AsType[*fferr.EndedError](r.Err)
		switch {
		case r.Err == nil, ended != nil && ended.Outcome != state.OutcomeSuccess, errors.Is(r.Err, fferr.ErrNotEnded):
		case errors.Is(r.Err, fferr.ErrNotFound):
			r.Err = fmt.Errorf("execution %s: %w", r.Execution, fferr.ErrPruned)
		default:
			return nil, core.Wrap(op, r.Err)
		}
	}
	return results, nil
}
