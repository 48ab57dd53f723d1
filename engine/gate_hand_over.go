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
	params db.FreePlacesParams
	undone bool
	rows   []db.AdmitNextRow
}

// handOverOf returns the hand-over of completions, nil if none is known to have limits. In a caller's transaction there is none: a
// lock of a limit would last as long as that.
func (e *Engine) handOverOf(items []completionItem) *handOver {
	var h *handOver
	for _, item := range items {
		for _, g := range e.leases.gatesOf(item.Lease.Fence) {
			if h == nil {
				h = &handOver{e: e}
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

// steps returns the statements, which follow that of the completions. then is called after them.
func (h *handOver) steps(ctx context.Context, then func()) []step {
	return []step{
		func(conn db.DBTX) (err error) {
			h.undone, err = h.e.q.FreePlaces(ctx, conn, h.params)
			return err
		},
		func(conn db.DBTX) (err error) {
			h.rows, err = h.e.q.AdmitNext(ctx, conn, db.AdmitNextParams{
				GatePartitionKeys: h.params.GatePartitionKeys, GateIDs: h.params.GateIDs, MaxItems: MaxBatch, NowMs: h.e.nowMs(),
			})
			if err == nil {
				then()
			}
			return err
		},
	}
}

// announce wakes the lanes of the admitted executions, except those that the same transaction has claimed, and the gate if it
// has to look.
func (h *handOver) announce(due *notifications, claimed []db.ClaimFromHeadRow) {
	if h.undone {
		due.gated()
	}
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
