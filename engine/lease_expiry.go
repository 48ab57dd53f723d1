package engine

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireLeases gives executions back to their lanes whose lease has run out, oldest first, at most batch
// of them: the attempt goes on with the next claim, and its former holder is refused from now on. An
// execution whose leases were lost more often than its policy allows ends as failed instead. An attempt that has taken
// longer than its timeout, too, ends by that, as [Maintenance.ExpireAttempts] does it. It returns how many leases it settled;
// the caller repeats it while that equals batch.
//
// It waits for nobody. An execution that another transaction holds, or whose flow or dependents it holds, is passed
// over, however many there are, and found again by the next call. A flow that was busy is asked for once more in the
// end. Any number of processes may run it.
//
// Transaction: one to forget leases that this process saw end; one for about 4,000 others that were taken
// or renewed long enough ago, to look at them; for those that have run out one more for a batch, or for 256 flows and
// less. It locks the flows of members that may end, exclusively, executions and attempts. Emits lease events, and
// completion events for what ends. Safe to repeat.
func (m Maintenance) ExpireLeases(ctx context.Context, batch int) (int, error) {
	e := m.e
	const op = "expire leases"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	if err := e.forgetLeaseTimers(ctx, op); err != nil {
		return 0, err
	}
	position := db.LookAtLeasesParams{
		DefaultCap: policy.ReclaimLimit, NowMs: e.nowMs(), MaxItems: lookedAtOnce,
		AfterDueAtMs: math.MinInt64, AfterTimerID: pgtype.UUID{Valid: true},
	}
	return e.newPass(op, e.expireLeases).through(ctx, batch, func(int) ([]candidate, int, bool, error) {
		rows, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, _ *notifications) ([]db.LookAtLeasesRow, error) {
			return e.q.LookAtLeases(ctx, conn, position)
		})
		if err != nil || len(rows) == 0 {
			return nil, 0, false, err
		}
		position.AfterDueAtMs, position.AfterTimerID = rows[0].ReachedDueAtMs, rows[0].ReachedTimerID
		var returning, ending []candidate
		for _, row := range rows {
			c := candidate{partition: row.PartitionKey, execution: row.ExecutionID.Bytes, attempt: row.AttemptIndex}
			switch {
			case !row.ExecutionID.Valid: // none has run out
			case row.MayEnd:
				c.flow = flowOf(row.FlowID)
				ending = append(ending, c)
			default:
				returning = append(returning, c)
			}
		}
		return slices.Concat(returning, ending), 0, true, nil
	})
}

// lookedAtOnce is how many leases a statement looks at, about: some are as many as a claim takes.
const lookedAtOnce = 4 * MaxBatch

// expireLeases settles those of due whose lease it can lock and is still over.
func (e *Engine) expireLeases(ctx context.Context, tx *txn, flows *flowSet, due []candidate, limit int) (int, error) {
	params := db.TakeExpiredLeasesParams{DefaultCap: policy.ReclaimLimit, NowMs: e.nowMs(), MaxItems: int32(limit)}
	for _, c := range due {
		params.PartitionKeys = append(params.PartitionKeys, c.partition)
		params.ExecutionIDs = append(params.ExecutionIDs, pgUUID(c.execution))
		params.AttemptIndexes = append(params.AttemptIndexes, c.attempt)
	}
	taken, err := e.q.TakeExpiredLeases(ctx, tx, params)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	var executions executionArrays
	for _, row := range taken {
		executions.add(row.PartitionKey, row.ExecutionID)
	}
	current, err := e.lockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	lost, timedOut := newLostLeases(nowMs), newTimeouts(nowMs)
	var strays db.FenceStrayLeasesParams
	for i := range taken {
		row := &taken[i]
		// Of one that joined a flow meanwhile the next scan foresees that it needs the flow's lock.
		mayEnd := row.FlowID == nil || flows.has(*row.FlowID)
		attempt := endingAttempt{
			execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), index: row.AttemptIndex,
			epoch: max(row.HighestEpoch, row.LeaseEpoch) + 1, leaseID: row.LeaseID, instance: row.WorkerInstanceID,
		}
		switch {
		case row.LifecyclePhase != string(state.Active) || row.AttemptIndex != current[row.ExecutionID].AttemptIndex:
			strays.PartitionKeys = append(strays.PartitionKeys, row.PartitionKey)
			strays.ExecutionIDs = append(strays.ExecutionIDs, pgUUID(row.ExecutionID))
			strays.AttemptIndexes = append(strays.AttemptIndexes, row.AttemptIndex)
		case row.TimedOut:
			retry, pause := retryDecision(row.Policy, row.RetryCount, row.RawRetryCount, timeout)
			timedOut.add(attempt, retry, pause, mayEnd)
		default:
			lost.add(attempt, row.LostTooOften, mayEnd)
		}
	}
	if len(strays.ExecutionIDs) > 0 {
		if err := e.q.FenceStrayLeases(ctx, tx, strays); err != nil {
			return 0, err
		}
	}
	if err := e.writeTimeouts(ctx, tx, timedOut); err != nil {
		return 0, err
	}
	return len(strays.ExecutionIDs) + timedOut.len() + lost.len(), e.writeLost(ctx, tx, lost)
}

// lostLeases is what becomes of attempts whose worker fell silent.
type lostLeases struct {
	returns db.ReleaseExpiredLeasesParams
	ends    *ending
}

func newLostLeases(nowMs int64) *lostLeases {
	ends := newEnding(nowMs, state.OutcomeFailed)
	ends.params.LostLeases = 1
	ends.params.CancellationReason = new("reclaim_cap_exceeded")
	return &lostLeases{returns: db.ReleaseExpiredLeasesParams{NowMs: nowMs}, ends: ends}
}

func (s *lostLeases) len() int { return len(s.returns.ExecutionIDs) + s.ends.len() }

// add adds an attempt, unless it was lost too often and its execution may not end now.
func (s *lostLeases) add(a endingAttempt, tooOften, mayEnd bool) {
	switch {
	case !tooOften:
		p := &s.returns
		p.PartitionKeys = append(p.PartitionKeys, a.execution.Partition())
		p.ExecutionIDs = append(p.ExecutionIDs, pgUUID(a.execution.UUID()))
		p.AttemptIndexes = append(p.AttemptIndexes, a.index)
		p.RaisedEpochs = append(p.RaisedEpochs, a.epoch)
		p.LeaseIDs = append(p.LeaseIDs, a.leaseID)
		p.WorkerInstanceIDs = append(p.WorkerInstanceIDs, a.instance)
	case mayEnd:
		a.leaseEvent, a.reason, a.category, a.class = "expired", reasonLostTooOften, string(policy.InfraCrash), policy.InfraCrash
		s.ends.add(a)
	}
}

// writeLost gives executions back to their lanes, or ends those that were lost too often.
func (e *Engine) writeLost(ctx context.Context, tx *txn, s *lostLeases) error {
	if len(s.returns.ExecutionIDs) > 0 {
		lanes, err := e.q.ReleaseExpiredLeases(ctx, tx, s.returns)
		if err != nil {
			return err
		}
		tx.due.leases()
		for _, lane := range lanes {
			tx.due.lane(lane)
		}
	}
	return e.endByJob(ctx, tx, s.ends)
}
