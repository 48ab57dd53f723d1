package engine

import (
	"context"
	"iter"
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
}

// Count is a number of things. If AtLeast is set, counting stopped at N.
type Count struct {
	N       int
	AtLeast bool
}

// MaxCounted is the limit up to which [Engine.ListLanes] counts.
const MaxCounted = 10_000

// ListLanes returns a page of the lanes that are paused or were ever used, in byte order, with counts: see [Page].
//
// Waiting and blocked executions are counted up to [MaxCounted] per lane, others up to [MaxCounted] over all lanes,
// each count at a slightly different moment. Members waiting for upstreams are found by their flows' summaries, which a
// background job writes every half minute. A page takes up to 0.2 s of server time, plus a millisecond per long lane.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption] for an invalid stored lane.
func (e *Engine) ListLanes(ctx context.Context, after string, limit int) (Page[LaneSummary], error) {
	const op = "list lanes"
	page, err := e.listLanes(ctx, after, limit)
	return page, core.Wrap(op, err)
}

// Lanes iterates over the lanes of [Engine.ListLanes].
func (e *Engine) Lanes(ctx context.Context) iter.Seq2[LaneSummary, error] {
	return core.Pages(func(after string) (Page[LaneSummary], error) { return e.ListLanes(ctx, after, MaxPage) })
}

func (e *Engine) listLanes(ctx context.Context, after string, limit int) (page Page[LaneSummary], err error) {
	const list = "lanes"
	if limit, err = core.PageSize(limit); err != nil {
		return page, err
	}
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return page, err
	}
	var found laneFacts
	if err := e.c.Read(ctx,
		func(conn db.DBTX) (err error) {
			found.lanes, err = e.c.Q.ListLanes(ctx, conn, db.ListLanesParams{
				AfterLaneID: string(last), PageSize: int32(limit) + 1, MaxCounted: MaxCounted, NowMs: e.c.NowMs(),
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			found.delayed, err = e.c.Q.ListDelayedLanes(ctx, conn, MaxCounted)
			return err
		},
		func(conn db.DBTX) (err error) {
			found.active, err = e.c.Q.ListActiveLanes(ctx, conn, MaxCounted)
			return err
		},
		func(conn db.DBTX) (err error) {
			found.held, err = e.c.Q.ListHeldLanes(ctx, conn, MaxCounted)
			return err
		},
		func(conn db.DBTX) (err error) {
			found.ended, err = e.c.Q.ListEndedLanes(ctx, conn, db.ListEndedLanesParams{MaxCounted: MaxCounted, NowMs: e.c.NowMs()})
			return err
		},
	); err != nil {
		return page, err
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
	lanes   []db.ListLanesRow
	delayed []db.ListDelayedLanesRow
	active  []db.ListActiveLanesRow
	held    []db.ListHeldLanesRow
	ended   []db.ListEndedLanesRow
}

// summaries assembles the lanes of the page.
func (f *laneFacts) summaries() ([]LaneSummary, error) {
	own := func(n int64) Count { return Count{N: int(min(n, MaxCounted)), AtLeast: n > MaxCounted} }
	lanes := make([]LaneSummary, len(f.lanes))
	onPage := make(map[string]*LaneSummary, len(f.lanes))
	for i, row := range f.lanes {
		l := &lanes[i]
		*l = LaneSummary{ID: id.LaneID(row.LaneID), Waiting: own(row.Waiting), Blocked: own(row.Blocked)}
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
		l.Delayed.AtLeast = f.delayed[0].Counted > MaxCounted
		l.Active.AtLeast = f.active[0].Counted > MaxCounted
		l.Limited.AtLeast = f.held[0].LimitedPartial
		l.Suspended.AtLeast = f.held[0].SuspendedPartial
		l.Dependent.AtLeast = f.held[0].DependentPartial
		onPage[row.LaneID] = l
	}
	for _, row := range f.delayed {
		if l := onPage[row.LaneID]; l != nil {
			l.Delayed.N = int(row.N)
		}
	}
	for _, row := range f.active {
		if l := onPage[row.LaneID]; l != nil {
			l.Active.N = int(row.N)
		}
	}
	for _, row := range f.held {
		if l := onPage[row.LaneID]; l != nil {
			l.Limited.N, l.Suspended.N, l.Dependent.N = int(row.Limited), int(row.Suspended), int(row.Dependent)
		}
	}
	for _, row := range f.ended {
		span := int64(60_000)
		if row.Counted > MaxCounted {
			span = min(max(row.SpanMs, 1), span)
		}
		if l := onPage[row.LaneID]; l != nil {
			l.EndedPerMinute = float64(row.N) * 60_000 / float64(span)
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
