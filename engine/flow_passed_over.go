package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
)

// leaveUncounted reopens those edges of unsure that were marked although their group has no row. It marks the ended
// executions with open edges, so that [Maintenance.DispatchCompletions] counts them under the flow's exclusive lock.
func (e *Engine) leaveUncounted(ctx context.Context, tx *txn, unsure, ended []endedExecution) error {
	members := memberArrays(unsure)
	if members.empty() {
		return nil
	}
	rows, err := e.q.ListUncountedEdges(ctx, tx, db.ListUncountedEdgesParams{
		PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions,
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	var left leftEdges
	open := make(map[id.ExecutionUUID]struct{})
	for _, row := range rows {
		if len(row.EdgeIDs) > 0 {
			left.add(row.PartitionKey, row.FlowID, row.DownstreamEID, row.EdgeIDs)
		}
		for _, x := range row.OpenUpstreams {
			open[x.Bytes] = struct{}{}
		}
	}
	remind := !left.empty()
	for i := range ended {
		if _, ok := open[ended[i].id.UUID()]; ok && !ended[i].left {
			ended[i].left, remind = true, true
		}
	}
	if remind {
		tx.due.undispatched()
	}
	return e.leaveEdges(ctx, tx, &left, ended)
}

// leaveEdges reopens edges that were just resolved, and marks their upstreams.
func (e *Engine) leaveEdges(ctx context.Context, tx *txn, left *leftEdges, upstreams []endedExecution) error {
	if left.empty() {
		return nil
	}
	rows, err := e.q.LeaveEdges(ctx, tx, db.LeaveEdgesParams{
		PartitionKeys: left.partitions, FlowIDs: left.flows, DownstreamEIDs: left.executions, EdgeIDs: left.edges,
		Outcome: string(upstreams[0].outcome),
	})
	if err != nil {
		return err
	}
	open := make(map[id.ExecutionID]struct{}, len(rows))
	for _, row := range rows {
		open[id.ExecutionIDFromRow(row.PartitionKey, row.UpstreamEID.Bytes)] = struct{}{}
	}
	for i := range upstreams {
		if _, ok := open[upstreams[i].id]; ok {
			upstreams[i].left = true
		}
	}
	return nil
}

// leavePassedOver adds to left the edges of decided groups whose downstream should have moved but did not.
func (e *Engine) leavePassedOver(
	ctx context.Context, tx *txn, decided []decidedGroup, moved map[id.ExecutionUUID]struct{}, left *leftEdges,
) error {
	var rest decidedArrays
	var params db.ListPassedOverParams
	for i := range decided {
		d := &decided[i]
		if _, ok := moved[d.DownstreamEID]; !ok && !d.over {
			rest.add(d)
			params.Skips = append(params.Skips, d.decision == document.Impossible)
			params.Ords = append(params.Ords, int32(i))
		}
	}
	params.PartitionKeys, params.FlowIDs, params.ExecutionIDs = rest.partitions, rest.flows, rest.executions
	params.StagedFrom, params.StagedBelow = rest.stagedFrom, rest.stagedBelow
	passedOver, err := e.q.ListPassedOver(ctx, tx, params)
	for _, i := range passedOver {
		d := &decided[i]
		left.add(d.PartitionKey, d.FlowID, d.DownstreamEID, d.EdgeIDs)
		d.cancels = false
	}
	return err
}
