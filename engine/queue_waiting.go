package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// maxScanned is the number of entries read from a lane's queue by [Engine.WaitingKinds], in about 10 milliseconds.
const maxScanned = 20_000

// WaitingFilter selects kinds for [Engine.WaitingKinds]. The zero value selects all.
type WaitingFilter struct {
	Lanes  []id.LaneID   // empty for all, up to [MaxPage]
	Except []string      // kinds to leave out, such as the caller's own
	Longer time.Duration // shortest waiting time of the next execution
}

// WaitingKind is claimable work of one kind in one lane.
type WaitingKind struct {
	Lane    id.LaneID
	Kind    string
	Waiting int            // number of executions
	AtLeast bool           // the unread part of the queue may have more
	Next    id.ExecutionID // the first in claim order
	Since   time.Time      // when the next one became claimable
}

// WaitingKinds returns the kinds of work waiting for a worker, by lane and kind, at most [MaxPage]. If a kind's next
// execution has waited long, its workers are behind or missing. If the same one still waits a minute later, no running
// worker has a handler and the required capabilities. Only the first 20,000 entries of each lane's queue are read.
//
// Errors: [fferr.ErrInvalidInput].
func (e *Engine) WaitingKinds(ctx context.Context, filter WaitingFilter) ([]WaitingKind, error) {
	const op = "list waiting kinds"
	if filter.Longer < 0 {
		return nil, core.Wrap(op, core.Invalid("longer", "is negative"))
	}
	lanes := make([]string, len(filter.Lanes))
	for i, lane := range filter.Lanes {
		if err := lane.Validate(); err != nil {
			return nil, core.Wrap(op, core.InvalidBecause("lane", err))
		}
		lanes[i] = string(lane)
	}
	for i, kind := range filter.Except {
		if err := core.CheckText(fmt.Sprintf("except[%d]", i), kind, core.MaxKind); err != nil {
			return nil, core.Wrap(op, err)
		}
	}
	slices.Sort(lanes)
	lanes = slices.Compact(lanes)
	if len(lanes) == 0 {
		var err error
		if lanes, err = e.c.Q.ListQueuedLanes(ctx, e.c.Reader(), MaxPage); err != nil {
			return nil, core.Wrap(op, err)
		}
	}
	rows, err := e.c.Q.ListWaitingKinds(ctx, e.c.Reader(), db.ListWaitingKindsParams{
		LaneIDs: lanes, ExceptKinds: filter.Except, LongerMs: filter.Longer.Milliseconds(), NowMs: e.c.NowMs(),
		MaxScanned: maxScanned, PageSize: MaxPage,
	})
	if err != nil {
		return nil, core.Wrap(op, err)
	}
	kinds := make([]WaitingKind, len(rows))
	for i, row := range rows {
		kinds[i] = WaitingKind{
			Lane: id.LaneID(row.LaneID), Kind: row.Kind, Waiting: int(row.Waiting), AtLeast: row.AtLeast,
			Next:  id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			Since: time.UnixMilli(row.SinceMs),
		}
	}
	return kinds, nil
}
