package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// repairPosition is where the next [Maintenance.RepairQueue] continues.
type repairPosition struct {
	mu    sync.Mutex
	after id.ExecutionID // zero: at the first execution
}

func (p *repairPosition) get() id.ExecutionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after
}

// move moves the position from the start of a call to its end, unless another call has moved it.
func (p *repairPosition) move(from, to id.ExecutionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == from {
		p.after = to
	}
}

// RepairQueue repairs executions that no other job finds, mostly after another program left them half-done, or after
// writes without the queue's triggers (a replica's, or a restore's). It examines up to batch executions, at most
// [MaxSweep], in the order of their rows, and returns how many it repaired; if that equals batch, call it again at
// once. Each call continues after the previous one of the same engine. After the last execution it deletes stale
// entries of the queue and of [Operator.BlockedExecutions], and drains of 30 days ago, and restarts. It also handles
// executions that [Maintenance.ExpireLeases], [Maintenance.Retain], [Maintenance.ExpireGrants] and [Maintenance.Adopt]
// missed.
//
// Errors: [ErrInvalidInput]; [ErrBusy] as [Maintenance.PromoteDelayed]. Transaction: one statement, another at the end,
// and further ones for changes; locks the changed executions, and exclusively the flows of members without a lease, and
// skips locked ones until the next round. Emits lease and completion events. Safe to repeat and to run in any number of
// processes.
func (m Maintenance) RepairQueue(ctx context.Context, batch int) (int, error) {
	e := m.e
	if batch < 1 || batch > MaxSweep {
		return 0, invalid("batch", fmt.Sprintf("must be between 1 and %d", MaxSweep))
	}
	after := e.repair.get()
	next, repaired, err := e.repairQueue(ctx, after, batch)
	e.repair.move(after, next)
	return repaired, err
}

// repairQueue repairs the executions after a position and returns the next position: the zero id restarts.
func (e *Engine) repairQueue(ctx context.Context, after id.ExecutionID, n int) (next id.ExecutionID, repaired int, err error) {
	const op = "repair queue"
	params := db.RepairQueueParams{AfterPartitionKey: -1, AfterExecutionID: pgUUID(id.ExecutionUUID{}), PageSize: int32(n), NowMs: e.nowMs()}
	params.DefaultMs = retentionMs(e.cfg.Retention)
	if !after.IsZero() {
		params.AfterPartitionKey, params.AfterExecutionID = after.Partition(), pgUUID(after.UUID())
	}
	rows, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, due *notifications) ([]db.RepairQueueRow, error) {
		rows, err := e.q.RepairQueue(ctx, conn, params)
		repaired = 0
		for _, row := range rows {
			if row.RepairedLane != "" {
				due.lane(row.RepairedLane)
			}
			if row.RepairedLane != "" || row.Listed {
				repaired++
			}
		}
		return rows, err
	})
	if err != nil {
		return after, 0, err
	}
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		returned, err := e.newPass(op, e.returnLeaseless).work(ctx, leaseless(rows), n)
		repaired += returned
		if err != nil {
			return after, repaired, err
		}
		returned, err = e.newPass(op, e.expireGrants).work(ctx, ungranted(rows), n)
		repaired += returned
		if err != nil {
			return after, repaired, err
		}
		deleted, err := e.retainOverdue(ctx, op, rows)
		repaired += deleted
		if err != nil {
			return after, repaired, err
		}
		for _, of := range []struct {
			left string
			act  func(context.Context, *txn, *flowSet, []candidate, int) (int, error)
		}{
			{"foreign", e.adoptFound},
			{"mispointed", e.repoint},
			{"half-ended", e.healEnded},
			{"mistold", e.retellEnded},
		} {
			mended, err := e.newPass(op, of.act).work(ctx, e.leftAs(rows, of.left), n)
			repaired += mended
			if err != nil {
				return after, repaired, err
			}
		}
		return id.ExecutionIDFromRow(last.PartitionKey, last.ExecutionID.Bytes), repaired, nil
	}
	swept, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, _ *notifications) (int64, error) {
		return e.q.SweepQueue(ctx, conn, db.SweepQueueParams{MaxItems: int32(n), NowMs: e.nowMs()})
	})
	if err != nil || int(swept) >= n {
		return after, int(swept), err
	}
	return id.ExecutionID{}, int(swept), nil
}

// retainOverdue deletes executions that retention missed, and returns how many.
func (e *Engine) retainOverdue(ctx context.Context, op string, rows []db.RepairQueueRow) (int, error) {
	var overdue executionArrays
	for _, row := range rows {
		if row.Overdue {
			overdue.add(row.PartitionKey, row.ExecutionID.Bytes)
		}
	}
	if overdue.empty() {
		return 0, nil
	}
	_, deleted, err := e.impatient().retain(ctx, op, fromSweep, func(_ *txn, r *retaining) error {
		r.looked = overdue
		return nil
	})
	return deleted, err
}

// leftAs returns the executions that another program left in the given way.
func (e *Engine) leftAs(rows []db.RepairQueueRow, left string) []candidate {
	var due []candidate
	for i := range rows {
		if row := &rows[i]; row.LeftAs == left {
			due = append(due, candidate{
				partition: row.PartitionKey, execution: row.ExecutionID.Bytes, flow: flowOf(row.FlowID), quota: e.quotaPartition(row.QuotaPolicyID),
			})
		}
	}
	return due
}

func leaseless(rows []db.RepairQueueRow) []candidate {
	var due []candidate
	for _, row := range rows {
		if row.Leaseless {
			due = append(due, candidate{
				partition: row.PartitionKey, execution: row.ExecutionID.Bytes, flow: flowOf(row.FlowID),
			})
		}
	}
	return due
}

// returnLeaseless returns due executions to their lanes that are active although none of their attempts is leased.
// Attempts with an expired lease, current or not, are left to [Maintenance.ExpireLeases].
func (e *Engine) returnLeaseless(ctx context.Context, tx *txn, flows *flowSet, due []candidate, _ int) (int, error) {
	var executions executionArrays
	for _, c := range due {
		executions.add(c.partition, c.execution)
	}
	taken, err := e.q.TakeLeaseless(ctx, tx, db.TakeLeaselessParams{
		PartitionKeys: executions.partitions, ExecutionIDs: executions.executions, DefaultCap: policy.ReclaimLimit,
	})
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	executions = executionArrays{}
	for _, row := range taken {
		executions.add(row.PartitionKey, row.ExecutionID)
	}
	current, err := e.lockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	listed, err := e.q.ListLeased(ctx, tx, db.ListLeasedParams{
		PartitionKeys: executions.partitions, ExecutionIDs: executions.executions,
	})
	if err != nil {
		return 0, err
	}
	leased := make(map[id.ExecutionUUID]bool, len(listed))
	for _, x := range listed {
		leased[x] = true
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	lost := newLostLeases(nowMs)
	for _, row := range taken {
		attempt, started := current[row.ExecutionID]
		if attempt.Busy || leased[row.ExecutionID] {
			continue
		}
		returned := endingAttempt{
			execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), index: row.AttemptIndex,
			epoch: max(row.HighestEpoch, attempt.LeaseEpoch) + 1, leaseID: attempt.LeaseID, instance: attempt.WorkerInstanceID,
		}
		if started {
			returned.index = attempt.AttemptIndex
		} else if row.LostTooOften {
			returned.index = -1
		}
		lost.add(returned, row.LostTooOften, row.FlowID == nil || flows.has(*row.FlowID))
	}
	return lost.len(), e.writeLost(ctx, tx, lost)
}
