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

// pgQuota returns the stored form of a quota policy; nil is none.
func pgQuota(quota *id.QuotaPolicyID) pgtype.UUID {
	if quota == nil {
		return pgtype.UUID{}
	}
	return pgtype.UUID{Bytes: *quota, Valid: true}
}

// QuotaOf is the reverse of pgQuota.
func QuotaOf(stored pgtype.UUID) *id.QuotaPolicyID {
	if !stored.Valid {
		return nil
	}
	quota := id.QuotaPolicyID(stored.Bytes)
	return &quota
}
