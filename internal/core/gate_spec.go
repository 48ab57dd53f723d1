package core

import (
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/id"
)

// BudgetsOf returns the budgets of a stored execution or schedule.
func BudgetsOf(stored []pgtype.UUID) (budgets []id.BudgetID) {
	for _, b := range stored {
		budgets = append(budgets, id.BudgetID(b.Bytes))
	}
	return budgets
}

// QuotaOf returns the quota policy of a stored execution or schedule, nil if there is none.
func QuotaOf(stored pgtype.UUID) *id.QuotaPolicyID {
	if !stored.Valid {
		return nil
	}
	quota := id.QuotaPolicyID(stored.Bytes)
	return &quota
}
