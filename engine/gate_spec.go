package engine

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/id"
)

// gates has the budgets and limits that must admit a new execution before it can be claimed.
type gates struct {
	budgets []id.BudgetID // sorted
	limits  []limitUse    // in the order in which the execution waits for them
}

// limitUse is how much an execution takes of a limit.
type limitUse struct {
	gate  uuid.UUID
	units int64
}

// open reports whether there is nothing to wait for.
func (g gates) open() bool { return len(g.budgets) == 0 && len(g.limits) == 0 }

// texts returns the ids of the budgets, those of the limits, and the units, as lists separated by commas. The units are ""
// if all are one.
func (g gates) texts() (budgets, limits, units string) {
	if g.open() {
		return "", "", ""
	}
	budgetIDs, limitIDs, amounts := make([]string, len(g.budgets)), make([]string, len(g.limits)), make([]string, len(g.limits))
	one := true
	for i, b := range g.budgets {
		budgetIDs[i] = b.String()
	}
	for i, l := range g.limits {
		limitIDs[i], amounts[i] = l.gate.String(), strconv.FormatInt(l.units, 10)
		one = one && l.units == 1
	}
	if !one {
		units = strings.Join(amounts, ",")
	}
	return strings.Join(budgetIDs, ","), strings.Join(limitIDs, ","), units
}
