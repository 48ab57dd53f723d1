package upkeep

import (
	"context"
	"fmt"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
)

// repairPosition is where the next [Upkeep.RepairQueue] continues.
type repairPosition struct {
	mu    sync.Mutex
	after id.ExecutionID // zero: at the first execution
}

func (p *repairPosition) get() id.ExecutionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after
}

// move moves the position from the start of a call to the end, unless another call has moved the position.
func (p *repairPosition) move(from, to id.ExecutionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == from {
		p.after = to
	}
}

// RepairQueue repairs executions that no other job finds, after writes without the queue's triggers: a replica's, or a
// restore's. It examines up to batch executions, at most [core.MaxSweep], in the order of their rows, and returns how
// many it repaired. Each call continues after the previous one of the same engine. After the last execution,
// RepairQueue deletes stale entries of the queue, of the lists of budgets and limits, and of
// [operator.BlockedExecutions], and drains of 30 days ago, and restarts. It also handles executions missed by
// [Upkeep.ExpireLeases], [Upkeep.Retain] and [Upkeep.ExpireGrants].
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrBusy] as [Upkeep.PromoteDelayed]. Transaction: one statement, another at the
// end, and one or more for each kind of repair; locks the changed executions, and exclusively the flows of members without a
// lease, and skips locked ones until the next round. Emits lease and completion events. Safe to repeat and to run in any number
// of processes.
func (u *Upkeep) RepairQueue(ctx context.Context, batch int) (int, error) {
	if batch < 1 || batch > core.MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", core.MaxSweep))
	}
	after := u.repair.get()
	next, repaired, err := u.repairQueue(ctx, after, batch)
	u.repair.move(after, next)
	return repaired, err
}

// repairQueue repairs the executions after a position and returns the next position: the zero id restarts.
func (u *Upkeep) repairQueue(ctx context.Context, after id.ExecutionID, n int) (next id.ExecutionID, repaired int, err error) {
	const op = "repair queue"
	params := db.ScanRepairsParams{AfterPartitionKey: -1, AfterExecutionID: core.PgUUID(id.ExecutionUUID{}), PageSize: int32(n), NowMs: u.c.NowMs()}
	params.DefaultMs = core.RetentionMs(u.c.Retention)
	if !after.IsZero() {
		params.AfterPartitionKey, params.AfterExecutionID = after.Partition(), core.PgUUID(after.UUID())
	}
	rows, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.ScanRepairsRow, error) {
		return u.c.Q.ScanRepairs(ctx, conn, params)
	})
	if err != nil {
		return after, 0, err
	}
	if len(rows) == 0 {
		swept, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
			return u.c.Q.SweepQueue(ctx, conn, db.SweepQueueParams{MaxItems: int32(n), NowMs: u.c.NowMs()})
		})
		if err != nil || int(swept) >= n {
			return after, int(swept), err
		}
		return id.ExecutionID{}, int(swept), nil
	}
	pass := func(act repairAct, due []core.Candidate) (int, error) {
		return u.c.NewPass(op, act).Work(ctx, due, n)
	}
	for _, repair := range []func() (int, error){
		func() (int, error) { return u.queueUnqueued(ctx, op, rows) },
		func() (int, error) { return u.listUnmet(ctx, op, rows) },
		func() (int, error) { return u.listUnlisted(ctx, op, rows) },
		func() (int, error) { return 0, u.timeUntimed(ctx, op, rows) },
		func() (int, error) { return pass(u.returnLeaseless, leaseless(rows)) },
		func() (int, error) { return pass(u.expireGrants, ungranted(rows)) },
		func() (int, error) { return u.retainOverdue(ctx, op, rows) },
	} {
		n, err := repair()
		repaired += n
		if err != nil {
			return after, repaired, err
		}
	}
	last := rows[len(rows)-1]
	return id.ExecutionIDFromRow(last.PartitionKey, last.ExecutionID.Bytes), repaired, nil
}

// repairAct repairs at most limit due executions, skips locked ones, and returns how many it repaired.
type repairAct = func(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, limit int) (int, error)

// needing returns the executions that need a repair.
func needing(rows []db.ScanRepairsRow, repair func(*db.ScanRepairsRow) bool) core.ExecutionArrays {
	var executions core.ExecutionArrays
	for i := range rows {
		if repair(&rows[i]) {
			executions.AddUUID(rows[i].PartitionKey, rows[i].ExecutionID)
		}
	}
	return executions
}

// queueUnqueued inserts missing queue entries, and returns how many.
func (u *Upkeep) queueUnqueued(ctx context.Context, op string, rows []db.ScanRepairsRow) (int, error) {
	unqueued := needing(rows, func(row *db.ScanRepairsRow) bool { return row.Unqueued })
	if unqueued.Empty() {
		return 0, nil
	}
	return core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, due *core.Notifications) (int, error) {
		lanes, err := u.c.Q.QueueUnqueued(ctx, conn, db.QueueUnqueuedParams{
			PartitionKeys: unqueued.Partitions, ExecutionIDs: unqueued.Executions,
		})
		for _, lane := range lanes {
			due.Lane(lane)
		}
		return len(lanes), err
	})
}

// listUnmet lists executions missing in the list of their budget or limit, and returns how many.
func (u *Upkeep) listUnmet(ctx context.Context, op string, rows []db.ScanRepairsRow) (int, error) {
	unmet := needing(rows, func(row *db.ScanRepairsRow) bool { return row.Unmet })
	if unmet.Empty() {
		return 0, nil
	}
	return core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, due *core.Notifications) (int, error) {
		listed, err := u.c.Q.ListUnmet(ctx, conn, db.ListUnmetParams{PartitionKeys: unmet.Partitions, ExecutionIDs: unmet.Executions})
		if listed > 0 {
			due.Gated()
		}
		return int(listed), err
	})
}

// listUnlisted lists blocked executions that are not listed with their present state, and returns how many.
func (u *Upkeep) listUnlisted(ctx context.Context, op string, rows []db.ScanRepairsRow) (int, error) {
	unlisted := needing(rows, func(row *db.ScanRepairsRow) bool { return row.Unlisted })
	if unlisted.Empty() {
		return 0, nil
	}
	return core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (int, error) {
		listed, err := u.c.Q.ListUnlisted(ctx, conn, db.ListUnlistedParams{
			PartitionKeys: unlisted.Partitions, ExecutionIDs: unlisted.Executions, NowMs: u.c.NowMs(),
		})
		return int(listed), err
	})
}

// timeUntimed sets a timer for leases that expired without one, for [Upkeep.ExpireLeases].
func (u *Upkeep) timeUntimed(ctx context.Context, op string, rows []db.ScanRepairsRow) error {
	untimed := needing(rows, func(row *db.ScanRepairsRow) bool { return row.Untimed })
	if untimed.Empty() {
		return nil
	}
	_, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (struct{}, error) {
		return struct{}{}, u.c.Q.TimeUntimed(ctx, conn, db.TimeUntimedParams{
			PartitionKeys: untimed.Partitions, ExecutionIDs: untimed.Executions, NowMs: u.c.NowMs(),
		})
	})
	return err
}

// retainOverdue deletes executions missed by retention, and returns how many.
func (u *Upkeep) retainOverdue(ctx context.Context, op string, rows []db.ScanRepairsRow) (int, error) {
	overdue := needing(rows, func(row *db.ScanRepairsRow) bool { return row.Overdue })
	if overdue.Empty() {
		return 0, nil
	}
	_, deleted, err := u.shortWait().retain(ctx, op, fromSweep, func(_ *core.Txn, r *retaining) error {
		r.looked = overdue
		return nil
	})
	return deleted, err
}

func leaseless(rows []db.ScanRepairsRow) []core.Candidate {
	var due []core.Candidate
	for _, row := range rows {
		if row.Leaseless {
			due = append(due, core.Candidate{
				Partition: row.PartitionKey, Execution: row.ExecutionID.Bytes, Flow: core.FlowOf(row.FlowID),
			})
		}
	}
	return due
}

// returnLeaseless returns due executions to their lanes if active although no attempt is leased. Attempts with an
// expired lease, current or not, are left to [Upkeep.ExpireLeases].
func (u *Upkeep) returnLeaseless(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, _ int) (int, error) {
	var executions core.ExecutionArrays
	for _, c := range due {
		executions.Add(c.Partition, c.Execution)
	}
	taken, err := u.c.Q.TakeLeaseless(ctx, tx, db.TakeLeaselessParams{
		PartitionKeys: executions.Partitions, ExecutionIDs: executions.Executions, DefaultCap: policy.ReclaimLimit,
	})
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	executions = core.ExecutionArrays{}
	for _, row := range taken {
		executions.Add(row.PartitionKey, row.ExecutionID)
	}
	current, err := u.c.LockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	listed, err := u.c.Q.ListLeased(ctx, tx, db.ListLeasedParams{
		PartitionKeys: executions.Partitions, ExecutionIDs: executions.Executions,
	})
	if err != nil {
		return 0, err
	}
	leased := make(map[id.ExecutionUUID]bool, len(listed))
	for _, x := range listed {
		leased[x] = true
	}
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return 0, err
	}
	lost := core.NewLostLeases(nowMs)
	for _, row := range taken {
		attempt, started := current[row.ExecutionID]
		if attempt.Busy || leased[row.ExecutionID] {
			continue
		}
		returned := core.EndingAttempt{
			Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), Index: row.AttemptIndex,
			Epoch: max(row.HighestEpoch, attempt.LeaseEpoch) + 1, LeaseID: attempt.LeaseID, Instance: attempt.WorkerInstanceID,
		}
		if started {
			returned.Index = attempt.AttemptIndex
		} else if row.LostTooOften {
			returned.Index = -1
		}
		lost.Add(returned, row.LostTooOften, row.FlowID == nil || flows.Has(*row.FlowID))
	}
	return lost.Len(), u.c.WriteLost(ctx, tx, lost)
}
