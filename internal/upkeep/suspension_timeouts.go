package upkeep

import (
	"context"
	"encoding/json"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireWaits applies the effects of timed-out waits, oldest first. It handles at most batch executions and returns how
// many.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows; locks the flows of ending members exclusively,
// executions, then their attempts. Skips locked executions, flows and dependents for the next call. Emits events as the
// effect does. Safe to repeat and to run in any number of processes.
func (u *Upkeep) ExpireWaits(ctx context.Context, batch int) (int, error) {
	const op = "expire waits"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanTimedOutWaitsParams{
		AfterTimeoutAtMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true}, NowMs: u.c.NowMs(), PageSize: core.ScanPage,
	}
	return u.c.NewPass(op, u.timeOut).Through(ctx, batch, func(int) ([]core.Candidate, int, bool, error) {
		rows, err := u.c.Q.ScanTimedOutWaits(ctx, u.c.Reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, core.Wrap(op, err)
		}
		last := rows[len(rows)-1]
		position.AfterTimeoutAtMs, position.AfterPartitionKey = last.TimeoutAtMs, last.PartitionKey
		position.AfterExecutionID = core.PgUUID(last.ExecutionID)
		due := make([]core.Candidate, len(rows))
		for i, row := range rows {
			due[i] = core.Candidate{Partition: row.PartitionKey, Execution: row.ExecutionID, Flow: row.FlowID}
		}
		return due, 0, len(rows) == core.ScanPage, nil
	})
}

// timeOut applies the effects of the due waits that have still timed out, and skips locked ones.
func (u *Upkeep) timeOut(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	var arrays core.ExecutionArrays
	for _, c := range due {
		arrays.Add(c.Partition, c.Execution)
	}
	taken, err := u.c.Q.TakeSuspended(ctx, tx, db.TakeSuspendedParams{
		PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, MaxItems: int32(limit),
	})
	if err != nil {
		return 0, err
	}
	forgotten := 0
	if len(taken) < min(len(due), limit) {
		if forgotten, err = u.forgetWaits(ctx, tx, due, taken); err != nil || len(taken) == 0 {
			return forgotten, err
		}
	}
	var executions core.ExecutionArrays
	for _, row := range taken {
		executions.Add(row.PartitionKey, row.ExecutionID)
	}
	current, err := u.c.LockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	timeouts, err := u.c.Q.ReadTimeouts(ctx, tx, db.ReadTimeoutsParams{
		PartitionKeys: executions.Partitions, ExecutionIDs: executions.Executions, NowMs: u.c.NowMs(),
	})
	if err != nil {
		return 0, err
	}
	if len(timeouts) == 0 {
		return forgotten, nil
	}
	acted, nowMs := forgotten, timeouts[0].NowMs
	ends := timeoutEnds{
		failed: core.NewEnding(nowMs, state.OutcomeFailed), expired: core.NewEnding(nowMs, state.OutcomeExpired), cancelled: core.NewCancelling(nowMs),
	}
	for _, timeout := range timeouts {
		row, effect := taken[timeout.Ord], engine.OnTimeout(timeout.TimeoutBehavior)
		x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
		attempt := current[row.ExecutionID]
		if attempt.Busy || effect.Ends() && row.FlowID != nil && !flows.Has(*row.FlowID) {
			continue // the end needs the flow, which the next scan expects
		}
		acted++
		switch {
		case effect.Ends():
			ends.add(effect, x, attempt, row.HighestEpoch)
		case effect == engine.EscalateOnTimeout:
			err = u.c.Q.EscalateWait(ctx, tx, db.EscalateWaitParams{
				PartitionKey: row.PartitionKey, ExecutionID: row.ExecutionID, NowMs: nowMs,
			})
		default:
			err = u.resumeByTimeout(ctx, tx, x, timeout)
		}
		if err != nil {
			return 0, err
		}
	}
	return acted, ends.write(ctx, u, tx)
}

// forgetWaits closes the waits of due executions that another program has resumed or ended, and returns how many.
// Otherwise every scan would find the executions again. Locked executions are left to the next scan.
func (u *Upkeep) forgetWaits(ctx context.Context, tx *core.Txn, due []core.Candidate, taken []db.TakeSuspendedRow) (int, error) {
	suspended := make(map[id.ExecutionUUID]bool, len(taken))
	for _, row := range taken {
		suspended[row.ExecutionID] = true
	}
	var rest, locked core.ExecutionArrays
	for _, c := range due {
		if !suspended[c.Execution] {
			rest.Add(c.Partition, c.Execution)
		}
	}
	rows, err := u.c.Q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{PartitionKeys: rest.Partitions, ExecutionIDs: rest.Executions})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	for _, row := range rows {
		locked.Partitions = append(locked.Partitions, rest.Partitions[row.Ord])
		locked.Executions = append(locked.Executions, rest.Executions[row.Ord])
	}
	n, err := u.c.Q.ForgetWaitTimeouts(ctx, tx, db.ForgetWaitTimeoutsParams{PartitionKeys: locked.Partitions, ExecutionIDs: locked.Executions})
	return int(n), err
}

// timeoutEnds are the executions that end because their waits timed out, by outcome.
type timeoutEnds struct {
	failed, expired *core.Ending
	cancelled       *core.Cancelling
}

func (t *timeoutEnds) add(effect engine.OnTimeout, x id.ExecutionID, attempt db.TakeCurrentAttemptsRow, epoch int64) {
	end := core.EndingAttempt{
		Execution: x, Index: attempt.AttemptIndex, Epoch: max(epoch, attempt.LeaseEpoch) + 1,
		Reason: "suspension_timeout_" + string(effect), Category: string(policy.TimedOut), Class: policy.TimedOut,
	}
	switch effect {
	case engine.FailOnTimeout:
		t.failed.Add(end)
	case engine.ExpireOnTimeout:
		t.expired.Add(end)
	default:
		t.cancelled.Add(x, core.Cancellation{Reason: end.Reason, Source: "system_timeout"})
	}
}

func (t *timeoutEnds) write(ctx context.Context, u *Upkeep, tx *core.Txn) error {
	for _, ends := range []*core.Ending{t.failed, t.expired} {
		if err := u.c.EndByJob(ctx, tx, ends); err != nil {
			return err
		}
	}
	if len(t.cancelled.Params.ExecutionIDs) == 0 {
		return nil
	}
	_, err := u.c.EndCancelled(ctx, tx, t.cancelled)
	return err
}

// resumeByTimeout lets an execution continue with a signal for the timeout.
func (u *Upkeep) resumeByTimeout(ctx context.Context, tx *core.Txn, x id.ExecutionID, timeout db.ReadTimeoutsRow) error {
	signals := make(map[string][]json.RawMessage)
	if err := json.Unmarshal(timeout.MemberMap, &signals); err != nil {
		return core.Corrupt("ff_suspension_current.member_map", err)
	}
	var node condition.Node
	if err := json.Unmarshal(timeout.Condition, &node); err != nil {
		return core.Corrupt("ff_suspension_current.condition", err)
	}
	keys := []string{}
	for _, point := range node.Waitpoints() {
		keys = append(keys, point.Key)
	}
	timedOut, err := json.Marshal(map[string]any{
		"signal_id": id.NewSignalID().String(), "signal_name": "timeout", "signal_category": "system", "source_type": "timer",
		"source_identity": "suspension_timeout", "correlation_id": "", "accepted_at": timeout.NowMs, "payload_hex": nil,
		"ffx_keys": keys,
	})
	if err != nil {
		return err
	}
	signals[core.TimeoutKey] = []json.RawMessage{timedOut}
	document, err := json.Marshal(signals)
	if err != nil {
		return err
	}
	text := string(document)
	return u.c.Resume(ctx, tx, x, &text, "resumable", 0, timeout.NowMs)
}

// ExpireWaitpoints ends at most batch waitpoints at which nothing waited in time, and returns how many. Signals that
// arrived in time are kept for a later wait.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked waitpoints. Safe to repeat and to run in any
// number of processes.
func (u *Upkeep) ExpireWaitpoints(ctx context.Context, batch int) (int, error) {
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	return core.InStatement(ctx, u.shortWait().c, "expire waitpoints", func(conn db.DBTX, _ *core.Notifications) (int, error) {
		n, err := u.c.Q.ExpireWaitpoints(ctx, conn, db.ExpireWaitpointsParams{NowMs: u.c.NowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
