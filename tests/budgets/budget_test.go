package budgets

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A budget is created once, in the form that every operation reads, and is read back whole, by itself and in a listing.
func TestCreateAndRead_B1_B19(t *testing.T) {
	f := fixture.NewCloned(t)
	spec := budget.Spec{
		ID:         id.NewBudgetID(),
		Limits:     limits{"tokens": {Hard: 100, Soft: 50}, "<calls>": {Soft: 7}, "free": {}},
		ResetEvery: time.Hour,
		Labels:     budget.Labels{ScopeType: "tenant", ScopeID: "acme", Mode: "strict", OnHardLimit: "fail", OnSoftLimit: "warn"},
	}
	if created, err := budget.Create(t.Context(), f.Engine, spec); err != nil || created != (budget.Created{ID: spec.ID, Matches: true}) {
		t.Fatal(created, err)
	}
	want := `{"on_hard_limit": "fail", "on_soft_limit": "warn", "hard_limits": {"free": 0, "tokens": 100, "<calls>": 0}, ` +
		`"soft_limits": {"free": 0, "tokens": 50, "<calls>": 7}, "reset_interval_ms": 3600000}`
	if got := fixture.Texts(t, f.Pool, "SELECT policy_json::text FROM ff_budget_policy"); len(got) != 1 || !equalJSON(got[0], want) {
		t.Errorf("stored %s", got)
	}
	delete(spec.Limits, "free")
	for change, matches := range map[string]func(*budget.Spec){
		"":         func(*budget.Spec) {},
		"limit":    func(s *budget.Spec) { s.Limits = limits{"tokens": {Hard: 1}} },
		"interval": func(s *budget.Spec) { s.ResetEvery = time.Minute },
		"label":    func(s *budget.Spec) { s.Labels.Mode = "warn" },
	} {
		other := spec
		matches(&other)
		created, err := budget.Create(t.Context(), f.Engine, other)
		if err != nil || !created.Duplicate || created.Matches != (change == "") {
			t.Errorf("%q: %+v, %v", change, created, err)
		}
	}
	report(t, f.Engine, spec.ID, "", amounts{"tokens": 60})
	f.Exec(t, "INSERT INTO ff_budget_usage VALUES ($1, $2, '_init', 5, NULL, 1)", partition(spec.ID), spec.ID.String())
	got := read(t, f, spec.ID)
	if !maps.Equal(got.Limits, limits{"tokens": {Hard: 100, Soft: 50}, "<calls>": {Soft: 7}, "free": {}}) ||
		!maps.Equal(got.Usage, amounts{"tokens": 60}) || got.Labels != spec.Labels || got.ResetEvery != time.Hour ||
		got.SoftBreaches != 1 || !got.LastBreach.IsZero() || !got.NextReset.Equal(fixture.Start.Add(time.Hour)) || !got.CreatedAt.Equal(fixture.Start) {
		t.Errorf("%+v", got)
	}
	ids := []string{spec.ID.String()}
	for range 4 {
		ids = append(ids, create(t, f, nil).String())
	}
	var listed []string
	ids = append(ids, fixture.Texts(t, f.Pool, `INSERT INTO ff_budget_policy
		SELECT (jsonb_populate_record(p, jsonb_build_object('budget_id', gen_random_uuid()::text))).*
		FROM ff_budget_policy AS p, generate_series(1, 1000) WHERE p.budget_id = $1 RETURNING budget_id`, ids[1])...) // more than a page
	for b, err := range budget.All(t.Context(), f.Engine) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, b.ID.String())
		if b.ID == spec.ID && !maps.Equal(b.Usage, got.Usage) {
			t.Errorf("listed with %v", b.Usage)
		}
	}
	slices.Sort(ids)
	if slices.Sort(listed); !slices.Equal(listed, ids) {
		t.Errorf("listed %q, want %q", listed, ids)
	}
	if _, err := budget.Get(t.Context(), f.Engine, id.NewBudgetID()); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("a budget that does not exist: %v", err)
	}
}

func equalJSON(a, b string) bool {
	sorted := func(s string) string {
		parts := strings.Split(strings.NewReplacer("{", ", ", "}", ", ").Replace(s), ", ")
		slices.Sort(parts)
		return strings.Join(parts, " ")
	}
	return sorted(a) == sorted(b)
}

func TestWrongBudgetsAndReportsAreRefused(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, nil)
	x := f.NewExecutionID(f.Lane)
	many := make(amounts)
	for n := range 1001 {
		many[fmt.Sprint(n)] = 1
	}
	for name, of := range map[string]amounts{
		"no name": {"": 1}, "reserved": {"_init": 1}, "long": {strings.Repeat("a", 257): 1}, "control": {"a\x7f": 1},
		"not UTF-8": {"a\xff": 1}, "NUL": {"a\x00": 1}, "negative": {"a": -1}, "many": many,
	} {
		_, reported := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: b, Amounts: of})
		_, spent := budget.RecordSpend(t.Context(), f.Engine, budget.Spend{Budget: b, Execution: x, Amounts: of})
		set := make(limits)
		for dimension, n := range of {
			set[dimension] = budget.Limit{Hard: n}
		}
		_, created := budget.Create(t.Context(), f.Engine, budget.Spec{Limits: set})
		for _, err := range []error{reported, spent, created} {
			if !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	long := strings.Repeat("k", 513)
	_, key := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: b, Key: long})
	_, none := budget.Report(t.Context(), f.Engine, budget.Usage{})
	_, spends := budget.RecordSpend(t.Context(), f.Engine, budget.Spend{Budget: b})
	_, interval := budget.Create(t.Context(), f.Engine, budget.Spec{ResetEvery: time.Microsecond})
	_, before := budget.Create(t.Context(), f.Engine, budget.Spec{ResetEvery: -time.Second})
	_, label := budget.Create(t.Context(), f.Engine, budget.Spec{Labels: budget.Labels{ScopeID: strings.Repeat("s", 1025)}})
	_, released := budget.Release(t.Context(), f.Engine, b, id.ExecutionID{})
	_, partitions := engine.New(f.Pool, engine.Config{Partitions: id.Partitions{Budget: math.MaxInt16 + 1}})
	for i, err := range []error{key, none, spends, interval, before, label, released, partitions} {
		if !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%d: %v", i, err)
		}
	}
	wantUsage(t, f, b, amounts{})
}

// Usage of a budget that does not exist is counted without limits, can be given back, and counts once it is created.
func TestUsageBeforeTheBudget(t *testing.T) {
	f := fixture.New(t)
	b, x := id.NewBudgetID(), f.NewExecutionID(f.Lane)
	wantResult(t, report(t, f.Engine, b, "k", amounts{"a": 5}), ok)
	wantResult(t, report(t, f.Engine, b, "k", amounts{"a": 5}), ok)
	wantResult(t, spend(t, f.Engine, b, x, "", amounts{"a": 2}), ok)
	if released, err := budget.Release(t.Context(), f.Engine, b, x); err != nil || !maps.Equal(released, amounts{"a": 2}) {
		t.Error(released, err)
	}
	if _, err := budget.Reset(t.Context(), f.Engine, b); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("reset: %v", err)
	}
	if created, err := budget.Create(t.Context(), f.Engine, budget.Spec{ID: b, Limits: limits{"a": {Hard: 6}}}); err != nil || created.Duplicate {
		t.Fatal(created, err)
	}
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 2}), budget.Result{Outcome: budget.HardBreach, Dimension: "a", Current: 5, Limit: 6})
}

// Case 3: after a reset nothing of the former period can be given back.
func TestReleaseGivesBackOnce_B16(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, limits{"a": {Hard: 100}})
	x, y := f.NewExecutionID(f.Lane), f.NewExecutionID(f.Lane)
	spend(t, f.Engine, b, x, "", amounts{"a": 10, "b": 1})
	spend(t, f.Engine, b, x, "", amounts{"a": 5, "c": 0})
	spend(t, f.Engine, b, y, "", amounts{"a": 3})
	report(t, f.Engine, b, "", amounts{"a": 2})
	release := func(x id.ExecutionID, want amounts) {
		t.Helper()
		if got, err := budget.Release(t.Context(), f.Engine, b, x); err != nil || !maps.Equal(got, want) {
			t.Errorf("released %v, %v, want %v", got, err, want)
		}
	}
	release(x, amounts{"a": 15, "b": 1, "c": 0})
	release(x, nil)
	wantUsage(t, f, b, amounts{"a": 5, "b": 0, "c": 0})
	if got := ledger(t, f, b); !slices.Equal(got, []string{"a 3"}) {
		t.Errorf("the ledger is %q", got)
	}
	if next, err := budget.Reset(t.Context(), f.Engine, b); err != nil || !next.IsZero() {
		t.Fatal(next, err)
	}
	spend(t, f.Engine, b, x, "", amounts{"a": 7})
	release(y, nil)
	wantUsage(t, f, b, amounts{"a": 7, "b": 0, "c": 0})
}

// A reset begins a new period: usage and ledger are empty, the last breach is forgotten, and the counts stay.
func TestResetBeginsANewPeriod_B41(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, limits{"a": {Hard: 1}}, func(spec *budget.Spec) { spec.ResetEvery = time.Hour })
	spend(t, f.Engine, b, f.NewExecutionID(f.Lane), "", amounts{"a": 1})
	report(t, f.Engine, b, "", amounts{"a": 1})
	f.Advance(10 * time.Minute)
	next, err := budget.Reset(t.Context(), f.Engine, b)
	if err != nil || !next.Equal(f.Time().Add(time.Hour)) {
		t.Fatal(next, err)
	}
	got := read(t, f, b)
	if got.Usage["a"] != 0 || got.Breaches != 1 || !got.LastBreach.IsZero() || got.LastBreachDimension != "" || !got.NextReset.Equal(next) || !got.ChangedAt.Equal(f.Time()) {
		t.Errorf("%+v", got)
	}
	if got := ledger(t, f, b); len(got) > 0 {
		t.Errorf("the ledger is %q", got)
	}
	wantResult(t, report(t, f.Engine, b, "", amounts{"a": 1}), ok)
}

// Scheduled resets keep their phase, missed ones are one, and one budget that can't be read keeps no other from its own.
func TestScheduledResetsKeepTheirPhase_B18_B36(t *testing.T) {
	f := fixture.NewCloned(t)
	every := func(d time.Duration) func(*budget.Spec) {
		return func(spec *budget.Spec) { spec.ResetEvery = d }
	}
	hourly := create(t, f, nil, every(time.Hour))
	daily := create(t, f, nil, every(24*time.Hour))
	broken := create(t, f, nil, every(time.Minute))
	never := create(t, f, nil)
	f.Exec(t, `UPDATE ff_budget_policy SET policy_json = '{"hard_limits": 1}' WHERE budget_id = $1`, broken.String())
	all := []id.BudgetID{hourly, daily, never}
	for _, b := range all {
		report(t, f.Engine, b, "", amounts{"a": 1})
	}
	reset := func(want int, corrupt bool) {
		t.Helper()
		n, err := upkeep.Of(f.Engine).ResetBudgets(t.Context(), 2)
		if n != want || errors.Is(err, fferr.ErrCorruption) != corrupt || (err != nil) != corrupt {
			t.Errorf("reset %d, %v, want %d", n, err, want)
		}
	}
	reset(0, false)
	f.Advance(3*time.Hour + 10*time.Minute)
	reset(1, true)
	wantUsage(t, f, hourly, amounts{"a": 0})
	wantUsage(t, f, daily, amounts{"a": 1})
	if got := read(t, f, hourly).NextReset; !got.Equal(fixture.Start.Add(4 * time.Hour)) {
		t.Errorf("the next reset is at %v", got)
	}
	f.Exec(t, "DELETE FROM ff_budget_policy WHERE budget_id = $1", broken.String())
	f.Advance(50 * time.Minute)
	commit := lockBudget(t, f, hourly)
	reset(0, false)
	commit()
	reset(1, false)
	f.Advance(20 * time.Hour)
	reset(2, false)
	reset(0, false)
	wantUsage(t, f, never, amounts{"a": 1})
}

// The number of partitions is that of the stored budgets, or no budget would be found: the reference's table of them is not
// believed.
func TestPrepareComparesThePartitions_M26(t *testing.T) {
	f := fixture.NewCloned(t)
	other := f.EngineOn(t, f.Pool, engine.Config{Partitions: id.Partitions{Budget: 256}})
	if err := errors.Join(other.Prepare(t.Context()), f.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := budget.Create(t.Context(), other, budget.Spec{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Prepare(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.Prepare(t.Context()); !errors.Is(err, fferr.ErrCorruption) || !strings.Contains(err.Error(), "256 partitions, not 32") {
		t.Errorf("got %v", err)
	}
	f.Exec(t, "DELETE FROM ff_budget_policy")
	quota := id.NewQuotaPolicyID()
	f.Exec(t, "INSERT INTO ff_quota_policy VALUES ($1, $2, 1, 1, 1, 0, 1, 1)", id.Partitions{Quota: 7}.QuotaPartition(quota)+100, quota.String())
	if err := f.Prepare(t.Context()); !errors.Is(err, fferr.ErrCorruption) || !strings.Contains(err.Error(), "ff_quota_policy") {
		t.Errorf("got %v", err)
	}
}
