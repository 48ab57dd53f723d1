package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// Resume ends the wait of a locked execution. signals, unless nil, replaces the signals of the suspension.
func (c *Core) Resume(ctx context.Context, tx *Txn, x id.ExecutionID, signals *string, shownAs string, delayMs, nowMs int64) error {
	lane, err := c.Q.ResumeExecution(ctx, tx, db.ResumeExecutionParams{
		PartitionKey: x.Partition(), ExecutionID: PgUUID(x.UUID()), Signals: signals, ShownAs: shownAs, DelayMs: delayMs, NowMs: nowMs,
	})
	if err != nil {
		return err
	}
	if delayMs > 0 {
		tx.Due.Delayed = true
		return nil
	}
	tx.Due.Completions()
	if lane != "" {
		tx.Due.Resumed(lane)
	} else {
		tx.Due.Gated()
	}
	return nil
}

// TimeoutKey is the key of signals for timeouts.
const TimeoutKey = "__timeout__"
