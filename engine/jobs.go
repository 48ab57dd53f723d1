package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// What background jobs leave on an execution as its failure.
const (
	reasonLostTooOften = "lease_reclaim_cap_exceeded"
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
