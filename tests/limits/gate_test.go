package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Executions that name a quota run at most so many at once, and an end gives its place to the next.
func TestGateLimitsRunning_B3_B22(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 3})
	ids := create(t, f, 10, under(q))
	f.WantState(t, ids[0], "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota")
	if claimed := claim(t, f, 10); len(claimed) != 0 {
		t.Fatalf("claimed %d before the gate ran", len(claimed))
	}
	running := wantClaimable(t, f, 3, "at first")
	wantClaimable(t, f, 0, "while three run")
	complete(t, f, running[0], running[1])
	running = append(running[2:], wantClaimable(t, f, 2, "after two ends")...)
	complete(t, f, running...)
	complete(t, f, wantClaimable(t, f, 3, "after all have ended")...)
	complete(t, f, wantClaimable(t, f, 2, "the last")...)
	if n := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core WHERE ffx_admitted OR ffx_gate_id IS NOT NULL")); n != 0 {
		t.Errorf("%d executions still hold or wait", n)
	}
}

// A rate counts starts, not admissions: executions that were admitted while no worker ran don't all start at once later.
func TestGateLimitsStarts_B21(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 4, Window: window})
	create(t, f, 12, under(q))
	admit(t, f.Engine)
	f.Advance(time.Minute)
	complete(t, f, wantClaimable(t, f, 4, "those that were admitted long ago")...)
	wantClaimable(t, f, 0, "in the same window")
	f.Advance(window - time.Millisecond)
	wantClaimable(t, f, 0, "a millisecond before the window is over")
	f.Advance(time.Millisecond)
	complete(t, f, wantClaimable(t, f, 4, "in the next window")...)
	f.Advance(window)
	wantClaimable(t, f, 4, "in the last window")
}

// Executions wait while a budget is exhausted, and all run after a reset.
func TestGateWaitsForBudgets_B1_B2_B6(t *testing.T) {
	f := fixture.NewCloned(t)
	b, other := budgetOf(t, f, 10), budgetOf(t, f, 10)
	spend(t, f, other, 10)
	create(t, f, 5, within(b, other, b))
	free := create(t, f, 1)
	if claimed := wantClaimable(t, f, 1, "while one budget is exhausted"); claimed[0].ID != free[0] {
		t.Errorf("claimed %s", claimed[0].ID)
	}
	if _, err := budget.Reset(t.Context(), f.Engine, other); err != nil {
		t.Fatal(err)
	}
	wantClaimable(t, f, 5, "after the reset")
}
