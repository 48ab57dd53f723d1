package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireAttempts ends running attempts that have taken longer than their policy's timeout, at most batch
// of them. That is a failure of class [policy.TimedOut], retried as any other: another attempt follows, or, with
// no retry left, the execution ends as expired. Their workers are refused from now on. It returns on how many it acted, those included whose
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
			retry, _ := retryDecision(row.Policy, row.RetryCount, row.RawRetryCount, timeout)
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
				reason: timeout.Message, category: timeout.category(),
			}
			retry, pause := retryDecision(row.Policy, row.RetryCount, row.RawRetryCount, timeout)
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

// timeout is the failure that an attempt ends with which took too long.
var timeout = Failure{Message: "attempt_timeout", Class: policy.TimedOut}
