package engine

import (
	"context"
	"encoding/binary"
	"iter"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budget"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Budget is a stored budget with its usage.
type Budget struct {
	ID         id.BudgetID
	Key        string                 // "" if it has none
	Namespace  id.Namespace           // of the Key
	Limits     map[string]BudgetLimit // by dimension; a dimension without limits may be missing
	Usage      map[string]int64       // by dimension, of all that were reported
	Reserved   map[string]int64       // by dimension, of all leases: see [Engine.Reserve]
	ResetEvery time.Duration          // 0: only an operator resets it
	Retention  time.Duration          // 0: only an operator deletes it

	CancelOnBreach bool // see [BudgetSpec]
	Labels         BudgetLabels

	Breaches            int64     // reports that a hard limit refused, since the creation
	SoftBreaches        int64     // reports above a soft limit, since the creation
	LastBreach          time.Time // of a hard limit since the last reset; zero: none
	LastBreachDimension string

	NextReset time.Time // zero: only an operator resets it
	CreatedAt time.Time
	ChangedAt time.Time // by a breach, a reset or [Operator.SetBudget]

	// Corruption says why the limits can't be read; "" if they can. Every report on such a budget fails with
	// [fferr.ErrCorruption].
	Corruption string
}

// Budget returns a budget with its usage, both of one moment.
//
// Errors: [fferr.ErrNotFound]; [fferr.ErrInvalidInput]. One statement; takes no locks.
func (e *Engine) Budget(ctx context.Context, b id.BudgetID) (Budget, error) {
	const op = "read budget"
	if err := checkBudget(b); err != nil {
		return Budget{}, core.Wrap(op, err)
	}
	row, err := e.c.Q.GetBudget(ctx, e.c.Reader(), db.GetBudgetParams{PartitionKey: e.cfg.Partitions.BudgetPartition(b), BudgetID: b.String()})
	switch {
	case core.IsNoRow(err):
		return Budget{}, core.Wrap(op, budgetNotFound(b))
	case err != nil:
		return Budget{}, core.Wrap(op, err)
	}
	found, err := budgetFrom((*db.ListBudgetsRow)(&row))
	return found, core.Wrap(op, err)
}

// ListBudgets returns a page of the budgets, ordered by partition and id. after is the [Page.Next] of the previous page, or ""
// for the first page. 0 or more than [MaxPage] means [MaxPage].
//
// Errors: [fferr.ErrInvalidInput] for a negative limit or a cursor of another listing; [fferr.ErrCorruption] for a stored id
// that is not a uuid. One statement; takes no locks.
func (o Operator) ListBudgets(ctx context.Context, after string, limit int) (page Page[Budget], err error) {
	const op, list = "list budgets", "budgets"
	if limit, err = core.PageSize(limit); err != nil {
		return page, core.Wrap(op, err)
	}
	last, err := core.ReadCursor(list, after)
	if err != nil {
		return page, core.Wrap(op, err)
	}
	params := db.ListBudgetsParams{AfterPartition: -1, PageSize: int32(limit) + 1}
	if len(last) > 2 {
		params.AfterPartition, params.AfterID = int16(binary.BigEndian.Uint16(last)), string(last[2:])
	}
	rows, err := o.e.c.Q.ListBudgets(ctx, o.e.c.Reader(), params)
	if err != nil {
		return page, core.Wrap(op, err)
	}
	found := core.PageOf(rows, limit, func(row *db.ListBudgetsRow) string {
		return core.CursorOf(list, append(binary.BigEndian.AppendUint16(nil, uint16(row.PartitionKey)), row.BudgetID...))
	})
	page.Next = found.Next
	for i := range found.Items {
		b, err := budgetFrom(&found.Items[i])
		if err != nil {
			return Page[Budget]{}, core.Wrap(op, err)
		}
		page.Items = append(page.Items, b)
	}
	return page, nil
}

// Budgets iterates over the budgets that [Operator.ListBudgets] lists, a page at a time.
func (o Operator) Budgets(ctx context.Context) iter.Seq2[Budget, error] {
	return core.Pages(func(after string) (Page[Budget], error) { return o.ListBudgets(ctx, after, MaxPage) })
}

func budgetFrom(row *db.ListBudgetsRow) (Budget, error) {
	b := Budget{
		Labels:   BudgetLabels{ScopeType: row.ScopeType, ScopeID: row.ScopeID, Mode: row.EnforcementMode},
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
	p, err := budget.Decode(row.Policy)
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

func limitsOf(p budget.Policy) map[string]BudgetLimit {
	limits := make(map[string]BudgetLimit, len(p.Hard))
	for dimension, n := range p.Hard {
		limits[dimension] = BudgetLimit{Hard: n}
	}
	for dimension, n := range p.Soft {
		limit := limits[dimension]
		limit.Soft = n
		limits[dimension] = limit
	}
	return limits
}
