package engine

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowSummary is a flow as listings have it.
type FlowSummary struct {
	ID        id.FlowID
	Kind      string
	Namespace id.Namespace
	Tags      map[string]string

	// State is the flow's own where that takes no more members; else what its members came to when they were last summed
	// up, at SummedAt; else its own. [Engine.FlowProgress] says how they stand now.
	State    state.FlowState
	Status   state.FlowStatus // of State
	SummedAt time.Time        // zero where State is the flow's own

	Nodes       int
	Edges       int
	CreatedAt   time.Time
	CancelledAt time.Time // zero unless it was cancelled

	// Err is a [*CorruptionError] where what is stored cannot be read. Only the id and CreatedAt are given then; the other
	// flows are listed.
	Err error
}

// FlowFilter says which flows are listed, and in which order. The zero value lists all. What fits more than one field has
// to fit them all.
//
// There is no index on most of this: a page looks at up to [MaxExamined] flows in its order, and may be short, or empty,
// with a cursor that goes on behind them. CreatedFrom and CreatedBefore with NewestFirst or OldestFirst look at ids of
// that time only, and of ten minutes before and after; what ids say that callers made in another way, ByID alone does not
// mind.
type FlowFilter struct {
	Partition *int // those of one partition; nil: of all

	State         state.FlowState // as [FlowSummary.State] has it; a flow that cannot be read fits none
	Kind          string
	Namespace     id.Namespace
	Tag           TagFilter
	CreatedFrom   time.Time // inclusive
	CreatedBefore time.Time // exclusive

	Order ListOrder // [ByID], [NewestFirst] or [OldestFirst]
}

// ListFlows returns the flows that fit a filter, in its order, after a cursor: [Page.Next] of the page before, "" for the
// first page. A limit of 0, or above [MaxPage], is taken as that. Only an empty Next says that there is no more.
//
// Errors: [ErrInvalidInput] for a filter that nothing can fit, a negative limit, or a cursor of another listing or filter.
// Two statements or more; locks nothing.
func (e *Engine) ListFlows(ctx context.Context, filter FlowFilter, after string, limit int) (Page[FlowSummary], error) {
	const op = "list flows"
	page, err := e.listFlows(ctx, filter, after, limit)
	return page, wrap(op, err)
}

// Flows goes through the flows as [Engine.ListFlows] lists them, a page at a time, to the end: with a filter that few fit
// it looks at all of them.
func (e *Engine) Flows(ctx context.Context, filter FlowFilter) iter.Seq2[FlowSummary, error] {
	return pages(func(after string) (Page[FlowSummary], error) {
		return e.ListFlows(ctx, filter, after, MaxPage)
	})
}

func (e *Engine) listFlows(ctx context.Context, filter FlowFilter, after string, limit int) (page Page[FlowSummary], err error) {
	if limit, err = pageSize(limit); err != nil {
		return page, err
	}
	params, err := e.flowQuery(&filter)
	if err != nil {
		return page, err
	}
	list := filter.list()
	last, err := readListKey(list, after)
	if err != nil {
		return page, err
	}
	all := FlowFilter{Partition: filter.Partition, Order: filter.Order}
	chunk := limit + 1
	if filter != all {
		chunk = max(chunk, 1000)
	}
	return examine(ctx, list, last, limit, chunk, e.flowKeys(&filter, last), func(keys []listKey) (map[id.ExecutionID]FlowSummary, error) {
		return e.fittingFlows(ctx, &filter, params, keys)
	})
}

// list names the listing in its cursors.
func (f *FlowFilter) list() string {
	partition := -1
	if f.Partition != nil {
		partition = *f.Partition
	}
	return fmt.Sprintf("flows %d %q %q %q %q %q %d %d %d", partition, f.State, f.Kind, f.Namespace, f.Tag.Key, f.Tag.Value,
		f.CreatedFrom.UnixMilli(), f.CreatedBefore.UnixMilli(), f.Order)
}

// keys is the filter as the listings of ids know it.
func (f *FlowFilter) keys() *ExecutionFilter {
	return &ExecutionFilter{Partition: f.Partition, CreatedFrom: f.CreatedFrom, CreatedBefore: f.CreatedBefore, Order: f.Order}
}

// flowQuery checks a filter.
func (e *Engine) flowQuery(f *FlowFilter) (params db.ListNamedFlowsParams, err error) {
	if err := e.checkPartition(f.Partition); err != nil {
		return params, err
	}
	if f.Namespace != "" {
		if err := f.Namespace.Validate(); err != nil {
			return params, invalidBecause("namespace", err)
		}
	}
	if f.Tag.Key != "" {
		if err := id.CheckTagKey(f.Tag.Key); err != nil {
			return params, invalidBecause("tag key", err)
		}
	}
	if err := cmp.Or(checkText("kind", f.Kind, maxFlowKind), checkText("tag value", f.Tag.Value, maxTagValue)); err != nil {
		return params, err
	}
	from, before, err := createdBetween(f.CreatedFrom, f.CreatedBefore)
	switch {
	case err != nil:
		return params, err
	case f.Tag.Key == "" && f.Tag.Value != "":
		return params, invalid("tag key", "is empty, and a value is given")
	case f.State != "" && normalise.FlowStatus(string(f.State)) == state.FlowStatusUnknown:
		return params, invalid("state", "is unknown")
	case f.Order != ByID && f.Order != NewestFirst && f.Order != OldestFirst:
		return params, invalid("order", "is none of flows")
	}
	params.FlowKind, params.Namespace, params.TagKey, params.TagValue = f.Kind, string(f.Namespace), f.Tag.Key, f.Tag.Value
	params.CreatedFromMs, params.CreatedBeforeMs = from, before
	return params, nil
}

// flowKeys gives the flows that a listing looks at, in its order.
func (e *Engine) flowKeys(f *FlowFilter, after *listKey) keySource {
	if f.Order != ByID {
		timed := e.newTimedKeys(f.keys(), after)
		timed.list = e.timedFlowKeys(f.Order)
		return timed.next
	}
	keys := f.keys()
	return func(ctx context.Context, n int) ([]listKey, error) {
		from, to := e.span(keys, after)
		rows, err := e.q.ListFlowKeys(ctx, e.reader(), db.ListFlowKeysParams{
			AfterPartitionKey: from.Partition(), AfterFlowID: pgUUID(from.UUID()), LastPartitionKey: to, PageSize: int32(n),
		})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		found := make([]listKey, len(rows))
		for i, row := range rows {
			found[i].id = flowKey(row.PartitionKey, row.FlowID)
		}
		after = &found[len(found)-1]
		return found, nil
	}
}

func (e *Engine) timedFlowKeys(order ListOrder) timedSource {
	return func(ctx context.Context, partitions []int16, from []pgtype.UUID, to pgtype.UUID, take int32) ([]listKey, error) {
		params := db.ListNewestFlowKeysParams{PartitionKeys: partitions, FromIDs: from, ToID: to, PageSize: take}
		var keys []listKey
		if order == NewestFirst {
			rows, err := e.q.ListNewestFlowKeys(ctx, e.reader(), params)
			for _, row := range rows {
				keys = append(keys, listKey{id: flowKey(row.PartitionKey, row.FlowID)})
			}
			return keys, err
		}
		rows, err := e.q.ListOldestFlowKeys(ctx, e.reader(), db.ListOldestFlowKeysParams(params))
		for _, row := range rows {
			keys = append(keys, listKey{id: flowKey(row.PartitionKey, row.FlowID)})
		}
		return keys, err
	}
}

// flowKey is a flow's place in a listing: listings go by partition and uuid, whatever the uuid names.
func flowKey(partition int16, flow id.FlowID) id.ExecutionID {
	return id.ExecutionIDFromRow(partition, id.ExecutionUUID(flow))
}

func (e *Engine) fittingFlows(
	ctx context.Context, filter *FlowFilter, params db.ListNamedFlowsParams, keys []listKey,
) (map[id.ExecutionID]FlowSummary, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	for _, key := range keys {
		params.PartitionKeys = append(params.PartitionKeys, key.id.Partition())
		params.FlowIDs = append(params.FlowIDs, pgUUID(key.id.UUID()))
	}
	rows, err := e.q.ListNamedFlows(ctx, e.reader(), params)
	if err != nil {
		return nil, err
	}
	fitting := make(map[id.ExecutionID]FlowSummary, len(rows))
	for i := range rows {
		summary := flowSummaryOf(&rows[i])
		if filter.State == "" || summary.Err == nil && summary.State == filter.State {
			fitting[flowKey(rows[i].PartitionKey, rows[i].FlowID)] = summary
		}
	}
	return fitting, nil
}

func flowSummaryOf(row *db.ListNamedFlowsRow) FlowSummary {
	s, err := flowSnapshotOf(row.FlowID, &db.GetFlowRow{
		GraphRevision: row.GraphRevision, PublicFlowState: row.PublicFlowState, CreatedAtMs: row.CreatedAtMs,
		TerminalAtMs: row.TerminalAtMs, RawFields: row.RawFields,
	})
	if err != nil {
		return FlowSummary{ID: row.FlowID, CreatedAt: time.UnixMilli(row.CreatedAtMs), Err: err}
	}
	summary := FlowSummary{
		ID: s.ID, Kind: s.Kind, Namespace: s.Namespace, Tags: s.Tags, State: s.State,
		Nodes: s.Nodes, Edges: s.Edges, CreatedAt: s.CreatedAt, CancelledAt: s.CancelledAt,
	}
	if row.SummaryState != "" && !s.State.Terminal() {
		summary.State, summary.SummedAt = state.FlowState(row.SummaryState), time.UnixMilli(row.SummaryAtMs)
	}
	summary.Status = normalise.FlowStatus(string(summary.State))
	return summary
}
