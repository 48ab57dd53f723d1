package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// RepairQueue looks through the n executions that follow after, in the order of their rows, for work that
// is claimable but not queued, and queues it. Behind the last execution it deletes, up to n at a time, what
// is queued but not claimable. next is where the following call goes on; the zero id begins anew. n repaired
// say that there may be more in the same place.
//
// The database keeps the queue itself, by triggers, and the watch on leases. Rows that were written while
// these did not fire (a replica's, or those of a restore that disabled them) are what this is for. It also
// finds leases that ran out a minute ago and more, so that [Engine.ExpireLeases] looks at them.
//
// Errors: [ErrInvalidInput]. Transaction: one statement, and behind the last execution a second one; locks
// what it queues, without waiting. Safe to repeat and to run in any number of processes.
func (e *Engine) RepairQueue(ctx context.Context, after id.ExecutionID, n int) (next id.ExecutionID, repaired int, err error) {
	const op = "repair queue"
	if err := checkBatch(n); err != nil {
		return after, 0, err
	}
	params := db.RepairQueueParams{AfterPartitionKey: -1, AfterExecutionID: pgUUID(id.ExecutionUUID{}), PageSize: int32(n), NowMs: e.nowMs()}
	if !after.IsZero() {
		params.AfterPartitionKey, params.AfterExecutionID = after.Partition(), pgUUID(after.UUID())
	}
	rows, err := inStatement(ctx, e, op, func(conn db.DBTX, due *rings) ([]db.RepairQueueRow, error) {
		rows, err := e.q.RepairQueue(ctx, conn, params)
		repaired = 0
		for _, row := range rows {
			if row.RepairedLane != "" {
				due.lane(row.RepairedLane)
				repaired++
			}
		}
		return rows, err
	})
	if err != nil {
		return after, 0, err
	}
	if len(rows) > 0 {
		last := rows[len(rows)-1]
		return id.ExecutionIDFromRow(last.PartitionKey, id.ExecutionUUID(last.ExecutionID.Bytes)), repaired, nil
	}
	swept, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *rings) (int64, error) {
		return e.q.SweepQueue(ctx, conn, int32(n))
	})
	if err != nil || int(swept) >= n {
		return after, int(swept), err
	}
	return id.ExecutionID{}, int(swept), nil
}
