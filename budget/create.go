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

// Create creates a budget. An existing budget with the same id doesn't change, and the result reports whether the two match.
//
// Usage may be reported before a budget exists. Such usage is not limited, and counts from the creation on.
//
// Errors: [fferr.ErrInvalidInput] naming the field; [fferr.ErrContention]. Transaction: one statement, and a read if the
// budget exists. Safe to repeat with an id.
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

// Release gives back the amounts counted by [RecordSpend] for an execution since the last reset, and returns the amounts. A
// second call returns nothing. Usage of other executions and counts of breaches don't change. Spends stay counted when
// retention deletes their execution.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrContention]. A budget that does not exist may have usage too. Transaction: locks
// the budget and its usage; for several budgets in a caller's transaction see [Report]. Safe to repeat.
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
