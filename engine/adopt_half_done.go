package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// repairForeign repairs executions that FlowFabric left half-done, on a page that was examined with params and returned
// rows, and returns how many. In a database that only this library uses it does nothing.
func (e *Engine) repairForeign(
	ctx context.Context, op string, params db.ScanRepairsParams, rows []db.ScanRepairsRow, pass func(repairAct, []candidate) (int, error),
) (repaired int, err error) {
	last := rows[len(rows)-1]
	if !last.Shared {
		return 0, nil
	}
	left, err := inStatement(ctx, e.impatient(), op, func(conn db.DBTX, _ *notifications) ([]db.ScanLeftHalfDoneRow, error) {
		return e.q.ScanLeftHalfDone(ctx, conn, db.ScanLeftHalfDoneParams{
			AfterPartitionKey: params.AfterPartitionKey, AfterExecutionID: params.AfterExecutionID,
			LastPartitionKey: last.PartitionKey, LastExecutionID: last.ExecutionID, PageSize: params.PageSize, NowMs: params.NowMs,
		})
	})
	if err != nil {
		return 0, err
	}
	for _, repair := range []struct {
		left string
		act  repairAct
	}{
		{"foreign", e.adoptFound}, {"mispointed", e.repoint}, {"half-ended", e.healEnded}, {"mistold", e.retellEnded},
	} {
		n, err := pass(repair.act, e.leftAs(left, repair.left))
		repaired += n
		if err != nil {
			return repaired, err
		}
	}
	return repaired, nil
}

// leftAs returns the executions that FlowFabric left in the given way.
func (e *Engine) leftAs(rows []db.ScanLeftHalfDoneRow, left string) []candidate {
	var due []candidate
	for i := range rows {
		if row := &rows[i]; row.LeftAs == left {
			due = append(due, candidate{
				partition: row.PartitionKey, execution: row.ExecutionID.Bytes, flow: flowOf(row.FlowID), quota: e.quotaPartition(row.QuotaPolicyID),
			})
		}
	}
	return due
}

// takeHalfDone locks those due executions that it can, at most limit.
func (e *Engine) takeHalfDone(ctx context.Context, tx *txn, due []candidate, limit int) ([]db.TakeHalfDoneRow, executionArrays, error) {
	due = slices.Clone(due[:min(len(due), limit)])
	slices.SortFunc(due, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.execution[:], b.execution[:]))
	})
	var asked, taken executionArrays
	for _, c := range due {
		asked.add(c.partition, c.execution)
	}
	rows, err := e.q.TakeHalfDone(ctx, tx, db.TakeHalfDoneParams{PartitionKeys: asked.partitions, ExecutionIDs: asked.executions})
	for _, row := range rows {
		taken.add(row.PartitionKey, row.ExecutionID)
	}
	return rows, taken, err
}

// repoint moves the pointers of executions to the attempts that continue.
func (e *Engine) repoint(ctx context.Context, tx *txn, _ *flowSet, due []candidate, limit int) (int, error) {
	_, taken, err := e.takeHalfDone(ctx, tx, due, limit)
	if err != nil || taken.empty() {
		return 0, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	n, err := e.q.RepointExecutions(ctx, tx, db.RepointExecutionsParams{
		PartitionKeys: taken.partitions, ExecutionIDs: taken.executions, NowMs: nowMs,
	})
	return int(n), err
}

// retellEnded stores public states as they are read.
func (e *Engine) retellEnded(ctx context.Context, tx *txn, _ *flowSet, due []candidate, limit int) (int, error) {
	_, taken, err := e.takeHalfDone(ctx, tx, due, limit)
	if err != nil || taken.empty() {
		return 0, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	n, err := e.q.RetellEnded(ctx, tx, db.RetellEndedParams{
		PartitionKeys: taken.partitions, ExecutionIDs: taken.executions, NowMs: nowMs,
	})
	return int(n), err
}

// healEnded completes the end of executions that another program ended only partly. It takes their leases away. For
// executions that were cancelled without a completion event, it inserts the event and resolves their dependents. It
// holds the flows of members exclusively.
func (e *Engine) healEnded(ctx context.Context, tx *txn, flows *flowSet, due []candidate, limit int) (int, error) {
	rows, taken, err := e.takeHalfDone(ctx, tx, due, limit)
	if err != nil || taken.empty() {
		return 0, err
	}
	current, err := e.lockCurrentAttempts(ctx, tx, taken)
	if err != nil {
		return 0, err
	}
	told, err := e.toldAlready(ctx, tx, rows)
	if err != nil {
		return 0, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	healed := db.HealEndedParams{NowMs: nowMs}
	var cancelled []endedExecution
	var discarded executionArrays
	for i := range rows {
		row := &rows[i]
		attempt, started := current[row.ExecutionID]
		if !row.Ended || attempt.Busy || row.FlowID != nil && !flows.has(*row.FlowID) {
			continue // replayed, held, or added to a flow since it was found
		}
		index, epoch, leased := int32(-1), int64(0), started && attempt.LeaseExpiresAtMs != nil
		if leased || started && attempt.TerminalAtMs == nil {
			index, epoch = attempt.AttemptIndex, max(row.HighestEpoch, attempt.LeaseEpoch)+1
		}
		healed.PartitionKeys = append(healed.PartitionKeys, row.PartitionKey)
		healed.ExecutionIDs = append(healed.ExecutionIDs, pgUUID(row.ExecutionID))
		healed.AttemptIndexes = append(healed.AttemptIndexes, index)
		healed.RaisedEpochs = append(healed.RaisedEpochs, epoch)
		healed.LeaseIDs = append(healed.LeaseIDs, attempt.LeaseID)
		healed.WorkerInstanceIDs = append(healed.WorkerInstanceIDs, attempt.WorkerInstanceID)
		healed.Leased = append(healed.Leased, leased)
		healed.Cancelled = append(healed.Cancelled, row.Untold)
		discarded.add(row.PartitionKey, row.ExecutionID)
		if row.Untold && !told[row.ExecutionID] {
			cancelled = append(cancelled, endedExecution{
				id:   id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID),
				flow: row.FlowID, outcome: state.CompletionCancelled,
			})
		}
	}
	if discarded.empty() {
		return 0, nil
	}
	if err := e.q.HealEnded(ctx, tx, healed); err != nil {
		return 0, err
	}
	tx.due.leases()
	if err := e.q.DiscardWaiting(ctx, tx, db.DiscardWaitingParams{
		PartitionKeys: discarded.partitions, ExecutionIDs: discarded.executions,
	}); err != nil {
		return 0, err
	}
	return len(discarded.executions), e.resolveAndRecord(ctx, tx, cancelled, nowMs)
}

// toldAlready returns the executions that have a completion event of their end, among those that may lack one.
func (e *Engine) toldAlready(ctx context.Context, tx *txn, rows []db.TakeHalfDoneRow) (map[id.ExecutionUUID]bool, error) {
	var params db.ListToldParams
	for _, row := range rows {
		if row.Ended && row.Untold {
			params.PartitionKeys = append(params.PartitionKeys, row.PartitionKey)
			params.ExecutionIDs = append(params.ExecutionIDs, pgUUID(row.ExecutionID))
			params.TerminalAtMs = append(params.TerminalAtMs, row.TerminalAtMs)
		}
	}
	told := make(map[id.ExecutionUUID]bool, len(params.ExecutionIDs))
	if len(params.ExecutionIDs) == 0 {
		return told, nil
	}
	found, err := e.q.ListTold(ctx, tx, params)
	for _, x := range found {
		told[x.Bytes] = true
	}
	return told, err
}
