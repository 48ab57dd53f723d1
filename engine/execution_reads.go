package engine

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExecutionInput is an execution's input for a worker.
type ExecutionInput struct {
	Kind    string
	Payload []byte // empty if none was given, never nil
	Tags    map[string]string
}

// ExecutionState returns the public state of an execution.
//
// Errors: as [Engine.DescribeExecution], except for an unknown phase or eligibility; the stored public state is returned
// then.
func (e *Engine) ExecutionState(ctx context.Context, x id.ExecutionID) (state.PublicState, error) {
	const op = "read execution state"
	row, err := e.getExecution(ctx, x)
	if err != nil {
		return "", core.Wrap(op, err)
	}
	public, err := normalise.PublicState(row.PublicState)
	if err != nil {
		return "", core.Wrap(op, core.Corrupt("ff_exec_core.public_state", err))
	}
	snapshot, err := snapshotOf(x, row)
	if err != nil {
		return public, nil
	}
	return snapshot.State.Public, nil
}

func (e *Engine) getExecution(ctx context.Context, x id.ExecutionID) (*db.GetExecutionRow, error) {
	if err := e.c.CheckExecution(x); err != nil {
		return nil, err
	}
	row, err := e.c.Q.GetExecution(ctx, e.c.Reader(), db.GetExecutionParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
	return &row, core.OrNotFound(err, x)
}

// ExecutionInput returns the kind, payload and tags of an execution.
//
// Errors: [fferr.ErrNotFound].
func (e *Engine) ExecutionInput(ctx context.Context, x id.ExecutionID) (ExecutionInput, error) {
	const op = "read execution input"
	if err := e.c.CheckExecution(x); err != nil {
		return ExecutionInput{}, core.Wrap(op, err)
	}
	row, err := e.c.Q.GetExecutionInput(ctx, e.c.Reader(), db.GetExecutionInputParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if err != nil {
		return ExecutionInput{}, core.Wrap(op, core.OrNotFound(err, x))
	}
	payload := row.Payload
	if payload == nil {
		payload = []byte{}
	}
	return ExecutionInput{Kind: row.ExecutionKind, Payload: payload, Tags: core.DecodeTags(row.Tags)}, nil
}

// ExecutionResult returns the result of a successful execution, nil for none.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrNotEnded], ask again later; [*fferr.EndedError] after an end without success;
// [fferr.ErrCorruption] naming the unreadable column.
func (e *Engine) ExecutionResult(ctx context.Context, x id.ExecutionID) ([]byte, error) {
	const op = "read execution result"
	result, err := e.executionResult(ctx, x)
	return result, core.Wrap(op, err)
}

func (e *Engine) executionResult(ctx context.Context, x id.ExecutionID) ([]byte, error) {
	if err := e.c.CheckExecution(x); err != nil {
		return nil, err
	}
	row, err := e.c.Q.GetExecutionResult(ctx, e.c.Reader(), db.GetExecutionResultParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if err != nil {
		return nil, core.OrNotFound(err, x)
	}
	return core.ResultOf(x, &row)
}

// ExecutionTag returns the value of a tag. set is false if the execution has no such tag.
//
// Errors: [fferr.ErrInvalidInput] if the key has no namespace ("app.tenant"); [fferr.ErrNotFound].
func (e *Engine) ExecutionTag(ctx context.Context, x id.ExecutionID, key string) (value string, set bool, err error) {
	const op = "read execution tag"
	if err := e.checkTag(x, key); err != nil {
		return "", false, core.Wrap(op, err)
	}
	row, err := e.c.Q.GetExecutionTag(ctx, e.c.Reader(), db.GetExecutionTagParams{
		TagKey: key, PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	return row.TagValue, row.IsSet, core.Wrap(op, core.OrNotFound(err, x))
}

// SetExecutionTag sets a tag of an execution in any state. Other tags are kept, even if set concurrently. Safe to repeat;
// locks the execution.
//
// Errors: [fferr.ErrInvalidInput] if the key has no namespace ("app.tenant"), or the value is above 64 KiB (1024 bytes for
// "cairn.instance_id"); [fferr.ErrNotFound].
func (e *Engine) SetExecutionTag(ctx context.Context, x id.ExecutionID, key, value string) error {
	const op = "set execution tag"
	if err := e.checkTag(x, key); err != nil {
		return core.Wrap(op, err)
	}
	if err := (&ExecutionSpec{Tags: map[string]string{key: value}}).checkOwnTags(); err != nil {
		return core.Wrap(op, err)
	}
	if err := checkTagValue("tag", key, value); err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return e.c.Q.SetExecutionTag(ctx, conn, db.SetExecutionTagParams{
			TagKey: key, TagValue: value, NowMs: e.c.NowMs(), PartitionKey: x.Partition(), ExecutionID: x.UUID(),
		})
	})
	if err == nil && n == 0 {
		err = core.Wrap(op, &fferr.NotFoundError{Entity: "execution", ID: x.String()})
	}
	return err
}

func (e *Engine) checkTag(x id.ExecutionID, key string) error {
	if err := id.CheckTagKey(key); err != nil {
		return core.InvalidBecause("tag key", err)
	}
	return e.c.CheckExecution(x)
}

// ProgressReport is the last reported progress of an execution. The zero value means no report.
type ProgressReport struct {
	Percent *int // 0 to 100; nil if none was reported
	Message string
	At      time.Time // time of the last report
}

// ExecutionProgress returns the progress last reported by a handler of an execution, in any attempt, also after the end.
// An unreadable percentage or time of another program counts as none; a percentage above 100 is returned as 100.
//
// Errors: [fferr.ErrNotFound].
func (e *Engine) ExecutionProgress(ctx context.Context, x id.ExecutionID) (ProgressReport, error) {
	const op = "read execution progress"
	if err := e.c.CheckExecution(x); err != nil {
		return ProgressReport{}, core.Wrap(op, err)
	}
	row, err := e.c.Q.GetExecutionProgress(ctx, e.c.Reader(), db.GetExecutionProgressParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if err != nil {
		return ProgressReport{}, core.Wrap(op, core.OrNotFound(err, x))
	}
	report := ProgressReport{Message: row.Message}
	if percent := core.Number([]byte(row.Percent)); percent >= 0 {
		report.Percent = new(int(min(percent, 100)))
	}
	if at := core.Number([]byte(row.UpdatedAt)); at > 0 {
		report.At = time.UnixMilli(at)
	}
	return report, nil
}
