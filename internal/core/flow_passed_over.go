package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
)

// leaveUncounted reopens edges of unsure that were marked although their group has no row. It marks the ended
// executions with open edges, so that the job dispatch_completions counts the edges under the flow's exclusive lock.
func (c *Core) leaveUncounted(ctx context.Context, tx *Txn, unsure, ended []EndedExecution) error {
	members := MemberArrays(unsure)
	if members.Empty() {
		return nil
	}
	rows, err := c.Q.ListUncountedEdges(ctx, tx, db.ListUncountedEdgesParams{
		PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions,
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	var left LeftEdges
	open := make(map[id.ExecutionUUID]struct{})
	for _, row := range rows {
		if len(row.EdgeIDs) > 0 {
			left.add(row.PartitionKey, row.FlowID, row.DownstreamEID, row.EdgeIDs)
		}
		for _, x := range row.OpenUpstreams {
			open[x.Bytes] = struct{}{}
		}
	}
	remind := !left.Empty()
	for i := range ended {
		if _, ok := open[ended[i].ID.UUID()]; ok && !ended[i].Left {
			ended[i].Left, remind = true, true
		}
	}
	if remind {
		tx.Due.undispatched()
	}
	return c.leaveEdges(ctx, tx, &left, ended)
}

// leaveEdges reopens edges resolved just before, and marks their upstreams.
func (c *Core) leaveEdges(ctx context.Context, tx *Txn, left *LeftEdges, upstreams []EndedExecution) error {
	if left.Empty() {
		return nil
	}
	rows, err := c.Q.LeaveEdges(ctx, tx, db.LeaveEdgesParams{
		PartitionKeys: left.Partitions, FlowIDs: left.Flows, DownstreamEIDs: left.Executions, EdgeIDs: left.edges,
		Outcome: string(upstreams[0].Outcome),
	})
	if err != nil {
		return err
	}
	open := make(map[id.ExecutionID]struct{}, len(rows))
	for _, row := range rows {
		open[id.ExecutionIDFromRow(row.PartitionKey, row.UpstreamEID.Bytes)] = struct{}{}
	}
	for i := range upstreams {
		if _, ok := open[upstreams[i].ID]; ok {
			upstreams[i].Left = true
		}
	}
	return nil
}

// leavePassedOver adds to left the edges of decided groups whose downstream should have moved but did not.
func (c *Core) leavePassedOver(
	ctx context.Context, tx *Txn, decided []DecidedGroup, moved map[id.ExecutionUUID]struct{}, left *LeftEdges,
) error {
	var rest DecidedArrays
	var params db.ListPassedOverParams
	for i := range decided {
		d := &decided[i]
		if _, ok := moved[d.DownstreamEID]; !ok && !d.over {
			rest.add(d)
			params.Skips = append(params.Skips, d.Decision == document.Impossible)
			params.Ords = append(params.Ords, int32(i))
		}
	}
	params.PartitionKeys, params.FlowIDs, params.ExecutionIDs = rest.Partitions, rest.flows, rest.Executions
	params.StagedFrom, params.StagedBelow = rest.stagedFrom, rest.stagedBelow
	passedOver, err := c.Q.ListPassedOver(ctx, tx, params)
	for _, i := range passedOver {
		d := &decided[i]
		left.add(d.PartitionKey, d.FlowID, d.DownstreamEID, d.EdgeIDs)
		d.Cancels = false
	}
	return err
}
