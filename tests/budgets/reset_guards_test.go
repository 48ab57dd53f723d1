package budgets

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A budget that an operator resets after the job has found it due is not reset twice: what was used since stays, and so does the
// beginning of its new interval.
func TestABudgetIsResetOnceBesideAnOperator(t *testing.T) {
	f := fixture.NewCloned(t)
	b := create(t, f, nil, func(s *budget.Spec) { s.ResetEvery = time.Hour })
	report(t, f.Engine, b, "", amounts{"a": 1})
	f.Advance(90 * time.Minute)
	r := f.StoppedBefore(t, "TakeDueBudget")
	var n int
	done := fixture.Async(t, func(ctx context.Context) (err error) {
		n, err = upkeep.Of(r.Engine).ResetBudgets(ctx, 10)
		return err
	})
	r.AwaitStop(t)
	next, err := budget.Reset(t.Context(), f.Engine, b)
	must(t, err)
	report(t, f.Engine, b, "", amounts{"a": 2})
	r.Resume()
	if err := done(); err != nil || n != 0 {
		t.Errorf("reset %d, %v", n, err)
	}
	wantUsage(t, f, b, amounts{"a": 2})
	if got := read(t, f, b).NextReset; !got.Equal(next) || !next.Equal(f.Time().Add(time.Hour)) {
		t.Errorf("the next reset is at %v, want %v", got, next)
	}
}

// Whatever makes room in a budget rings the gate after the commit, so that its process lets in at once what waits for it.
func TestRoomInABudgetRingsTheGate(t *testing.T) {
	for name, makeRoom := range map[string]func(t *testing.T, f *fixture.Fixture, b id.BudgetID, holder engine.Lease){
		"a reset by an operator": func(t *testing.T, f *fixture.Fixture, b id.BudgetID, _ engine.Lease) {
			_, err := budget.Reset(t.Context(), f.Engine, b)
			must(t, err)
		},
		"a scheduled reset": func(t *testing.T, f *fixture.Fixture, _ id.BudgetID, _ engine.Lease) {
			f.Advance(time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ResetBudgets, 1)
		},
		"a higher limit": func(t *testing.T, f *fixture.Fixture, b id.BudgetID, _ engine.Lease) {
			must(t, budget.Set(t.Context(), f.Engine, budget.Spec{ID: b, Limits: limits{"a": {Hard: 11}}}))
		},
		"a deletion": func(t *testing.T, f *fixture.Fixture, b id.BudgetID, _ engine.Lease) {
			must(t, budget.Delete(t.Context(), f.Engine, b))
		},
		"a release": func(t *testing.T, f *fixture.Fixture, b id.BudgetID, holder engine.Lease) {
			_, err := budget.Release(t.Context(), f.Engine, b, holder.Execution)
			must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			b := create(t, f, limits{"a": {Hard: 10}}, func(s *budget.Spec) { s.ResetEvery = time.Hour })
			holder := f.Start(t)
			spend(t, f.Engine, b, holder.ID, "", amounts{"a": 10})
			x := f.Create(t, under(b))
			admit(t, f)
			f.WantNothingClaimable(t)
			for len(upkeep.Of(f.Engine).Gated()) > 0 {
				<-upkeep.Of(f.Engine).Gated()
			}
			makeRoom(t, f, b, holder.Lease)
			select {
			case <-upkeep.Of(f.Engine).Gated():
			default:
				t.Error("did not ring")
			}
			admit(t, f)
			if claimed := f.ClaimOne(t); claimed.ID != x {
				t.Errorf("claimed %s, want %s", claimed.ID, x)
			}
		})
	}
}
