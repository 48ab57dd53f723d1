package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// repairPosition is where the next [Maintenance.RepairQueue] goes on.
type repairPosition struct {
	mu    sync.Mutex
	after id.ExecutionID // zero: at the first execution
}

func (p *repairPosition) get() id.ExecutionID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after
}

// move moves from where a call began to where it ended, unless another call has moved meanwhile.
func (p *repairPosition) move(from, to id.ExecutionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == from {
		p.after = to
	}
}

// MaxSweep is the most executions that one [Maintenance.RepairQueue] looks through, groups that one
// [Maintenance.RepairGroups] does, and flows that one [Maintenance.SummariseFlows] does.
const MaxSweep = 15_000

// RepairQueue looks through a batch of executions, up to [MaxSweep], in the order of their rows, for work that
// is claimable but not queued, and queues it, and for executions that count as running while nobody has a lease of
// them, or as granted while nobody has a grant, which no other job finds: what another program left half-done. These it
// gives back to their lanes as [Maintenance.ExpireLeases] does with a lease that has run out, and
// [Maintenance.ExpireGrants] with a grant that has expired. What has ended and is overdue it deletes as
// [Maintenance.Retain] does, where that never came past it. What is blocked and not listed for
// [Operator.BlockedExecutions] it lists. After the last execution it deletes, up to a batch at
// a time, what is queued but not claimable, and listed but not blocked, forgets which workers were drained 30 days ago,
// and then begins anew. It returns how many it repaired: a whole batch of
// them says that there may be more in the same place.
//
// Each call goes on where the last one of the same engine stopped, whichever of its handles made it. What a caller's
// transaction repaired and rolled back is found the next time round.
//
// What another program leaves half-done of executions is mended on the way: a state, an instant, an attachment in a form of
// its own (as [Maintenance.Adopt] does), a pointer beside the attempt that goes on, the lease of an execution that has
// ended, the completion event and the dependents of one that was cancelled within the last day, and the public state of
// one that has ended.
//
// The database keeps the queue itself, by triggers, and the lease timers. Rows that were written while
// these did not fire (a replica's, or those of a restore that disabled them) are what this is for. It also
// finds leases that ran out a minute ago and more, so that [Maintenance.ExpireLeases] looks at them.
//
// It waits for nobody: what another transaction holds is left to the next time round.
//
// Errors: [ErrInvalidInput]; [ErrBusy] as [Maintenance.PromoteDelayed]. Transaction: one statement, after the last execution a second one, and one transaction
// for executions without a lease, where there are any; locks what it acts on, and exclusively the flows of members that
// have no lease. Emits lease and completion events for these. Safe to repeat and to run in any number of processes.
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

// repairQueue repairs what follows after and returns where to go on: the zero id begins anew.
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

// retainOverdue deletes what retention should have met and did not, and returns how many that were.
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

// leftAs returns the executions that another program left in one way.
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

// returnLeaseless gives those of due back to their lanes that are active though no attempt of theirs has a lease. An
// attempt whose lease has run out, current or not, is for [Maintenance.ExpireLeases] first.
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
