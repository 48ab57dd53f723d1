package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// maxScanned is how many entries of a lane's queue [Engine.WaitingKinds] reads, some 10 milliseconds' worth.
const maxScanned = 20_000

// WaitingFilter says which kinds [Engine.WaitingKinds] is asked for. Its zero value is all that wait.
type WaitingFilter struct {
	Lanes  []id.LaneID   // empty: all, up to [MaxPage]
	Except []string      // kinds that are of no interest, as those that the caller has handlers for
	Longer time.Duration // the least time that the next execution has waited
}

// WaitingKind is work of one kind in one lane that a worker could claim and none has claimed.
type WaitingKind struct {
	Lane    id.LaneID
	Kind    string
	Waiting int            // executions
	AtLeast bool           // there may be more of them, after the part of the lane that was read
	Next    id.ExecutionID // the first in claim order
	Since   time.Time      // the next one is claimable since
}

// WaitingKinds tells which kinds of work wait for a worker, by lane and kind: at most [MaxPage] of them. A kind whose
// next execution has waited for long has workers that are behind with it, or none: if the next one is still the same a
// minute later, nobody takes it, because there is no handler for it, or nobody with the capabilities it requires.
//
// It reads the first 20,000 entries of each lane's queue: a kind that is waiting after these is not listed.
//
// Errors: [ErrInvalidInput]. Transaction: one statement, without lanes two; locks nothing.
func (e *Engine) WaitingKinds(ctx context.Context, filter WaitingFilter) ([]WaitingKind, error) {
	const op = "list waiting kinds"
	if filter.Longer < 0 {
		return nil, wrap(op, invalid("longer", "is negative"))
	}
	lanes := make([]string, len(filter.Lanes))
	for i, lane := range filter.Lanes {
		if err := lane.Validate(); err != nil {
			return nil, wrap(op, invalidBecause("lane", err))
		}
		lanes[i] = string(lane)
	}
	for i, kind := range filter.Except {
		if err := checkText(fmt.Sprintf("except[%d]", i), kind, maxKind); err != nil {
			return nil, wrap(op, err)
		}
	}
	slices.Sort(lanes)
	lanes = slices.Compact(lanes)
	if len(lanes) == 0 {
		var err error
		if lanes, err = e.q.ListQueuedLanes(ctx, e.reader(), MaxPage); err != nil {
			return nil, wrap(op, err)
		}
	}
	rows, err := e.q.ListWaitingKinds(ctx, e.reader(), db.ListWaitingKindsParams{
		LaneIDs: lanes, ExceptKinds: filter.Except, LongerMs: filter.Longer.Milliseconds(), NowMs: e.nowMs(),
		MaxScanned: maxScanned, PageSize: MaxPage,
	})
	if err != nil {
		return nil, wrap(op, err)
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
