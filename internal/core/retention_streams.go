package core

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

const (
	// MaxDroppedFrames is about how many frames a transaction of retention deletes.
	MaxDroppedFrames = 20_000

	// maxFramePages is how many executions with more frames than a transaction has room for are tried in it. Most have
	// fewer frames than they wrote, and fit.
	maxFramePages = 8
)

// Shorten makes room for the frames of locked executions that are about to be deleted, and returns those that don't fit
// into this transaction. They lose some of their frames now, and are deleted later.
func (c *Core) Shorten(ctx context.Context, conn db.DBTX, x ExecutionArrays) (map[id.ExecutionUUID]bool, error) {
	sizes, err := c.Q.ListStreamSizes(ctx, conn, db.ListStreamSizesParams{PartitionKeys: x.Partitions, ExecutionIDs: x.Executions})
	if err != nil || len(sizes) == 0 {
		return nil, err
	}
	frames := make(map[pgtype.UUID]int64, len(sizes))
	for _, row := range sizes {
		frames[row.ExecutionID] = row.Frames
	}
	// Those with few frames first, so that a long stream delays no others.
	order := make([]int, len(x.Executions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(frames[x.Executions[a]], frames[x.Executions[b]]) })
	later := make(map[id.ExecutionUUID]bool)
	room, pages := int64(MaxDroppedFrames), 0
	for _, i := range order {
		execution := x.Executions[i]
		n := frames[execution]
		if n <= room {
			room -= n
			continue
		}
		if pages++; room > 0 && pages <= maxFramePages {
			dropped, err := c.Q.DropStreamFramesPage(ctx, conn, db.DropStreamFramesPageParams{
				PartitionKey: x.Partitions[i], ExecutionID: execution.Bytes, PageSize: int32(room),
			})
			if err != nil {
				return nil, err
			}
			if dropped == 0 { // it keeps fewer than it wrote, at most as many as there was room for
				room /= 2
				continue
			}
			room = 0
		}
		later[execution.Bytes] = true
	}
	return later, nil
}
