package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// A delay that another program's change left behind is forgotten; nothing else of the row changes, and nobody is
// woken.
func TestPromoteDelayed_forgets_what_is_not_delayed_any_more(t *testing.T) {
	for _, c := range []struct {
		name  string
		since string // what another program made of the execution
	}{
		{"claimable", "eligibility_state = 'eligible_now', public_state = 'waiting'"},
		{"cancelled", "lifecycle_phase = 'cancelled', eligibility_state = 'not_applicable', public_state = 'cancelled'"},
		{"suspended", "lifecycle_phase = 'suspended'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			marker := id.LaneID(f.name + "-marker")
			e := f.rival(t).listen(t, f.lane, marker)
			x := f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Minute) })
			f.setExecution(t, x, c.since)
			run(t, f.Maintenance().PromoteDelayed, 0)
			f.advance(time.Minute)
			f.setExecution(t, x, "ffx_delay_until_ms = NULL")
			want := f.dump(t, x)
			f.setExecution(t, x, fmt.Sprintf("ffx_delay_until_ms = %d", f.now().UnixMilli()))
			run(t, f.Maintenance().PromoteDelayed, 1)
			run(t, f.Maintenance().PromoteDelayed, 0)
			f.wantUnchanged(t, x, want)
			f.Wake(marker)
			e.want(t, marker)
		})
	}
}

func TestPromoteDelayed(t *testing.T) {
	at := func(d time.Duration) time.Time { return start.Add(d) }
	for _, c := range []struct {
		name  string
		spec  engine.ExecutionSpec
		after time.Duration
		state string
		gate  bool
	}{
		{"before its time", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute)}, time.Minute - time.Millisecond, stateDelayed, false},
		{"at its time", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute)}, time.Minute, stateReady, false},
		{"with a later deadline", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute), Deadline: at(time.Hour)}, time.Minute, stateReady, false},
		{"due by its deadline only", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Hour), Deadline: at(time.Minute)}, time.Minute, stateDelayed, false},
		{"due by both", engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute), Deadline: at(time.Minute)}, time.Minute, stateDelayed, false},
		{
			"with a budget",
			engine.ExecutionSpec{Kind: "test", DelayUntil: at(time.Minute)},
			time.Minute,
			"runnable unowned blocked_by_budget rate_limited pending_first_attempt waiting_for_budget", true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.create(t, func(spec *engine.ExecutionSpec) { *spec = c.spec; spec.Lane = f.lane })
			if c.gate {
				f.attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
			}
			before := f.dump(t, x)
			f.advance(c.after)
			if c.state == stateDelayed {
				run(t, f.Maintenance().PromoteDelayed, 0)
				f.wantUnchanged(t, x, before)
				return
			}
			run(t, f.Maintenance().PromoteDelayed, 1)
			run(t, f.Maintenance().PromoteDelayed, 0)
			got := f.stored(t, x)
			if got.State != c.state || got.DelayUntilMs != nil || *got.LastMutation != f.now().UnixMilli() ||
				(got.DeadlineAtMs == nil) != c.spec.Deadline.IsZero() || (got.GateID != nil) != c.gate {
				t.Errorf("stored %+v", got)
			}
			f.wantEvents(t, x)
		})
	}
}

// What has been admitted already goes to no gate.
func TestPromoteDelayed_of_what_is_admitted(t *testing.T) {
	f := cloneFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Minute) })
	f.attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
	f.setExecution(t, x, "ffx_admitted = true")
	f.advance(time.Minute)
	run(t, f.Maintenance().PromoteDelayed, 1)
	if got := f.stored(t, x); got.State != stateReady || got.GateID != nil {
		t.Errorf("stored %+v", got)
	}
}

// The reference's retry after a pause is never promoted, and its promotion loses the deadline.
func TestE17_E18_M8_retry_wakes_and_keeps_its_deadline(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t, retrying(policy.Retry{Backoff: policy.Fixed(time.Second)}), func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Hour) })
	f.fail(t, c.Lease, engine.Failure{})
	f.advance(time.Second)
	run(t, f.Maintenance().PromoteDelayed, 1)
	stored := f.stored(t, c.ID)
	if stored.State != stateRetry || *stored.DeadlineAtMs != start.Add(time.Hour).UnixMilli() || *stored.LastDeadline != *stored.DeadlineAtMs {
		t.Errorf("stored %+v", stored)
	}
	if next := f.claim(t); next.Lease.Attempt != 1 || next.Type != state.RetryAttempt {
		t.Errorf("claimed %+v", next)
	}
	f.advance(time.Hour)
	run(t, f.Maintenance().ExpireDeadlines, 1)
	f.wantState(t, c.ID, stateExpired)
}
