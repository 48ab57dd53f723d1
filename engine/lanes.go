package engine

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// LaneSummary is a lane in a listing.
type LaneSummary struct {
	ID id.LaneID

	PausedSince time.Time // zero unless paused
	PausedUntil time.Time // when the pause ends by itself; zero: never
	PauseReason string

	Waiting Count // claimable
	Delayed Count // until a time set by the creator, a handler or a retry's backoff
	Blocked Count // by an operator, or without a capable worker
	Active  Count // leased

	Limited   Count // by a budget or a limit
	Suspended Count // until a signal, the end of a called execution, or a resume
	Dependent Count // until upstreams, or the previous member of a sequence, have ended

	// WaitingSince is when the oldest claimable execution became claimable, among the next executions of up to 32
	// priorities. Zero without one. Any change to an execution, such as a tag, resets its time.
	WaitingSince time.Time

	// EndedPerMinute is the number of executions ended in the last minute, or if more than [MaxCounted] ended in all
	// lanes, the rate of the last [MaxCounted].
	EndedPerMinute float64

	// Ended has the ends in each five seconds of the last minute, the oldest first, of the last [MaxCounted] in all
	// lanes.
	Ended [12]int
}

// Count is a number of things. If AtLeast is set, counting stopped at N.
type Count struct {
	N       int
	AtLeast bool
}

// MaxCounted is the limit up to which [Engine.ListLanes] counts.
const MaxCounted = 10_000

// LaneFilter selects lanes to list, and how far to count. The zero value selects all.
type LaneFilter struct {
	Lane id.LaneID // only this one

	// Counted makes a page cheap. Zero counts up to [MaxCounted]. Otherwise a page counts Counted blocked executions per
	// lane and at least 1,000 waiting ones. Over all lanes it examines a quarter of Counted in each other state, and half
	// of Counted altogether, as many in each state. WaitingSince is of the next execution, and ends are estimated from
	// three quarters of Counted, taken evenly from the last minute. With 200, each statement of a page of 25 lanes reads
	// less than 1,000 buffers of vacuumed tables.
	Counted int
}

// ListLanes returns a page of the lanes that are paused or were ever used, in byte order, with counts: see [Page].
//
// Waiting and blocked executions are counted up to [MaxCounted] per lane, others up to [MaxCounted] over all lanes,
// each count at a slightly different moment. Members waiting for upstreams are found by their flows' summaries, which a
// background job writes every half minute. A page takes up to 0.2 s of server time, plus a millisecond per long lane;
// with a small [LaneFilter.Counted] some milliseconds.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption] for an invalid stored lane.
func (e *Engine) ListLanes(ctx context.Context, filter LaneFilter, after string, limit int) (Page[LaneSummary], error) {
	const op = "list lanes"
	page, err := e.listLanes(ctx, filter, after, limit)
	return page, core.Wrap(op, err)
}

// Lanes iterates over the lanes of [Engine.ListLanes].
func (e *Engine) Lanes(ctx context.Context, filter LaneFilter) iter.Seq2[LaneSummary, error] {
	return core.Pages(func(after string) (Page[LaneSummary], error) { return e.ListLanes(ctx, filter, after, MaxPage) })
}

// laneBounds limit the executions counted for a page of lanes.
type laneBounds struct{ waiting, blocked, priorities, listed, looked, ended int32 }

func (f LaneFilter) bounds() (laneBounds, error) {
	n := int32(f.Counted)
	switch {
	case f.Counted < 0 || f.Counted > MaxCounted:
		return laneBounds{}, core.Invalid("counted", fmt.Sprintf("must be between 0 and %d", MaxCounted))
	case n == 0:
		n = MaxCounted
		return laneBounds{waiting: n, blocked: n, priorities: 32, listed: n, looked: 4 * (n + 1), ended: n + 1}, nil
	}
	return laneBounds{waiting: max(n, 1000), blocked: n, priorities: 1, listed: (n + 3) / 4, looked: (n + 1) / 2, ended: (3*n + 3) / 4}, nil
}

func (e *Engine) listLanes(ctx context.Context, filter LaneFilter, after string, limit int) (page Page[LaneSummary], err error) {
	bounds, err := filter.bounds()
	if err != nil {
		return page, err
	}
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	list, from, size := "lanes", "", int32(limit)+1
	if filter.Lane != "" {
		if err := filter.Lane.Validate(); err != nil {
			return page, core.InvalidBecause("lane", err)
		}
		list, from, size = "lane "+string(filter.Lane), string(filter.Lane), 1
	}
	if last, err := core.ReadCursor(list, after); err != nil {
		return page, err
	} else if last != nil {
		from = string(last) + "\x01" // the next text that Postgres stores
	}
	found := laneFacts{laneBounds: bounds}
	if err := e.c.Read(ctx,
		func(conn db.DBTX) (err error) {
			found.lanes, err = e.c.Q.ListLanes(ctx, conn, db.ListLanesParams{
				FromLaneID: from, PageSize: size, MaxWaiting: bounds.waiting, MaxBlocked: bounds.blocked, MaxPriorities: bounds.priorities, NowMs: e.c.NowMs(),
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			found.states, err = e.c.Q.ListLaneStates(ctx, conn, db.ListLaneStatesParams{MaxCounted: bounds.listed, MaxLooked: bounds.looked})
			return err
		},
		func(conn db.DBTX) (err error) {
			found.ended, err = e.c.Q.ListEndedLanes(ctx, conn, db.ListEndedLanesParams{MaxCounted: MaxCounted, MaxLooked: bounds.ended, NowMs: e.c.NowMs()})
			return err
		},
	); err != nil {
		return page, err
	}
	if filter.Lane != "" && len(found.lanes) > 0 && found.lanes[0].LaneID != string(filter.Lane) {
		found.lanes = nil // the one after it
	}
	lanes, err := found.summaries()
	if err != nil {
		return page, err
	}
	return Page[LaneSummary](core.PageOf(lanes, limit, func(l *LaneSummary) string { return core.CursorOf(list, []byte(l.ID)) })), nil
}

// laneFacts are a page of lanes, and counts over all lanes.
//
// Each statement has its own snapshot. Every number is right at its moment, and all moments lie within one round trip.
// An execution moving in between, say from delayed to waiting, is in one count, in both or in neither. One statement
// reads the page and all facts depending on the page, so every listed lane has its own counts. The other counts cover
// any lanes; counts of unlisted lanes are dropped.
type laneFacts struct {
	laneBounds

	lanes  []db.ListLanesRow
	states []db.ListLaneStatesRow
	ended  []db.ListEndedLanesRow
}

// summaries assembles the lanes of the page.
func (f *laneFacts) summaries() ([]LaneSummary, error) {
	own := func(n int64, most int32) Count { return Count{N: int(min(n, int64(most))), AtLeast: n > int64(most)} }
	lanes := make([]LaneSummary, len(f.lanes))
	onPage := make(map[string]*LaneSummary, len(f.lanes))
	for i, row := range f.lanes {
		l := &lanes[i]
		*l = LaneSummary{ID: id.LaneID(row.LaneID), Waiting: own(row.Waiting, f.waiting), Blocked: own(row.Blocked, f.blocked)}
		if err := l.ID.Validate(); err != nil {
			return nil, core.Corrupt("ff_lane_registry.lane_id", err)
		}
		if row.PausedAtMs != 0 {
			l.PausedSince, l.PausedUntil, l.PauseReason = time.UnixMilli(row.PausedAtMs), core.OptionalTime(row.PausedUntilMs), row.PauseReason
		}
		if row.WaitingSinceMs != 0 {
			l.WaitingSince = time.UnixMilli(row.WaitingSinceMs)
		}
		// Counts of facts with too many rows are partial, even if they are 0.
		for list, count := range map[string]*Count{
			"delayed": &l.Delayed, "active": &l.Active, "limited": &l.Limited, "suspended": &l.Suspended, "dependent": &l.Dependent,
		} {
			count.AtLeast = slices.Contains(f.states[0].Partial, list)
		}
		onPage[row.LaneID] = l
	}
	for _, row := range f.states {
		if l := onPage[row.LaneID]; l != nil {
			l.Delayed.N, l.Active.N = int(row.Delayed), int(row.Active)
			l.Limited.N, l.Suspended.N, l.Dependent.N = int(row.Limited), int(row.Suspended), int(row.Dependent)
		}
	}
	for _, row := range f.ended {
		span := int64(60_000)
		if row.Counted > MaxCounted {
			span = min(max(row.SpanMs, 1), span)
		}
		if l := onPage[row.LaneID]; l != nil {
			l.EndedPerMinute += float64(row.N) * 60_000 / float64(span)
			l.Ended[max(len(l.Ended)-1-int(row.Age), 0)] += int(row.N)
		}
	}
	return lanes, nil
}

// QueuedLanes returns the given lanes with queued work, possibly for other kinds or capabilities.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) QueuedLanes(ctx context.Context, lanes []id.LaneID) ([]id.LaneID, error) {
	const op = "list queued lanes"
	asked, err := core.LaneTexts(lanes, "lanes")
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	queued, err := e.c.Q.ListQueuedAmong(ctx, e.c.PlannedAnew(), asked)
	return core.IDsOfLanes(queued), core.Wrap(op, err)
}
