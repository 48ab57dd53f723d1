package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// Callers are locked executions waiting for calls.
type Callers struct {
	ExecutionArrays
	steps []string
}

func (c *Callers) Add(x id.ExecutionID, step string) {
	c.ExecutionArrays.Add(x.Partition(), x.UUID())
	c.steps = append(c.steps, step)
}

// ResumeCallers resumes the callers whose called executions have all ended.
func (c *Core) ResumeCallers(ctx context.Context, tx *Txn, waiting *Callers, nowMs int64) error {
	if waiting.Empty() {
		return nil
	}
	rows, err := c.Q.ResumeCallers(ctx, tx, db.ResumeCallersParams{
		PartitionKeys: waiting.Partitions, ExecutionIDs: waiting.Executions, Steps: waiting.steps, NowMs: nowMs,
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
