package budget

import (
	"context"
	"maps"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Create creates a budget. If one with the id of the spec exists, it stays as it is: the result says so, and whether it
// is the same.
//
// Usage may be reported before a budget exists. It counts from the creation on, and is not limited before.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention].
// Transaction: one statement, and a read if the budget exists. Safe to repeat with an id.
func Create(ctx context.Context, eng *engine.Engine, spec Spec) (Created, error) {
	const op = "create budget"
	c := core.Of(eng)
	if err := spec.named(c); err != nil {
		return Created{}, core.Wrap(op, err)
	}
	policy, err := spec.policy()
	if err != nil {
		return Created{}, core.Wrap(op, err)
	}
	document, err := policy.Encode()
	if err != nil {
		return Created{}, core.Wrap(op, err)
	}
	if spec.ID.IsZero() {
		spec.ID = id.NewBudgetID()
	}
	partition := c.Partitions.BudgetPartition(spec.ID)
	inserted, err := core.InStatement(ctx, c, op, func(conn db.DBTX, _ *core.Notifications) (int64, error) {
		return c.Q.InsertBudget(ctx, conn, db.InsertBudgetParams{
			NowMs: c.NowMs(), PartitionKey: partition, BudgetID: spec.ID.String(), Policy: string(document),
			ScopeType: spec.Labels.ScopeType, ScopeID: spec.Labels.ScopeID, EnforcementMode: spec.Labels.Mode,
			ResetIntervalMs: policy.PeriodMs(),
		})
	})
	switch {
	case err != nil:
		return Created{}, err
	case inserted == 1:
		return Created{ID: spec.ID, Matches: true}, nil
	}
	found, err := Get(ctx, eng, spec.ID)
	if err != nil {
		return Created{}, core.Wrap(op, err)
	}
	created := Created{ID: spec.ID, Duplicate: true}
	created.Matches = found.Corruption == "" && found.Key == spec.Key && found.Namespace == spec.Namespace && found.Labels == spec.Labels && found.ResetEvery == spec.ResetEvery &&
		found.Retention == spec.Retention && found.CancelOnBreach == spec.CancelOnBreach &&
		maps.Equal(realLimits(found.Limits), realLimits(spec.Limits))
	return created, nil
}

// realLimits leaves out the dimensions without limits.
func realLimits(of map[string]Limit) map[string]Limit {
	limits := maps.Clone(of)
	maps.DeleteFunc(limits, func(_ string, limit Limit) bool { return limit == Limit{} })
	if limits == nil {
		limits = map[string]Limit{}
	}
	return limits
}

// Release gives back the amounts that [RecordSpend] has counted for an execution, and returns them. A second call
// finds nothing, and neither does one after a reset. Usage of other executions and breaches stay. When
// retention deletes an execution, its spends stay counted.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. A budget that does not exist may have
// usage too. Transaction: locks the budget and its usage; in a caller's transaction with several budgets lock them as
// [Report] says. Safe to repeat.
func Release(ctx context.Context, eng *engine.Engine, b id.BudgetID, x id.ExecutionID) (map[string]int64, error) {
	const op = "release budget"
	c := core.Of(eng)
	if err := checkBudget(b); err != nil {
		return nil, core.Wrap(op, err)
	}
	if err := c.CheckExecution(x); err != nil {
		return nil, core.Wrap(op, err)
	}
	partition, budgetID, execution := c.Partitions.BudgetPartition(b), b.String(), core.PgUUID(x.UUID())
	rows, err := core.InTx(ctx, c, op, func(tx *core.Txn) ([]db.ReleaseBudgetRow, error) {
		var dimensions []string
		err := pgtx.InOneTrip(ctx, tx, func(conn db.DBTX) (err error) {
			_, err = c.Q.LockBudget(ctx, conn, db.LockBudgetParams{PartitionKey: partition, BudgetID: budgetID})
			return err
		}, func(conn db.DBTX) (err error) {
			dimensions, err = c.Q.LockBudgetUsageOf(ctx, conn, db.LockBudgetUsageOfParams{
				PartitionKey: partition, BudgetID: budgetID, ExecutionID: execution,
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		tx.Due.Gated()
		return c.Q.ReleaseBudget(ctx, tx, db.ReleaseBudgetParams{
			PartitionKey: partition, BudgetID: budgetID, ExecutionID: execution, Dimensions: dimensions, NowMs: c.NowMs(),
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
