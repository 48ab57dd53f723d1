package budget

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// write stores the usage, the counters, the outcomes, the reservations and the ledger, in one round trip.
func (c *usageCount) write(ctx context.Context, tx *core.Txn) error {
	var steps []core.Step
	for _, b := range c.ordered {
		steps = append(steps, c.countBreaches(ctx, b)...)
	}
	outcomes, err := c.storeOutcomes(ctx)
	if err != nil {
		return err
	}
	for _, b := range c.ordered {
		if b == c.budgets[0] {
			steps = append(steps, outcomes...)
		}
		steps = append(steps, c.addUsage(ctx, b)...)
		steps = append(steps, c.storeReserved(ctx, b)...)
	}
	if len(c.ledger) > 0 {
		b := c.budgets[0]
		add := db.AddBudgetUsageOfParams{PartitionKey: b.partition, BudgetID: b.id, AtMs: b.nowMs}
		for _, key := range slices.SortedFunc(maps.Keys(c.ledger), compareLedgerKeys) {
			add.ExecutionIDs = append(add.ExecutionIDs, pgtype.UUID{Bytes: key.execution, Valid: true})
			add.Dimensions, add.Amounts = append(add.Dimensions, key.dimension), append(add.Amounts, c.ledger[key])
		}
		steps = append(steps, func(conn db.DBTX) error { return c.Q.AddBudgetUsageOf(ctx, conn, add) })
	}
	for _, b := range c.ordered {
		steps = append(steps, c.cancelAdmitted(ctx, b, &tx.Due)...)
	}
	return pgtx.InOneTrip(ctx, tx, steps...)
}

// countBreaches counts breaches, and marks a budget with changed reservations.
func (c *usageCount) countBreaches(ctx context.Context, b *countedBudget) []core.Step {
	a := &b.account
	if !b.exists || a.Hard+a.Soft == 0 && !b.reservationsChange() {
		return nil
	}
	return []core.Step{func(conn db.DBTX) error {
		return c.Q.CountBudgetBreaches(ctx, conn, db.CountBudgetBreachesParams{
			Hard: a.Hard, Soft: a.Soft, AtMs: b.nowMs, Dimension: a.LastBreach, PartitionKey: b.partition, BudgetID: b.id,
		})
	}}
}

// storeOutcomes stores the outcomes under their keys, and drops the keys of undecided items: their leases are lost or busy,
// and another lease may come with the same key.
func (c *usageCount) storeOutcomes(ctx context.Context) ([]core.Step, error) {
	b := c.budgets[0]
	unused := db.DropBudgetKeysParams{PartitionKey: b.partition}
	for _, key := range slices.Sorted(maps.Keys(c.taken)) {
		if c.done[key] == nil {
			unused.Keys = append(unused.Keys, key)
		}
	}
	var steps []core.Step
	if len(unused.Keys) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return c.Q.DropBudgetKeys(ctx, conn, unused) })
	}
	if len(c.done) == 0 {
		return steps, nil
	}
	outcomes := db.StoreBudgetOutcomesParams{PartitionKey: b.partition}
	for key, item := range c.done {
		document, err := item.outcome.Encode(b.id, item.op)
		if err != nil {
			return nil, err
		}
		outcomes.Keys, outcomes.Outcomes = append(outcomes.Keys, key), append(outcomes.Outcomes, document)
	}
	return append(steps, func(conn db.DBTX) error { return c.Q.StoreBudgetOutcomes(ctx, conn, outcomes) }), nil
}

func (c *usageCount) addUsage(ctx context.Context, b *countedBudget) []core.Step {
	applied := b.account.Applied
	if len(applied) == 0 {
		return nil
	}
	add := db.AddBudgetUsageParams{PartitionKey: b.partition, BudgetID: b.id, AtMs: b.nowMs}
	for _, dimension := range slices.Sorted(maps.Keys(applied)) {
		add.Dimensions, add.Amounts = append(add.Dimensions, dimension), append(add.Amounts, applied[dimension])
	}
	return []core.Step{func(conn db.DBTX) error { return c.Q.AddBudgetUsage(ctx, conn, add) }}
}
