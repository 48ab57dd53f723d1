package engine

import (
	"context"
	"fmt"
	"math"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// partitionSample is how many flows, how many budgets and how many quota policies [Engine.Prepare] reads.
const partitionSample = 100

// storedIn is a sample of ids, with the partitions of their rows.
type storedIn map[id.BudgetID]int16

// checkPartitions refuses numbers of partitions that stored rows contradict. With a wrong number, no flow or budget
// would be found, and so no budget would limit anything.
func (e *Engine) checkPartitions(ctx context.Context) error {
	var members []db.ListFlowPartitionsRow
	var limits []db.ListBudgetPartitionsRow
	err := e.c.Read(ctx,
		func(conn db.DBTX) (err error) {
			members, err = e.c.Q.ListFlowPartitions(ctx, conn, partitionSample)
			return err
		},
		func(conn db.DBTX) (err error) {
			limits, err = e.c.Q.ListBudgetPartitions(ctx, conn, partitionSample)
			return err
		},
	)
	if err != nil {
		return err
	}
	flows, budgets, quotas := make(storedIn), make(storedIn), make(storedIn)
	for _, row := range members {
		flows[id.BudgetID(row.FlowID)] = row.PartitionKey
	}
	for _, row := range limits {
		stored := budgets
		if row.Quota {
			stored = quotas
		}
		if b, err := id.ParseBudgetID(row.ID); err == nil {
			stored[b] = row.PartitionKey
		}
	}
	p := e.cfg.Partitions.WithDefaults()
	if err := flows.check("ff_flow_core.partition_key", p.Flow); err != nil {
		return err
	}
	if err := budgets.check("ff_budget_policy.partition_key", p.Budget); err != nil {
		return err
	}
	return quotas.check("ff_quota_policy.partition_key", p.Quota)
}

// fits reports whether the rows are spread over a number of partitions. Ids of all types are spread alike.
func (s storedIn) fits(count uint16) bool {
	p := id.Partitions{Budget: count}
	for b, partition := range s {
		if p.BudgetPartition(b) != partition {
			return false
		}
	}
	return true
}

// check refuses a number of partitions that the rows of a column contradict, and names a number that fits.
func (s storedIn) check(column string, configured uint16) error {
	if s.fits(configured) {
		return nil
	}
	// Several numbers may fit a small sample: the likely ones come first.
	for _, count := range []uint16{id.DefaultBudgetPartitions, id.DefaultFlowPartitions} {
		if s.fits(count) {
			return core.Corrupt(column, fmt.Errorf("rows are spread over %d partitions, not %d", count, configured))
		}
	}
	for count := uint16(1); count <= math.MaxInt16; count++ {
		if s.fits(count) {
			return core.Corrupt(column, fmt.Errorf("rows are spread over %d partitions, not %d", count, configured))
		}
	}
	return core.Corrupt(column, fmt.Errorf("rows are not spread over %d partitions, nor over any other number", configured))
}
