package budgets

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A budget may have a key in place of an id: every process derives the same id from it, in its namespace. L11
func TestBudgetsHaveKeys(t *testing.T) {
	f := fixture.New(t)
	key := "tenant/" + f.Name
	spec := budget.Spec{Key: key, Limits: limits{"a": {Hard: 10}}}
	created, err := budget.Create(t.Context(), f.Engine, spec)
	if want := (budget.Created{ID: id.BudgetIDOf(engine.DefaultNamespace, key), Matches: true}); err != nil || created != want {
		t.Fatalf("%+v, %v, want %+v", created, err, want)
	}
	if got := read(t, f, created.ID); got.Key != key || got.Namespace != engine.DefaultNamespace {
		t.Errorf("%+v", got)
	}
	spec.ID, spec.Namespace = created.ID, engine.DefaultNamespace
	again, err := budget.Create(t.Context(), f.Engine, spec)
	if want := (budget.Created{ID: created.ID, Duplicate: true, Matches: true}); err != nil || again != want {
		t.Errorf("%+v, %v, want %+v", again, err, want)
	}
	unnamed, err := budget.Create(t.Context(), f.Engine, budget.Spec{ID: created.ID, Limits: spec.Limits})
	if err != nil || unnamed.Matches {
		t.Errorf("%+v, %v", unnamed, err)
	}
	if id.BudgetIDOf("other", key) == created.ID || id.BudgetIDOf(engine.DefaultNamespace, key+"x") == created.ID {
		t.Error("two keys have one id")
	}
	for _, spec := range []budget.Spec{
		{Key: key, ID: id.NewBudgetID()}, {Key: strings.Repeat("k", 513)}, {Key: "\x00"},
	} {
		_, err := budget.Create(t.Context(), f.Engine, spec)
		fixture.WantInputError(t, err, "Key")
	}
	_, err = budget.Create(t.Context(), f.Engine, budget.Spec{Namespace: "other"})
	fixture.WantInputError(t, err, "Namespace")
	spec = budget.Spec{Key: key, Namespace: "other"}
	if other, err := budget.Create(t.Context(), f.Engine, spec); err != nil || other.Duplicate || other.ID != id.BudgetIDOf("other", key) {
		t.Errorf("%+v, %v", other, err)
	}
	for _, spec := range []budget.Spec{{Key: key}, {ID: created.ID}} {
		must(t, budget.Set(t.Context(), f.Engine, spec))
		if got := read(t, f, created.ID); got.Key != key || got.Namespace != engine.DefaultNamespace || len(got.Limits) > 0 {
			t.Errorf("%+v", got)
		}
	}
}

// Set replaces limits, interval, labels and CancelOnBreach, and leaves the usage alone. Reports are held to the new
// limits from then on. Only another interval begins anew. L11
func TestBudgetsCanBeSet(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, limits{"a": {Hard: 10}}, func(s *budget.Spec) { s.ResetEvery = time.Hour })
	report(t, f.Engine, b, "", amounts{"a": 8})
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 3}), breach(b, "a", 8, 0, 10))
	set := func(change ...func(*budget.Spec)) budget.Budget {
		t.Helper()
		spec := budget.Spec{ID: b, Limits: limits{"a": {Hard: 12}}, ResetEvery: time.Hour}
		for _, change := range change {
			change(&spec)
		}
		must(t, budget.Set(t.Context(), f.Engine, spec))
		got := read(t, f, b)
		if got.Labels != spec.Labels || got.CancelOnBreach != spec.CancelOnBreach || got.ResetEvery != spec.ResetEvery || got.Limits["a"] != spec.Limits["a"] ||
			got.Breaches != 1 || got.Corruption != "" || !got.ChangedAt.Equal(f.Time()) {
			t.Errorf("%+v, want %+v", got, spec)
		}
		return got
	}
	f.Advance(time.Minute)
	due := fixture.Start.Add(time.Hour)
	if got := set(cancelling); !got.NextReset.Equal(due) {
		t.Errorf("the next reset is at %v, want %v", got.NextReset, due)
	}
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 3}), ok)
	wantUsage(t, f, b, amounts{"a": 11})
	set(func(s *budget.Spec) { s.Limits = limits{"a": {Hard: 5}} })
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 1}), breach(b, "a", 11, 0, 5))
	f.Flush()
	f.Exec(t, `UPDATE ff_budget_policy SET breach_count = 1 WHERE budget_id = $1`, b.String())
	f.Exec(t, `UPDATE ff_budget_policy SET policy_json = '[1]', breach_count = 1 WHERE budget_id = $1`, b.String())
	if got := set(func(s *budget.Spec) { s.Labels.ScopeType = "tenant" }); !got.NextReset.Equal(f.Time().Add(time.Hour)) {
		t.Errorf("the next reset is at %v", got.NextReset)
	}
	if got := set(func(s *budget.Spec) { s.ResetEvery = 0 }); !got.NextReset.IsZero() {
		t.Errorf("the next reset is at %v", got.NextReset)
	}
	if got := set(func(s *budget.Spec) { s.ResetEvery = time.Minute }); !got.NextReset.Equal(f.Time().Add(time.Minute)) {
		t.Errorf("the next reset is at %v", got.NextReset)
	}
	wantUsage(t, f, b, amounts{"a": 11})
	if err := budget.Set(t.Context(), f.Engine, budget.Spec{Key: "none of this name"}); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	fixture.WantInputError(t, budget.Set(t.Context(), f.Engine, budget.Spec{}), "budget")
	fixture.WantInputError(t, budget.Set(t.Context(), f.Engine, budget.Spec{ID: b, ResetEvery: -1}), "ResetEvery")
}

// Delete deletes all that is stored for a budget but the keys of reports. A new one with its id begins at 0. L11
func TestBudgetsCanBeDeleted(t *testing.T) {
	f := fixture.NewCloned(t)
	b, other := create(t, f, limits{"a": {Hard: 10}}), create(t, f, limits{"a": {Hard: 10}})
	x := f.Start(t)
	for _, of := range of(b, other) {
		spend(t, f.Engine, of, x.ID, "", amounts{"a": 2})
		reserve(t, f.Engine, x.Lease.Fence, []id.BudgetID{of}, "", amounts{"a": 3})
	}
	must(t, budget.Delete(t.Context(), f.Engine, b))
	if _, err := budget.Get(t.Context(), f.Engine, b); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	for _, table := range []string{"ff_budget_policy", "ff_budget_usage", "ff_budget_usage_by_exec", "ffx_budget_reservation"} {
		if got := fixture.Texts(t, f.Pool, "SELECT budget_id FROM "+table); len(got) != 1 || got[0] != other.String() {
			t.Errorf("%s has %v, want %s", table, got, other)
		}
	}
	if err := budget.Delete(t.Context(), f.Engine, b); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	if _, err := budget.Create(t.Context(), f.Engine, budget.Spec{ID: b, Limits: limits{"a": {Hard: 4}}}); err != nil {
		t.Fatal(err)
	}
	wantResult(t, reserve(t, f.Engine, x.Lease.Fence, of(b), "", amounts{"a": 4}), ok)
}
