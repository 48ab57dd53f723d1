package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// gates has the budgets and limits that must admit a new execution before workers can claim it.
type gates struct {
	budgets []id.BudgetID // sorted
	limits  []limitUse    // in the order of waiting
}

// limitUse is how much an execution takes of a limit.
type limitUse struct {
	gate  uuid.UUID
	units int64
}

// MaxExecutionBudgets is the largest number of budgets of an execution.
const MaxExecutionBudgets = 16

// sortedBudgets checks the budgets of a spec and returns each once, sorted.
func sortedBudgets(of []id.BudgetID) ([]id.BudgetID, error) {
	if len(of) == 0 {
		return nil, nil
	}
	budgets := slices.Clone(of)
	slices.SortFunc(budgets, func(a, b id.BudgetID) int { return bytes.Compare(a[:], b[:]) })
	budgets = slices.Compact(budgets)
	switch {
	case len(budgets) > MaxExecutionBudgets:
		return nil, core.Invalid("Budgets", fmt.Sprintf("has %d budgets, limit %d", len(budgets), MaxExecutionBudgets))
	case budgets[0] == (id.BudgetID{}):
		return nil, core.Invalid("Budgets", "has an empty id")
	}
	return budgets, nil
}

// budgetTexts returns the ids of the budgets, separated by commas.
func (g gates) budgetTexts() string {
	texts := make([]string, len(g.budgets))
	for i, b := range g.budgets {
		texts[i] = b.String()
	}
	return strings.Join(texts, ",")
}

// open reports whether there is nothing to wait for.
func (g gates) open() bool { return len(g.budgets) == 0 && len(g.limits) == 0 }

// texts returns the budget ids, the limit ids and the units, as lists separated by commas. The units are "" if all are
// one.
func (g gates) texts() (budgets, limits, units string) {
	if g.open() {
		return "", "", ""
	}
	limitIDs, amounts := make([]string, len(g.limits)), make([]string, len(g.limits))
	one := true
	for i, l := range g.limits {
		limitIDs[i], amounts[i] = l.gate.String(), strconv.FormatInt(l.units, 10)
		one = one && l.units == 1
	}
	if !one {
		units = strings.Join(amounts, ",")
	}
	return g.budgetTexts(), strings.Join(limitIDs, ","), units
}
