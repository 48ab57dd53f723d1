package engine

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireDeadlines ends executions whose deadline has passed, in any state, oldest first, and skips executions that can
// no longer run because of it. It handles at most batch executions and returns how many; call it again while that
// equals batch. The number includes executions ended by another program, whose deadlines are only cleared.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows, after one for ended executions; locks the flows of members
// exclusively, executions, then their attempts. It skips locked executions, flows and dependents for the next call, and
// retries a few busy flows once at the end. Emits lease and completion events. Safe to repeat and to run in any number
// of processes.
func (m Maintenance) ExpireDeadlines(ctx context.Context, batch int) (int, error) {
	e := m.e
	const op = "expire deadlines"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanOverdueParams{
		AfterDeadlineAtMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true}, NowMs: e.nowMs(), PageSize: scanPage,
	}
	return e.newPass(op, e.endOverdue).through(ctx, batch, func(room int) ([]candidate, int, bool, error) {
		rows, err := e.q.ScanOverdue(ctx, e.reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, wrap(op, err)
		}
		last := rows[len(rows)-1]
		position.AfterDeadlineAtMs, position.AfterPartitionKey = last.DeadlineAtMs, last.PartitionKey
		position.AfterExecutionID = pgUUID(last.ExecutionID)
		var due []candidate
		var finished executionArrays
		for _, row := range rows {
			switch {
			case !row.Finished:
				due = append(due, candidate{partition: row.PartitionKey, execution: row.ExecutionID, flow: row.FlowID})
			case len(finished.executions) < room:
				finished.add(row.PartitionKey, row.ExecutionID)
			}
		}
		settled, err := e.settleDeadlines(ctx, op, finished)
		return due, settled, len(rows) == scanPage, err
	})
}

// endOverdue ends those due executions that it can lock and that are still overdue.
func (e *Engine) endOverdue(ctx context.Context, tx *txn, flows *flowSet, due []candidate, limit int) (int, error) {
	params := db.TakeOverdueParams{NowMs: e.nowMs(), MaxItems: int32(limit)}
	for _, c := range due {
		params.PartitionKeys = append(params.PartitionKeys, c.partition)
		params.ExecutionIDs = append(params.ExecutionIDs, pgUUID(c.execution))
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
		attempt, started := current[row.ExecutionID]
		if attempt.Busy || row.FlowID != nil && !flows.has(*row.FlowID) {
			continue // it joined the flow in the meantime; the next scan expects it
		}
		end := endingAttempt{
			execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), index: neverAttempted,
			reason: reasonDeadline, category: string(policy.TimedOut), class: policy.TimedOut,
		}
		switch {
		case started && attempt.TerminalAtMs != nil:
			end.index = lastAttemptFinished
		case started:
			end.index = attempt.AttemptIndex
			end.epoch = max(row.HighestEpoch, attempt.LeaseEpoch) + 1
			if attempt.LeaseExpiresAtMs != nil {
				end.leaseEvent, end.leaseID, end.instance = "expired", attempt.LeaseID, attempt.WorkerInstanceID
			}
		}
		ends.add(end)
	}
	return ends.len(), e.endByJob(ctx, tx, ends)
}

// settleDeadlines clears the deadlines of executions that another program has ended, and returns how many.
func (e *Engine) settleDeadlines(ctx context.Context, op string, finished executionArrays) (int, error) {
	if finished.empty() {
		return 0, nil
	}
	n, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, _ *notifications) (int64, error) {
		return e.q.SettleDeadlines(ctx, conn, db.SettleDeadlinesParams{
			PartitionKeys: finished.partitions, ExecutionIDs: finished.executions,
		})
	})
	if errors.Is(err, fferr.ErrBusy) {
		err = nil // the next call retries
	}
	return int(n), err
}
