package budget

import (
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ReserveSpec describes a reservation.
type ReserveSpec struct {
	// Budgets are 1 to [MaxBudgets] budgets, such as the budget of a run, of its user and of its tenant. All must have the
	// amounts left. The first budget has the key.
	Budgets []id.BudgetID

	// Amounts are by dimension, as in [Usage]. Estimate from above: usage beyond the reservation may be refused.
	Amounts map[string]int64

	// Key makes repetitions by the same lease safe, as in [Usage]. For another lease the key is a new one, because a
	// reservation ends with its lease. Default: each call reserves.
	Key string
}

// SettleSpec describes the end of a reservation.
type SettleSpec struct {
	Budgets []id.BudgetID // as in the reservation

	// Used are the used amounts by dimension, as in [Usage]. A missing dimension was not used.
	Used map[string]int64

	// Reserved is the part of the lease's reservations to end on each budget: the amounts of one of several [ReserveSpec].
	// Default nil: all amounts.
	Reserved map[string]int64

	// Key makes repetitions safe, as in [Usage]. If another lease has settled with the key, the usage isn't counted again,
	// and only the reservation ends. Default: each call counts.
	Key string
}

func checkBudgets(of []id.BudgetID) error {
	if len(of) == 0 || len(of) > MaxBudgets {
		return core.Invalid("Budgets", fmt.Sprintf("has %d budgets, must be between 1 and %d", len(of), MaxBudgets))
	}
	for i, b := range of {
		if err := checkBudget(b); err != nil {
			return err
		}
		if slices.Contains(of[:i], b) {
			return core.Invalid("Budgets", fmt.Sprintf("names %s twice", b))
		}
	}
	return nil
}
