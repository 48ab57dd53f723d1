package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// What background jobs leave on an execution as its failure.
const (
	reasonLostTooOften = "lease_reclaim_cap_exceeded"
	reasonTimeout      = "attempt_timeout"
	reasonDeadline     = "execution_deadline"
)

func checkBatch(batch int) error {
	if batch < 1 || batch > MaxBatch {
		return invalid("batch", "must be between 1 and 1000")
	}
	return nil
}

// lockCurrentAttempts locks the current attempts of locked executions, by execution.
func (e *Engine) lockCurrentAttempts(
	ctx context.Context, tx db.DBTX, executions executionArrays,
) (map[id.ExecutionUUID]db.LockCurrentAttemptsRow, error) {
	executions.sort()
	rows, err := e.q.LockCurrentAttempts(ctx, tx, db.LockCurrentAttemptsParams{
		PartitionKeys: executions.partitions, ExecutionIds: executions.executions,
	})
	if err != nil {
		return nil, err
	}
	current := make(map[id.ExecutionUUID]db.LockCurrentAttemptsRow, len(rows))
	for _, row := range rows {
		current[row.ExecutionID] = row
	}
	return current, nil
}

// ExpireDeadlines ends executions whose deadline has passed, in whatever state they wait or run, at most
// batch of them. What can no longer run because of it is skipped. It returns on how many it acted, those
// included that another program had ended and whose deadline is only put away; the caller repeats it
// while that equals batch.
//
// Transaction: one, after one for what had ended; locks the flows of members, exclusively, executions
// without waiting, then their attempts. Emits lease and completion events. Safe to repeat and to run in any
// number of processes.
func (e *Engine) ExpireDeadlines(ctx context.Context, batch int) (int, error) {
	const op = "expire deadlines"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	due, err := e.q.ScanOverdue(ctx, e.reader(), db.ScanOverdueParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
	if err != nil {
		return 0, wrap(op, err)
	}
	if len(due) == 0 {
		return 0, nil
	}
	slices.SortFunc(due, func(a, b db.ScanOverdueRow) int {
		return cmp.Or(cmp.Compare(a.PartitionKey, b.PartitionKey), compareUUID(a.ExecutionID, b.ExecutionID))
	})
	settled, err := e.settleDeadlines(ctx, due)
	if err != nil {
		return 0, err
	}
	if settled == len(due) {
		return settled, nil
	}
	ended, err := inTx(ctx, e, op, func(tx *txn) (int, error) {
		flows := newFlowSet(e.cfg.Partitions)
		params := db.TakeOverdueParams{NowMs: e.nowMs()}
		for _, row := range due {
			if !row.Finished && flows.admit(row.FlowID) {
				params.PartitionKeys = append(params.PartitionKeys, row.PartitionKey)
				params.ExecutionIds = append(params.ExecutionIds, pgUUID(row.ExecutionID))
			}
		}
		if err := e.lockFlowsExclusive(ctx, tx, flows); err != nil {
			return 0, err
		}
		taken, err := e.q.TakeOverdue(ctx, tx, params)
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
		ends := newEnding(nowMs, state.OutcomeExpired)
		for _, row := range taken {
			if row.FlowID != nil && !flows.has(*row.FlowID) {
				continue // it joined the flow meanwhile; the next scan foresees it
			}
			end := endingAttempt{
				execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), index: -1,
				reason: reasonDeadline, category: string(policy.TimedOut),
			}
			if attempt, ok := current[row.ExecutionID]; ok && attempt.TerminalAtMs == nil {
				end.index = attempt.AttemptIndex
				end.epoch = max(row.HighestEpoch, attempt.LeaseEpoch) + 1
				if attempt.LeaseExpiresAtMs != nil {
					end.leaseEvent, end.leaseID, end.instance = "expired", attempt.LeaseID, attempt.WorkerInstanceID
				}
			}
			ends.add(end)
		}
		return ends.len(), e.endByJob(ctx, tx, ends)
	})
	return settled + ended, err
}

// settleDeadlines puts the deadlines of those among due away that another program has ended.
func (e *Engine) settleDeadlines(ctx context.Context, due []db.ScanOverdueRow) (int, error) {
	var finished executionArrays
	for _, row := range due {
		if row.Finished {
			finished.add(row.PartitionKey, row.ExecutionID)
		}
	}
	if finished.empty() {
		return 0, nil
	}
	return inStatement(ctx, e, "settle deadlines", func(conn db.DBTX, _ *rings) (int, error) {
		return len(finished.executions), e.q.SettleDeadlines(ctx, conn, db.SettleDeadlinesParams{
			PartitionKeys: finished.partitions, ExecutionIds: finished.executions,
		})
	})
}

// ExpireAttempts ends running attempts that have taken longer than their policy's timeout, at most batch
// of them: another attempt follows where the retry policy retries timeouts, else the execution ends as
// expired. Their workers are refused from now on. It returns on how many it acted, those included whose
// lease another program has taken away and whose timeout is only forgotten; the caller repeats it while
// that equals batch.
//
// Transaction: one, after one for timeouts to forget; locks the flows of members that end, exclusively, and
// executions and attempts without waiting. Emits lease and completion events. Safe to repeat and to run in
// any number of processes.
func (e *Engine) ExpireAttempts(ctx context.Context, batch int) (int, error) {
	const op = "expire attempts"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	due, err := e.q.ScanTimedOut(ctx, e.reader(), db.ScanTimedOutParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
	if err != nil {
		return 0, wrap(op, err)
	}
	if len(due) == 0 {
		return 0, nil
	}
	forgotten, err := e.forgetTimeouts(ctx, op, due)
	if err != nil || forgotten == len(due) {
		return forgotten, err
	}
	ended, err := inTx(ctx, e, op, func(tx *txn) (int, error) {
		flows := newFlowSet(e.cfg.Partitions)
		params := db.TakeTimedOutParams{NowMs: e.nowMs()}
		for _, row := range due {
			if row.Over {
				continue
			}
			retry, _ := timeoutDecision(row.Policy, row.RetryCount, row.RawRetryCount)
			if retry || flows.admit(row.FlowID) {
				params.PartitionKeys = append(params.PartitionKeys, row.PartitionKey)
				params.ExecutionIds = append(params.ExecutionIds, pgUUID(row.ExecutionID))
				params.AttemptIndexes = append(params.AttemptIndexes, row.AttemptIndex)
			}
		}
		if err := e.lockFlowsExclusive(ctx, tx, flows); err != nil {
			return 0, err
		}
		taken, err := e.q.TakeTimedOut(ctx, tx, params)
		if err != nil || len(taken) == 0 {
			return 0, err
		}
		nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
		if err != nil {
			return 0, err
		}
		retries := newRetries(nowMs, "interrupted", "expired")
		ends := newEnding(nowMs, state.OutcomeExpired)
		for _, row := range taken {
			attempt := endingAttempt{
				execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), index: row.AttemptIndex, epoch: row.HighestEpoch + 1,
				leaseID: row.LeaseID, instance: row.WorkerInstanceID, leaseEvent: "expired",
				reason: reasonTimeout, category: string(policy.TimedOut),
			}
			retry, pause := timeoutDecision(row.Policy, row.RetryCount, row.RawRetryCount)
			switch {
			case retry:
				retries.add(attempt, id.AddTTL(nowMs, pause))
			case row.FlowID != nil && !flows.has(*row.FlowID):
				// Its last retry was used meanwhile; the next scan foresees it.
			default:
				ends.add(attempt)
			}
		}
		if err := e.scheduleRetries(ctx, tx, retries); err != nil {
			return 0, err
		}
		return retries.len() + ends.len(), e.endByJob(ctx, tx, ends)
	})
	return forgotten + ended, err
}

// forgetTimeouts clears the timeouts of those among due whose lease another program has taken away.
func (e *Engine) forgetTimeouts(ctx context.Context, op string, due []db.ScanTimedOutRow) (int, error) {
	slices.SortFunc(due, func(a, b db.ScanTimedOutRow) int {
		return cmp.Or(
			cmp.Compare(a.PartitionKey, b.PartitionKey),
			compareUUID(a.ExecutionID, b.ExecutionID),
			cmp.Compare(a.AttemptIndex, b.AttemptIndex),
		)
	})
	var over db.ForgetTimeoutsParams
	for _, row := range due {
		if row.Over {
			over.PartitionKeys = append(over.PartitionKeys, row.PartitionKey)
			over.ExecutionIds = append(over.ExecutionIds, pgUUID(row.ExecutionID))
			over.AttemptIndexes = append(over.AttemptIndexes, row.AttemptIndex)
			over.TimeoutsAtMs = append(over.TimeoutsAtMs, row.TimeoutAtMs)
		}
	}
	if len(over.ExecutionIds) == 0 {
		return 0, nil
	}
	return inStatement(ctx, e, op, func(conn db.DBTX, _ *rings) (int, error) {
		return len(over.ExecutionIds), e.q.ForgetTimeouts(ctx, conn, over)
	})
}

// timeoutDecision says whether an attempt that timed out is retried, and after how many milliseconds. An
// execution without a retry policy is not.
func timeoutDecision(document []byte, retryCount int32, rawRetryCount string) (retry bool, pause int64) {
	rules, ok := storedRetryPolicy(document)
	if !ok {
		return false, 0
	}
	retries := usedRetries(retryCount, rawRetryCount)
	return rules.RetriesCategory(string(policy.TimedOut), retries), rules.PauseMs(retries, rand.Float64())
}

// PromoteDelayed makes delayed executions claimable whose time has come, at most batch of them. It
// returns on how many it acted, those included whose delay was left from an earlier state and is only
// forgotten; the caller repeats it while that equals batch. Safe to repeat and to run in any number of
// processes.
//
// Transaction: one statement; locks the executions without waiting.
func (e *Engine) PromoteDelayed(ctx context.Context, batch int) (int, error) {
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e, "promote delayed", func(conn db.DBTX, due *rings) (int, error) {
		rows, err := e.q.PromoteDelayed(ctx, conn, db.PromoteDelayedParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		for _, row := range rows {
			if row.Promoted {
				due.lane(row.LaneID)
			}
		}
		return len(rows), err
	})
}

// PruneCreationKeys forgets idempotency keys whose window has passed, at most batch of them, and returns
// how many. Safe to repeat and to run in any number of processes.
func (e *Engine) PruneCreationKeys(ctx context.Context, batch int) (int, error) {
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e, "prune creation keys", func(conn db.DBTX, _ *rings) (int, error) {
		n, err := e.q.PruneCreationKeys(ctx, conn, db.PruneCreationKeysParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
