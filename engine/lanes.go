package engine

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// LaneSummary is a lane as listings have it.
type LaneSummary struct {
	ID id.LaneID

	PausedSince time.Time // zero unless it is paused
	PauseReason string

	Waiting Count // claimable
	Delayed Count // until an instant: by their creator, a handler, or a retry's backoff
	Blocked Count // by an operator, or for want of a worker that can do them
	Active  Count // with a worker

	// WaitingSince is since when that execution has been claimable which has been for longest, of those that are next
	// in their priorities, up to 32 of them. Zero when none is. A change to an execution, as a tag, counts as its
	// becoming claimable.
	WaitingSince time.Time

	// EndedPerMinute is how many executions ended in the last minute, however they did. Of more than [MaxCounted], in all
	// lanes, it is what the last so many come to.
	EndedPerMinute float64
}

// Count is how many there are of something, or, where AtLeast is set, how many of them were counted.
type Count struct {
	N       int
	AtLeast bool
}

// MaxCounted is how far [Engine.ListLanes] counts.
const MaxCounted = 10_000

// ListLanes returns the lanes that executions were created on or that are paused, in byte order, with how much there is
// on each, after a cursor: [Page.Next] of the page before, "" for the first page. A limit of 0, or above [MaxPage], is
// taken as that.
//
// What waits, and what is blocked, is counted up to [MaxCounted] in each lane; what is delayed or active, up to that in
// all lanes together. What waits for its upstreams, for a signal, or for a budget or quota is in no count.
//
// Errors: [ErrInvalidInput] for a negative limit or a cursor of another listing; [ErrCorruption] for a stored lane that
// is none. One statement, which reads some 30,000 executions at most, and 10,000 entries of the queue of each lane: up
// to 0.1 s of the server's time, and a millisecond more for each long lane. It locks nothing.
func (e *Engine) ListLanes(ctx context.Context, after string, limit int) (Page[LaneSummary], error) {
	const op = "list lanes"
	page, err := e.listLanes(ctx, after, limit)
	return page, wrap(op, err)
}

// Lanes goes through the lanes as [Engine.ListLanes] lists them, a page at a time.
func (e *Engine) Lanes(ctx context.Context) iter.Seq2[LaneSummary, error] {
	return pages(func(after string) (Page[LaneSummary], error) { return e.ListLanes(ctx, after, MaxPage) })
}

func (e *Engine) listLanes(ctx context.Context, after string, limit int) (page Page[LaneSummary], err error) {
	const list = "lanes"
	if limit, err = pageSize(limit); err != nil {
		return page, err
	}
	last, err := readCursor(list, after)
	if err != nil {
		return page, err
	}
	rows, err := e.q.ListLanes(ctx, e.reader(), db.ListLanesParams{
		AfterLaneID: string(last), PageSize: int32(limit) + 1, MaxCounted: MaxCounted, NowMs: e.nowMs(),
	})
	if err != nil {
		return page, err
	}
	lanes, err := lanesOf(rows)
	if err != nil {
		return page, err
	}
	return pageOf(lanes, limit, func(l *LaneSummary) string { return cursorOf(list, []byte(l.ID)) }), nil
}

// lanesOf puts together what a statement says of lanes, a fact in each row.
func lanesOf(rows []db.ListLanesRow) ([]LaneSummary, error) {
	byLane := make(map[string]*LaneSummary)
	looked := make(map[string]db.ListLanesRow) // at what of all lanes
	for _, row := range rows {
		switch {
		case row.Fact == "lane":
			byLane[row.LaneID] = &LaneSummary{ID: id.LaneID(row.LaneID)}
		case row.LaneID == "":
			looked[row.Fact] = row
		}
	}
	own := func(row db.ListLanesRow) Count {
		return Count{N: int(min(row.N, MaxCounted)), AtLeast: row.N > MaxCounted}
	}
	for _, row := range rows {
		lane := byLane[row.LaneID]
		if lane == nil {
			continue
		}
		switch row.Fact {
		case "paused":
			lane.PausedSince, lane.PauseReason = time.UnixMilli(row.SinceMs), row.Note
		case "waiting":
			lane.Waiting = own(row)
		case "next":
			lane.WaitingSince = time.UnixMilli(row.SinceMs)
		case "blocked":
			lane.Blocked = own(row)
		case "delayed":
			lane.Delayed.N = int(row.N)
		case "active":
			lane.Active.N = int(row.N)
		case "ended":
			span := int64(60_000)
			if all := looked["ended"]; all.N > MaxCounted {
				span = min(max(all.SinceMs, 1), span)
			}
			lane.EndedPerMinute = float64(row.N) * 60_000 / float64(span)
		}
	}
	lanes := make([]LaneSummary, 0, len(byLane))
	for _, lane := range byLane {
		lanes = append(lanes, *lane)
	}
	slices.SortFunc(lanes, func(a, b LaneSummary) int { return cmp.Compare(a.ID, b.ID) })
	// What was counted of more than could be looked at is a part, also where that part is nothing.
	for i := range lanes {
		l := &lanes[i]
		l.Delayed.AtLeast = looked["delayed"].N > MaxCounted
		l.Active.AtLeast = looked["active"].N > MaxCounted
		if err := l.ID.Validate(); err != nil {
			return nil, corrupt("ff_lane_registry.lane_id", err)
		}
	}
	return lanes, nil
}
