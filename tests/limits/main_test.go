package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

const window = 10 * time.Second

// quota creates a quota policy.
func quota(t *testing.T, f *fixture.Fixture, spec interop.QuotaPolicySpec) id.QuotaPolicyID {
	t.Helper()
	created, err := interop.CreateQuotaPolicy(t.Context(), f.Engine, spec)
	if err != nil || created.Duplicate {
		t.Fatal(created, err)
	}
	return created.ID
}

// budgetOf creates a budget with a hard limit of "n".
func budgetOf(t *testing.T, f *fixture.Fixture, hard int64) id.BudgetID {
	t.Helper()
	created, err := budget.Create(t.Context(), f.Engine, budget.Spec{Limits: map[string]budget.Limit{"n": {Hard: hard}}})
	if err != nil {
		t.Fatal(err)
	}
	return created.ID
}

// spend uses an amount of a budget.
func spend(t *testing.T, f *fixture.Fixture, b id.BudgetID, n int64) {
	t.Helper()
	result, err := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: b, Amounts: map[string]int64{"n": n}})
	if err != nil || result.Outcome != budget.Ok {
		t.Fatal(result, err)
	}
}

// under makes an execution name a quota policy.
func under(q id.QuotaPolicyID) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) { s.QuotaPolicy = &q }
}

// within makes an execution name budgets.
func within(budgets ...id.BudgetID) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) { s.Budgets = budgets }
}

// create creates n executions.
func create(t *testing.T, f *fixture.Fixture, n int, change ...func(*engine.ExecutionSpec)) (ids []id.ExecutionID) {
	t.Helper()
	specs := make([]engine.ExecutionSpec, n)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}
		for _, c := range change {
			c(&specs[i])
		}
	}
	created, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range created {
		if outcome.Err != nil {
			t.Fatal(outcome.Err)
		}
		ids = append(ids, outcome.Value.ID)
	}
	return ids
}

// admit runs the gate until it admits nothing more, and returns how many it has admitted or moved.
func admit(t *testing.T, eng *engine.Engine) (n int) {
	t.Helper()
	for {
		acted, err := upkeep.Of(eng).AdmitWaiting(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if n += acted; acted == 0 {
			return n
		}
	}
}

// claim claims all claimable executions of the fixture's lane, at most n.
func claim(t *testing.T, f *fixture.Fixture, n int) []engine.Claimed {
	t.Helper()
	claimed, err := f.Claim(t.Context(), f.Worker(), n)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// wantClaimable admits and fails the test unless so many executions are claimable then. It returns them, claimed.
func wantClaimable(t *testing.T, f *fixture.Fixture, want int, when string) []engine.Claimed {
	t.Helper()
	admit(t, f.Engine)
	claimed := claim(t, f, 1000)
	if len(claimed) != want {
		t.Fatalf("%s: claimed %d, want %d", when, len(claimed), want)
	}
	return claimed
}

func complete(t *testing.T, f *fixture.Fixture, claimed ...engine.Claimed) {
	t.Helper()
	for _, c := range claimed {
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
}
