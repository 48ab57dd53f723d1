package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

const (
	// maxDroppedFrames is about how many frames a transaction of retention deletes.
	maxDroppedFrames = 20_000

	// maxFramePages is how many executions with more frames than a transaction has room for are tried in it. Most have
	// fewer frames than they wrote, and fit.
	maxFramePages = 8
)

// shorten makes room for the frames of locked executions that are about to be deleted, and returns those that don't fit
// into this transaction. They lose some of their frames now, and are deleted later.
func (r *retaining) shorten(ctx context.Context, conn db.DBTX, x core.ExecutionArrays) (map[id.ExecutionUUID]bool, error) {
	sizes, err := r.c.Q.ListStreamSizes(ctx, conn, db.ListStreamSizesParams{PartitionKeys: x.Partitions, ExecutionIDs: x.Executions})
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
	room, pages := int64(maxDroppedFrames), 0
	for _, i := range order {
		execution := x.Executions[i]
		n := frames[execution]
		if n <= room {
			room -= n
			continue
		}
		if pages++; room > 0 && pages <= maxFramePages {
			dropped, err := r.c.Q.DropStreamFramesPage(ctx, conn, db.DropStreamFramesPageParams{
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

// shortenDue removes the executions from due whose frames don't fit into this transaction.
func (r *retaining) shortenDue(ctx context.Context, tx *core.Txn, due []ended) ([]ended, error) {
	var x core.ExecutionArrays
	for _, d := range due {
		x.Add(d.partition, d.execution)
	}
	later, err := r.shorten(ctx, tx, x)
	if err != nil || len(later) == 0 {
		return due, err
	}
	left := due[:0]
	for _, d := range due {
		if later[d.execution] {
			r.comeBack(0, d.partition, core.PgUUID(d.execution))
			continue
		}
		left = append(left, d)
	}
	return left, nil
}

// shortenFlows removes the members from due whose frames don't fit into this transaction, and leaves their flows for the
// next one.
func (p *purging) shortenFlows(ctx context.Context, tx *core.Txn, due []dueFlow) error {
	var x core.ExecutionArrays
	for _, d := range due {
		x.Partitions = append(x.Partitions, d.members.Partitions...)
		x.Executions = append(x.Executions, d.members.Executions...)
	}
	if x.Empty() {
		return nil
	}
	later, err := p.shorten(ctx, tx, x)
	if err != nil || len(later) == 0 {
		return err
	}
	for i := range due {
		d := &due[i]
		var members core.ExecutionArrays
		for n, execution := range d.members.Executions {
			if !later[execution.Bytes] {
				members.Add(d.members.Partitions[n], execution.Bytes)
			}
		}
		if len(members.Executions) < len(d.members.Executions) && d.whole {
			d.whole = false
			p.left = append(p.left, flowRow{d.PartitionKey, d.FlowID})
		}
		d.members = members
	}
	return nil
}
