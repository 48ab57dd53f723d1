package budget

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Reset sets the usage of a budget to 0 and deletes the recorded spends of executions. The counts of breaches stay. Reset
// returns the time of the next reset, one interval from now, or zero without an interval.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrCorruption] if the stored limits can't be read;
// [fferr.ErrContention]. Transaction: locks the budget and its usage.
func Reset(ctx context.Context, eng *engine.Engine, b id.BudgetID) (time.Time, error) {
	const op = "reset budget"
	c := core.Of(eng)
	if err := checkBudget(b); err != nil {
		return time.Time{}, core.Wrap(op, err)
	}
	partition, budgetID := c.Partitions.BudgetPartition(b), b.String()
	return core.InTx(ctx, c, op, func(tx *core.Txn) (time.Time, error) {
		stored, err := c.Q.LockBudget(ctx, tx, db.LockBudgetParams{PartitionKey: partition, BudgetID: budgetID})
		switch {
		case err != nil:
			return time.Time{}, err
		case stored == "":
			return time.Time{}, budgetNotFound(b)
		}
		policy, err := core.BudgetPolicy(stored)
		if err != nil {
			return time.Time{}, err
		}
		nowMs, err := c.Q.GetNow(ctx, tx, c.NowMs())
		if err != nil {
			return time.Time{}, err
		}
		next := policy.NextLook(nowMs)
		tx.Due.Gated()
		if err := c.ResetBudget(ctx, tx, partition, budgetID, nowMs, next); err != nil || next == 0 || policy.Ephemeral() {
			return time.Time{}, err
		}
		return time.UnixMilli(next), nil
	})
}
