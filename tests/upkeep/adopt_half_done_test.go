package upkeep

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// foreign makes a member of a flow look as FlowFabric creates it.
func foreign(t *testing.T, f *fixture.Flows, x id.ExecutionID) {
	t.Helper()
	f.SetExecution(t, x, `lifecycle_phase = 'submitted', attempt_state = 'pending', eligibility_state = 'eligible_now', public_state = 'waiting',
		blocking_reason = NULL, terminal_at_ms = NULL, ffx_retry_count = NULL, ffx_attempt_count = NULL, ffx_lease_epoch = NULL,
		ffx_last_mutation_at_ms = NULL, ffx_execution_deadline_ms = NULL`)
}

// A member that another program created is blocked while its dependencies are open, and released by them.
func TestAdoptMembersOfFlows(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>c", "b>c", "d")
	for _, key := range []string{"a", "b", "c", "d"} {
		foreign(t, f, f.NodeID(flow, key))
	}
	if n := f.AdoptAll(t); n != 0 {
		t.Errorf("adopted %d members at once", n)
	}
	f.Advance(time.Minute)
	if n := f.AdoptAll(t); n != 4 {
		t.Errorf("adopted %d of 4 members", n)
	}
	for key, state := range map[string]string{"a": fixture.StateReady, "b": fixture.StateReady, "c": fixture.StateHeld, "d": fixture.StateReady} {
		f.WantState(t, f.NodeID(flow, key), state)
	}
	for _, key := range []string{"a", "b", "d"} {
		if err := f.CompleteExecution(t.Context(), f.Lease(t, flow, key), nil); err != nil {
			t.Fatal(err)
		}
	}
	foreign(t, f, f.NodeID(flow, "c"))
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d of 1 member whose dependencies are satisfied", n)
	}
	f.WantState(t, f.NodeID(flow, "c"), fixture.StateReady)
}

// A member whose dependencies are impossible is skipped, and so are its dependents.
func TestAdoptSkipsImpossibleMembers(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>b", "b>c")
	if _, err := f.FailExecution(t.Context(), f.Lease(t, flow, "a"), engine.Failure{Message: "no", Class: policy.Permanent}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b", "c"} {
		foreign(t, f, f.NodeID(flow, key))
	}
	f.Exec(t, `UPDATE ff_edge SET policy = policy - 'resolved_at_ms' - 'resolved_outcome' WHERE downstream_eid = $1`, f.NodeID(flow, "c").UUID())
	f.Exec(t, `UPDATE ff_edge_group SET skip_count = 0, running_count = 1 WHERE downstream_eid = $1`, f.NodeID(flow, "c").UUID())
	f.Exec(t, `DELETE FROM ff_completion_event WHERE outcome = 'skipped'`)
	f.Advance(time.Minute)
	if n := f.AdoptAll(t); n != 2 {
		t.Errorf("adopted %d of 2", n)
	}
	for _, key := range []string{"b", "c"} {
		f.WantState(t, f.NodeID(flow, key), fixture.StateSkipped)
		f.WantEvents(t, f.NodeID(flow, key), "completion skipped")
	}
}

// A member whose group has no row, and whose upstreams have ended with events, is judged by its edges: no further end
// could create the row.
func TestAdoptMakesAMissingGroup(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[string]string{"success": fixture.StateReady, "failed": fixture.StateSkipped} {
		t.Run(outcome, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
			flow := f.Draw(t, nil, "a>c", "b>c", "c>d")
			f.Succeed(t, flow, "a")
			f.EndElsewhere(t, flow, "b", outcome, 0)
			foreign(t, f, f.NodeID(flow, "c"))
			f.Exec(t, "DELETE FROM ff_edge_group WHERE downstream_eid = $1", f.NodeID(flow, "c").UUID())
			f.Advance(time.Minute)
			if n := f.AdoptAll(t); n != 1 {
				t.Errorf("adopted %d of 1", n)
			}
			f.WantState(t, f.NodeID(flow, "c"), want)
			group := fixture.StoredGroup{Success: 2, KTarget: 2}
			if outcome != "success" {
				group = fixture.StoredGroup{Success: 1, Fail: 1, KTarget: 2}
				f.WantState(t, f.NodeID(flow, "d"), fixture.StateSkipped)
			}
			f.WantGroup(t, flow, "c", group)
		})
	}
	t.Run("open", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
		flow := f.Draw(t, nil, "a>c", "b>c")
		foreign(t, f, f.NodeID(flow, "c"))
		f.Exec(t, "DELETE FROM ff_edge_group WHERE downstream_eid = $1", f.NodeID(flow, "c").UUID())
		f.Advance(time.Minute)
		if n := f.AdoptAll(t); n != 1 {
			t.Errorf("adopted %d of 1", n)
		}
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateHeld)
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Running: 2, KTarget: 2})
		f.Succeed(t, flow, "a", "b")
		f.WantState(t, f.NodeID(flow, "c"), fixture.StateReady)
	})
}

// A locked flow keeps its own members waiting, and no others.
func TestAdoptSkipsLockedFlows(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	busy, free := f.Draw(t, nil, "a"), f.Draw(t, nil, "a")
	for _, flow := range []id.FlowID{busy, free} {
		foreign(t, f, f.NodeID(flow, "a"))
	}
	f.Advance(time.Minute)
	locker := f.BeginTx(t)
	if _, err := locker.Exec(t.Context(), "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", busy); err != nil {
		t.Fatal(err)
	}
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d beside a busy flow", n)
	}
	f.WantState(t, f.NodeID(free, "a"), fixture.StateReady)
}

// sweepAll sweeps all executions, and returns how many were repaired.
func sweepAll(t *testing.T, f *fixture.Fixture) (repaired int) {
	t.Helper()
	for range 3 { // to the end, and the next page of another round, wherever it began
		repaired += f.Once(t, f.Maintenance().RepairQueue)
	}
	return repaired
}

// The sweep finds the half-done work of another program on a known execution, once.
func TestRepairQueueFinishesForeignWork(t *testing.T) {
	f := fixture.NewCloned(t).Share(t)
	soon := fixture.Start.UnixMilli() + hourMs
	for _, c := range []struct {
		name, left string
		attempt    fixture.Columns // at index 0
		want       string
		then       func(t *testing.T, x id.ExecutionID)
	}{
		{
			name: "1 another phase", left: "lifecycle_phase = 'pending'", want: fixture.StateReady,
		},
		{
			name: "3 E17 a delay that overwrote the deadline", want: "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_delay",
			left: fmt.Sprintf(`eligibility_state = 'not_eligible_until_time', public_state = 'running', attempt_state = 'attempt_interrupted',
				blocking_reason = NULL, deadline_at_ms = %d, ffx_execution_deadline_ms = %d`, soon, 2*soon),
			then: func(t *testing.T, x id.ExecutionID) {
				if got := adoptedRowOf(t, f, x); got != (adoptedRow{deadline: 2 * soon, column: soon, wakeUp: soon}) {
					t.Errorf("E17: %+v", got)
				}
			},
		},
		{
			name: "3 E17 a deadline that a promotion dropped", left: fmt.Sprintf("deadline_at_ms = NULL, ffx_execution_deadline_ms = %d", soon), want: fixture.StateReady,
			then: func(t *testing.T, x id.ExecutionID) {
				if got := adoptedRowOf(t, f, x); got != (adoptedRow{deadline: soon, column: soon}) {
					t.Errorf("E17: %+v", got)
				}
			},
		},
		{
			name: "5 an interrupted attempt that the pointer passed", left: "attempt_state = 'attempt_interrupted', attempt_index = 1",
			attempt: fixture.Columns{"outcome": "attempt_interrupted", "terminal_at_ms": int64(5)}, want: fixture.StateReturned,
			then: func(t *testing.T, x id.ExecutionID) {
				if got, a := f.Stored(t, x).AttemptIndex, f.StoredAttempts(t, x)[0]; got != 0 || a.TerminalAtMs != nil {
					t.Errorf("points at %d, the attempt %+v", got, a)
				}
			},
		},
		{name: "5 interrupted without an attempt", left: "attempt_state = 'attempt_interrupted'", want: fixture.StateReady},
		{
			name: "6 E20 a failed attempt at the pointer", left: "attempt_state = 'pending_retry_attempt'",
			attempt: fixture.Columns{"outcome": "failure", "terminal_at_ms": int64(5)}, want: fixture.StateRetry,
			then: func(t *testing.T, x id.ExecutionID) {
				if got, a := f.Stored(t, x).AttemptIndex, f.StoredAttempts(t, x)[0]; got != 1 || a.Outcome != "retry" {
					t.Errorf("points at %d, the attempt %+v", got, a)
				}
			},
		},
		{
			name: "7 E22 a stale public state", attempt: fixture.Columns{"outcome": "success", "terminal_at_ms": fixture.Start.UnixMilli() - 60_001},
			left: fmt.Sprintf(`lifecycle_phase = 'terminal', eligibility_state = 'not_applicable', public_state = 'running',
				attempt_state = 'attempt_terminal', blocking_reason = NULL, terminal_at_ms = %d`, fixture.Start.UnixMilli()-60_001),
			want: fixture.StateCompleted,
		},
		{
			name: "9 E31 an attachment that the gate has not admitted",
			left: "ffx_quota_policy_id = '00000000-0000-4000-8000-000000000001', ffx_quota_partition = 1, " +
				"ffx_limit_ids = '{00000000-0000-4000-8000-000000000001}'",
			want: "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota",
		},
	} {
		x := f.Create(t)
		f.SetExecution(t, x, c.left)
		if c.attempt != nil {
			f.SeedAttempt(t, x, 0, c.attempt)
		}
		if n := sweepAll(t, f); n != 1 {
			t.Errorf("%s: repaired %d", c.name, n)
		}
		f.WantState(t, x, c.want)
		if c.then != nil {
			c.then(t, x)
		}
		if n := sweepAll(t, f); n != 0 {
			t.Errorf("%s: repaired %d again", c.name, n)
		}
	}
}

// F1, F17: the reference stages an edge into a member and does not block it.
func TestRepairQueueHoldsMembersWithOpenDependencies(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	f.SetExecution(t, b, "eligibility_state = 'eligible_now', public_state = 'waiting', blocking_reason = 'waiting_for_worker'")
	if n := sweepAll(t, f.Fixture); n != 1 {
		t.Errorf("repaired %d", n)
	}
	f.WantState(t, b, fixture.StateHeld)
}

// E26, E27, F9, F11: a cancel of the reference leaves the lease, the event and the dependents.
func TestRepairQueueHealsForeignCancels_E26(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>b")
	a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
	held := f.Lease(t, flow, "a")
	f.Advance(time.Second)
	cancelled := func() string {
		return fmt.Sprintf(`lifecycle_phase = 'cancelled', eligibility_state = 'cancelled', public_state = 'cancelled',
			attempt_state = 'cancelled', cancellation_reason = 'flow_cancelled', terminal_at_ms = %d`, f.Clock.Load())
	}
	f.SetExecution(t, a, cancelled())
	if n := sweepAll(t, f.Fixture); n != 1 {
		t.Errorf("healed %d", n)
	}
	f.WantState(t, a, "cancelled unowned not_applicable cancelled cancelled -")
	f.WantState(t, b, fixture.StateSkipped)
	f.WantEvents(t, a, "lease acquired", "lease revoked reconciler", "completion cancelled")
	f.WantEvents(t, b, "completion skipped")
	if err := f.CompleteExecution(t.Context(), held, nil); err == nil {
		t.Error("its former holder completes it")
	}
	if attempt := f.StoredAttempts(t, a)[0]; attempt.Outcome != "cancelled" || attempt.LeaseExpiresAtMs != nil || attempt.LeaseEpoch <= int64(held.Epoch) {
		t.Errorf("its attempt is %+v", attempt)
	}
	if n := sweepAll(t, f.Fixture); n != 0 {
		t.Errorf("healed %d again", n)
	}
	// A day later its event may have been trimmed.
	x := f.Create(t)
	f.Advance(time.Second)
	f.SetExecution(t, x, cancelled())
	f.Advance(24 * time.Hour)
	if n := sweepAll(t, f.Fixture); n != 0 {
		t.Errorf("healed %d that ended a day ago", n)
	}
	if got := f.Events(t, x); len(got) != 0 {
		t.Errorf("events %q of one that ended a day ago", got)
	}
}

// A flow cancel of the reference overwrites finished members, and nothing here can prevent it: the outcome is lost,
// the result stays, and if it wrote an event there is no second one.
func TestForeignFlowCancelOverwritesFinishedMembers_E44(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a")
	a := f.NodeID(flow, "a")
	if err := f.CompleteExecution(t.Context(), f.Lease(t, flow, "a"), []byte("result")); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	f.SetExecution(t, a, fmt.Sprintf(`lifecycle_phase = 'cancelled', eligibility_state = 'cancelled', public_state = 'cancelled',
		attempt_state = 'cancelled', cancellation_reason = 'flow_cancelled', terminal_at_ms = %d`, f.Clock.Load()))
	f.Exec(t, `INSERT INTO ff_completion_event (partition_key, execution_id, flow_id, outcome, occurred_at_ms)
		VALUES ($1, $2, $3, 'cancelled', $4)`, a.Partition(), a.UUID(), flow, f.Clock.Load())
	if n := sweepAll(t, f.Fixture); n != 1 {
		t.Errorf("healed %d", n)
	}
	f.WantState(t, a, "cancelled unowned not_applicable cancelled cancelled -")
	if got := f.Events(t, a); !slices.Equal(got, []string{"lease acquired", "lease revoked backend", "completion success", "completion cancelled"}) {
		t.Errorf("events %q", got)
	}
	if got := f.Stored(t, a).Result; string(got) != "result" {
		t.Errorf("result %q", got)
	}
}
