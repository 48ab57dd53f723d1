package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// callers are executions that wait for calls, and whose rows are locked.
type callers struct {
	core.ExecutionArrays
	steps []string
}

func (c *callers) add(x id.ExecutionID, step string) {
	c.ExecutionArrays.Add(x.Partition(), x.UUID())
	c.steps = append(c.steps, step)
}

// resumeCallers lets those callers continue whose called executions have all ended.
func (e *Engine) resumeCallers(ctx context.Context, tx *core.Txn, c *callers, nowMs int64) error {
	if c.Empty() {
		return nil
	}
	rows, err := e.c.Q.ResumeCallers(ctx, tx, db.ResumeCallersParams{
		PartitionKeys: c.Partitions, ExecutionIDs: c.Executions, Steps: c.steps, NowMs: nowMs,
	})
	for _, row := range rows {
		tx.Due.Completions()
		if row.Lane != "" {
			tx.Due.Resumed(row.Lane)
		} else {
			tx.Due.Gated()
		}
	}
	return err
}
