package budget

import (
	"context"
	"maps"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// lockLeases locks the attempts of reserving and settling leases, and reads the facts for checking their fences. See
// docs/internals/decisions.md#reservations.
func (c *usageCount) lockLeases(ctx context.Context) []core.Step {
	c.facts, c.locked = make(map[id.Fence]*core.LeaseFacts), make(map[id.Fence]bool)
	if len(c.fences) == 0 {
		return nil
	}
	arrays := core.NewLeaseArrays(len(c.fences))
	for _, f := range c.fences {
		arrays.Add(f)
	}
	ords := arrays.Ords()
	return []core.Step{func(conn db.DBTX) error {
		params := db.LockReserversParams{
			PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, AttemptIndexes: arrays.Attempts, Ords: ords,
		}
		lock := c.Q.LockReservers
		if !c.waits {
			lock = func(ctx context.Context, conn db.DBTX, p db.LockReserversParams) ([]int32, error) {
				return c.Q.TakeReservers(ctx, conn, db.TakeReserversParams(p))
			}
		}
		locked, err := lock(ctx, conn, params)
		for _, ord := range locked {
			c.locked[c.fences[ord]] = true
		}
		return err
	}, func(conn db.DBTX) error {
		facts, err := c.ReadLeases(ctx, conn, arrays)
		for ord, f := range facts {
			c.facts[c.fences[ord]] = f
		}
		return err
	}}
}

// readReserved reads the reservations on a locked budget, of all leases and of the leases of the items.
func (c *usageCount) readReserved(ctx context.Context, b *countedBudget) []core.Step {
	b.reserved, b.stored, b.due = make(map[string]int64), make(map[id.Fence]map[string]int64), false
	var steps []core.Step
	if len(c.dimensions) > 0 {
		steps = append(steps, func(conn db.DBTX) error {
			rows, err := c.Q.ReadReserved(ctx, conn, db.ReadReservedParams{NowMs: c.NowMs(), PartitionKey: b.partition, BudgetID: b.id})
			for _, row := range rows {
				b.reserved[row.DimensionsKey] = row.Amount
				b.due = b.due || row.Due
			}
			return err
		})
	}
	if len(c.fences) == 0 {
		return steps
	}
	arrays := core.NewLeaseArrays(len(c.fences))
	for _, f := range c.fences {
		arrays.Add(f)
	}
	params := db.ReadReservationsOfParams{
		ExecutionIDs: arrays.Executions, AttemptIndexes: arrays.Attempts, LeaseEpochs: arrays.Epochs, Ords: arrays.Ords(),
		PartitionKey: b.partition, BudgetID: b.id,
	}
	return append(steps, func(conn db.DBTX) error {
		rows, err := c.Q.ReadReservationsOf(ctx, conn, params)
		for _, row := range rows {
			f := c.fences[row.Ord]
			if b.stored[f] == nil {
				b.stored[f] = make(map[string]int64)
			}
			b.stored[f][row.DimensionsKey] = row.Amount
		}
		return err
	})
}

// look checks the leases of reservations due for a check, and reads the remaining reservations.
func (c *usageCount) look(ctx context.Context, tx *core.Txn) error {
	var steps []core.Step
	for _, b := range c.ordered {
		if b.due {
			steps = append(steps, func(conn db.DBTX) error {
				_, err := c.Q.LookAtReservations(ctx, conn, db.LookAtReservationsParams{
					NowMs: c.NowMs(), PartitionKey: b.partition, BudgetID: b.id,
				})
				return err
			})
			steps = append(steps, c.readReserved(ctx, b)...)
		}
	}
	return pgtx.InOneTrip(ctx, tx, steps...)
}

// reservationsChange reports whether the items have changed reservations on a budget.
func (b *countedBudget) reservationsChange() bool {
	for f, held := range b.held {
		for dimension, n := range held {
			if n != b.stored[f][dimension] {
				return true
			}
		}
	}
	return false
}

// storeReserved stores the changes of reservations.
func (c *usageCount) storeReserved(ctx context.Context, b *countedBudget) []core.Step {
	add := db.AddReservationsParams{PartitionKey: b.partition, BudgetID: b.id}
	reduce := db.ReduceReservationsParams{PartitionKey: b.partition, BudgetID: b.id}
	for _, f := range c.fences {
		for _, dimension := range slices.Sorted(maps.Keys(b.held[f])) {
			x := core.PgUUID(f.Execution.UUID())
			n := b.held[f][dimension] - b.stored[f][dimension]
			switch {
			case n > 0:
				add.ExecutionPartitions, add.ExecutionIDs = append(add.ExecutionPartitions, f.Execution.Partition()), append(add.ExecutionIDs, x)
				add.AttemptIndexes, add.LeaseEpochs = append(add.AttemptIndexes, int32(f.Attempt)), append(add.LeaseEpochs, f.Epoch)
				add.Dimensions, add.Amounts = append(add.Dimensions, dimension), append(add.Amounts, n)
				add.ExpiriesMs = append(add.ExpiriesMs, *c.facts[f].LeaseExpiresAtMs)
			case n < 0:
				reduce.ExecutionIDs, reduce.AttemptIndexes = append(reduce.ExecutionIDs, x), append(reduce.AttemptIndexes, int32(f.Attempt))
				reduce.LeaseEpochs = append(reduce.LeaseEpochs, f.Epoch)
				reduce.Dimensions, reduce.Amounts = append(reduce.Dimensions, dimension), append(reduce.Amounts, -n)
			}
		}
	}
	var steps []core.Step
	if len(add.Amounts) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return c.Q.AddReservations(ctx, conn, add) })
	}
	if len(reduce.Amounts) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return c.Q.ReduceReservations(ctx, conn, reduce) })
	}
	return steps
}
