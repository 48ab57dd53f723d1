package engine

import (
	"context"
	"fmt"
	"math"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// partitionSample is how many budgets, and how many quota policies, [Engine.Prepare] looks at.
const partitionSample = 100

// checkPartitions refuses a number of budget or quota partitions that stored rows do not fit. With a wrong number, no budget
// would be found, and so none would limit anything.
func (e *Engine) checkPartitions(ctx context.Context) error {
	rows, err := e.q.ListBudgetPartitions(ctx, e.reader(), partitionSample)
	if err != nil {
		return err
	}
	p := e.cfg.Partitions.WithDefaults()
	if err := checkModulus(rows, false, "ff_budget_policy.partition_key", p.Budget); err != nil {
		return err
	}
	return checkModulus(rows, true, "ff_quota_policy.partition_key", p.Quota)
}

func checkModulus(rows []db.ListBudgetPartitionsRow, quota bool, column string, configured uint16) error {
	stored := make(map[id.BudgetID]int16)
	for _, row := range rows {
		if b, err := id.ParseBudgetID(row.ID); err == nil && row.Quota == quota {
			stored[b] = row.PartitionKey
		}
	}
	fits := func(count uint16) bool {
		p := id.Partitions{Budget: count}
		for b, partition := range stored {
			if p.BudgetPartition(b) != partition {
				return false
			}
		}
		return true
	}
	if fits(configured) {
		return nil
	}
	// Several numbers may fit a small sample: the likely ones come first.
	for _, count := range []uint16{id.DefaultBudgetPartitions, 256} {
		if fits(count) {
			return corrupt(column, fmt.Errorf("rows are spread over %d partitions, not %d", count, configured))
		}
	}
	for count := uint16(1); count <= math.MaxInt16; count++ {
		if fits(count) {
			return corrupt(column, fmt.Errorf("rows are spread over %d partitions, not %d", count, configured))
		}
	}
	return corrupt(column, fmt.Errorf("rows are not spread over %d partitions, nor over any other number", configured))
}
