package engine

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// keySource returns the next executions for a listing to examine, in the listing's order. Fewer than n mean that there are
// no more.
type keySource func(ctx context.Context, n int) ([]listKey, error)

// keysOf chooses the source with the fewest executions to examine for nothing.
func (e *Engine) keysOf(ctx context.Context, f *ExecutionFilter, after *listKey) (keySource, error) {
	if f.Order == ClaimOrder {
		return (&queuedKeys{e: e, filter: f, after: after}).next, nil
	}
	if f.Worker != "" || f.Instance != "" || f.State == state.PublicActive {
		keys, whole, err := e.leasedKeys(ctx, f, after)
		if err != nil || whole {
			return keys.next, err
		}
	}
	if f.Order == ByID {
		return (&orderedKeys{e: e, filter: f, after: after}).next, nil
	}
	return e.newTimedKeys(f, after).next, nil
}

// readAhead returns a source of the next n keys of another one, which reads them at once.
func readAhead(ctx context.Context, next keySource, n int) (keySource, error) {
	keys, err := next(ctx, n)
	held := heldKeys(keys)
	return held.next, err
}

// inPartition reports whether a filter includes a partition.
func (f *ExecutionFilter) inPartition(partition int16) bool {
	return f.Partition == nil || *f.Partition == int(partition)
}

// compareKeys compares two executions in the order of a listing other than [ClaimOrder].
func (f *ExecutionFilter) compareKeys(a, b listKey) int {
	if f.Order == ByID {
		return a.id.Compare(b.id)
	}
	c := a.id.UUID().Compare(b.id.UUID())
	if c == 0 {
		c = int(a.id.Partition()) - int(b.id.Partition())
	}
	if f.Order == NewestFirst {
		return -c
	}
	return c
}

// orderedKeys reads along the primary key.
type orderedKeys struct {
	e      *Engine
	filter *ExecutionFilter
	after  *listKey
}

func (s *orderedKeys) next(ctx context.Context, n int) ([]listKey, error) {
	from, to := s.e.span(s.filter, s.after)
	params := db.ListExecutionKeysParams{
		AfterPartitionKey: from.Partition(), AfterExecutionID: core.PgUUID(from.UUID()), LastPartitionKey: to, PageSize: int32(n),
	}
	rows, err := s.e.c.Q.ListExecutionKeys(ctx, s.e.c.Reader(), params)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	keys := make([]listKey, len(rows))
	for i, row := range rows {
		keys[i].id = id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
	}
	s.after = &keys[len(keys)-1]
	return keys, nil
}

// span returns the bounds of a listing along the primary key: an execution, or a position before all of them, and the
// last partition.
func (e *Engine) span(f *ExecutionFilter, after *listKey) (from id.ExecutionID, to int16) {
	to = int16(e.cfg.Partitions.WithDefaults().Flow - 1)
	before := int16(-1)
	if p := f.Partition; p != nil {
		before, to = int16(*p-1), int16(*p)
	}
	if after != nil {
		return after.id, to
	}
	return id.ExecutionIDFromRow(before, greatestExecution), to
}

var greatestExecution = id.ExecutionUUID{
	255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
}

// queuedKeys reads along the queue of a lane.
type queuedKeys struct {
	e      *Engine
	filter *ExecutionFilter
	after  *listKey
}

func (s *queuedKeys) next(ctx context.Context, n int) ([]listKey, error) {
	params := db.ListQueuedKeysParams{
		LaneID: string(s.filter.Lane), AfterRank: math.MinInt64, AfterExecutionID: core.PgUUID(id.ExecutionUUID{}), PageSize: int32(n),
	}
	if a := s.after; a != nil {
		params.AfterRank, params.AfterCreatedAtMs = a.rank, a.createdAtMs
		params.AfterExecutionID, params.AfterPartitionKey = core.PgUUID(a.id.UUID()), a.id.Partition()
	}
	rows, err := s.e.c.Q.ListQueuedKeys(ctx, s.e.c.Reader(), params)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	keys := make([]listKey, len(rows))
	for i, row := range rows {
		keys[i] = listKey{
			id:   id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			rank: row.Rank, createdAtMs: row.CreatedAtMs,
		}
	}
	s.after = &keys[len(keys)-1]
	return keys, nil
}

// heldKeys are executions read at once.
type heldKeys []listKey

func (s *heldKeys) next(_ context.Context, n int) ([]listKey, error) {
	n = min(n, len(*s))
	keys := (*s)[:n]
	*s = (*s)[n:]
	return keys, nil
}

// leanLeased is how many leases a page with a small [ExecutionFilter.Examined] examines to find the holder's: each is looked
// up.
const leanLeased = 2 * leanChunk

// leasedKeys returns the leased executions, or false if there are too many leases to examine.
func (e *Engine) leasedKeys(ctx context.Context, f *ExecutionFilter, after *listKey) (*heldKeys, bool, error) {
	most := int32(maxLeased)
	if f.Examined > 0 {
		most = min(most, int32(10*f.Examined))
	}
	if f.Examined > 0 && f.Examined <= leanExamined && (f.Worker != "" || f.Instance != "") {
		most = min(most, leanLeased)
	}
	rows, err := e.c.Q.ListLeasedKeys(ctx, e.c.Reader(), db.ListLeasedKeysParams{
		MaxItems: most, WorkerID: string(f.Worker), WorkerInstanceID: string(f.Instance),
	})
	if err != nil {
		return nil, false, err
	}
	if len(rows) > 0 && rows[0].LookedAt > int64(most) {
		return nil, false, nil
	}
	keys := make(heldKeys, 0, len(rows))
	for _, row := range rows {
		key := listKey{id: id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))}
		if row.PartitionKey >= 0 && f.inPartition(row.PartitionKey) && (after == nil || f.compareKeys(key, *after) > 0) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, f.compareKeys)
	return &keys, true, nil
}

// endOutcomes are the outcomes of completion events.
var endOutcomes = map[state.PublicState][]string{
	state.PublicCompleted: {"success"}, state.PublicFailed: {"failed", "failure"}, state.PublicCancelled: {"cancelled"},
	state.PublicExpired: {"expired"}, state.PublicSkipped: {"skipped"},
}

// endedKeys returns up to n ended executions from the completion events before a position, each once. end is the event at
// which the examined ones end, or nil if n executions were found or no event is left.
func (e *Engine) endedKeys(ctx context.Context, f *ExecutionFilter, after *listKey, n int) (keys *heldKeys, end *listKey, err error) {
	params := db.ListEndedKeysParams{
		BeforeEventID: math.MaxInt64, MaxEnds: 2 * MaxExamined, PageSize: int32(n), Namespace: string(f.Namespace), Outcomes: endOutcomes[f.State],
	}
	for s := range endOutcomes {
		if f.State == "" {
			params.Outcomes = append(params.Outcomes, endOutcomes[s]...)
		}
	}
	if after != nil {
		params.BeforeEventID, params.BeforePartitionKey = after.rank, after.id.Partition()
	}
	rows, err := e.c.Q.ListEndedKeys(ctx, e.c.Reader(), params)
	if err != nil {
		return nil, nil, err
	}
	keys = new(heldKeys)
	seen := make(map[id.ExecutionID]bool)
	for _, row := range rows {
		key := listKey{id: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), rank: row.EventID, createdAtMs: row.OccurredAtMs}
		if row.IsLast {
			end = &key
		}
		if row.Fits && f.inPartition(row.PartitionKey) && !seen[key.id] {
			seen[key.id] = true
			*keys = append(*keys, key)
		}
	}
	if len(rows) == n && end == nil { // more may follow the last row
		row := &rows[n-1]
		end = &listKey{id: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), rank: row.EventID, createdAtMs: row.OccurredAtMs}
	}
	return keys, end, nil
}

// timedKeys merges the partitions by id. Each read takes a few ids of each partition, and later reads only exhausted
// partitions. So few ids are read for nothing, whether the executions are in all partitions or in one.
type timedKeys struct {
	e      *Engine
	filter *ExecutionFilter
	list   timedSource
	to     id.ExecutionUUID // the last id to list
	tails  []partitionTail
	keys   []listKey // read but not returned yet, in order
	take   int
}

// timedSource returns up to take ids of each partition, from a first to a last one, in the order of the listing.
type timedSource func(ctx context.Context, partitions []int16, from []pgtype.UUID, to pgtype.UUID, take int32) ([]listKey, error)

// partitionTail is the unread part of a partition.
type partitionTail struct {
	partition int16
	from      id.ExecutionUUID // the next possible id
	last      listKey          // the last key read
	read      bool
	done      bool
}

// clockSkew is the allowed difference between the clock of an id and the database's.
const clockSkew = 10 * time.Minute

func (e *Engine) newTimedKeys(f *ExecutionFilter, after *listKey) *timedKeys {
	least, greatest := id.ExecutionUUID{}, greatestExecution
	if !f.CreatedFrom.IsZero() {
		least = idOfTime(f.CreatedFrom.Add(-clockSkew), 0)
	}
	if !f.CreatedBefore.IsZero() {
		greatest = idOfTime(f.CreatedBefore.Add(clockSkew), 255)
	}
	s := &timedKeys{e: e, filter: f, list: e.timedExecutionKeys(f.Order), to: greatest}
	from := least
	if f.Order == NewestFirst {
		from, s.to = greatest, least
	}
	for p := range int16(e.cfg.Partitions.WithDefaults().Flow) {
		if !f.inPartition(p) {
			continue
		}
		tail := partitionTail{partition: p, from: from}
		if after != nil {
			// The cursor's own id may exist in another partition too.
			u := after.id.UUID()
			if f.compareKeys(listKey{id: id.ExecutionIDFromRow(p, u)}, *after) > 0 {
				tail.from = u
			} else {
				tail.from, tail.done = s.beyond(u)
			}
		}
		s.tails = append(s.tails, tail)
	}
	return s
}

// idOfTime returns the first id of a time, or the last one with filler 255.
func idOfTime(t time.Time, filler byte) (u id.ExecutionUUID) {
	ms := min(max(t.UnixMilli(), 0), 1<<48-1)
	binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16)
	for i := 6; i < len(u); i++ {
		u[i] = filler
	}
	return u
}

// beyond returns the next id in the order of the listing, and true if there is none.
func (s *timedKeys) beyond(u id.ExecutionUUID) (id.ExecutionUUID, bool) {
	for i := len(u) - 1; i >= 0; i-- {
		if s.filter.Order == NewestFirst {
			u[i]--
			if u[i] != 255 {
				return u, false
			}
			continue
		}
		u[i]++
		if u[i] != 0 {
			return u, false
		}
	}
	return u, true
}

func (s *timedKeys) next(ctx context.Context, n int) ([]listKey, error) {
	s.take = max(8, 2*n/max(len(s.tails), 1))
	for {
		// Keys up to the smallest last id of the partitions with more ids are complete.
		var horizon *listKey
		for i := range s.tails {
			if t := &s.tails[i]; !t.done && t.read && (horizon == nil || s.filter.compareKeys(t.last, *horizon) < 0) {
				horizon = &t.last
			}
		}
		complete := len(s.keys)
		unread := slices.ContainsFunc(s.tails, func(t partitionTail) bool { return !t.done && !t.read })
		if horizon != nil {
			place, _ := slices.BinarySearchFunc(s.keys, *horizon, s.filter.compareKeys)
			complete = min(place+1, len(s.keys))
		}
		if !unread && (complete >= n || horizon == nil) {
			n = min(n, complete)
			keys := s.keys[:n:n]
			s.keys = s.keys[n:]
			return keys, nil
		}
		if err := s.read(ctx, n); err != nil {
			return nil, err
		}
		if s.take = min(4*s.take, MaxExamined); n <= leanExamined {
			s.take = max(s.take, n) // two reads suffice
		}
	}
}

// read reads more of the partitions whose next id may be among the next n.
func (s *timedKeys) read(ctx context.Context, n int) error {
	byPartition := make(map[int16]*partitionTail)
	var partitions []int16
	var from []pgtype.UUID
	for i := range s.tails {
		t := &s.tails[i]
		if t.done || t.read && len(s.keys) >= n && s.filter.compareKeys(t.last, s.keys[n-1]) > 0 {
			continue
		}
		byPartition[t.partition] = t
		partitions, from = append(partitions, t.partition), append(from, core.PgUUID(t.from))
	}
	take := int32(s.take)
	keys, err := s.list(ctx, partitions, from, core.PgUUID(s.to), take)
	if err != nil {
		return err
	}
	counts := make(map[int16]int32)
	s.keys = append(s.keys, keys...)
	for _, key := range keys {
		partition := key.id.Partition()
		t := byPartition[partition]
		if counts[partition]++; counts[partition] == 1 || s.filter.compareKeys(key, t.last) > 0 {
			t.last = key
		}
	}
	for partition, t := range byPartition {
		t.read = true
		if counts[partition] < take {
			t.done = true
			continue
		}
		t.from, t.done = s.beyond(t.last.id.UUID())
	}
	slices.SortFunc(s.keys, s.filter.compareKeys)
	return nil
}

func (e *Engine) timedExecutionKeys(order ListOrder) timedSource {
	return func(ctx context.Context, partitions []int16, from []pgtype.UUID, to pgtype.UUID, take int32) ([]listKey, error) {
		params := db.ListNewestKeysParams{PartitionKeys: partitions, FromIDs: from, ToID: to, PageSize: take}
		var keys []listKey
		if order == NewestFirst {
			rows, err := e.c.Q.ListNewestKeys(ctx, e.c.Reader(), params)
			for _, row := range rows {
				keys = append(keys, listKey{id: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)})
			}
			return keys, err
		}
		rows, err := e.c.Q.ListOldestKeys(ctx, e.c.Reader(), db.ListOldestKeysParams(params))
		for _, row := range rows {
			keys = append(keys, listKey{id: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)})
		}
		return keys, err
	}
}

// FindExecution returns the full id of the execution with a uuid, whichever the partition.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput] listing the ids if callers gave the same uuid to executions of
// several partitions.
func (e *Engine) FindExecution(ctx context.Context, u id.ExecutionUUID) (id.ExecutionID, error) {
	const op = "find execution"
	params := db.FindExecutionParams{ExecutionID: u}
	for p := range int16(e.cfg.Partitions.WithDefaults().Flow) {
		params.PartitionKeys = append(params.PartitionKeys, p)
	}
	found, err := e.c.Q.FindExecution(ctx, e.c.Reader(), params)
	switch {
	case err != nil:
		return id.ExecutionID{}, core.Wrap(op, err)
	case len(found) == 0:
		return id.ExecutionID{}, core.Wrap(op, &fferr.NotFoundError{Entity: "execution", ID: u.String()})
	case len(found) > 1:
		reason := "is that of several executions:"
		for _, p := range found {
			reason += " " + id.ExecutionIDFromRow(p, u).String()
		}
		return id.ExecutionID{}, core.Wrap(op, core.Invalid("execution id", reason))
	}
	return id.ExecutionIDFromRow(found[0], u), nil
}
