package budget

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Set replaces the limits, interval, retention, labels and CancelOnBreach of an existing budget, even if they can't be read.
// The key, the usage, the reservations and the counts of breaches stay. If the interval changes, a new one begins. A limit
// below the usage refuses further reports, and cancels nothing before the next breach. CancelOnBreach applies to executions
// the gate lets in from then on.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput] naming the field, also without an ID or a Key; [fferr.ErrContention].
// Transaction: one statement; locks the budget. Safe to repeat.
func Set(ctx context.Context, eng *engine.Engine, spec Spec) error {
	const op = "set budget"
	c := core.Of(eng)
	if err := spec.named(c); err != nil {
		return core.Wrap(op, err)
	}
	if err := checkBudget(spec.ID); err != nil {
		return core.Wrap(op, err)
	}
	policy, err := spec.policy()
	if err != nil {
		return core.Wrap(op, err)
	}
	document, err := policy.Encode()
	if err != nil {
		return core.Wrap(op, err)
	}
	n, err := core.InStatement(ctx, c, op, func(conn db.DBTX, due *core.Notifications) (int64, error) {
		due.Gated()
		return c.Q.SetBudget(ctx, conn, db.SetBudgetParams{
			NowMs: c.NowMs(), PartitionKey: c.Partitions.BudgetPartition(spec.ID), BudgetID: spec.ID.String(), Policy: string(document),
			ScopeType: spec.Labels.ScopeType, ScopeID: spec.Labels.ScopeID, EnforcementMode: spec.Labels.Mode,
			ResetIntervalMs: policy.PeriodMs(),
		})
	})
	switch {
	case err != nil:
		return err
	case n == 0:
		return core.Wrap(op, budgetNotFound(spec.ID))
	}
	return nil
}

// Delete deletes a budget with its usage, reservations and recorded spends. A budget that doesn't exist has no limits, so
// executions waiting for the budget are let in. Keys of reports stay until they expire.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]; [fferr.ErrContention]. Transaction: locks the budget, then its usage
// and reservations.
func Delete(ctx context.Context, eng *engine.Engine, b id.BudgetID) error {
	const op = "delete budget"
	c := core.Of(eng)
	if err := checkBudget(b); err != nil {
		return core.Wrap(op, err)
	}
	partition, budget := c.Partitions.BudgetPartition(b), b.String()
	_, err := core.InTx(ctx, c, op, func(tx *core.Txn) (none struct{}, err error) {
		stored, err := c.Q.LockBudget(ctx, tx, db.LockBudgetParams{PartitionKey: partition, BudgetID: budget})
		switch {
		case err != nil:
			return none, err
		case stored == "":
			return none, budgetNotFound(b)
		}
		return none, c.DropBudget(ctx, tx, partition, budget)
	})
	return err
}
