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
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// FlowSummary is a flow in a listing.
type FlowSummary struct {
	ID        id.FlowID
	Kind      string
	Namespace id.Namespace
	Tags      map[string]string

	// State is the flow's own state once it takes no more members. Before, it is the summary of the members' states at
	// SummedAt, if there is one. [Engine.FlowProgress] has the current states.
	State    state.FlowState
	Status   state.FlowStatus // of State
	SummedAt time.Time        // zero if State is the flow's own

	Nodes       int
	Edges       int
	CreatedAt   time.Time
	CancelledAt time.Time // zero unless cancelled

	// Err is a [*fferr.CorruptionError] for an unreadable flow, with only ID and CreatedAt set.
	Err error
}

// FlowFilter selects flows matching all fields, and their order. The zero value lists all.
//
// Most fields have no index: a page examines up to [MaxExamined] flows, and may be short or empty. CreatedFrom and
// CreatedBefore, with NewestFirst or OldestFirst, examine only ids made within that time, or ten minutes before or
// after it. Flows with ids that don't contain their time are then only found with ByID.
type FlowFilter struct {
	Partition *int // nil for all

	State         state.FlowState // as [FlowSummary.State]; an unreadable flow matches none
	Kind          string
	Namespace     id.Namespace
	Tag           TagFilter
	CreatedFrom   time.Time // inclusive
	CreatedBefore time.Time // exclusive

	Order    ListOrder // [ByID], [NewestFirst] or [OldestFirst]
	Examined int       // the most flows examined for a page; default and limit [MaxExamined]
}

// ListFlows returns a page of the flows matching a filter, in the filter's order: see [Page].
//
// Errors: [fferr.ErrInvalidInput], also for a filter that can't match.
func (e *Engine) ListFlows(ctx context.Context, filter FlowFilter, after string, limit int) (Page[FlowSummary], error) {
	const op = "list flows"
	page, err := e.listFlows(ctx, filter, after, limit)
	return page, core.Wrap(op, err)
}

// Flows iterates over the flows of [Engine.ListFlows]. With few matches, it examines all flows.
func (e *Engine) Flows(ctx context.Context, filter FlowFilter) iter.Seq2[FlowSummary, error] {
	return core.Pages(func(after string) (Page[FlowSummary], error) {
		return e.ListFlows(ctx, filter, after, MaxPage)
	})
}

func (e *Engine) listFlows(ctx context.Context, filter FlowFilter, after string, limit int) (page Page[FlowSummary], err error) {
	if limit, err = core.PageSize(limit); err != nil {
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
	all := FlowFilter{Partition: filter.Partition, Order: filter.Order, Examined: filter.Examined}
	chunk, factor := chunksOf(limit, filter.Examined, filter != all)
	most := cmp.Or(filter.Examined, MaxExamined)
	next := e.flowKeys(&filter, last)
	if factor == 1 && filter != all {
		if next, err = readAhead(ctx, next, most); err != nil {
			return page, err
		}
	}
	return examine(ctx, list, last, limit, chunk, factor, most, next, func(keys []listKey) (map[id.ExecutionID]FlowSummary, error) {
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

// keys returns the filter in the form used by listings of ids.
func (f *FlowFilter) keys() *ExecutionFilter {
	return &ExecutionFilter{Partition: f.Partition, CreatedFrom: f.CreatedFrom, CreatedBefore: f.CreatedBefore, Order: f.Order}
}

// flowQuery checks a filter.
func (e *Engine) flowQuery(f *FlowFilter) (params db.ListNamedFlowsParams, err error) {
	if err := cmp.Or(e.checkPartition(f.Partition), checkExamined(f.Examined)); err != nil {
		return params, err
	}
	if f.Namespace != "" {
		if err := f.Namespace.Validate(); err != nil {
			return params, core.InvalidBecause("namespace", err)
		}
	}
	if f.Tag.Key != "" {
		if err := id.CheckTagKey(f.Tag.Key); err != nil {
			return params, core.InvalidBecause("tag key", err)
		}
	}
	if err := cmp.Or(core.CheckText("kind", f.Kind, maxFlowKind), core.CheckText("tag value", f.Tag.Value, core.MaxTagValue)); err != nil {
		return params, err
	}
	from, before, err := createdBetween(f.CreatedFrom, f.CreatedBefore)
	switch {
	case err != nil:
		return params, err
	case f.Tag.Key == "" && f.Tag.Value != "":
		return params, core.Invalid("tag key", "is empty, but a value is given")
	case f.State != "" && normalise.FlowStatus(string(f.State)) == state.FlowStatusUnknown:
		return params, core.Invalid("state", "is unknown")
	case f.Order != ByID && f.Order != NewestFirst && f.Order != OldestFirst:
		return params, core.Invalid("order", "is not one for flows")
	}
	params.FlowKind, params.Namespace, params.TagKey, params.TagValue = f.Kind, string(f.Namespace), f.Tag.Key, f.Tag.Value
	params.CreatedFromMs, params.CreatedBeforeMs = from, before
	return params, nil
}

// flowKeys returns the source of the flows to examine for a listing, in its order.
func (e *Engine) flowKeys(f *FlowFilter, after *listKey) keySource {
	if f.Order != ByID {
		timed := e.newTimedKeys(f.keys(), after)
		timed.list = e.timedFlowKeys(f.Order)
		return timed.next
	}
	keys := f.keys()
	return func(ctx context.Context, n int) ([]listKey, error) {
		from, to := e.span(keys, after)
		rows, err := e.c.Q.ListFlowKeys(ctx, e.c.Reader(), db.ListFlowKeysParams{
			AfterPartitionKey: from.Partition(), AfterFlowID: core.PgUUID(from.UUID()), LastPartitionKey: to, PageSize: int32(n),
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
			rows, err := e.c.Q.ListNewestFlowKeys(ctx, e.c.Reader(), params)
			for _, row := range rows {
				keys = append(keys, listKey{id: flowKey(row.PartitionKey, row.FlowID)})
			}
			return keys, err
		}
		rows, err := e.c.Q.ListOldestFlowKeys(ctx, e.c.Reader(), db.ListOldestFlowKeysParams(params))
		for _, row := range rows {
			keys = append(keys, listKey{id: flowKey(row.PartitionKey, row.FlowID)})
		}
		return keys, err
	}
}

// flowKey returns a flow's position in a listing. Listings sort by partition and uuid for any kind of id.
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
		params.FlowIDs = append(params.FlowIDs, core.PgUUID(key.id.UUID()))
	}
	rows, err := e.c.Q.ListNamedFlows(ctx, e.c.Reader(), params)
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
