package budgets

import (
	"context"
	"testing"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Budgets of other programs race, or refuse falsely. Each test here holds one of their known defects off.

// Between the check of a budget and the record of the spend, concurrent requests of a session all pass the check there:
// https://github.com/BerriAI/litellm/issues/34732. Here all reserve before any of them settles, and only those that fit pass.
func TestConcurrentRequestsCantPassBeforeTheSpendIsRecorded_litellm34732(t *testing.T) {
	f := fixture.New(t)
	const callers, fit = 32, 3
	b := create(t, f, limits{"cents": {Hard: fit*10 + 9}})
	leases := f.StartMany(t, callers)
	outcomes := together(t, callers, callers, func(ctx context.Context, n int) (budget.Result, error) {
		result, err := budget.Reserve(ctx, f.Engine, leases[n].Lease.Fence, budget.ReserveSpec{Budgets: of(b), Amounts: amounts{"cents": 10}})
		return result, err
	})
	if outcomes[budget.Ok] != fit || outcomes[budget.HardBreach] != callers-fit {
		t.Errorf("%v", outcomes)
	}
	wantReserved(t, f, b, amounts{"cents": fit * 10})
}

// A budget is not enforced there although its spend is far above it, because the way in decides which copy of the spend is
// looked at: https://github.com/BerriAI/litellm/issues/26672. Here every call looks at the same row.
func TestEveryWayInIsHeldToASpentBudget_litellm26672(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}})
	l := started(t, f, b).Lease
	report(t, f.Rival(t).Engine, b, "", amounts{"a": 10})
	for name, call := range breaches {
		for _, eng := range []*engine.Engine{f.Engine, f.Rival(t).Engine} {
			if got := call(t, eng, l, b, 1); got.Outcome != budget.HardBreach || got.Current != 10 {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	f.Create(t, under(b))
	admit(t, f)
	if claimed, err := f.Claim(t.Context(), f.Worker(), 1); len(claimed) != 0 || err != nil {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	wantUsage(t, f, b, amounts{"a": 10})
}

// The first requests of a new end user find no spend there, and all pass the default budget:
// https://github.com/BerriAI/litellm/issues/40095. Here there is no row of the usage yet either, and the row of the budget is locked.
func TestConcurrentFirstRequestsAreHeldToTheBudget_litellm40095(t *testing.T) {
	f := fixture.New(t)
	const callers = 8
	engines := []*engine.Engine{f.Rival(t).Engine, f.Rival(t).Engine}
	b := create(t, f, limits{"cents": {Hard: 1}})
	outcomes := together(t, callers, callers, func(ctx context.Context, n int) (budget.Result, error) {
		return budget.Report(ctx, engines[n%2], budget.Usage{Budget: b, Amounts: amounts{"cents": 1}})
	})
	if outcomes[budget.Ok] != 1 || outcomes[budget.HardBreach] != callers-1 {
		t.Errorf("%v", outcomes)
	}
	wantUsage(t, f, b, amounts{"cents": 1})
}

// Under load the counter there holds recent spends twice, and requests are refused although the budget has room:
// https://github.com/BerriAI/litellm/issues/36926. Here the budget has room for all that is used and for all
// that is reserved at once, so nothing is refused, although each reservation is larger than its use, reports come beside them, and
// processes share the budget.
func TestNothingThatFitsIsRefusedUnderLoad_litellm36926(t *testing.T) {
	f := fixture.New(t)
	const callers, calls, most = 16, 800, 5
	engines := []*engine.Engine{f.Rival(t).Engine, f.Rival(t).Engine}
	leases := f.StartMany(t, callers)
	var used int64
	for n := range calls {
		used += int64(n%3) + 1
	}
	b := create(t, f, limits{"a": {Hard: used + callers*most}})
	outcomes := together(t, callers, calls, func(ctx context.Context, n int) (budget.Result, error) {
		eng, l, budgets := engines[n%2], leases[n%callers].Lease.Fence, []id.BudgetID{b}
		reserved := amounts{"a": most}
		if result, err := budget.Reserve(ctx, eng, l, budget.ReserveSpec{Budgets: budgets, Amounts: reserved}); err != nil || result.Outcome != budget.Ok {
			return result, err
		}
		result, err := budget.Settle(ctx, eng, l, budget.SettleSpec{Budgets: budgets, Used: amounts{"a": int64(n % 3)}, Reserved: reserved})
		if err != nil || result.Outcome != budget.Ok {
			return result, err
		}
		return budget.Report(ctx, eng, budget.Usage{Budget: b, Amounts: amounts{"a": 1}})
	})
	if outcomes[budget.Ok] != calls {
		t.Errorf("%v", outcomes)
	}
	wantUsage(t, f, b, amounts{"a": used})
	wantReserved(t, f, b, amounts{})
	if got := read(t, f, b); got.Breaches != 0 {
		t.Errorf("%+v", got)
	}
}
