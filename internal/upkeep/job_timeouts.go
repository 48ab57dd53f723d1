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

// The failure of a timed-out attempt.
const (
	timeoutMessage  = "attempt_timeout"
	timeoutCategory = string(policy.TimedOut)
)

// timeouts collects the results of timed-out attempts.
type timeouts struct {
	retries *core.Retries
	ends    *core.Ending
}

func newTimeouts(nowMs int64) timeouts {
	return timeouts{core.NewRetries(nowMs, "interrupted", "expired"), core.NewEnding(nowMs, state.OutcomeExpired)}
}

func (s timeouts) len() int { return s.retries.Len() + s.ends.Len() }

// ExpireAttempts ends running attempts that have exceeded their policy's timeout, oldest first. The failure has the
// class [policy.TimedOut] and is retried like others; without retries left, the execution ends as expired. Calls of the
// attempts' workers are refused. It handles at most batch attempts and returns how many. The number includes attempts
// whose lease another program took away, whose timeouts are only cleared.
//
// The job expire_leases does the same for attempts whose lease has expired as well.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows, after one for timeouts to clear; locks the flows of
// ending members exclusively, then executions and attempts. Skips locked rows as the job expire_deadlines. Emits lease
// and completion events. Safe to repeat and to run in any number of processes.
func (u *Upkeep) ExpireAttempts(ctx context.Context, batch int) (int, error) {

	const op = "expire attempts"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanTimedOutParams{
		AfterTimeoutAtMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true}, NowMs: u.c.NowMs(), PageSize: core.ScanPage,
	}
	return u.c.NewPass(op, u.endTimedOut).Through(ctx, batch, func(room int) ([]core.Candidate, int, bool, error) {
		rows, err := u.c.Q.ScanTimedOut(ctx, u.c.Reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, core.Wrap(op, err)
		}
		last := rows[len(rows)-1]
		position.AfterTimeoutAtMs, position.AfterPartitionKey = last.TimeoutAtMs, last.PartitionKey
		position.AfterExecutionID, position.AfterAttemptIndex = core.PgUUID(last.ExecutionID), last.AttemptIndex
		var due []core.Candidate
		var over db.ForgetTimeoutsParams
		for _, row := range rows {
			switch {
			case !row.Over:
				c := core.Candidate{Partition: row.PartitionKey, Execution: row.ExecutionID, Attempt: row.AttemptIndex}
				if retry, _ := core.RetryDecision(row.Policy, row.RetryCount, row.RawRetryCount, policy.TimedOut, timeoutCategory); !retry {
					c.Flow = row.FlowID
				}
				due = append(due, c)
			case len(over.ExecutionIDs) < room:
				over.PartitionKeys = append(over.PartitionKeys, row.PartitionKey)
				over.ExecutionIDs = append(over.ExecutionIDs, core.PgUUID(row.ExecutionID))
				over.AttemptIndexes = append(over.AttemptIndexes, row.AttemptIndex)
				over.TimeoutsAtMs = append(over.TimeoutsAtMs, row.TimeoutAtMs)
			}
		}
		forgotten, err := u.forgetTimeouts(ctx, op, over)
		return due, forgotten, len(rows) == core.ScanPage, err
	})
}

// endTimedOut ends the due attempts that still exceed their timeout, and skips locked ones.
func (u *Upkeep) endTimedOut(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	params := db.TakeTimedOutParams{NowMs: u.c.NowMs(), MaxItems: int32(limit)}
	for _, c := range due {
		params.PartitionKeys = append(params.PartitionKeys, c.Partition)
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(c.Execution))
		params.AttemptIndexes = append(params.AttemptIndexes, c.Attempt)
	}
	taken, err := u.c.Q.TakeTimedOut(ctx, tx, params)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return 0, err
	}
	timedOut := newTimeouts(nowMs)
	for _, row := range taken {
		retry, pause := core.RetryDecision(row.Policy, row.RetryCount, row.RawRetryCount, policy.TimedOut, timeoutCategory)
		timedOut.add(core.EndingAttempt{
			Execution: id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), Index: row.AttemptIndex,
			Epoch: row.HighestEpoch + 1, LeaseID: row.LeaseID, Instance: row.WorkerInstanceID,
		}, retry, pause, row.FlowID == nil || flows.Has(*row.FlowID))
	}
	return timedOut.len(), u.writeTimeouts(ctx, tx, timedOut)
}

// add adds an attempt, unless its execution would end and may not: the last retry was used, or the execution joined a
// flow, after the flows were locked. The next scan expects the end.
func (s timeouts) add(a core.EndingAttempt, retry bool, pause int64, mayEnd bool) {
	a.LeaseEvent, a.Reason, a.Category, a.Class = "expired", timeoutMessage, timeoutCategory, policy.TimedOut
	switch {
	case retry:
		s.retries.Add(a, core.AddTTL(s.retries.Params.NowMs, pause))
	case mayEnd:
		s.ends.Add(a)
	}
}

// writeTimeouts writes the results of timed-out attempts.
func (u *Upkeep) writeTimeouts(ctx context.Context, tx *core.Txn, s timeouts) error {
	if err := u.c.ScheduleRetries(ctx, tx, s.retries); err != nil {
		return err
	}
	return u.c.EndByJob(ctx, tx, s.ends)
}

// forgetTimeouts clears timeouts of attempts whose lease another program took away, and returns how many.
func (u *Upkeep) forgetTimeouts(ctx context.Context, op string, over db.ForgetTimeoutsParams) (int, error) {
	if len(over.ExecutionIDs) == 0 {
		return 0, nil
	}
	n, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return u.c.Q.ForgetTimeouts(ctx, conn, over)
	})
	if errors.Is(err, fferr.ErrBusy) {
		err = nil // the next call retries
	}
	return int(n), err
}
