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

	// maxFramePages is how many executions a transaction tries although they wrote more frames than it may still
	// delete. Most keep fewer frames than they wrote, and fit.
	maxFramePages = 8
)

// Shorten limits the frames deleted with locked executions in a transaction, and returns the executions with too many.
// Such an execution loses some frames now, and is deleted later.
func (c *Core) Shorten(ctx context.Context, conn db.DBTX, x ExecutionArrays) (map[id.ExecutionUUID]bool, error) {
	sizes, err := c.Q.ListStreamSizes(ctx, conn, db.ListStreamSizesParams{PartitionKeys: x.Partitions, ExecutionIDs: x.Executions})
	if err != nil || len(sizes) == 0 {
		return nil, err
	}
	frames := make(map[pgtype.UUID]int64, len(sizes))
	for _, row := range sizes {
		frames[row.ExecutionID] = row.Frames
	}
	// Executions with few frames come first, so a long stream delays no others.
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
			if dropped == 0 { // it keeps fewer frames than it wrote, at most room
				room /= 2
				continue
			}
			room = 0
		}
		later[execution.Bytes] = true
	}
	return later, nil
}
