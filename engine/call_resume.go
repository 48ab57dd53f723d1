package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// callers are executions that wait for calls, and whose rows are locked.
type callers struct {
	executionArrays
	steps []string
}

func (c *callers) add(x id.ExecutionID, step string) {
	c.executionArrays.add(x.Partition(), x.UUID())
	c.steps = append(c.steps, step)
}

// resumeCallers lets those callers continue whose called executions have all ended.
func (e *Engine) resumeCallers(ctx context.Context, tx *txn, c *callers, nowMs int64) error {
	if c.empty() {
		return nil
	}
	rows, err := e.q.ResumeCallers(ctx, tx, db.ResumeCallersParams{
		PartitionKeys: c.partitions, ExecutionIDs: c.executions, Steps: c.steps, NowMs: nowMs,
	})
	for _, row := range rows {
		tx.due.completions()
		if row.Lane != "" {
			tx.due.resumed(row.Lane)
		} else {
			tx.due.gated()
		}
	}
	return err
}
