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
