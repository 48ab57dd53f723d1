package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// lockMembers locks the members of a flow that are to be cancelled, in lock order, waiting for locks. The caller holds
// the flow exclusively. It also returns their rows' attempt pointers.
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

// takeMembers locks the given members and their current attempts, in any state, and leaves out those that are locked.
// members are in lock order, and the caller holds their flows exclusively.
func (e *Engine) takeMembers(ctx context.Context, tx *core.Txn, members core.ExecutionArrays) (taken core.ExecutionArrays, err error) {
	if members.Empty() {
		return taken, nil
	}
	rows, err := e.c.Q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{
		PartitionKeys: members.Partitions, ExecutionIDs: members.Executions,
	})
	if err != nil || len(rows) == 0 {
		return taken, err
	}
	var locked core.ExecutionArrays
	for _, row := range rows {
		locked.AddUUID(members.Partitions[row.Ord], members.Executions[row.Ord])
	}
	attempts, err := e.c.Q.TakeCurrentAttempts(ctx, tx, db.TakeCurrentAttemptsParams{
		PartitionKeys: locked.Partitions, ExecutionIDs: locked.Executions,
	})
	busy := make(map[id.ExecutionUUID]bool)
	for _, row := range attempts {
		if row.Busy {
			busy[row.ExecutionID] = true
		}
	}
	for i, x := range locked.Executions {
		if !busy[x.Bytes] {
			taken.AddUUID(locked.Partitions[i], x)
		}
	}
	return taken, err
}

// cancelMembers ends the members that have not ended as cancelled, with all consequences, and returns their ids in
// order. It resolves their dependents in the flow, and skips those that can no longer run.
//
// The caller holds their flows exclusively. It has locked the members, in lock order, and their current attempts in
// earlier statements: by [Engine.takeMembers], or by [Engine.lockMembers] and LockMemberAttempts. core.NowMs was read after
// that.
//
// The number of statements does not depend on the number of members, only on the levels of skipped executions. After an
// error the transaction must be rolled back.
func (e *Engine) cancelMembers(
	ctx context.Context, tx *core.Txn, members core.ExecutionArrays, how cancellation, nowMs int64,
) ([]id.ExecutionID, error) {
	if members.Empty() {
		return nil, nil
	}
	ends := newCancelling(nowMs)
	for i, x := range members.Executions {
		ends.add(id.ExecutionIDFromRow(members.Partitions[i], x.Bytes), how)
	}
	ended, err := e.endCancelled(ctx, tx, ends)
	if err != nil {
		return nil, err
	}
	cancelled := make([]id.ExecutionID, len(ended))
	for i, x := range ended {
		cancelled[i] = x.ID
	}
	slices.SortFunc(cancelled, id.ExecutionID.Compare)
	return cancelled, nil
}
