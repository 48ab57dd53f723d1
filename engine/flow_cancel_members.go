package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// lockMembers locks the members of a flow that are to be cancelled, in lock order, waiting for locks. The caller holds
// the flow exclusively. It also returns their rows' attempt pointers.
func (e *Engine) lockMembers(ctx context.Context, tx *txn, c *flowCancel) (members executionArrays, attempts []int32, err error) {
	if c.policy == state.CancelFlowOnly {
		return members, nil, nil
	}
	rows, err := e.q.LockMembers(ctx, tx, db.LockMembersParams{
		PartitionKey: e.cfg.Partitions.FlowPartition(c.flow), FlowID: pgUUID(c.flow), CleanUps: c.cleanUps,
		PendingOnly: c.policy == state.CancelPending, NotedOnly: c.noted,
	})
	for _, row := range rows {
		members.add(row.PartitionKey, row.ExecutionID)
		attempts = append(attempts, row.AttemptIndex)
	}
	return members, attempts, err
}

// takeMembers locks the given members and their current attempts, in any state, and leaves out those that are locked.
// members are in lock order, and the caller holds their flows exclusively.
func (e *Engine) takeMembers(ctx context.Context, tx *txn, members executionArrays) (taken executionArrays, err error) {
	if members.empty() {
		return taken, nil
	}
	rows, err := e.q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{
		PartitionKeys: members.partitions, ExecutionIDs: members.executions,
	})
	if err != nil || len(rows) == 0 {
		return taken, err
	}
	var locked executionArrays
	for _, row := range rows {
		locked.addUUID(members.partitions[row.Ord], members.executions[row.Ord])
	}
	attempts, err := e.q.TakeCurrentAttempts(ctx, tx, db.TakeCurrentAttemptsParams{
		PartitionKeys: locked.partitions, ExecutionIDs: locked.executions,
	})
	busy := make(map[id.ExecutionUUID]bool)
	for _, row := range attempts {
		if row.Busy {
			busy[row.ExecutionID] = true
		}
	}
	for i, x := range locked.executions {
		if !busy[x.Bytes] {
			taken.addUUID(locked.partitions[i], x)
		}
	}
	return taken, err
}

// cancelMembers ends the members that have not ended as cancelled, with all consequences, and returns their ids in
// order. It resolves their dependents in the flow, and skips those that can no longer run.
//
// The caller holds their flows exclusively. It has locked the members, in lock order, and their current attempts in
// earlier statements: by [Engine.takeMembers], or by [Engine.lockMembers] and LockMemberAttempts. nowMs was read after
// that.
//
// The number of statements does not depend on the number of members, only on the levels of skipped executions. After an
// error the transaction must be rolled back.
func (e *Engine) cancelMembers(
	ctx context.Context, tx *txn, members executionArrays, how cancellation, nowMs int64,
) ([]id.ExecutionID, error) {
	if members.empty() {
		return nil, nil
	}
	ends := newCancelling(nowMs)
	for i, x := range members.executions {
		ends.add(id.ExecutionIDFromRow(members.partitions[i], x.Bytes), how)
	}
	ended, err := e.endCancelled(ctx, tx, ends)
	if err != nil {
		return nil, err
	}
	cancelled := make([]id.ExecutionID, len(ended))
	for i, x := range ended {
		cancelled[i] = x.id
	}
	slices.SortFunc(cancelled, id.ExecutionID.Compare)
	return cancelled, nil
}
