package budgets

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/budgets"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

type (
	limits  = map[string]budget.Limit
	amounts = map[string]int64
)

// create creates a budget with limits.
func create(t *testing.T, f *fixture.Fixture, of limits, change ...func(*budget.Spec)) id.BudgetID {
	t.Helper()
	spec := budget.Spec{Limits: of}
	for _, c := range change {
		c(&spec)
	}
	created, err := budget.Create(t.Context(), f.Engine, spec)
	if err != nil || created.Duplicate || !created.Matches {
		t.Fatalf("%+v, %v", created, err)
	}
	return created.ID
}

// waitingReports returns how many reports wait for the transaction on their budget to end.
func waitingReports(eng *engine.Engine) int {
	return int(core.Memory(core.Of(eng), budgets.NewWaiting).Load())
}

// report reports usage.
func report(t *testing.T, eng *engine.Engine, b id.BudgetID, key string, of amounts) budget.Result {
	t.Helper()
	result, err := budget.Report(t.Context(), eng, budget.Usage{Budget: b, Amounts: of, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func spend(t *testing.T, eng *engine.Engine, b id.BudgetID, x id.ExecutionID, key string, of amounts) budget.Result {
	t.Helper()
	result, err := budget.RecordSpend(t.Context(), eng, budget.Spend{Budget: b, Execution: x, Amounts: of, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func read(t *testing.T, f *fixture.Fixture, b id.BudgetID) budget.Budget {
	t.Helper()
	found, err := budget.Get(t.Context(), f.Engine, b)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func wantUsage(t *testing.T, f *fixture.Fixture, b id.BudgetID, want amounts) {
	t.Helper()
	if got := read(t, f, b).Usage; !maps.Equal(got, want) {
		t.Errorf("the usage is %v, want %v", got, want)
	}
}

// ledger has the rows of a budget's ledger, as "dimension amount".
func ledger(t *testing.T, f *fixture.Fixture, b id.BudgetID) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, "SELECT dimensions_key || ' ' || delta_total FROM ff_budget_usage_by_exec WHERE budget_id = $1 ORDER BY 1", b.String())
}

// same reports whether a result is as wanted. Left and the budget of a breach are compared if they are wanted.
func same(got, want budget.Result) bool {
	if want.Left == nil {
		got.Left = nil
	}
	if want.Budget.IsZero() && want.Dimension != "" {
		got.Budget = want.Budget
	}
	return reflect.DeepEqual(got, want)
}

func wantResult(t *testing.T, got, want budget.Result) {
	t.Helper()
	if !same(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

var ok = budget.Result{Outcome: budget.Ok}

// lockBudget locks the row of a budget in a transaction of its own.
func lockBudget(t *testing.T, f *fixture.Fixture, b id.BudgetID) (commit func()) {
	t.Helper()
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_budget_policy WHERE partition_key = $1 AND budget_id = $2 FOR NO KEY UPDATE", partition(b), b.String())
	return func() { fixture.Commit(t, tx) }
}

func partition(b id.BudgetID) int16 { return id.Partitions{}.BudgetPartition(b) }

// dump is everything that is stored about a budget.
func dump(t *testing.T, f *fixture.Fixture, b id.BudgetID) string {
	t.Helper()
	var all []string
	for _, table := range []string{"ff_budget_policy", "ff_budget_usage", "ff_budget_usage_by_exec"} {
		all = append(all, fixture.Texts(t, f.Pool, fmt.Sprintf("SELECT to_jsonb(x)::text FROM %s AS x WHERE budget_id = $1 ORDER BY 1", table), b.String())...)
	}
	all = append(all, fixture.Texts(t, f.Pool, "SELECT to_jsonb(x)::text FROM ff_budget_usage_dedup AS x WHERE dedup_key LIKE $1 ORDER BY 1", b.String()+"%")...)
	return strings.Join(all, "\n")
}

// together runs n calls at once and returns how often each outcome was returned.
func together(t *testing.T, callers, calls int, call func(ctx context.Context, n int) (budget.Result, error)) map[budget.Outcome]int {
	t.Helper()
	type part struct {
		outcomes map[budget.Outcome]int
		err      error
	}
	waits := make([]func() part, callers)
	for c := range callers {
		waits[c] = fixture.Async(t, func(ctx context.Context) part {
			p := part{outcomes: make(map[budget.Outcome]int)}
			for n := c; n < calls && p.err == nil; n += callers {
				var result budget.Result
				result, p.err = call(ctx, n)
				p.outcomes[result.Outcome]++
			}
			return p
		})
	}
	outcomes := make(map[budget.Outcome]int)
	for _, wait := range waits {
		p := wait()
		if p.err != nil {
			t.Fatal(p.err)
		}
		for _, outcome := range slices.Sorted(maps.Keys(p.outcomes)) {
			outcomes[outcome] += p.outcomes[outcome]
		}
	}
	return outcomes
}
