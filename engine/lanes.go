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

// LaneSummary is a lane in a listing.
type LaneSummary struct {
	ID id.LaneID

	PausedSince time.Time // zero unless it is paused
	PauseReason string

	Waiting Count // claimable
	Delayed Count // until a time set by the creator, a handler or a retry's backoff
	Blocked Count // by an operator, or for lack of a capable worker
	Active  Count // leased by a worker

	// WaitingSince is when the oldest claimable execution became claimable, among the next ones of up to 32 priorities.
	// Zero if there is none. Any change to an execution, such as a tag, resets its time.
	WaitingSince time.Time

	// EndedPerMinute is the number of executions that ended in the last minute, with any outcome. If more than
	// [MaxCounted] ended in all lanes, it is the rate of the last [MaxCounted].
	EndedPerMinute float64
}

// Count is a number of things. If AtLeast is set, counting stopped at N.
type Count struct {
	N       int
	AtLeast bool
}

// MaxCounted is the limit up to which [Engine.ListLanes] counts.
const MaxCounted = 10_000

// ListLanes returns a page of the lanes with executions created on them, or that are paused, in byte order, with their
// counts. after is the [Page.Next] of the previous page, or "" for the first page. A limit of 0 or above [MaxPage]
// means [MaxPage].
//
// Waiting and blocked executions are counted up to [MaxCounted] in each lane; delayed and active ones up to
// [MaxCounted] in all lanes together. Executions that wait for upstreams, signals, budgets or quotas are not counted.
//
// Errors: [ErrInvalidInput] for a negative limit or a cursor of another listing; [ErrCorruption] for an invalid stored
// lane. One statement, which reads at most about 30,000 executions, and 10,000 queue entries per lane: up to 0.1 s of
// server time, plus a millisecond per long lane. Takes no locks.
func (e *Engine) ListLanes(ctx context.Context, after string, limit int) (Page[LaneSummary], error) {
	const op = "list lanes"
	page, err := e.listLanes(ctx, after, limit)
	return page, wrap(op, err)
}

// Lanes iterates over the lanes that [Engine.ListLanes] lists, a page at a time.
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

// lanesOf assembles lanes from the statement's rows, each of which has one fact.
func lanesOf(rows []db.ListLanesRow) ([]LaneSummary, error) {
	byLane := make(map[string]*LaneSummary)
	looked := make(map[string]db.ListLanesRow) // totals over all lanes, by fact
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
	// Counts of facts with too many rows are partial, even if they are 0.
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
