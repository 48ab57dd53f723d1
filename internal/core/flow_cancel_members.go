package core

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// TakeMembers locks the given members and their current attempts, in any state, and leaves out members locked by
// others. members are in lock order, and the caller holds their flows exclusively.
func (c *Core) TakeMembers(ctx context.Context, tx *Txn, members ExecutionArrays) (taken ExecutionArrays, err error) {
	if members.Empty() {
		return taken, nil
	}
	rows, err := c.Q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{
		PartitionKeys: members.Partitions, ExecutionIDs: members.Executions,
	})
	if err != nil || len(rows) == 0 {
		return taken, err
	}
	var locked ExecutionArrays
	for _, row := range rows {
		locked.AddUUID(members.Partitions[row.Ord], members.Executions[row.Ord])
	}
	attempts, err := c.Q.TakeCurrentAttempts(ctx, tx, db.TakeCurrentAttemptsParams{
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

// CancelMembers cancels the members that have not ended, with all consequences, and returns their ids in order. It
// resolves their dependents in the flow, and skips dependents that can no longer run.
//
// The caller holds the flows exclusively, and has locked the members, in lock order, and their current attempts in
// earlier statements: by [Core.TakeMembers], or by engine.Engine.lockMembers and LockMemberAttempts. nowMs was read
// after the locks.
//
// The number of statements does not depend on the number of members, only on the levels of skipped executions. After an
// error the transaction must be rolled back.
func (c *Core) CancelMembers(
	ctx context.Context, tx *Txn, members ExecutionArrays, how Cancellation, nowMs int64,
) ([]id.ExecutionID, error) {
	if members.Empty() {
		return nil, nil
	}
	ends := NewCancelling(nowMs)
	for i, x := range members.Executions {
		ends.Add(id.ExecutionIDFromRow(members.Partitions[i], x.Bytes), how)
	}
	ended, err := c.EndCancelled(ctx, tx, ends)
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
