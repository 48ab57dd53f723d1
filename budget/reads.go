package budget

import (
	"context"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Budget is a stored budget with its usage.
type Budget struct {
	ID         id.BudgetID
	Key        string           // "" if there is none
	Namespace  id.Namespace     // of the Key
	Limits     map[string]Limit // by dimension; a dimension without limits may be missing
	Usage      map[string]int64 // by dimension
	Reserved   map[string]int64 // by dimension, of all leases: see [Reserve]
	ResetEvery time.Duration    // 0: only [Reset] resets
	Retention  time.Duration    // 0: only [Delete] deletes

	CancelOnBreach bool // see [Spec.CancelOnBreach]
	Labels         Labels

	Breaches            int64     // calls refused by a hard limit, since the creation
	SoftBreaches        int64     // calls counted above a soft limit, since the creation
	LastBreach          time.Time // of a hard limit since the last reset; zero: none
	LastBreachDimension string

	NextReset time.Time // zero: only [Reset] resets
	CreatedAt time.Time
	ChangedAt time.Time // by a breach, a reset or [Set]

	// Corruption says why the limits can't be read; "" if they can. Every report on such a budget fails with
	// [fferr.ErrCorruption].
	Corruption string
}

// Get returns a budget with its usage, in one snapshot.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]. One statement; takes no locks.
func Get(ctx context.Context, eng *engine.Engine, b id.BudgetID) (Budget, error) {
	const op = "read budget"
	c := core.Of(eng)
	if err := checkBudget(b); err != nil {
		return Budget{}, core.Wrap(op, err)
	}
	row, err := c.Q.GetBudget(ctx, c.Reader(), db.GetBudgetParams{PartitionKey: c.Partitions.BudgetPartition(b), BudgetID: b.String()})
	switch {
	case core.IsNoRow(err):
		return Budget{}, core.Wrap(op, budgetNotFound(b))
	case err != nil:
		return Budget{}, core.Wrap(op, err)
	}
	found, err := budgetFrom((*db.ListBudgetsRow)(&row))
	return found, core.Wrap(op, err)
}

// All iterates over all budgets, ordered by partition and id.
//
// Errors: [fferr.ErrCorruption] for a stored id that is not a uuid. One statement for each page; takes no locks.
func All(ctx context.Context, eng *engine.Engine) iter.Seq2[Budget, error] {
	c := core.Of(eng)
	return core.All("list budgets", func(after *db.ListBudgetsRow) ([]db.ListBudgetsRow, error) {
		params := db.ListBudgetsParams{AfterPartition: -1, PageSize: core.MaxPage}
		if after != nil {
			params.AfterPartition, params.AfterID = after.PartitionKey, after.BudgetID
		}
		return c.Q.ListBudgets(ctx, c.Reader(), params)
	}, func(row *db.ListBudgetsRow) (Budget, bool, error) {
		b, err := budgetFrom(row)
		return b, true, err
	})
}

func budgetFrom(row *db.ListBudgetsRow) (Budget, error) {
	b := Budget{
		Labels:   Labels{ScopeType: row.ScopeType, ScopeID: row.ScopeID, Mode: row.EnforcementMode},
		Breaches: row.BreachCount, SoftBreaches: row.SoftBreachCount,
		LastBreach: core.OptionalTime(row.LastBreachAtMs), LastBreachDimension: row.LastBreachDim,
		NextReset: core.OptionalTime(row.NextResetAtMs), CreatedAt: time.UnixMilli(row.CreatedAtMs), ChangedAt: time.UnixMilli(row.UpdatedAtMs),
		Usage: make(map[string]int64, len(row.Dimensions)), Reserved: make(map[string]int64, len(row.ReservedDimensions)),
	}
	for i, dimension := range row.Dimensions {
		b.Usage[dimension] = row.Amounts[i]
	}
	for i, dimension := range row.ReservedDimensions {
		b.Reserved[dimension] = row.ReservedAmounts[i]
	}
	var err error
	if b.ID, err = id.ParseBudgetID(row.BudgetID); err != nil {
		return b, core.Corrupt("ff_budget_policy.budget_id", err)
	}
	p, err := budgets.Decode(row.Policy)
	if err != nil {
		b.Corruption = "policy_json " + err.Error()
		return b, nil
	}
	b.Key, b.Namespace = p.Key, id.Namespace(p.Namespace)
	b.Labels.OnHardLimit, b.Labels.OnSoftLimit = p.OnHard, p.OnSoft
	b.ResetEvery, b.CancelOnBreach = core.RetentionOf(p.ResetIntervalMs), p.CancelOnBreach
	if p.Ephemeral() {
		b.Retention, b.NextReset = core.RetentionOf(p.RetentionMs), time.Time{}
	}
	b.Limits = limitsOf(p)
	return b, nil
}

func limitsOf(p budgets.Policy) map[string]Limit {
	limits := make(map[string]Limit, len(p.Hard))
	for dimension, n := range p.Hard {
		limits[dimension] = Limit{Hard: n}
	}
	for dimension, n := range p.Soft {
		limit := limits[dimension]
		limit.Soft = n
		limits[dimension] = limit
	}
	return limits
}
