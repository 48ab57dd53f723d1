package budget

import (
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// ReserveSpec describes a reservation.
type ReserveSpec struct {
	// Budgets are the budgets that must all have room for the amounts: 1 to [MaxBudgets], such as the budget of
	// a run, of its user and of its tenant. The first one has the key.
	Budgets []id.BudgetID

	// Amounts are by dimension, as in [Usage]: an estimate from above, since more than was reserved may be refused.
	Amounts map[string]int64

	// Key makes repetitions by the same lease safe, as in [Usage]. For another lease the key is a new one, because the
	// reservation of the first returns with its lease. Default: each call reserves.
	Key string
}

// SettleSpec describes the end of a reservation.
type SettleSpec struct {
	Budgets []id.BudgetID // as in the reservation

	// Used are the amounts that were used, by dimension, as in [Usage]. A dimension that is left out was not used.
	Used map[string]int64

	// Reserved is the part of the lease's reservations on each budget that ends: the amounts of one of several [ReserveSpec].
	// Default nil: all amounts.
	Reserved map[string]int64

	// Key makes repetitions safe, as in [Usage]. If another lease has settled with the key, the usage isn't counted again, and
	// only the reservation ends. Default: each call counts.
	Key string
}

// ReserveResult is the result of a reservation, or of its settlement. A breach names the first dimension in byte order of
// the first such budget. Its ByReservations covers all dimensions and budgets without room.
type ReserveResult struct {
	Result

	// Budget is the budget of a breach.
	Budget id.BudgetID

	// Left is the rest after the call, in the dimensions that it names: the hard limit, or the soft limit if there is no
	// hard one, less the usage and all reservations. Of several budgets it is the least. A dimension without limits is missing.
	Left map[string]int64
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
