package engine

import (
	"context"
	"maps"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// CreateBudget creates a budget. If one with the id of the spec exists, it stays as it is: the result says so, and whether it
// is the same.
//
// Usage may be reported before a budget exists. It counts from the creation on, and is not limited before.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention].
// Transaction: one statement, and a read if the budget exists. Safe to repeat with an id.
func (e *Engine) CreateBudget(ctx context.Context, spec BudgetSpec) (BudgetCreated, error) {
	const op = "create budget"
	if err := spec.named(e); err != nil {
		return BudgetCreated{}, core.Wrap(op, err)
	}
	policy, err := spec.policy()
	if err != nil {
		return BudgetCreated{}, core.Wrap(op, err)
	}
	document, err := policy.Encode()
	if err != nil {
		return BudgetCreated{}, core.Wrap(op, err)
	}
	if spec.ID.IsZero() {
		spec.ID = id.NewBudgetID()
	}
	partition := e.cfg.Partitions.BudgetPartition(spec.ID)
	inserted, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return e.c.Q.InsertBudget(ctx, conn, db.InsertBudgetParams{
			NowMs: e.c.NowMs(), PartitionKey: partition, BudgetID: spec.ID.String(), Policy: string(document),
			ScopeType: spec.Labels.ScopeType, ScopeID: spec.Labels.ScopeID, EnforcementMode: spec.Labels.Mode,
			ResetIntervalMs: policy.PeriodMs(),
		})
	})
	switch {
	case err != nil:
		return BudgetCreated{}, err
	case inserted == 1:
		return BudgetCreated{ID: spec.ID, Matches: true}, nil
	}
	found, err := e.Budget(ctx, spec.ID)
	if err != nil {
		return BudgetCreated{}, core.Wrap(op, err)
	}
	created := BudgetCreated{ID: spec.ID, Duplicate: true}
	created.Matches = found.Corruption == "" && found.Key == spec.Key && found.Namespace == spec.Namespace && found.Labels == spec.Labels && found.ResetEvery == spec.ResetEvery &&
		found.Retention == spec.Retention && found.CancelOnBreach == spec.CancelOnBreach &&
		maps.Equal(realLimits(found.Limits), realLimits(spec.Limits))
	return created, nil
}

// realLimits leaves out the dimensions without limits.
func realLimits(of map[string]BudgetLimit) map[string]BudgetLimit {
	limits := maps.Clone(of)
	maps.DeleteFunc(limits, func(_ string, limit BudgetLimit) bool { return limit == BudgetLimit{} })
	if limits == nil {
		limits = map[string]BudgetLimit{}
	}
	return limits
}

// ReleaseBudget gives back the amounts that [Engine.RecordSpend] has counted for an execution, and returns them. A second call
// finds nothing, and neither does one after a reset. Usage of other executions and breaches stay. When
// retention deletes an execution, its spends stay counted.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. A budget that does not exist may have
// usage too. Transaction: locks the budget and its usage; in a caller's transaction with several budgets lock them as
// [Engine.ReportUsage] says. Safe to repeat.
func (e *Engine) ReleaseBudget(ctx context.Context, b id.BudgetID, x id.ExecutionID) (map[string]int64, error) {
	const op = "release budget"
	if err := checkBudget(b); err != nil {
		return nil, core.Wrap(op, err)
	}
	if err := e.c.CheckExecution(x); err != nil {
		return nil, core.Wrap(op, err)
	}
	partition, budgetID, execution := e.cfg.Partitions.BudgetPartition(b), b.String(), core.PgUUID(x.UUID())
	rows, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) ([]db.ReleaseBudgetRow, error) {
		var dimensions []string
		err := pgtx.InOneTrip(ctx, tx, func(conn db.DBTX) (err error) {
			_, err = e.c.Q.LockBudget(ctx, conn, db.LockBudgetParams{PartitionKey: partition, BudgetID: budgetID})
			return err
		}, func(conn db.DBTX) (err error) {
			dimensions, err = e.c.Q.LockBudgetUsageOf(ctx, conn, db.LockBudgetUsageOfParams{
				PartitionKey: partition, BudgetID: budgetID, ExecutionID: execution,
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		tx.Due.Gated()
		return e.c.Q.ReleaseBudget(ctx, tx, db.ReleaseBudgetParams{
			PartitionKey: partition, BudgetID: budgetID, ExecutionID: execution, Dimensions: dimensions, NowMs: e.c.NowMs(),
		})
	})
	if err != nil {
		return nil, err
	}
	released := make(map[string]int64, len(rows))
	for _, row := range rows {
		released[row.DimensionsKey] = row.DeltaTotal
	}
	return released, nil
}
