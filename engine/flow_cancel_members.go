package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// lockMembers locks the members of a flow to cancel, in lock order, waiting for locks. The caller holds the flow
// exclusively. The result includes the attempt pointers of the locked rows.
func (e *Engine) lockMembers(ctx context.Context, tx *core.Txn, c *flowCancel) (members core.ExecutionArrays, attempts []int32, err error) {
	if c.policy == state.CancelFlowOnly {
		return members, nil, nil
	}
	rows, err := e.c.Q.LockMembers(ctx, tx, db.LockMembersParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: core.PgUUID(c.flow), CleanUps: c.cleanUps,
		PendingOnly: c.policy == state.CancelPending, NotedOnly: c.noted,
	})
	for _, row := range rows {
		members.Add(row.PartitionKey, row.ExecutionID)
		attempts = append(attempts, row.AttemptIndex)
	}
	return members, attempts, err
}
