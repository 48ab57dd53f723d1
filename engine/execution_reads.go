package engine

import (
	"context"
	"iter"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// MaxPage is the largest page of a listing; a larger limit is taken as this one.
const MaxPage = 1000

// ExecutionInput is what a worker needs to run an execution.
type ExecutionInput struct {
	Kind    string
	Payload []byte // empty when none was given, never nil
	Tags    map[string]string
}

// ExecutionState returns the public state of an execution, "" when there is none of that id.
//
// Errors as [Engine.DescribeExecution], but a phase or eligibility that is not known is no error: the
// stored public state is the answer then.
func (e *Engine) ExecutionState(ctx context.Context, x id.ExecutionID) (state.PublicState, error) {
	const op = "read execution state"
	row, found, err := e.getExecution(ctx, op, x)
	if err != nil || !found {
		return "", err
	}
	public, err := normalise.PublicState(row.PublicState)
	if err != nil {
		return "", wrap(op, corrupt("ff_exec_core.public_state", err))
	}
	snapshot, err := snapshotOf(x, row)
	if err != nil {
		return public, nil
	}
	return snapshot.State.Public, nil
}

// AttemptIndex returns the index of the attempt that is running, or else of the one that would run next.
//
// Errors: [ErrNotFound].
func (e *Engine) AttemptIndex(ctx context.Context, x id.ExecutionID) (int32, error) {
	const op = "read attempt index"
	row, found, err := e.getExecution(ctx, op, x)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, wrap(op, &NotFoundError{Entity: "execution", ID: x.String()})
	case row.LifecyclePhase == string(state.Active) && row.CurrentIndex >= 0:
		return row.CurrentIndex, nil
	}
	return max(row.Pointer, 0), nil
}

func (e *Engine) getExecution(ctx context.Context, op string, x id.ExecutionID) (*db.GetExecutionRow, bool, error) {
	if err := e.checkExecution(x); err != nil {
		return nil, false, wrap(op, err)
	}
	row, err := e.q.GetExecution(ctx, e.reader(), db.GetExecutionParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()})
	if isNoRow(err) {
		return nil, false, nil
	}
	return &row, err == nil, wrap(op, err)
}

// ExecutionInput returns what an execution was created with.
//
// Errors: [ErrNotFound].
func (e *Engine) ExecutionInput(ctx context.Context, x id.ExecutionID) (ExecutionInput, error) {
	const op = "read execution input"
	if err := e.checkExecution(x); err != nil {
		return ExecutionInput{}, wrap(op, err)
	}
	row, err := e.q.GetExecutionInput(ctx, e.reader(), db.GetExecutionInputParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if isNoRow(err) {
		err = &NotFoundError{Entity: "execution", ID: x.String()}
	}
	if err != nil {
		return ExecutionInput{}, wrap(op, err)
	}
	payload := row.Payload
	if payload == nil {
		payload = []byte{}
	}
	return ExecutionInput{Kind: row.ExecutionKind, Payload: payload, Tags: decodeTags(row.Tags)}, nil
}

// ExecutionResult returns the result of an execution, nil when it has none, is not there, or has not
// succeeded.
func (e *Engine) ExecutionResult(ctx context.Context, x id.ExecutionID) ([]byte, error) {
	const op = "read execution result"
	if err := e.checkExecution(x); err != nil {
		return nil, wrap(op, err)
	}
	result, err := e.q.GetExecutionResult(ctx, e.reader(), db.GetExecutionResultParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if isNoRow(err) {
		return nil, nil
	}
	return result, wrap(op, err)
}

// ExecutionFlow returns the flow that an execution is a member of, nil when it is in none or not there.
func (e *Engine) ExecutionFlow(ctx context.Context, x id.ExecutionID) (*id.FlowID, error) {
	owner, err := e.getOwner(ctx, "read execution flow", x)
	return owner.FlowID, err
}

// ExecutionNamespace returns the namespace of an execution, "" when it is not there.
func (e *Engine) ExecutionNamespace(ctx context.Context, x id.ExecutionID) (id.Namespace, error) {
	owner, err := e.getOwner(ctx, "read execution namespace", x)
	return id.Namespace(owner.Namespace), err
}

func (e *Engine) getOwner(ctx context.Context, op string, x id.ExecutionID) (db.GetExecutionOwnerRow, error) {
	if err := e.checkExecution(x); err != nil {
		return db.GetExecutionOwnerRow{}, wrap(op, err)
	}
	row, err := e.q.GetExecutionOwner(ctx, e.reader(), db.GetExecutionOwnerParams{
		PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if isNoRow(err) {
		return db.GetExecutionOwnerRow{}, nil
	}
	return row, wrap(op, err)
}

// ExecutionTag returns the value of a tag; set is false when the execution or the tag is not there.
//
// Errors: [ErrInvalidInput] for a key without a namespace, as "app.tenant".
func (e *Engine) ExecutionTag(ctx context.Context, x id.ExecutionID, key string) (value string, set bool, err error) {
	const op = "read execution tag"
	if err := e.checkTag(x, key); err != nil {
		return "", false, wrap(op, err)
	}
	row, err := e.q.GetExecutionTag(ctx, e.reader(), db.GetExecutionTagParams{
		TagKey: key, PartitionKey: x.Partition(), ExecutionID: x.UUID(),
	})
	if isNoRow(err) {
		return "", false, nil
	}
	return row.TagValue, row.IsSet, wrap(op, err)
}

// SetExecutionTag sets a tag of an execution, in whatever state it is. Writers of other tags lose nothing.
//
// Errors: [ErrInvalidInput] for a key without a namespace, as "app.tenant", or a value above 64 KiB, for
// "cairn.instance_id" above 1024 bytes; [ErrNotFound].
// Transaction: one statement; locks the execution. Safe to repeat.
func (e *Engine) SetExecutionTag(ctx context.Context, x id.ExecutionID, key, value string) error {
	const op = "set execution tag"
	if err := e.checkTag(x, key); err != nil {
		return wrap(op, err)
	}
	if err := checkTagValue("tag", key, value); err != nil {
		return wrap(op, err)
	}
	n, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) (int64, error) {
		return e.q.SetExecutionTag(ctx, conn, db.SetExecutionTagParams{
			TagKey: key, TagValue: value, NowMs: e.nowMs(), PartitionKey: x.Partition(), ExecutionID: x.UUID(),
		})
	})
	if err == nil && n == 0 {
		err = wrap(op, &NotFoundError{Entity: "execution", ID: x.String()})
	}
	return err
}

func (e *Engine) checkTag(x id.ExecutionID, key string) error {
	if err := id.CheckTagKey(key); err != nil {
		return invalidBecause("tag key", err)
	}
	return e.checkExecution(x)
}

// Page is one page of a listing. More says whether another follows the last of its items.
type Page[T any] struct {
	Items []T
	More  bool
}

// pageOf cuts a page out of rows of which one more than limit was asked for.
func pageOf[T any](rows []T, limit int) Page[T] {
	if len(rows) > limit {
		return Page[T]{Items: rows[:limit], More: true}
	}
	return Page[T]{Items: rows}
}

// ListExecutions returns the executions of one partition by id, strictly after a cursor; the zero id
// begins at the start. A limit of 0 is an empty page; one above [MaxPage] is taken as that.
//
// Errors: [ErrInvalidInput] for a partition this database does not have, or a cursor of another one.
func (e *Engine) ListExecutions(ctx context.Context, partition int16, after id.ExecutionID, limit int) (Page[id.ExecutionID], error) {
	const op = "list executions"
	if partition < 0 || partition >= int16(e.cfg.Partitions.WithDefaults().Flow) {
		return Page[id.ExecutionID]{}, wrap(op, invalid("partition", "is not one of this database's"))
	}
	if !after.IsZero() && after.Partition() != partition {
		return Page[id.ExecutionID]{}, wrap(op, invalid("cursor", "belongs to another partition"))
	}
	from, more := successor(after.UUID(), after.IsZero())
	if limit = min(limit, MaxPage); limit <= 0 || !more {
		return Page[id.ExecutionID]{}, checkLimit(op, limit)
	}
	rows, err := e.q.ListExecutions(ctx, e.reader(), db.ListExecutionsParams{
		PartitionKey: partition, FromExecutionID: from, PageSize: int32(limit) + 1,
	})
	if err != nil {
		return Page[id.ExecutionID]{}, wrap(op, err)
	}
	ids := make([]id.ExecutionID, len(rows))
	for i, u := range rows {
		ids[i] = id.ExecutionIDFromRow(partition, u)
	}
	return pageOf(ids, limit), nil
}

func checkLimit(op string, limit int) error {
	if limit < 0 {
		return wrap(op, invalid("limit", "is negative"))
	}
	return nil
}

// successor returns the least id that follows u, or the least of all; false: none follows.
func successor(u id.ExecutionUUID, start bool) (id.ExecutionUUID, bool) {
	if start {
		return id.ExecutionUUID{}, true
	}
	for i := len(u) - 1; i >= 0; i-- {
		u[i]++
		if u[i] != 0 {
			return u, true
		}
	}
	return u, false
}

// ListLanes returns the lanes that executions were created on, in byte order, strictly after a cursor;
// "" begins at the start. A limit of 0 is an empty page; one above [MaxPage] is taken as that.
//
// Errors: [ErrCorruption] for a stored lane that is none.
func (e *Engine) ListLanes(ctx context.Context, after id.LaneID, limit int) (Page[id.LaneID], error) {
	const op = "list lanes"
	if limit = min(limit, MaxPage); limit <= 0 {
		return Page[id.LaneID]{}, checkLimit(op, limit)
	}
	rows, err := e.q.ListLanes(ctx, e.reader(), db.ListLanesParams{AfterLaneID: string(after), PageSize: int32(limit) + 1})
	if err != nil {
		return Page[id.LaneID]{}, wrap(op, err)
	}
	lanes := make([]id.LaneID, len(rows))
	for i, row := range rows {
		lanes[i] = id.LaneID(row)
		if err := lanes[i].Validate(); err != nil {
			return Page[id.LaneID]{}, wrap(op, corrupt("ff_lane_registry.lane_id", err))
		}
	}
	return pageOf(lanes, limit), nil
}

// pages walks through a listing, a page at a time; nothing is held open while the loop's body runs.
func pages[T any](list func(after *T) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var last *T
		for {
			page, err := list(last)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for i := range page.Items {
				if !yield(page.Items[i], nil) {
					return
				}
			}
			if !page.More {
				return
			}
			last = &page.Items[len(page.Items)-1]
		}
	}
}

// Executions walks through the executions of one partition by id.
func (e *Engine) Executions(ctx context.Context, partition int16) iter.Seq2[id.ExecutionID, error] {
	return pages(func(after *id.ExecutionID) (Page[id.ExecutionID], error) {
		return e.ListExecutions(ctx, partition, deref(after), MaxPage)
	})
}
