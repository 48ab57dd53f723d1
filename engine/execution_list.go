package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExecutionSummary is an execution in a listing.
type ExecutionSummary struct {
	ID         id.ExecutionID
	Flow       *id.FlowID // nil outside a flow
	Node       string     // the node's key in the flow; "" unless created as a node
	Namespace  id.Namespace
	Lane       id.LaneID
	Kind       string
	State      state.PublicState
	Outcome    state.TerminalOutcome // none before the end
	Failure    string                // of a failed or expired execution, its first 1,024 bytes
	LeasesLost int                   // expired leases
	CreatedAt  time.Time
	EndedAt    time.Time // zero before the end

	// Err is a [*fferr.CorruptionError] if a stored value can't be read; State and Outcome are empty then. Other executions
	// are still listed.
	Err error
}

// ListOrder is the order of a listing of executions.
type ListOrder int

// The orders.
const (
	// ByID lists by partition, then id. An execution that exists throughout the listing is listed once.
	ByID ListOrder = iota

	// NewestFirst and OldestFirst list by the id's bytes over all partitions. An id made by this library starts with the
	// time.
	NewestFirst
	OldestFirst

	// ClaimOrder lists the claimable executions of the filter's lane in the order of claims.
	ClaimOrder

	// LastEnded lists ended executions, the last end first. It reads the completion events, so it lists no execution whose
	// event was trimmed. An execution that ended more than once is at its last end, and may be on a later page again.
	LastEnded
)

// ExecutionFilter selects executions to list, and their order. The zero value lists all. An execution must match all
// fields.
//
// Most fields have no index: a page examines up to [MaxExamined] executions, which takes some tenths of a second, and may
// be short or empty. Faster are:
//
//   - No field, or Partition alone: a page examines only the listed executions.
//   - Worker, Instance or the state active: a page examines leases, up to 50,000, or ten times Examined.
//   - ClaimOrder: a page examines the lane's queue.
//   - LastEnded: a page examines the last ends, twice [MaxExamined], and the executions among them that ended in the
//     filter's state and namespace.
//   - CreatedFrom and CreatedBefore with NewestFirst or OldestFirst: a page examines ids made then, give or take ten
//     minutes. Executions whose id has another time, made by a caller or with [ExecutionSpec.CreatedAt], are listed only
//     by ByID.
type ExecutionFilter struct {
	Partition *int // a single partition; nil for all

	Namespace     id.Namespace
	Lane          id.LaneID
	Kind          string
	State         state.PublicState // an unreadable state matches none
	Tag           TagFilter
	CreatedFrom   time.Time // inclusive
	CreatedBefore time.Time // exclusive

	// Worker and Instance of the lease's holder.
	Worker   id.WorkerID
	Instance id.WorkerInstanceID

	Order ListOrder

	// Examined is the most executions examined for a page: default and limit [MaxExamined]. Up to 400, an execution whose
	// document is not stored apart costs some 8 buffers, and no statement reads more than some 1,000.
	Examined int
}

// TagFilter requires a tag with exactly this value. The zero value requires nothing.
type TagFilter struct{ Key, Value string }

// MaxExamined is the largest number of executions examined for a filtered page.
const MaxExamined = 10_000

// A page that examines at most leanExamined executions looks leanChunk of them up with each statement.
const (
	leanExamined = 400
	leanChunk    = 100
)

// chunksOf returns how many executions of a page to examine first, and the factor for the next times.
func chunksOf(limit, examined int, selective bool) (chunk, factor int) {
	switch {
	case examined > 0 && examined <= leanExamined && selective:
		return leanChunk, 1
	case examined > 0 && examined <= leanExamined:
		return min(limit+1, leanChunk), 1
	case selective:
		return max(limit+1, 1000), 3
	}
	return limit + 1, 3
}

func checkExamined(n int) error {
	if n < 0 || n > MaxExamined {
		return core.Invalid("examined", fmt.Sprintf("must be between 0 and %d", MaxExamined))
	}
	return nil
}

// maxLeased is the largest number of leases examined for a page.
const maxLeased = 50_000

// ListExecutions returns a [Page] of the executions that match a filter, in the filter's order. An execution created or
// changed in the meantime may appear on a later page or not at all. With a filter a page may be short or empty.
//
// Errors: [fferr.ErrInvalidInput], also for a filter that can't match.
func (e *Engine) ListExecutions(
	ctx context.Context, filter ExecutionFilter, after string, limit int,
) (Page[ExecutionSummary], error) {
	const op = "list executions"
	page, err := e.listExecutions(ctx, filter, after, limit)
	return page, core.Wrap(op, err)
}

// Executions iterates over the executions of [Engine.ListExecutions], a page at a time. With a filter it may examine all
// executions.
func (e *Engine) Executions(ctx context.Context, filter ExecutionFilter) iter.Seq2[ExecutionSummary, error] {
	return core.Pages(func(after string) (Page[ExecutionSummary], error) {
		return e.ListExecutions(ctx, filter, after, MaxPage)
	})
}

func (e *Engine) listExecutions(
	ctx context.Context, filter ExecutionFilter, after string, limit int,
) (page Page[ExecutionSummary], err error) {
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	query, err := e.queryOf(&filter)
	if err != nil {
		return page, err
	}
	list := filter.list()
	last, err := readListKey(list, after)
	if err != nil {
		return page, err
	}
	limit = min(limit, cmp.Or(filter.Examined, limit))
	if !query.selective && filter.Order == ByID {
		return e.listAll(ctx, &filter, list, last, limit)
	}
	most := cmp.Or(filter.Examined, MaxExamined)
	fitting := func(keys []listKey) (map[id.ExecutionID]ExecutionSummary, error) {
		return e.fitting(ctx, &filter, query, keys)
	}
	chunk, factor := chunksOf(limit, filter.Examined, query.selective)
	if filter.Order == LastEnded {
		keys, end, err := e.endedKeys(ctx, &filter, last, most)
		if err != nil {
			return page, err
		}
		page, err = examine(ctx, list, last, limit, chunk, factor, most, keys.next, fitting)
		if page.Next == "" {
			page.Next = listCursor(list, end)
		}
		return page, err
	}
	next, err := e.keysOf(ctx, &filter, last)
	if err == nil && factor == 1 && query.selective {
		next, err = readAhead(ctx, next, most)
	}
	if err != nil {
		return page, err
	}
	return examine(ctx, list, last, limit, chunk, factor, most, next, fitting)
}

// examine fills a page of a list after last with the matching keys of a source, from chunk keys first, then from factor
// times as many each, and from at most most altogether.
func examine[T any](
	ctx context.Context, list string, last *listKey, limit, chunk, factor, most int, next keySource,
	fitting func(keys []listKey) (map[id.ExecutionID]T, error),
) (page Page[T], err error) {
	// One item beyond the page's limit means more pages.
	for examined := 0; ; chunk *= factor {
		chunk = min(chunk, most-examined)
		keys, err := next(ctx, chunk)
		if err != nil {
			return page, err
		}
		found, err := fitting(keys)
		if err != nil {
			return page, err
		}
		for _, key := range keys {
			item, fits := found[key.id]
			if fits && len(page.Items) == limit {
				page.Next = listCursor(list, last)
				return page, nil
			}
			last = &key
			if fits {
				page.Items = append(page.Items, item)
			}
		}
		examined += len(keys)
		switch {
		case len(keys) < chunk:
			return page, nil
		case examined == most:
			page.Next = listCursor(list, last)
			return page, nil
		}
	}
}

// listAll lists without a filter, in the order of the primary key.
func (e *Engine) listAll(
	ctx context.Context, filter *ExecutionFilter, list string, last *listKey, limit int,
) (Page[ExecutionSummary], error) {
	from, to := e.span(filter, last)
	rows, err := e.c.Q.ListExecutions(ctx, e.c.Reader(), db.ListExecutionsParams{
		AfterPartitionKey: from.Partition(), AfterExecutionID: core.PgUUID(from.UUID()), LastPartitionKey: to, PageSize: int32(limit) + 1,
	})
	if err != nil {
		return Page[ExecutionSummary]{}, err
	}
	items := make([]ExecutionSummary, len(rows))
	for i := range rows {
		items[i] = summaryOf(&rows[i])
	}
	return Page[ExecutionSummary](core.PageOf(items, limit, func(x *ExecutionSummary) string { return listCursor(list, &listKey{id: x.ID}) })), nil
}

// list names the listing in its cursors.
func (f *ExecutionFilter) list() string {
	list := "executions"
	if f.Partition != nil {
		list = fmt.Sprintf("executions of %d", *f.Partition)
	}
	rest := fmt.Sprintf(" %q %q %q %q %q %q %q %q %d %d %d", f.Namespace, f.Lane, f.Kind, f.State, f.Tag.Key, f.Tag.Value, f.Worker, f.Instance,
		f.CreatedFrom.UnixMilli(), f.CreatedBefore.UnixMilli(), f.Order)
	return list + rest
}

// listQuery is a filter in the form of the statement's parameters.
type listQuery struct {
	db.ListNamedExecutionsParams
	selective bool // the filter may exclude executions
}

// queryOf checks a filter.
func (e *Engine) queryOf(f *ExecutionFilter) (query listQuery, err error) {
	if err := cmp.Or(e.checkPartition(f.Partition), checkExamined(f.Examined)); err != nil {
		return query, err
	}
	for _, check := range []struct {
		field    string
		given    bool
		validate func() error
	}{
		{"namespace", f.Namespace != "", f.Namespace.Validate},
		{"lane", f.Lane != "", f.Lane.Validate},
		{"worker", f.Worker != "", f.Worker.Validate},
		{"instance", f.Instance != "", f.Instance.Validate},
		{"tag key", f.Tag.Key != "", func() error { return id.CheckCreateTagKey(f.Tag.Key) }},
	} {
		if check.given {
			if err := check.validate(); err != nil {
				return query, core.InvalidBecause(check.field, err)
			}
		}
	}
	if err := cmp.Or(core.CheckText("kind", f.Kind, core.MaxKind), core.CheckText("tag value", f.Tag.Value, core.MaxTagValue)); err != nil {
		return query, err
	}
	query.CreatedFromMs, query.CreatedBeforeMs, err = createdBetween(f.CreatedFrom, f.CreatedBefore)
	switch {
	case err != nil:
		return query, err
	case f.Tag.Key == "" && f.Tag.Value != "":
		return query, core.Invalid("tag key", "is empty, but a value is given")
	case f.State != "" && !slices.Contains(state.PublicStates(), f.State):
		return query, core.Invalid("state", "is unknown")
	case f.Order < ByID || f.Order > LastEnded:
		return query, core.Invalid("order", "is unknown")
	case f.Order == LastEnded && (f.Worker != "" || f.Instance != ""):
		return query, core.Invalid("order", "lists only executions that have ended, and these have no lease")
	case f.Order == LastEnded && f.State != "" && !f.State.Terminal():
		return query, core.Invalid("state", "is not one of ended executions")
	case f.Order == ClaimOrder && f.Lane == "":
		return query, core.Invalid("lane", "is empty: claim order needs a lane")
	case f.Order == ClaimOrder && (f.Worker != "" || f.Instance != ""):
		return query, core.Invalid("order", "lists only executions that are not leased")
	case f.Order == ClaimOrder && f.State != "" && f.State != state.PublicWaiting && f.State != state.PublicResumable:
		return query, core.Invalid("state", "is not one in which executions are claimable")
	}
	query.Namespace, query.LaneID, query.ExecutionKind, query.TagKey, query.TagValue = string(f.Namespace), string(f.Lane), f.Kind, f.Tag.Key, f.Tag.Value
	query.WorkerID, query.WorkerInstanceID = string(f.Worker), string(f.Instance)
	query.Phases = storedPhases(f.State)
	if f.Order == LastEnded {
		query.Phases = storedPhases(state.PublicCompleted)
	}
	all := ExecutionFilter{Partition: f.Partition, Order: f.Order, Examined: f.Examined}
	query.selective = *f != all || f.Order == ClaimOrder || f.Order == LastEnded
	return query, nil
}

// checkPartition refuses a partition unknown to this database.
func (e *Engine) checkPartition(p *int) error {
	if partitions := int(e.cfg.Partitions.WithDefaults().Flow); p != nil && (*p < 0 || *p >= partitions) {
		return core.Invalid("partition", fmt.Sprintf("must be between 0 and %d", partitions-1))
	}
	return nil
}

// createdBetween returns the two times of a filter in milliseconds, nil if not set.
func createdBetween(from, before time.Time) (fromMs, beforeMs *int64, err error) {
	since, err := core.Instant("created from", from)
	if err != nil {
		return nil, nil, err
	}
	until, err := core.Instant("created before", before)
	switch {
	case err != nil:
		return nil, nil, err
	case until > 0 && since >= until:
		return nil, nil, core.Invalid("created before", "is not after created from")
	}
	if since > 0 {
		fromMs = &since
	}
	if until > 0 {
		beforeMs = &until
	}
	return fromMs, beforeMs, nil
}

// storedPhases returns the possible stored phases of a public state; empty for any.
func storedPhases(s state.PublicState) []string {
	switch {
	case s == "":
		return []string{}
	case s.Terminal():
		return []string{"terminal", "cancelled"}
	case s == state.PublicActive, s == state.PublicSuspended:
		return []string{string(s)}
	}
	return []string{"runnable", "submitted", "pending", "eligible", "blocked"}
}

// fitting returns the executions matching the filter.
func (e *Engine) fitting(
	ctx context.Context, filter *ExecutionFilter, query listQuery, keys []listKey,
) (map[id.ExecutionID]ExecutionSummary, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	params := query.ListNamedExecutionsParams
	for _, key := range keys {
		params.PartitionKeys = append(params.PartitionKeys, key.id.Partition())
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(key.id.UUID()))
	}
	rows, err := e.c.Q.ListNamedExecutions(ctx, e.c.Reader(), params)
	if err != nil {
		return nil, err
	}
	fitting := make(map[id.ExecutionID]ExecutionSummary, len(rows))
	for i := range rows {
		row := db.ListExecutionsRow(rows[i])
		x := summaryOf(&row)
		claimable := row.LifecyclePhase == "runnable" && row.EligibilityState == "eligible_now"
		if filter.State != "" && x.State != filter.State || filter.Order == ClaimOrder && !claimable {
			continue
		}
		fitting[x.ID] = x
	}
	return fitting, nil
}

// listKey is a position in a listing: an execution and, in claim order, the sort key in the queue. In the order of ends,
// rank is the id of the event.
type listKey struct {
	id          id.ExecutionID
	rank        int64
	createdAtMs int64
}

func listCursor(list string, key *listKey) string {
	if key == nil {
		return ""
	}
	u := key.id.UUID()
	document := append(binary.BigEndian.AppendUint16(nil, uint16(key.id.Partition())), u[:]...)
	if key.rank != 0 || key.createdAtMs != 0 {
		document = binary.BigEndian.AppendUint64(document, uint64(key.rank))
		document = binary.BigEndian.AppendUint64(document, uint64(key.createdAtMs))
	}
	return core.CursorOf(list, document)
}

// readListKey returns the position after which a page starts, or nil for the start of the listing.
func readListKey(list, cursor string) (*listKey, error) {
	document, err := core.ReadCursor(list, cursor)
	if err != nil || document == nil {
		return nil, err
	}
	var u id.ExecutionUUID
	var key listKey
	if len(document) != 2+len(u) && len(document) != 2+len(u)+16 {
		return nil, core.Invalid("after", "is not a cursor of this listing")
	}
	copy(u[:], document[2:])
	key.id = id.ExecutionIDFromRow(int16(binary.BigEndian.Uint16(document)), u)
	if place := document[2+len(u):]; len(place) > 0 {
		key.rank, key.createdAtMs = int64(binary.BigEndian.Uint64(place)), int64(binary.BigEndian.Uint64(place[8:]))
	}
	return &key, nil
}

func summaryOf(row *db.ListExecutionsRow) ExecutionSummary {
	public, outcome, err := core.PublicState(row.LifecyclePhase, row.EligibilityState, row.PublicState, normalise.TerminalFacts{
		PointerOutcome:     row.PointerOutcome,
		CurrentOutcome:     row.CurrentOutcome,
		RawTerminalOutcome: row.RawTerminalOutcome,
		CancellationReason: row.CancellationReason,
		LastFailureMessage: row.LastFailureMessage,
		FailureReason:      row.FailureReason,
	})
	return ExecutionSummary{
		ID:         id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
		Flow:       row.FlowID,
		Node:       row.NodeKey,
		Namespace:  id.Namespace(row.Namespace),
		Lane:       id.LaneID(row.LaneID),
		Kind:       row.ExecutionKind,
		State:      public,
		Outcome:    outcome,
		Failure:    core.ShownFailure(public, row.FailureReason, row.LastFailureMessage),
		LeasesLost: int(max(row.LeaseReclaimCount, 0)),
		CreatedAt:  time.UnixMilli(row.CreatedAtMs),
		EndedAt:    core.OptionalTime(row.TerminalAtMs),
		Err:        err,
	}
}
