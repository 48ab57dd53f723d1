package core

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// ResetBudget resets a locked budget.
func (c *Core) ResetBudget(ctx context.Context, tx *Txn, partition int16, b string, nowMs, nextMs int64) error {
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return c.Q.MarkBudgetReset(ctx, conn, db.MarkBudgetResetParams{NextMs: nextMs, AtMs: nowMs, PartitionKey: partition, BudgetID: b})
		},
		func(conn db.DBTX) error {
			return c.Q.ResetBudgetUsage(ctx, conn, db.ResetBudgetUsageParams{AtMs: nowMs, PartitionKey: partition, BudgetID: b})
		},
		func(conn db.DBTX) error {
			return c.Q.DropBudgetLedger(ctx, conn, db.DropBudgetLedgerParams{PartitionKey: partition, BudgetID: b})
		},
	)
}

// DropBudget deletes a locked budget and its data, except the keys of reports.
func (c *Core) DropBudget(ctx context.Context, tx *Txn, partition int16, b string) error {
	tx.Due.Gated()
	return pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return c.Q.DropBudgetUsage(ctx, conn, db.DropBudgetUsageParams{PartitionKey: partition, BudgetID: b})
		},
		func(conn db.DBTX) error {
			return c.Q.DropReservations(ctx, conn, db.DropReservationsParams{PartitionKey: partition, BudgetID: b})
		},
		func(conn db.DBTX) error {
			return c.Q.DropBudgetLedger(ctx, conn, db.DropBudgetLedgerParams{PartitionKey: partition, BudgetID: b})
		},
		func(conn db.DBTX) error {
			return c.Q.DropBudget(ctx, conn, db.DropBudgetParams{PartitionKey: partition, BudgetID: b})
		},
	)
}

// BudgetPolicy decodes the stored policy of a budget. "" means a missing budget, and gives the zero policy.
func BudgetPolicy(stored string) (budgets.Policy, error) {
	if stored == "" {
		return budgets.Policy{}, nil
	}
	p, err := budgets.Decode(stored)
	if err != nil {
		return p, Corrupt("ff_budget_policy.policy_json", err)
	}
	return p, nil
}
