package explain

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
)

func declare(t *testing.T, f *place, spec limit.Spec) {
	t.Helper()
	if err := limit.Declare(t.Context(), f.Engine, spec); err != nil {
		t.Fatal(err)
	}
}

func limited(name, key string) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) { s.Limits = []engine.LimitKey{{Name: name, Key: key}} }
}

func aFullLimitNamesItsHolders(t *testing.T, f *place) {
	declare(t, f, limit.Spec{Name: "sync/tenant", Units: 1})
	holder := f.Start(t, limited("sync/tenant", "ada"))
	f.Create(t, limited("sync/tenant", "ada"))
	f.Advance(time.Millisecond)
	x := f.Create(t, limited("sync/tenant", "ada"))
	c := want(t, f, x, explain.LimitFull, true, `Limit sync/tenant for "ada" is full: 1 of 1 in use, 1 wait ahead, held by `+holder.ID.String()+" on ")
	if !slices.Equal(c.Holders, []id.ExecutionID{holder.ID}) || !slices.Contains(c.Do, "ff limit set sync/tenant --units 2") {
		t.Errorf("%+v", c)
	}
	f.Cancel(t, holder.ID)
	f.Advance(6 * time.Second)
	want(t, f, x, explain.GateAsleep, true, "has room: 0 of 1 in use", "No background work runs")
}

func aFullRateSaysWhenItHasRoom(t *testing.T, f *place) {
	declare(t, f, limit.Spec{Name: "api", Units: 1, Window: time.Minute})
	f.Start(t, limited("api", ""))
	x := f.Create(t, limited("api", ""))
	if _, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	want(t, f, x, explain.RateFull, true, "Limit api lets 1 start in 60 s, and all have", "it has room again in 60 s.")
}

func aHeldKeyNamesItsHolder(t *testing.T, f *place) {
	declare(t, f, limit.Spec{Name: "sync/tenant", Units: 1})
	name := limit.Name{Name: "sync/tenant"}
	since, until := f.Time(), f.Time().Add(time.Minute)
	if _, err := limit.Hold(t.Context(), f.Engine, name, "ada", limit.Holding{Until: until, By: "on call"}); err != nil {
		t.Fatal(err)
	}
	f.Create(t, limited("sync/tenant", "ada"))
	f.Advance(20 * time.Second)
	x := f.Create(t, limited("sync/tenant", "ada"))
	c := want(t, f, x, explain.LimitHeld, true, `Limit sync/tenant for "ada" is held for another 40 s by on call, 1 wait ahead.`)
	if !c.Since.Equal(since) || !c.Until.Equal(until) || !slices.Contains(c.Do, "ff limit hold sync/tenant ada --end") {
		t.Errorf("%+v", c)
	}
	f.Advance(46 * time.Second)
	want(t, f, x, explain.GateAsleep, true, "has room: 0 of 1 in use")
}

func aUsedUpBudgetIsNamed(t *testing.T, f *place) {
	created, err := budget.Create(t.Context(), f.Engine, budget.Spec{
		Key: "ada, July", Limits: map[string]budget.Limit{"tokens": {Hard: 100}}, ResetEvery: 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	spend := budget.Spend{Budget: created.ID, Execution: f.Create(t), Amounts: map[string]int64{"tokens": 100}}
	if _, err := budget.RecordSpend(t.Context(), f.Engine, spend); err != nil {
		t.Fatal(err)
	}
	x := f.Create(t, func(s *engine.ExecutionSpec) { s.Budgets = []id.BudgetID{created.ID} })
	c := want(t, f, x, explain.Budget, true, `Budget "ada, July" is used up: 100 of 100 tokens; reset in 24 h.`)
	if !slices.Contains(c.Do, "ff budget show 'ada, July'") {
		t.Errorf("%q", c.Do)
	}
}
