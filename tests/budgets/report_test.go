package budgets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A report is counted, counted with a warning, or refused as a whole, by every dimension in byte order.
func TestReportsAreHeldToTheirLimits_B39(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, limits{"calls": {Hard: 3}, "cost": {Soft: 10}, "tokens": {Hard: 100, Soft: 50}})
	wantResult(t, report(t, f.Engine, b, "", amounts{"calls": 1, "cost": 10, "tokens": 50, "free": 7}),
		budget.Result{Outcome: budget.Ok, Left: amounts{"calls": 2, "cost": 0, "tokens": 50}})
	wantResult(t, report(t, f.Engine, b, "", amounts{"calls": 1, "cost": 1, "tokens": 1}),
		budget.Result{Outcome: budget.SoftBreach, Budget: b, Dimension: "cost", Current: 11, Limit: 10, Left: amounts{"calls": 1, "cost": 0, "tokens": 49}})
	wantResult(t, report(t, f.Engine, b, "", amounts{"calls": 2, "cost": 1, "tokens": 1000}),
		budget.Result{Outcome: budget.HardBreach, Dimension: "calls", Current: 2, Limit: 3})
	wantResult(t, report(t, f.Engine, b, "", amounts{"calls": 1, "tokens": 50}),
		budget.Result{Outcome: budget.HardBreach, Dimension: "tokens", Current: 51, Limit: 100})
	wantResult(t, report(t, f.Engine, b, "", amounts{"calls": 1, "tokens": 49}),
		budget.Result{Outcome: budget.SoftBreach, Dimension: "tokens", Current: 100, Limit: 50})
	wantUsage(t, f, b, amounts{"calls": 3, "cost": 11, "tokens": 100, "free": 7})
	got := read(t, f, b)
	if got.Breaches != 2 || got.SoftBreaches != 2 || got.LastBreachDimension != "tokens" || !got.LastBreach.Equal(f.Time()) {
		t.Errorf("%+v", got)
	}
	// Nothing to count is nothing to refuse, and 0 makes a row.
	wantResult(t, report(t, f.Engine, b, "", nil), ok)
	wantResult(t, report(t, f.Engine, b, "", amounts{"calls": 0, "none": 0}), ok)
	wantUsage(t, f, b, amounts{"calls": 3, "cost": 11, "tokens": 100, "free": 7, "none": 0})
}

// A report has the standard fields too.
func TestReportsHaveStandardFields_B9(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, nil)
	usage := budget.Usage{Budget: b, Amounts: amounts{"pages": 2}, InputTokens: 10, OutputTokens: 20, Wall: 1500*time.Millisecond + 999}
	if result, err := budget.Report(t.Context(), f.Engine, usage); err != nil || !same(result, ok) {
		t.Fatal(result, err)
	}
	wantUsage(t, f, b, amounts{"pages": 2, "input_tokens": 10, "output_tokens": 20, "wall_ms": 1500})
	usage.Amounts["wall_ms"] = 1
	if _, err := budget.Report(t.Context(), f.Engine, usage); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("both: %v", err)
	}
	if len(usage.Amounts) != 2 {
		t.Errorf("the caller's amounts became %v", usage.Amounts)
	}
}

// Case 4: amounts that are negative, or that don't fit, are refused. The sum stops at the largest number.
func TestAmountsNeverOverflow_B8(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, limits{"a": {Hard: math.MaxInt64}, "b": {Soft: math.MaxInt64 - 1}})
	x := f.NewExecutionID(f.Lane)
	for range 2 {
		wantResult(t, spend(t, f.Engine, b, x, "", amounts{"a": math.MaxInt64}), ok)
	}
	for range 2 {
		wantResult(t, report(t, f.Engine, b, "", amounts{"b": math.MaxInt64}),
			budget.Result{Outcome: budget.SoftBreach, Dimension: "b", Current: math.MaxInt64, Limit: math.MaxInt64 - 1})
	}
	wantUsage(t, f, b, amounts{"a": math.MaxInt64, "b": math.MaxInt64})
	if got := ledger(t, f, b); len(got) != 1 || got[0] != fmt.Sprintf("a %d", int64(math.MaxInt64)) {
		t.Errorf("the ledger is %q", got)
	}
	if _, err := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: b, Amounts: amounts{"a": -1}}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a negative amount: %v", err)
	}
	released, err := budget.Release(t.Context(), f.Engine, b, x)
	if err != nil || released["a"] != math.MaxInt64 {
		t.Error(released, err)
	}
	wantUsage(t, f, b, amounts{"a": 0, "b": math.MaxInt64})
}

// A policy that can't be read refuses every report: a typing error must not make a budget unlimited.
func TestUnreadableLimitsRefuseReports_B1_B40(t *testing.T) {
	f := fixture.New(t)
	for _, policy := range []string{
		`{"hard_limits": {"a": -1}}`, `{"hard_limits": {"a": 1.5}}`, `{"hard_limits": {"a": "5"}}`, `{"hard_limits": {"a": null}}`,
		`{"hard_limits": [1]}`, `{"soft_limits": {"a": true}}`, `[]`, `null`, `{"hard": {"a": "five"}}`, `{"hard_limit": 1}`,
		`{"reset_interval_ms": "1"}`,
	} {
		b := create(t, f, nil)
		f.Exec(t, "UPDATE ff_budget_policy SET policy_json = $2 WHERE budget_id = $1", b.String(), policy)
		before := dump(t, f, b)
		for name, eng := range map[string]*engine.Engine{"on a pool": f.Engine, "in a transaction": f.WithTx(f.BeginTx(t))} {
			if _, err := budget.Report(t.Context(), eng, budget.Usage{Budget: b, Amounts: amounts{"b": 1}, Key: "k"}); !errors.Is(err, fferr.ErrCorruption) {
				t.Errorf("%s, %s: %v", policy, name, err)
			}
		}
		if after := dump(t, f, b); after != before {
			t.Errorf("%s: %s became %s", policy, before, after)
		}
		if got := read(t, f, b); got.Corruption == "" {
			t.Errorf("%s: %+v", policy, got)
		}
	}
	for policy, limit := range map[string]int64{
		`{"hard_limits": {"a": 9007199254740993}}`: 9007199254740993, `{"hard_limits": {"a": 18446744073709551615}}`: math.MaxInt64, `{}`: 0,
	} {
		b := create(t, f, nil)
		f.Exec(t, "UPDATE ff_budget_policy SET policy_json = $2 WHERE budget_id = $1", b.String(), policy)
		if got := read(t, f, b).Limits["a"].Hard; got != limit {
			t.Errorf("%s is %d", policy, got)
		}
		wantResult(t, report(t, f.Engine, b, "", amounts{"a": 9007199254740992}), ok)
		if limit == 9007199254740993 {
			wantResult(t, report(t, f.Engine, b, "", amounts{"a": 2}), budget.Result{Outcome: budget.HardBreach, Dimension: "a", Current: limit - 1, Limit: limit})
		}
	}
}

// Case 1: two budgets have the same key, even in one partition. It holds for a day, then it is free again; those of others
// stay.
func TestKeysBelongToTheirBudget_B11_B13(t *testing.T) {
	f := fixture.NewCloned(t)
	first := create(t, f, nil)
	second := create(t, f, nil, func(spec *budget.Spec) {
		for spec.ID = id.NewBudgetID(); partition(spec.ID) != partition(first); {
			spec.ID = id.NewBudgetID()
		}
	})
	x := f.NewExecutionID(f.Lane)
	report(t, f.Engine, first, "k", amounts{"a": 1})
	f.Advance(time.Hour)
	report(t, f.Engine, second, "k", amounts{"a": 1})
	spend(t, f.Engine, second, x, "k", amounts{"a": 10})
	f.Advance(budget.KeyKept - time.Hour - time.Millisecond)
	report(t, f.Engine, first, "k", amounts{"a": 100})
	wantUsage(t, f, first, amounts{"a": 1})
	f.Advance(time.Millisecond)
	if n, err := upkeep.Of(f.Engine).PruneUsageKeys(t.Context(), 10); n != 1 || err != nil {
		t.Error(n, err)
	}
	report(t, f.Engine, second, "k", amounts{"a": 100}) // still a repetition
	wantUsage(t, f, second, amounts{"a": 11})
	report(t, f.Engine, first, "k", amounts{"a": 100})
	wantUsage(t, f, first, amounts{"a": 101})
	f.Advance(budget.KeyKept)
	report(t, f.Engine, first, "k", amounts{"a": 100}) // takes over the row that has expired
	wantUsage(t, f, first, amounts{"a": 201})
}

// A repetition returns the first outcome; of a spend, that it was counted. A spend that was refused was not.
func TestRepetitionsReturnTheFirstOutcome_B12(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, limits{"a": {Hard: 10, Soft: 5}})
	x := f.NewExecutionID(f.Lane)
	soft := budget.Result{Outcome: budget.SoftBreach, Dimension: "a", Current: 6, Limit: 5}
	hard := budget.Result{Outcome: budget.HardBreach, Dimension: "a", Current: 6, Limit: 10}
	for range 2 {
		wantResult(t, report(t, f.Engine, b, "soft", amounts{"a": 6}), soft)
		wantResult(t, report(t, f.Engine, b, "hard", amounts{"a": 5}), hard)
		wantResult(t, spend(t, f.Engine, b, x, "hard", amounts{"a": 5}), hard)
		wantResult(t, report(t, f.Engine, b, "empty", nil), ok)
	}
	wantResult(t, spend(t, f.Engine, b, x, "ok", amounts{"a": 1}), budget.Result{Outcome: budget.SoftBreach, Dimension: "a", Current: 7, Limit: 5})
	wantResult(t, spend(t, f.Engine, b, x, "ok", amounts{"a": 1}), budget.Result{Outcome: budget.AlreadyApplied})
	if _, err := budget.Reset(t.Context(), f.Engine, b); err != nil {
		t.Fatal(err)
	}
	wantResult(t, spend(t, f.Engine, b, x, "hard", amounts{"a": 5}), hard)
	wantResult(t, spend(t, f.Engine, b, x, "again", amounts{"a": 5}), ok)
	if got := read(t, f, b); got.Breaches != 2 || got.SoftBreaches != 2 {
		t.Errorf("%d hard and %d soft breaches", got.Breaches, got.SoftBreaches)
	}
	want := fmt.Sprintf(`{"op": "spend", "kind": "HardBreach", "budget_id": "%s", "dimension": "a", "hard_limit": 10, "current_usage": 6}`, b)
	if got := fixture.Texts(t, f.Pool, "SELECT outcome_json::text FROM ff_budget_usage_dedup WHERE dedup_key = $1", b.String()+"|spend|hard"); len(got) != 1 || got[0] != want {
		t.Errorf("stored %q", got)
	}
	f.Exec(t, `UPDATE ff_budget_usage_dedup SET outcome_json = '{"kind":"Maybe"}' WHERE dedup_key = $1`, b.String()+"|report|soft")
	if _, err := budget.Report(t.Context(), f.Engine, budget.Usage{Budget: b, Key: "soft"}); !errors.Is(err, fferr.ErrCorruption) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// Case 2: a hard limit is exact, however many report at once, alone or together, with keys that are sent twice.
func TestHardLimitIsExact(t *testing.T) {
	const callers, calls, limit = 64, 2000, 1000
	run := func(name string, keys bool, eng func(t *testing.T, f *fixture.Fixture) *engine.Engine, alone bool) {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			e := eng(t, f)
			b := create(t, f, limits{"calls": {Hard: limit}})
			once := func(ctx context.Context, key string) (result budget.Result, err error) {
				usage := budget.Usage{Budget: b, Amounts: amounts{"calls": 1}, Key: key}
				if !alone {
					return budget.Report(ctx, e, usage)
				}
				err = e.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
					result, err = budget.Report(ctx, eng, usage)
					return err
				})
				return result, err
			}
			outcomes := together(t, callers, calls, func(ctx context.Context, n int) (budget.Result, error) {
				if !keys {
					return once(ctx, "")
				}
				first, err := once(ctx, fmt.Sprint(n))
				if err != nil {
					return first, err
				}
				second, err := once(ctx, fmt.Sprint(n))
				first.Left = nil // others may have counted in between
				if err == nil && !same(second, first) {
					err = fmt.Errorf("%+v, repeated %+v", first, second)
				}
				return first, err
			})
			if outcomes[budget.Ok] != limit || outcomes[budget.HardBreach] != calls-limit {
				t.Errorf("%v", outcomes)
			}
			got := read(t, f, b)
			if got.Usage["calls"] != limit || got.Breaches != calls-limit {
				t.Errorf("usage %v, %d breaches", got.Usage, got.Breaches)
			}
		})
	}
	same := func(_ *testing.T, f *fixture.Fixture) *engine.Engine { return f.Engine }
	run("together", false, same, false)
	run("together, with keys sent twice", true, same, false)
	run("alone", false, same, true)
}

// Amounts of one dimension in reports that are counted together add up.
func TestReportsShareOneSum_B10(t *testing.T) {
	f := fixture.New(t)
	b := create(t, f, nil)
	for _, got := range queued(t, f, f.Rival(t), b,
		budget.Usage{Amounts: amounts{"a": 1}}, budget.Usage{Amounts: amounts{"a": 2, "b": 1}}, budget.Usage{Amounts: amounts{"a": 3}},
	) {
		if got.err != nil || !same(got.result, ok) {
			t.Errorf("%+v", got)
		}
	}
	wantUsage(t, f, b, amounts{"a": 6, "b": 1})
}
