package budgets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

type reported struct {
	result budget.Result
	err    error
}

// reporting reports usage beside the test.
func reporting(t *testing.T, eng *engine.Engine, usage budget.Usage) func() reported {
	t.Helper()
	return fixture.Async(t, func(ctx context.Context) reported {
		result, err := budget.Report(ctx, eng, usage)
		return reported{result, err}
	})
}

// queued reports usages while the budget is locked by the test, so that all but the first are counted together: none of them
// has sent a statement when it is unlocked.
func queued(t *testing.T, f *fixture.Fixture, r *fixture.Rival, b id.BudgetID, usages ...budget.Usage) []reported {
	t.Helper()
	unlock := lockBudget(t, f, b)
	var waits []func() reported
	for i, usage := range usages {
		usage.Budget = b
		waits = append(waits, reporting(t, r.Engine, usage))
		if i == 0 {
			r.AwaitBlocked(t, f)
		} else {
			fixture.Await(t, "a report to wait", func() bool { return waitingReports(r.Engine) == i })
		}
	}
	unlock()
	var all []reported
	for _, wait := range waits {
		all = append(all, wait())
	}
	return all
}

// Reports that wait for each other share a transaction. Each has the result that it would have alone, in the order in which
// they came, repetitions included.
func TestReportsShareATransaction_B14(t *testing.T) {
	f := fixture.New(t)
	log := new(fixture.StatementLog)
	r := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	b := create(t, f, limits{"a": {Hard: 10, Soft: 5}})
	var all []reported
	sent := log.During(func() {
		all = queued(t, f, r, b,
			budget.Usage{Amounts: amounts{"a": 1}},
			budget.Usage{Amounts: amounts{"a": 4}, Key: "k"},
			budget.Usage{Amounts: amounts{"a": 4}, Key: "k"},
			budget.Usage{Amounts: amounts{"a": 6}, Key: "hard"},
			budget.Usage{Amounts: amounts{"a": 5, "b": 1}},
			budget.Usage{Amounts: amounts{"a": 1, "c": 1}},
			budget.Usage{Key: "hard"},
			budget.Usage{Amounts: amounts{"c": 2}},
		)
	})
	hard := budget.Result{Outcome: budget.HardBreach, Dimension: "a", Current: 5, Limit: 10}
	for i, want := range []budget.Result{
		ok, ok, ok, hard,
		{Outcome: budget.SoftBreach, Dimension: "a", Current: 10, Limit: 5},
		{Outcome: budget.HardBreach, Dimension: "a", Current: 10, Limit: 10},
		hard, ok,
	} {
		if all[i].err != nil || !same(all[i].result, want) {
			t.Errorf("%d: got %+v, want %+v", i, all[i], want)
		}
	}
	wantUsage(t, f, b, amounts{"a": 10, "b": 1, "c": 2})
	if got := read(t, f, b); got.Breaches != 2 || got.SoftBreaches != 1 || got.LastBreachDimension != "a" {
		t.Errorf("%+v", got)
	}
	count := make(map[string]int)
	for _, name := range fixture.Names(sent) {
		count[name]++
	}
	for name, want := range map[string]int{"LockBudget": 2, "LockBudgetUsage": 2, "AddBudgetUsage": 2, "ReuseBudgetKeys": 1, "StoreBudgetOutcomes": 1, "CountBudgetBreaches": 1} {
		if count[name] != want {
			t.Errorf("sent %d of %s, want %d: %v", count[name], name, want, count)
		}
	}
}

// A report that the server can't take fails alone.
func TestABadReportFailsAlone(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.dimensions_key = 'bad' THEN RAISE EXCEPTION 'bad'; END IF; RETURN NEW; END $$`)
	f.Exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON ff_budget_usage FOR EACH ROW EXECUTE FUNCTION refuse_bad()")
	b := create(t, f, nil)
	report(t, f.Engine, b, "odd", nil)
	f.Exec(t, "UPDATE ff_budget_usage_dedup SET outcome_json = '{}'")
	all := queued(t, f, f.Rival(t), b,
		budget.Usage{Amounts: amounts{"a": 1}}, budget.Usage{Amounts: amounts{"a": 1}}, budget.Usage{Amounts: amounts{"bad": 1}},
		budget.Usage{Key: "odd"}, budget.Usage{Amounts: amounts{"a": 1}},
	)
	for i, got := range all {
		switch {
		case i == 2:
			if got.err == nil || !strings.Contains(got.err.Error(), "bad") {
				t.Errorf("the bad one: %v", got.err)
			}
		case i == 3:
			if !errors.Is(got.err, fferr.ErrCorruption) {
				t.Errorf("the odd one: %v", got.err)
			}
		case got.err != nil || !same(got.result, ok):
			t.Errorf("%d: %+v", i, got)
		}
	}
	wantUsage(t, f, b, amounts{"a": 3})
}

// A caller that stops waiting takes nothing from the others, and a report that none waits for is not sent.
func TestCallersThatStopWaiting(t *testing.T) {
	f := fixture.New(t)
	r := f.Rival(t)
	b := create(t, f, nil)
	unlock := lockBudget(t, f, b)
	ctx, cancel := context.WithCancel(t.Context())
	call := func(n int64) func() reported {
		return fixture.Async(t, func(context.Context) reported {
			result, err := budget.Report(ctx, r.Engine, budget.Usage{Budget: b, Amounts: amounts{"a": n}})
			return reported{result, err}
		})
	}
	first := call(1)
	r.AwaitBlocked(t, f)
	gone := call(10)
	fixture.Await(t, "a report to wait", func() bool { return waitingReports(r.Engine) == 1 })
	stays := reporting(t, r.Engine, budget.Usage{Budget: b, Amounts: amounts{"a": 100}})
	fixture.Await(t, "a report to wait", func() bool { return waitingReports(r.Engine) == 2 })
	cancel()
	for _, wait := range []func() reported{first, gone} {
		if got := wait(); !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %+v", got)
		}
	}
	unlock()
	if got := stays(); got.err != nil || !same(got.result, ok) {
		t.Errorf("got %+v", got)
	}
	wantUsage(t, f, b, amounts{"a": 100})
}

// A second call with a key waits for the first one, and is a repetition if that commits, with and without a budget.
func TestConcurrentRepetitions(t *testing.T) {
	f := fixture.New(t)
	for _, b := range []id.BudgetID{create(t, f, nil), id.NewBudgetID()} {
		for _, commits := range []bool{false, true} {
			usage := budget.Usage{Budget: b, Amounts: amounts{"a": 1}, Key: fmt.Sprint(commits)}
			tx := f.BeginTx(t)
			if _, err := budget.Report(t.Context(), f.WithTx(tx), usage); err != nil {
				t.Fatal(err)
			}
			r := f.Rival(t)
			second := reporting(t, r.Engine, usage)
			r.AwaitBlocked(t, f)
			if commits {
				fixture.Commit(t, tx)
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := second(); got.err != nil || !same(got.result, ok) {
				t.Errorf("%v: %+v", commits, got)
			}
		}
		if got := fixture.Texts(t, f.Pool, "SELECT current_value::text FROM ff_budget_usage WHERE budget_id = $1", b.String()); !slices.Equal(got, []string{"2"}) {
			t.Errorf("counted %q", got)
		}
	}
}

// Case 3: a spend in a new dimension that comes while a release waits is either given back or noted for the next one.
func TestReleaseRacesWithSpend_B15_B37(t *testing.T) {
	f := fixture.New(t)
	b, x := create(t, f, nil), f.NewExecutionID(f.Lane)
	spend(t, f.Engine, b, x, "", amounts{"b": 1})
	tx := f.BeginTx(t)
	spend(t, f.WithTx(tx), b, x, "", amounts{"a": 2, "b": 4})
	r := f.Rival(t)
	release := fixture.Async(t, func(ctx context.Context) amounts {
		released, err := budget.Release(ctx, r.Engine, b, x)
		if err != nil {
			t.Error(err)
		}
		return released
	})
	r.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if got := release(); !maps.Equal(got, amounts{"a": 2, "b": 5}) {
		t.Errorf("released %v", got)
	}
	wantUsage(t, f, b, amounts{"a": 0, "b": 0})

	// The other way round: the spend waits, and is noted anew.
	tx = f.BeginTx(t)
	spend(t, f.Engine, b, x, "", amounts{"b": 1})
	if _, err := budget.Release(t.Context(), f.WithTx(tx), b, x); err != nil {
		t.Fatal(err)
	}
	late := fixture.Async(t, func(ctx context.Context) error {
		_, err := budget.RecordSpend(ctx, r.Engine, budget.Spend{Budget: b, Execution: x, Amounts: amounts{"c": 3}})
		return err
	})
	r.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if err := late(); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, f, b, amounts{"a": 0, "b": 0, "c": 3})
	if got := ledger(t, f, b); !slices.Equal(got, []string{"c 3"}) {
		t.Errorf("the ledger is %q", got)
	}
}

// Reports, spends, releases and resets of many processes never deadlock, lose nothing, and never fail: they wait for the
// budget, with its keys, dimensions and executions in one order.
func TestBudgetsNeverDeadlock_B15_B17(t *testing.T) {
	f := fixture.NewCloned(t)
	const callers, calls = 8, 200
	for name, b := range map[string]id.BudgetID{"a budget": create(t, f, nil), "no budget": id.NewBudgetID()} {
		executions := []id.ExecutionID{f.NewExecutionID(f.Lane), f.NewExecutionID(f.Lane)}
		deadlocks := "SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()"
		before := fixture.Texts(t, f.Pool, deadlocks)
		engines := make([]*engine.Engine, callers)
		for i := range engines {
			engines[i] = f.Rival(t).Engine
		}
		together(t, callers, calls, func(ctx context.Context, n int) (budget.Result, error) {
			e, x := engines[n%callers], executions[n%2]
			of := amounts{fmt.Sprint("d", n%5): 1, fmt.Sprint("d", n%7): 1, fmt.Sprint("d", n%11): 1}
			switch n % 10 {
			case 8:
				_, err := budget.Release(ctx, e, b, x)
				return ok, err
			case 9:
				_, err := budget.Reset(ctx, e, b)
				if errors.Is(err, fferr.ErrNotFound) {
					err = nil
				}
				return ok, err
			case 0, 1, 2:
				return budget.Report(ctx, e, budget.Usage{Budget: b, Amounts: of, Key: fmt.Sprint(n / 2)})
			}
			return budget.RecordSpend(ctx, e, budget.Spend{Budget: b, Execution: x, Amounts: of, Key: fmt.Sprint(n / 3)})
		})
		if after := fixture.Texts(t, f.Pool, deadlocks); !slices.Equal(before, after) {
			t.Errorf("%s: deadlocks %s, then %s", name, before, after)
		}
	}
}
