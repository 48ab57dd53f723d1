package engine

import (
	"context"
	"encoding/json"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/condition"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ExpireWaits applies the effects of waits that have timed out, oldest first. It handles at most batch executions and
// returns how many; call it again while that equals batch.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows; locks the flows of members exclusively if they end,
// executions, then their attempts. It skips locked executions, flows and dependents for the next call. Emits events as the
// effect does. Safe to repeat and to run in any number of processes.
func (m Maintenance) ExpireWaits(ctx context.Context, batch int) (int, error) {
	e := m.e
	const op = "expire waits"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanTimedOutWaitsParams{
		AfterTimeoutAtMs: math.MinInt64, AfterExecutionID: pgtype.UUID{Valid: true}, NowMs: e.nowMs(), PageSize: scanPage,
	}
	return e.newPass(op, e.timeOut).through(ctx, batch, func(int) ([]candidate, int, bool, error) {
		rows, err := e.q.ScanTimedOutWaits(ctx, e.reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, wrap(op, err)
		}
		last := rows[len(rows)-1]
		position.AfterTimeoutAtMs, position.AfterPartitionKey = last.TimeoutAtMs, last.PartitionKey
		position.AfterExecutionID = pgUUID(last.ExecutionID)
		due := make([]candidate, len(rows))
		for i, row := range rows {
			due[i] = candidate{partition: row.PartitionKey, execution: row.ExecutionID, flow: row.FlowID}
		}
		return due, 0, len(rows) == scanPage, nil
	})
}

// timeOut applies the effects of those waits that it can lock and that have still timed out.
func (e *Engine) timeOut(ctx context.Context, tx *txn, flows *flowSet, due []candidate, limit int) (int, error) {
	var arrays executionArrays
	for _, c := range due {
		arrays.add(c.partition, c.execution)
	}
	taken, err := e.q.TakeSuspended(ctx, tx, db.TakeSuspendedParams{
		PartitionKeys: arrays.partitions, ExecutionIDs: arrays.executions, MaxItems: int32(limit),
	})
	if err != nil {
		return 0, err
	}
	forgotten := 0
	if len(taken) < min(len(due), limit) {
		if forgotten, err = e.forgetWaits(ctx, tx, due, taken); err != nil || len(taken) == 0 {
			return forgotten, err
		}
	}
	var executions executionArrays
	for _, row := range taken {
		executions.add(row.PartitionKey, row.ExecutionID)
	}
	current, err := e.lockCurrentAttempts(ctx, tx, executions)
	if err != nil {
		return 0, err
	}
	timeouts, err := e.q.ReadTimeouts(ctx, tx, db.ReadTimeoutsParams{
		PartitionKeys: executions.partitions, ExecutionIDs: executions.executions, NowMs: e.nowMs(),
	})
	if err != nil {
		return 0, err
	}
	if len(timeouts) == 0 {
		return forgotten, nil
	}
	acted, nowMs := forgotten, timeouts[0].NowMs
	ends := timeoutEnds{
		failed: newEnding(nowMs, state.OutcomeFailed), expired: newEnding(nowMs, state.OutcomeExpired), cancelled: newCancelling(nowMs),
	}
	for _, timeout := range timeouts {
		row, effect := taken[timeout.Ord], OnTimeout(timeout.TimeoutBehavior)
		x := id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID)
		attempt := current[row.ExecutionID]
		if attempt.Busy || effect.ends() && row.FlowID != nil && !flows.has(*row.FlowID) {
			continue // its end needs the flow; the next scan expects it
		}
		acted++
		switch {
		case effect.ends():
			ends.add(effect, x, attempt, row.HighestEpoch)
		case effect == EscalateOnTimeout:
			err = e.q.EscalateWait(ctx, tx, db.EscalateWaitParams{
				PartitionKey: row.PartitionKey, ExecutionID: row.ExecutionID, NowMs: nowMs,
			})
		default:
			err = e.resumeByTimeout(ctx, tx, x, timeout)
		}
		if err != nil {
			return 0, err
		}
	}
	return acted, ends.write(ctx, e, tx)
}

// forgetWaits closes the waits of those due executions that are not suspended, which another program has resumed or
// ended, and returns how many. Otherwise every scan would find them again. Locked executions are left to the next scan.
func (e *Engine) forgetWaits(ctx context.Context, tx *txn, due []candidate, taken []db.TakeSuspendedRow) (int, error) {
	suspended := make(map[id.ExecutionUUID]bool, len(taken))
	for _, row := range taken {
		suspended[row.ExecutionID] = true
	}
	var rest, locked executionArrays
	for _, c := range due {
		if !suspended[c.execution] {
			rest.add(c.partition, c.execution)
		}
	}
	rows, err := e.q.TakeExecutions(ctx, tx, db.TakeExecutionsParams{PartitionKeys: rest.partitions, ExecutionIDs: rest.executions})
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	for _, row := range rows {
		locked.partitions = append(locked.partitions, rest.partitions[row.Ord])
		locked.executions = append(locked.executions, rest.executions[row.Ord])
	}
	n, err := e.q.ForgetWaitTimeouts(ctx, tx, db.ForgetWaitTimeoutsParams{PartitionKeys: locked.partitions, ExecutionIDs: locked.executions})
	return int(n), err
}

// ends reports whether a timeout ends the execution.
func (t OnTimeout) ends() bool {
	return t == FailOnTimeout || t == ExpireOnTimeout || t == CancelOnTimeout
}

// timeoutEnds are the executions that end because their waits timed out, by their outcomes.
type timeoutEnds struct {
	failed, expired *ending
	cancelled       *cancelling
}

func (t *timeoutEnds) add(effect OnTimeout, x id.ExecutionID, attempt db.TakeCurrentAttemptsRow, epoch int64) {
	end := endingAttempt{
		execution: x, index: attempt.AttemptIndex, epoch: max(epoch, attempt.LeaseEpoch) + 1,
		reason: "suspension_timeout_" + string(effect), category: string(policy.TimedOut), class: policy.TimedOut,
	}
	switch effect {
	case FailOnTimeout:
		t.failed.add(end)
	case ExpireOnTimeout:
		t.expired.add(end)
	default:
		t.cancelled.add(x, cancellation{reason: end.reason, source: "system_timeout"})
	}
}

func (t *timeoutEnds) write(ctx context.Context, e *Engine, tx *txn) error {
	for _, ends := range []*ending{t.failed, t.expired} {
		if err := e.endByJob(ctx, tx, ends); err != nil {
			return err
		}
	}
	if len(t.cancelled.params.ExecutionIDs) == 0 {
		return nil
	}
	_, err := e.endCancelled(ctx, tx, t.cancelled)
	return err
}

// resumeByTimeout lets an execution continue with a signal for the timeout.
func (e *Engine) resumeByTimeout(ctx context.Context, tx *txn, x id.ExecutionID, timeout db.ReadTimeoutsRow) error {
	signals := make(map[string][]json.RawMessage)
	if err := json.Unmarshal(timeout.MemberMap, &signals); err != nil {
		return corrupt("ff_suspension_current.member_map", err)
	}
	var node condition.Node
	if err := json.Unmarshal(timeout.Condition, &node); err != nil {
		return corrupt("ff_suspension_current.condition", err)
	}
	keys := []string{}
	for _, point := range node.Waitpoints() {
		keys = append(keys, point.Key)
	}
	told, err := json.Marshal(map[string]any{
		"signal_id": id.NewSignalID().String(), "signal_name": "timeout", "signal_category": "system", "source_type": "timer",
		"source_identity": "suspension_timeout", "correlation_id": "", "accepted_at": timeout.NowMs, "payload_hex": nil,
		"ffx_keys": keys,
	})
	if err != nil {
		return err
	}
	signals[timeoutKey] = []json.RawMessage{told}
	document, err := json.Marshal(signals)
	if err != nil {
		return err
	}
	text := string(document)
	return e.resume(ctx, tx, x, &text, "resumable", 0, timeout.NowMs)
}

// ExpireWaitpoints ends waitpoints at which nothing waited in their time, at most batch of them, and returns how many.
// Signals that arrived there in time are kept for a later wait.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement; skips locked waitpoints. Safe to repeat and to run in any
// number of processes.
func (m Maintenance) ExpireWaitpoints(ctx context.Context, batch int) (int, error) {
	e := m.e
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	return inStatement(ctx, e.impatient(), "expire waitpoints", func(conn db.DBTX, _ *notifications) (int, error) {
		n, err := e.q.ExpireWaitpoints(ctx, conn, db.ExpireWaitpointsParams{NowMs: e.nowMs(), BatchSize: int32(batch)})
		return int(n), err
	})
}
