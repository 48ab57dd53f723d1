package upkeep

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireDeadlines ends executions whose deadline has passed, in any state, oldest first, and skips dependents that can
// no longer run. It handles at most batch executions and returns how many. The number includes executions ended by
// another program, whose deadlines are only cleared.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows, after one for ended executions; locks the flows of
// members exclusively, executions, then their attempts. Skips locked executions, flows and dependents for the next
// call, and retries a few busy flows once at the end. Emits lease and completion events. Safe to repeat and to run in
// any number of processes.
func (u *Upkeep) ExpireDeadlines(ctx context.Context, batch int) (int, error) {
	const op = "expire deadlines"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanOverdueParams{
		AfterDeadlineAtMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true}, NowMs: u.c.NowMs(), PageSize: core.ScanPage,
	}
	return u.c.NewPass(op, u.endOverdue).Through(ctx, batch, func(room int) ([]core.Candidate, int, bool, error) {
		rows, err := u.c.Q.ScanOverdue(ctx, u.c.Reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, core.Wrap(op, err)
		}
		last := rows[len(rows)-1]
		position.AfterDeadlineAtMs, position.AfterPartitionKey = last.DeadlineAtMs, last.PartitionKey
		position.AfterExecutionID = core.PgUUID(last.ExecutionID)
		var due []core.Candidate
		var finished core.ExecutionArrays
		for _, row := range rows {
			switch {
			case !row.Finished:
				due = append(due, core.Candidate{Partition: row.PartitionKey, Execution: row.ExecutionID, Flow: row.FlowID})
			case len(finished.Executions) < room:
				finished.Add(row.PartitionKey, row.ExecutionID)
			}
		}
		settled, err := u.settleDeadlines(ctx, op, finished)
		return due, settled, len(rows) == core.ScanPage, err
	})
}

// endOverdue ends the due executions that are still overdue, and skips locked ones.
func (u *Upkeep) endOverdue(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	params := db.TakeOverdueParams{NowMs: u.c.NowMs(), MaxItems: int32(limit)}
	for _, c := range due {
		params.PartitionKeys = append(params.PartitionKeys, c.Partition)
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(c.Execution))
	}
	taken, err := u.c.Q.TakeOverdue(ctx, tx, params)
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
	ends := core.NewEnding(nowMs, state.OutcomeExpired)
	for _, row := range taken {
		attempt, started := current[row.ExecutionID]
		if attempt.Busy || row.FlowID != nil && !flows.Has(*row.FlowID) {
			continue // it joined the flow in the meantime; the next scan expects the flow
		}
		end := core.EndingAttempt{
			Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), Index: core.NeverAttempted,
			Reason: reasonDeadline, Category: string(policy.TimedOut), Class: policy.TimedOut,
		}
		switch {
		case started && attempt.TerminalAtMs != nil:
			end.Index = core.LastAttemptFinished
		case started:
			end.Index = attempt.AttemptIndex
			end.Epoch = max(row.HighestEpoch, attempt.LeaseEpoch) + 1
			if attempt.LeaseExpiresAtMs != nil {
				end.LeaseEvent, end.LeaseID, end.Instance = "expired", attempt.LeaseID, attempt.WorkerInstanceID
			}
		}
		ends.Add(end)
	}
	return ends.Len(), u.c.EndByJob(ctx, tx, ends)
}

// settleDeadlines clears the deadlines of executions ended by another program, and returns how many.
func (u *Upkeep) settleDeadlines(ctx context.Context, op string, finished core.ExecutionArrays) (int, error) {
	if finished.Empty() {
		return 0, nil
	}
	n, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return u.c.Q.SettleDeadlines(ctx, conn, db.SettleDeadlinesParams{
			PartitionKeys: finished.Partitions, ExecutionIDs: finished.Executions,
		})
	})
	if errors.Is(err, fferr.ErrBusy) {
		err = nil // the next call retries
	}
	return int(n), err
}
