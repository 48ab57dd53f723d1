package upkeep

import (
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireLeases returns executions with expired leases to their lanes, oldest first. The attempt continues with the next
// claim, and calls of the former holder are refused. An execution that lost more leases than its policy allows ends as
// failed instead, and a timed-out attempt ends as by the job expire_attempts. It handles at most batch leases and
// returns how many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one to delete timers of leases that this process saw end; one per about
// 4,000 other leases due for a check; for expired leases one more per batch or per 256 flows. Locks the flows of
// members that may end exclusively, executions and attempts. Skips locked executions, flows and dependents for the next
// call, and retries a few busy flows once at the end. Emits lease events, and completion events of ended executions.
// Safe to repeat and to run in any number of processes.
func (u *Upkeep) ExpireLeases(ctx context.Context, batch int) (int, error) {

	const op = "expire leases"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	if err := u.c.ForgetLeaseTimers(ctx, op); err != nil {
		return 0, err
	}
	position := db.LookAtLeasesParams{
		DefaultCap: policy.ReclaimLimit, NowMs: u.c.NowMs(), MaxItems: lookedAtOnce,
		AfterDueAtMs: math.MinInt64, AfterTimerID: pgtype.UUID{Valid: true},
	}
	return u.c.NewPass(op, u.expireLeases).Through(ctx, batch, func(int) ([]core.Candidate, int, bool, error) {
		rows, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.LookAtLeasesRow, error) {
			return u.c.Q.LookAtLeases(ctx, conn, position)
		})
		if err != nil || len(rows) == 0 {
			return nil, 0, false, err
		}
		position.AfterDueAtMs, position.AfterTimerID = rows[0].ReachedDueAtMs, rows[0].ReachedTimerID
		var returning, ending []core.Candidate
		for _, row := range rows {
			c := core.Candidate{Partition: row.PartitionKey, Execution: row.ExecutionID.Bytes, Attempt: row.AttemptIndex}
			switch {
			case !row.ExecutionID.Valid: // none has expired
			case row.MayEnd:
				c.Flow = core.FlowOf(row.FlowID)
				ending = append(ending, c)
			default:
				returning = append(returning, c)
			}
		}
		return slices.Concat(returning, ending), 0, true, nil
	})
}

// lookedAtOnce is the approximate number of leases examined by one statement.
const lookedAtOnce = 4 * engine.MaxBatch

// expireLeases settles the due leases that are still expired, and skips locked ones.
func (u *Upkeep) expireLeases(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	params := db.TakeExpiredLeasesParams{DefaultCap: policy.ReclaimLimit, NowMs: u.c.NowMs(), MaxItems: int32(limit)}
	for _, c := range due {
		params.PartitionKeys = append(params.PartitionKeys, c.Partition)
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(c.Execution))
		params.AttemptIndexes = append(params.AttemptIndexes, c.Attempt)
	}
	taken, err := u.c.Q.TakeExpiredLeases(ctx, tx, params)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	var executions core.ExecutionArrays
	for _, row := range taken {
		executions.Add(row.PartitionKey, row.ExecutionID)
	}
	current, err := u.c.LockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return 0, err
	}
	lost, timedOut := core.NewLostLeases(nowMs), newTimeouts(nowMs)
	var strays db.FenceStrayLeasesParams
	for i := range taken {
		row := &taken[i]
		// If the execution joined a flow in the meantime, the next scan expects the flow's lock.
		mayEnd := row.FlowID == nil || flows.Has(*row.FlowID)
		attempt := core.EndingAttempt{
			Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), Index: row.AttemptIndex,
			Epoch: max(row.HighestEpoch, row.LeaseEpoch) + 1, LeaseID: row.LeaseID, Instance: row.WorkerInstanceID,
		}
		switch {
		case row.LifecyclePhase != string(state.Active) || row.AttemptIndex != current[row.ExecutionID].AttemptIndex:
			strays.PartitionKeys = append(strays.PartitionKeys, row.PartitionKey)
			strays.ExecutionIDs = append(strays.ExecutionIDs, core.PgUUID(row.ExecutionID))
			strays.AttemptIndexes = append(strays.AttemptIndexes, row.AttemptIndex)
		case row.TimedOut:
			retry, pause := core.RetryDecision(row.Policy, row.RetryCount, row.RawRetryCount, policy.TimedOut, timeoutCategory)
			timedOut.add(attempt, retry, pause, mayEnd)
		default:
			lost.Add(attempt, row.LostTooOften, mayEnd)
		}
	}
	if len(strays.ExecutionIDs) > 0 {
		if err := u.c.Q.FenceStrayLeases(ctx, tx, strays); err != nil {
			return 0, err
		}
	}
	if err := u.writeTimeouts(ctx, tx, timedOut); err != nil {
		return 0, err
	}
	return len(strays.ExecutionIDs) + timedOut.len() + lost.Len(), u.c.WriteLost(ctx, tx, lost)
}
