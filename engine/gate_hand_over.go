package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

// handOver gives the places of executions that a transaction completes to those that wait for them, in that transaction. Short
// work is not paced by the gate then, which would hear of the ends first.
type handOver struct {
	e      *Engine
	params db.HandOverPlacesParams
	rows   []db.HandOverPlacesRow
}

// handOverOf returns the hand-over of completions, nil if none is known to have limits. In a caller's transaction there is none: a
// lock of a limit would last as long as that.
func (e *Engine) handOverOf(items []completionItem) *handOver {
	var h *handOver
	for _, item := range items {
		for _, g := range e.leases.gatesOf(item.Lease.Fence) {
			if h == nil {
				h = &handOver{e: e, params: db.HandOverPlacesParams{MaxItems: MaxBatch, NowMs: e.nowMs()}}
			}
			x := item.Lease.Execution
			h.params.GatePartitionKeys = append(h.params.GatePartitionKeys, gatePartition(gate.ID(g.Bytes)))
			h.params.GateIDs = append(h.params.GateIDs, g)
			h.params.PartitionKeys = append(h.params.PartitionKeys, x.Partition())
			h.params.ExecutionIDs = append(h.params.ExecutionIDs, pgUUID(x.UUID()))
		}
	}
	return h
}

// run runs the statement, after that of the completions.
func (h *handOver) run(ctx context.Context, conn db.DBTX) (err error) {
	h.rows, err = h.e.q.HandOverPlaces(ctx, conn, h.params)
	return err
}

// announce wakes the lanes of what was admitted, except of executions that the same transaction has claimed, and the gate if it
// has to look.
func (h *handOver) announce(due *notifications, claimed []db.ClaimFromHeadRow) {
	taken := make(map[[16]byte]bool, len(claimed))
	for i := range claimed {
		taken[claimed[i].ExecutionID.Bytes] = true
	}
	for _, row := range h.rows {
		switch {
		case row.Undone:
			due.gated()
		case !taken[row.ExecutionID.Bytes]:
			due.resumed(row.LaneID)
		}
	}
}
