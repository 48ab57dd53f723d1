package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// reporters are the callers that report at once on one budget.
const reporters = 16

// budgets measures reports of usage on one budget, those that share transactions and those that can't, and reservations.
func budgets(ctx context.Context, b *Bench) error {
	n := max(reporters, b.N/2)
	measured := fmt.Sprintf("%d reports of one amount, on one budget with a hard limit, by %d callers in one process, each after its last one has returned; alone: a tenth as many, each in a transaction of its caller's; reservations: as many, each settled before the next one of its caller", n, reporters)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, _ contender.Contender) ([]reading, error) {
		eng := b.Field.Worker.Events()
		var readings []reading
		for _, way := range []struct {
			name   string
			n      int
			report func(ctx context.Context, usage budget.Usage) (budget.Result, error)
		}{
			{"reports on one budget", n, func(ctx context.Context, usage budget.Usage) (budget.Result, error) {
				return budget.Report(ctx, eng, usage)
			}},
			{"reports on one budget, alone", max(reporters, n/10), func(ctx context.Context, usage budget.Usage) (result budget.Result, err error) {
				err = eng.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
					result, err = budget.Report(ctx, eng, usage)
					return err
				})
				return result, err
			}},
		} {
			rate, err := reportAll(ctx, eng, way.n, way.report)
			if err != nil {
				return nil, err
			}
			readings = append(readings, reading{name: way.name, unit: "reports/s", value: rate})
		}
		rate, err := reserveAll(ctx, eng, n)
		return append(readings, reading{name: "reservations with their settlement on one budget", unit: "reservations/s", value: rate}), err
	})
}

// reportAll makes n reports on a new budget, and returns how many were counted in a second.
func reportAll(
	ctx context.Context, eng *engine.Engine, n int, report func(context.Context, budget.Usage) (budget.Result, error),
) (float64, error) {
	budgetOf, err := budget.Create(ctx, eng, budget.Spec{Limits: map[string]budget.Limit{"calls": {Hard: int64(n)}}})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	callers, calling := errgroup.WithContext(ctx)
	for caller := range reporters {
		callers.Go(func() error {
			for i := caller; i < n; i += reporters {
				result, err := report(calling, budget.Usage{Budget: budgetOf.ID, Amounts: map[string]int64{"calls": 1}})
				if err == nil && result.Outcome != budget.Ok {
					err = fmt.Errorf("report %d: %+v", i, result)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := callers.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	stored, err := budget.Get(ctx, eng, budgetOf.ID)
	if err == nil && stored.Usage["calls"] != int64(n) {
		err = fmt.Errorf("counted %d of %d", stored.Usage["calls"], n)
	}
	return float64(n) / took.Seconds(), err
}

// reserveAll makes and settles n reservations on a new budget, by callers with a lease each, and returns how many it made in a
// second. The budget suffices for all, if each is used, so none is refused.
func reserveAll(ctx context.Context, eng *engine.Engine, n int) (float64, error) {
	budgetOf, err := budget.Create(ctx, eng, budget.Spec{Limits: map[string]budget.Limit{"calls": {Hard: int64(n)}}})
	if err != nil {
		return 0, err
	}
	lane := id.LaneID("reserving-" + budgetOf.ID.String())
	specs := make([]engine.ExecutionSpec, reporters)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: lane, Kind: "reserve"}
	}
	if _, err := eng.CreateExecutions(ctx, specs); err != nil {
		return 0, err
	}
	claimer, err := eng.NewClaimer(engine.ClaimSpec{Lane: lane, Worker: "bench", Instance: "bench", LeaseTTL: time.Hour})
	if err != nil {
		return 0, err
	}
	claimed, err := claimer.Claim(ctx, reporters)
	if err == nil && len(claimed) != reporters {
		err = fmt.Errorf("claimed %d of %d", len(claimed), reporters)
	}
	if err != nil {
		return 0, err
	}
	budgets, one := []id.BudgetID{budgetOf.ID}, map[string]int64{"calls": 1}
	began := time.Now()
	callers, calling := errgroup.WithContext(ctx)
	for caller := range reporters {
		callers.Go(func() error {
			fence := claimed[caller].Lease.Fence
			for i := caller; i < n; i += reporters {
				result, err := budget.Reserve(calling, eng, fence, budget.ReserveSpec{Budgets: budgets, Amounts: one})
				if err == nil && result.Outcome == budget.Ok {
					result, err = budget.Settle(calling, eng, fence, budget.SettleSpec{Budgets: budgets, Used: one, Reserved: one})
				}
				if err == nil && result.Outcome != budget.Ok {
					err = fmt.Errorf("reservation %d: %+v", i, result)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := callers.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	stored, err := budget.Get(ctx, eng, budgetOf.ID)
	if err == nil && (stored.Usage["calls"] != int64(n) || len(stored.Reserved) != 0) {
		err = fmt.Errorf("counted %d of %d, reserved %v", stored.Usage["calls"], n, stored.Reserved)
	}
	return float64(n) / took.Seconds(), err
}
