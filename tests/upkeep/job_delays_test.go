package upkeep

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A delay that another program's change left behind is cleared; nothing else of the row changes, and no waiter is
// woken.
func TestPromoteDelayedDropsStaleDelays(t *testing.T) {
	for _, c := range []struct {
		name  string
		since string // the change by another program
	}{
		{"claimable", "eligibility_state = 'eligible_now', public_state = 'waiting'"},
		{"cancelled", "lifecycle_phase = 'cancelled', eligibility_state = 'not_applicable', public_state = 'cancelled'"},
		{"suspended", "lifecycle_phase = 'suspended'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			marker := id.LaneID(f.Name + "-marker")
			e := f.Rival(t).ListenTo(t, f.Lane, marker)
			x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Minute) })
			f.SetExecution(t, x, c.since)
			fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 0)
			f.Advance(time.Minute)
			f.SetExecution(t, x, "ffx_delay_until_ms = NULL")
			want := f.Dump(t, x)
			f.SetExecution(t, x, fmt.Sprintf("ffx_delay_until_ms = %d", f.Time().UnixMilli()))
			fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
			fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 0)
			f.WantUnchanged(t, x, want)
			f.Wake(marker)
			e.Want(t, marker)
		})
	}
}

func TestPromoteDelayed(t *testing.T) {
	at := func(d time.Duration) time.Time { return fixture.Start.Add(d) }
	for _, c := range []struct {
		name  string
		spec  engine.ExecutionSpec
		after time.Duration
		state string
		gate  bool
	}{
		{"before its time", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute)}, time.Minute - time.Millisecond, fixture.StateDelayed, false},
		{"at its time", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute)}, time.Minute, fixture.StateReady, false},
		{"with a later deadline", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute), Deadline: at(time.Hour)}, time.Minute, fixture.StateReady, false},
		{"due by its deadline only", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Hour), Deadline: at(time.Minute)}, time.Minute, fixture.StateDelayed, false},
		{"due by both", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute), Deadline: at(time.Minute)}, time.Minute, fixture.StateDelayed, false},
		{
			"with a budget",
			engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute)},
			time.Minute,
			"runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget", true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			x := f.Create(t, func(spec *engine.ExecutionSpec) { *spec = c.spec; spec.Lane = f.Lane })
			if c.gate {
				f.Attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
			}
			before := f.Dump(t, x)
			f.Advance(c.after)
			if c.state == fixture.StateDelayed {
				fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 0)
				f.WantUnchanged(t, x, before)
				return
			}
			fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
			fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 0)
			got := f.Stored(t, x)
			if got.State != c.state || got.DelayUntilMs != nil || *got.LastMutation != f.Time().UnixMilli() ||
				(got.DeadlineAtMs == nil) != c.spec.Deadline.IsZero() || (got.GateID != nil) != c.gate {
				t.Errorf("stored %+v", got)
			}
			f.WantEvents(t, x)
		})
	}
}

// An execution that was admitted already goes to no gate.
func TestPromoteDelayedKeepsAdmissions(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = fixture.Start.Add(time.Minute) })
	f.Attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
	f.SetExecution(t, x, "ffx_admitted = true")
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	if got := f.Stored(t, x); got.State != fixture.StateReady || got.GateID != nil {
		t.Errorf("stored %+v", got)
	}
}

// The reference's retry after a pause is never promoted, and its promotion loses the deadline.
func TestRetryWakesAndKeepsItsDeadline_E17_E18_M8(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t, fixture.Retrying(policy.Retry{Backoff: policy.Fixed(time.Second)}), func(spec *engine.ExecutionSpec) { spec.Deadline = fixture.Start.Add(time.Hour) })
	f.Fail(t, c.Lease, engine.Failure{})
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	stored := f.Stored(t, c.ID)
	if stored.State != fixture.StateRetry || *stored.DeadlineAtMs != fixture.Start.Add(time.Hour).UnixMilli() || *stored.LastDeadline != *stored.DeadlineAtMs {
		t.Errorf("stored %+v", stored)
	}
	if next := f.ClaimOne(t); next.Lease.Attempt != 1 || next.Type != state.RetryAttempt {
		t.Errorf("claimed %+v", next)
	}
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
	f.WantState(t, c.ID, fixture.StateExpired)
}
