package budgets

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func kept(d time.Duration) func(*budget.Spec) {
	return func(s *budget.Spec) { s.Retention = d }
}

func wantGone(t *testing.T, f *fixture.Fixture, b id.BudgetID) {
	t.Helper()
	if _, err := budget.Get(t.Context(), f.Engine, b); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("budget %s: %v, want it to be deleted", b, err)
	}
}

// A budget with a retention is deleted once nothing has used it for as long, with its usage and spends. Others stay. L11
func TestUnusedBudgetsAreDeleted(t *testing.T) {
	f := fixture.NewCloned(t)
	b, other := create(t, f, limits{"a": {Hard: 10}}, kept(time.Hour)), create(t, f, nil)
	if got := read(t, f, b); got.Retention != time.Hour || !got.NextReset.IsZero() {
		t.Errorf("%+v", got)
	}
	x := f.Start(t)
	f.Advance(59 * time.Minute)
	spend(t, f.Engine, b, x.ID, "", amounts{"a": 2})
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 0)
	wantUsage(t, f, b, amounts{"a": 2})
	f.Advance(59*time.Minute - time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 0)
	wantUsage(t, f, b, amounts{"a": 2})
	f.Advance(time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 1)
	wantGone(t, f, b)
	if left := ledger(t, f, b); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
	read(t, f, other)
}

// What uses a budget keeps it: a refused report, a change, a reset, a reservation, and work that waits for it or that a breach
// would cancel. L11
func TestBudgetsInUseAreKept(t *testing.T) {
	for name, c := range map[string]struct {
		use func(t *testing.T, f *fixture.Fixture, b id.BudgetID) (end func())
	}{
		"a refused report": {func(t *testing.T, f *fixture.Fixture, b id.BudgetID) func() {
			report(t, f.Engine, b, "", amounts{"a": 100})
			return nil
		}},
		"a change": {func(t *testing.T, f *fixture.Fixture, b id.BudgetID) func() {
			must(t, budget.Set(t.Context(), f.Engine, budget.Spec{ID: b, Limits: limits{"a": {Hard: 10}}, Retention: time.Hour}))
			return nil
		}},
		"a reset": {func(t *testing.T, f *fixture.Fixture, b id.BudgetID) func() {
			next, err := budget.Reset(t.Context(), f.Engine, b)
			if err != nil || !next.IsZero() {
				t.Errorf("the next reset is at %v, %v", next, err)
			}
			return nil
		}},
		"a reservation": {func(t *testing.T, f *fixture.Fixture, b id.BudgetID) func() {
			l := f.Start(t).Lease
			reserve(t, f.Engine, l.Fence, of(b), "", amounts{"a": 3})
			return func() { fixture.Run(t, upkeep.Of(f.Engine).ReleaseReservations, 1) }
		}},
		"waiting work": {func(t *testing.T, f *fixture.Fixture, b id.BudgetID) func() {
			report(t, f.Engine, b, "", amounts{"a": 10})
			x := f.Create(t, under(b))
			admit(t, f)
			return func() { must(t, f.CancelExecution(t.Context(), engine.CancelSpec{ID: x})) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			b := create(t, f, limits{"a": {Hard: 10}}, kept(time.Hour))
			f.Advance(30 * time.Minute)
			end := c.use(t, f, b)
			f.Advance(30 * time.Minute)
			fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 0)
			read(t, f, b)
			if end == nil {
				f.Advance(30 * time.Minute)
			} else {
				f.Advance(2 * time.Hour)
				fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 0)
				read(t, f, b)
				end()
				f.Advance(time.Hour)
			}
			fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 1)
			wantGone(t, f, b)
		})
	}
}

// A report or a reservation that comes after the job has found a budget due keeps it. L11
func TestUseBesideTheRetentionOfABudget(t *testing.T) {
	for _, statement := range []string{"TakeDueBudget", "GetBudgetUse"} {
		for name, use := range map[string]func(ctx context.Context, eng *engine.Engine, b id.BudgetID, l id.Fence) (budget.Outcome, error){
			"a report": func(ctx context.Context, eng *engine.Engine, b id.BudgetID, _ id.Fence) (budget.Outcome, error) {
				r, err := budget.Report(ctx, eng, budget.Usage{Budget: b, Amounts: amounts{"a": 11}})
				return r.Outcome, err
			},
			"a reservation": func(ctx context.Context, eng *engine.Engine, b id.BudgetID, l id.Fence) (budget.Outcome, error) {
				r, err := budget.Reserve(ctx, eng, l, budget.ReserveSpec{Budgets: of(b), Amounts: amounts{"a": 11}})
				return r.Outcome, err
			},
		} {
			t.Run(name+" before "+statement, func(t *testing.T) {
				f := fixture.NewCloned(t)
				b := create(t, f, limits{"a": {Hard: 20}}, kept(time.Hour))
				f.Advance(time.Hour)
				l := f.Start(t).Lease
				r := f.StoppedBefore(t, statement)
				done := fixture.Async(t, func(ctx context.Context) int {
					n, err := upkeep.Of(r.Engine).ResetBudgets(ctx, 10)
					if err != nil {
						t.Error(err)
					}
					return n
				})
				r.AwaitStop(t)
				if statement == "TakeDueBudget" { // the job has no lock yet
					if got, err := use(t.Context(), f.Engine, b, l.Fence); err != nil || got != budget.Ok {
						t.Fatal(got, err)
					}
					r.Resume()
					if n := done(); n != 0 {
						t.Errorf("deleted %d", n)
					}
					read(t, f, b)
					return
				}
				// The job has the lock: the call waits for it, and finds no budget.
				late := f.Rival(t)
				wait := fixture.Async(t, func(ctx context.Context) error {
					_, err := use(ctx, late.Engine, b, l.Fence)
					return err
				})
				late.AwaitBlocked(t, f)
				r.Resume()
				if n := done(); n != 1 {
					t.Errorf("deleted %d", n)
				}
				must(t, wait())
				wantGone(t, f, b)
			})
		}
	}
}

// A retention is of budgets without resets.
func TestRetentionsOfBudgetsAreChecked(t *testing.T) {
	f := fixture.New(t)
	for _, spec := range []budget.Spec{
		{Retention: -1}, {Retention: time.Microsecond}, {Retention: time.Hour, ResetEvery: time.Hour},
	} {
		_, err := budget.Create(t.Context(), f.Engine, spec)
		fixture.WantInputError(t, err, "Retention")
	}
	spec := budget.Spec{ID: create(t, f, nil, kept(time.Hour)), Retention: time.Minute}
	if created, err := budget.Create(t.Context(), f.Engine, spec); err != nil || created.Matches {
		t.Errorf("%+v, %v", created, err)
	}
	must(t, budget.Set(t.Context(), f.Engine, spec))
	if got := read(t, f, spec.ID); got.Retention != time.Minute {
		t.Errorf("%+v", got)
	}
}
