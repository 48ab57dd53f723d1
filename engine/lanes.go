package engine

import (
	"context"
	"iter"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// LaneSummary is a lane as listings have it.
type LaneSummary struct {
	ID id.LaneID
}

// ListLanes returns the lanes that executions were created on, in byte order, after a cursor: [Page.Next] of the page
// before, "" for the first page. A limit of 0, or above [MaxPage], is taken as that.
//
// Errors: [ErrInvalidInput] for a negative limit or a cursor of another listing; [ErrCorruption] for a stored lane that
// is none. One statement, which reads all lanes; locks nothing.
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
	rows, err := e.q.ListLanes(ctx, e.reader(), db.ListLanesParams{AfterLaneID: string(last), PageSize: int32(limit) + 1})
	if err != nil {
		return page, err
	}
	lanes := make([]LaneSummary, len(rows))
	for i, row := range rows {
		lanes[i].ID = id.LaneID(row)
		if err := lanes[i].ID.Validate(); err != nil {
			return page, corrupt("ff_lane_registry.lane_id", err)
		}
	}
	return pageOf(lanes, limit, func(l *LaneSummary) string { return cursorOf(list, []byte(l.ID)) }), nil
}
