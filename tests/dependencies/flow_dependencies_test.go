package dependencies

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Every outcome of three upstreams, in every order, under every policy: the downstream moves at the
// moment that decides, and at no other.
func TestResolveInEveryOrder(t *testing.T) {
	t.Parallel()
	for _, rule := range []fixture.Rules{0, 1, 2, 3} {
		t.Run(fmt.Sprintf("%d_of_3", rule), func(t *testing.T) {
			f := fixture.NewFlows(t)
			for outcomes := range 8 { // bit set: succeeds
				for _, order := range []string{"abc", "acb", "bac", "bca", "cab", "cba"} {
					flow := f.Draw(t, fixture.When{"d": rule.Group()}, "a>d", "b>d", "c>d")
					succeeded, failed := 0, 0
					state := fixture.StateHeld
					for _, key := range strings.Split(order, "") {
						if outcomes>>strings.Index("abc", key)&1 == 1 {
							f.Succeed(t, flow, key)
							succeeded++
						} else {
							f.Fail(t, flow, key)
							failed++
						}
						if state == fixture.StateHeld {
							state = rule.Decided(3, succeeded, failed)
						}
						if got := f.Members(t, flow)["d"]; got != state {
							t.Fatalf("outcomes %03b in order %s, %d succeeded and %d failed: %s, want %s", outcomes, order, succeeded, failed, got, state)
						}
						kTarget := int(rule)
						if rule == 0 {
							kTarget = 3
						}
						want := fixture.StoredGroup{Success: succeeded, Fail: failed, Running: 3 - succeeded - failed, KTarget: kTarget}
						if got := f.Groups(t, flow)["d"]; got != want {
							t.Fatalf("outcomes %03b in order %s: group %+v, want %+v", outcomes, order, got, want)
						}
					}
				}
			}
		})
	}
}

// The worked values of the specification's policy table.
func TestResolveMatchesTheWorkedExamples(t *testing.T) {
	t.Parallel()
	tests := []struct {
		rule                      fixture.Rules
		n, success, fail, skipped int
		want                      string
	}{
		{0, 3, 3, 0, 0, fixture.StateReady},
		{0, 3, 2, 0, 0, fixture.StateHeld},
		{0, 3, 2, 1, 0, fixture.StateSkipped},
		{0, 3, 0, 0, 1, fixture.StateSkipped},
		{1, 3, 1, 2, 0, fixture.StateReady},
		{1, 3, 0, 2, 0, fixture.StateHeld},
		{1, 3, 0, 2, 1, fixture.StateSkipped},
		{2, 3, 2, 0, 1, fixture.StateReady},
		{2, 3, 1, 1, 0, fixture.StateHeld},
		{2, 3, 0, 1, 1, fixture.StateSkipped},
		{3, 5, 0, 3, 0, fixture.StateSkipped},
		{3, 5, 2, 2, 0, fixture.StateHeld},
		{3, 2, 1, 0, 0, fixture.StateHeld}, // more may be added
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d_of_%d_%d_%d_%d", test.rule, test.n, test.success, test.fail, test.skipped), func(t *testing.T) {
			f := fixture.NewFlows(t)
			var parts, succeed, fail []string
			for i := range test.n {
				up := fmt.Sprintf("up%d", i)
				parts = append(parts, up+">d")
				switch {
				case i < test.success:
					succeed = append(succeed, up)
				case i < test.success+test.fail:
					fail = append(fail, up)
				case i < test.success+test.fail+test.skipped:
					parts = append(parts, "cause"+up+">"+up)
					fail = append(fail, "cause"+up)
				}
			}
			rule := test.rule.Group()
			if int(test.rule) > test.n {
				rule = policy.AllOf() // refused at creation
			}
			flow := f.Draw(t, fixture.When{"d": rule}, parts...)
			if int(test.rule) > test.n {
				f.SetGroup(t, flow, "d", fmt.Sprintf(`policy = '{"kind": "quorum", "k": %d, "on_satisfied": "let_run"}'`, test.rule))
			}
			f.Succeed(t, flow, succeed...)
			f.Fail(t, flow, fail...)
			if got := f.Members(t, flow)["d"]; got != test.want {
				t.Errorf("d is %s, want %s", got, test.want)
			}
			got := f.Groups(t, flow)["d"]
			if got.Success != test.success || got.Fail != test.fail || got.Skip != test.skipped ||
				got.Running != test.n-test.success-test.fail-test.skipped {
				t.Errorf("group %+v", got)
			}
		})
	}
}

func TestSkipShapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rules fixture.When
		parts []string
		fail  string
		want  map[string]string
	}{
		{
			"diamond", nil,
			[]string{"a>b", "a>c", "b>d", "c>d"},
			"a",
			map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c d"},
		},
		{
			"diamond_open_on_one_side",
			fixture.When{"d": policy.AnyOf(policy.LetRun)},
			[]string{"a>b", "x>c", "b>d", "c>d"},
			"a",
			map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b", fixture.StateRunning: "x", fixture.StateHeld: "c d"},
		},
		{
			"wide", nil,
			[]string{"a>b", "a>c", "a>d", "a>e", "a>f", "x>f", "x>g"},
			"a",
			map[string]string{fixture.StateFailed: "a", fixture.StateRunning: "x", fixture.StateSkipped: "b c d e f", fixture.StateHeld: "g"},
		},
		{
			"levels_of_different_depth", nil,
			[]string{"a>b", "b>c", "c>d", "a>d", "d>e"},
			"a",
			map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c d e"},
		},
		{
			"quorum_still_possible",
			fixture.When{"d": policy.Quorum(2, policy.LetRun)},
			[]string{"a>d", "b>d", "c>d"},
			"a",
			map[string]string{fixture.StateFailed: "a", fixture.StateRunning: "b c", fixture.StateHeld: "d"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, test.rules, test.parts...)
			f.Fail(t, flow, test.fail)
			f.WantMembers(t, flow, test.want)
			skipped := make(map[string]int)
			for _, event := range f.CompletionEvents(t, flow) {
				skipped[event]++
			}
			want := map[string]int{test.fail + " failed": 1}
			for key := range strings.FieldsSeq(test.want[fixture.StateSkipped]) {
				want[key+" skipped"] = 1
			}
			fixture.WantEqual(t, "events", skipped, want)
		})
	}
}

// The rows of a skip: every column of the execution, and its event.
func TestSkipStoresEveryRow(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b")
	spec.Nodes[1].Spec = engine.ExecutionSpec{Kind: "test", Namespace: "tenant", Tags: map[string]string{"cairn.instance_id": "i-7"}}
	flow := f.NewFlowOf(t, spec)
	b := f.NodeID(flow, "b")
	f.Lease(t, flow, "a")
	f.Advance(time.Second)
	now := f.Time().UnixMilli()
	want := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", b.UUID())
	maps.Copy(want, map[string]any{
		"lifecycle_phase": "terminal", "eligibility_state": "not_applicable", "public_state": "skipped",
		"attempt_state": "attempt_terminal", "blocking_reason": nil, "terminal_at_ms": float64(now),
		"ffx_last_mutation_at_ms": float64(now),
	})
	f.Fail(t, flow, "a")
	fixture.WantEqual(t, "execution", fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", b.UUID()), want)

	event := fixture.StoredRow(t, f.Pool, "ff_completion_event", "execution_id = $1", b.UUID())
	delete(event, "event_id")
	delete(event, "committed_at_ms")
	fixture.WantRow(t, "event", event, fmt.Sprintf(`{"partition_key": %d, "execution_id": %q, "flow_id": %q, "outcome": "skipped",
		"namespace": "tenant", "instance_tag": "i-7", "occurred_at_ms": %d, "dispatched_at_ms": %[4]d}`, b.Partition(), b.UUID(), flow, now))
	edge := fixture.StoredRow(t, f.Pool, "ff_edge", "flow_id = $1", flow)["policy"].(map[string]any)
	fixture.WantEqual(t, "edge", edge, map[string]any{
		"dependency_kind": "success_only", "satisfaction_condition": "all_required", "data_passing_ref": "", "edge_state": "impossible",
		"created_by": "engine", "created_at_ms": float64(fixture.StartMs), "staged_at_ms": float64(fixture.StartMs), "applied_at_ms": float64(fixture.StartMs),
		"resolved_at_ms": float64(now), "resolved_outcome": "failed",
	})
	if events := fixture.Texts(t, f.Pool, "SELECT event_type FROM ff_lease_event WHERE execution_id = $1", b.UUID().String()); len(events) > 0 {
		t.Errorf("lease events %q", events)
	}
}

// An execution that has run and waits again, parked, is skipped with its attempt; its former holder is refused.
func TestSkipSettlesAParkedAttempt(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "b>c")
	c := f.NodeID(flow, "c")
	// c has run, waits for b again, and holds a grant.
	f.SetExecution(t, c, "eligibility_state = 'eligible_now'")
	lease := f.Lease(t, flow, "c")
	f.SetExecution(t, c, `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'blocked_by_dependencies',
		public_state = 'waiting_children', attempt_state = 'attempt_interrupted', blocking_reason = 'waiting_for_children'`)
	f.SetAttempt(t, c, 0, "lease_expires_at_ms = NULL, outcome = 'interrupted'")
	f.Insert(t, "ff_claim_grant", fixture.Columns{
		"partition_key": c.Partition(), "grant_id": []byte("grant" + c.String()), "execution_id": c.UUID(), "kind": "claim",
		"worker_id": "w", "worker_instance_id": "i", "grant_ttl_ms": 1, "issued_at_ms": 1, "expires_at_ms": 1,
	}, nil)
	f.Fail(t, flow, "b")

	f.WantState(t, c, fixture.StateSkipped)
	attempt := f.StoredAttempts(t, c)[0]
	if attempt.Outcome != "skipped" || attempt.LeaseEpoch != lease.Epoch+1 || attempt.LeaseExpiresAtMs != nil ||
		attempt.WorkerInstanceID != nil || attempt.TerminalAtMs == nil || *attempt.TerminalAtMs != f.Time().UnixMilli() {
		t.Errorf("attempt %+v", attempt)
	}
	if got := f.Stored(t, c).LeaseEpoch; got != lease.Epoch+1 {
		t.Errorf("epoch %d, want %d", got, lease.Epoch+1)
	}
	if grants := fixture.Texts(t, f.Pool, "SELECT kind FROM ff_claim_grant WHERE partition_key = $1 AND execution_id = $2", c.Partition(), c.UUID()); len(grants) > 0 {
		t.Errorf("grants %q", grants)
	}
	if err := f.CompleteExecution(t.Context(), lease, nil); !errors.Is(err, fferr.ErrStaleLease) {
		t.Errorf("the former holder completes: %v, want %v", err, fferr.ErrStaleLease)
	}
	f.WantCompletionEvents(t, flow, "b failed", "c skipped")
}

// The last attempt of a skipped execution may have ended before; that is its history.
func TestSkipLeavesAnAttemptThatHasEnded(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "b>c")
	c := f.NodeID(flow, "c")
	f.SetExecution(t, c, "started_at_ms = 1")
	f.SeedAttempt(t, c, 0, fixture.Columns{"outcome": "failed", "terminal_at_ms": 1})
	before := f.StoredAttempts(t, c)
	f.Fail(t, flow, "b")
	f.WantState(t, c, fixture.StateSkipped)
	if after := f.StoredAttempts(t, c); len(after) != 1 || !reflect.DeepEqual(after, before) {
		t.Errorf("attempts %+v, were %+v", after, before)
	}
}

// A downstream that is released goes where it would have gone without dependencies.
func TestReleaseGoesToTheRightState(t *testing.T) {
	t.Parallel()
	budget, quota := id.NewBudgetID(), id.NewQuotaPolicyID()
	limit := func(budgets []id.BudgetID, quota *id.QuotaPolicyID) func(*testing.T, *fixture.Flows, id.ExecutionID) {
		return func(t *testing.T, f *fixture.Flows, x id.ExecutionID) { f.Attach(t, x, budgets, quota) }
	}
	limited := limit([]id.BudgetID{budget}, nil)
	set := func(column string) func(*testing.T, *fixture.Flows, id.ExecutionID) {
		return func(t *testing.T, f *fixture.Flows, x id.ExecutionID) { f.SetExecution(t, x, column) }
	}
	admitted := func(t *testing.T, f *fixture.Flows, x id.ExecutionID) {
		limited(t, f, x)
		f.SetExecution(t, x, "ffx_admitted = true")
	}
	tests := []struct {
		name   string
		spec   engine.ExecutionSpec
		before func(*testing.T, *fixture.Flows, id.ExecutionID) // before the upstream succeeds
		want   map[string]any
	}{
		{"ready", engine.ExecutionSpec{Kind: "test"}, nil, map[string]any{
			"eligibility_state": "eligible_now", "public_state": "waiting", "blocking_reason": "waiting_for_worker",
		}},
		{"delayed", engine.ExecutionSpec{Kind: "test", DelayUntil: fixture.Start.Add(time.Hour)}, nil, map[string]any{
			"eligibility_state": "not_eligible_until_time", "public_state": "delayed", "blocking_reason": "waiting_for_delay",
			"ffx_delay_until_ms": ms(fixture.Start.Add(time.Hour)), "deadline_at_ms": ms(fixture.Start.Add(time.Hour)),
		}},
		{"delayed_with_deadline", engine.ExecutionSpec{Kind: "test", DelayUntil: fixture.Start.Add(time.Hour), Deadline: fixture.Start.Add(2 * time.Hour)}, nil, map[string]any{
			"eligibility_state": "not_eligible_until_time", "public_state": "delayed", "blocking_reason": "waiting_for_delay",
			"ffx_delay_until_ms": ms(fixture.Start.Add(time.Hour)), "deadline_at_ms": ms(fixture.Start.Add(time.Hour)),
			"ffx_execution_deadline_ms": ms(fixture.Start.Add(2 * time.Hour)),
		}},
		{"delay_over", engine.ExecutionSpec{Kind: "test", DelayUntil: fixture.Start.Add(time.Millisecond), Deadline: fixture.Start.Add(time.Hour)}, nil, map[string]any{
			"eligibility_state": "eligible_now", "public_state": "waiting", "blocking_reason": "waiting_for_worker",
			"deadline_at_ms": ms(fixture.Start.Add(time.Hour)), "ffx_execution_deadline_ms": ms(fixture.Start.Add(time.Hour)),
		}},
		{"budget", engine.ExecutionSpec{Kind: "test"}, limited, map[string]any{
			"eligibility_state": "blocked_by_budget", "public_state": "rate_limited", "blocking_reason": "waiting_for_budget",
			"ffx_gate_id": budget.String(),
		}},
		{"quota", engine.ExecutionSpec{Kind: "test"}, limit(nil, &quota), map[string]any{
			"eligibility_state": "blocked_by_quota", "public_state": "rate_limited", "blocking_reason": "waiting_for_quota",
			"ffx_gate_id": quota.String(),
		}},
		{"budget_before_quota", engine.ExecutionSpec{Kind: "test"}, limit([]id.BudgetID{budget}, &quota), map[string]any{
			"eligibility_state": "blocked_by_budget", "public_state": "rate_limited", "blocking_reason": "waiting_for_budget",
			"ffx_gate_id": budget.String(),
		}},
		{"admitted", engine.ExecutionSpec{Kind: "test"}, admitted, map[string]any{
			"eligibility_state": "eligible_now", "public_state": "waiting", "blocking_reason": "waiting_for_worker", "ffx_admitted": true,
		}},
		{"delayed_with_budget", engine.ExecutionSpec{Kind: "test", DelayUntil: fixture.Start.Add(time.Hour)}, limited, map[string]any{
			"eligibility_state": "not_eligible_until_time", "public_state": "delayed", "blocking_reason": "waiting_for_delay",
			"ffx_delay_until_ms": ms(fixture.Start.Add(time.Hour)), "deadline_at_ms": ms(fixture.Start.Add(time.Hour)),
		}},
		{"attempt_state_of_another_program", engine.ExecutionSpec{Kind: "test"}, set("attempt_state = 'none'"), map[string]any{
			"eligibility_state": "eligible_now", "public_state": "waiting", "blocking_reason": "waiting_for_worker",
		}},
		{"attempt_to_go_on", engine.ExecutionSpec{Kind: "test"}, set("attempt_state = 'attempt_interrupted'"), map[string]any{
			"eligibility_state": "eligible_now", "public_state": "waiting", "blocking_reason": "waiting_for_worker",
			"attempt_state": "attempt_interrupted",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			spec := fixture.Chart(nil, "a>b")
			spec.Nodes[1].Spec = test.spec
			flow := f.NewFlowOf(t, spec)
			b := f.NodeID(flow, "b")
			if test.before != nil {
				test.before(t, f, b)
			}
			f.Lease(t, flow, "a")
			want := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", b.UUID())
			maps.Copy(want, map[string]any{
				"lifecycle_phase": "runnable", "ownership_state": "unowned", "attempt_state": "pending_first_attempt",
				"ffx_delay_until_ms": nil, "deadline_at_ms": nil, "ffx_gate_id": nil, "ffx_last_mutation_at_ms": ms(fixture.Start.Add(time.Second)),
			})
			maps.Copy(want, test.want)
			f.Advance(time.Second)
			f.Succeed(t, flow, "a")
			fixture.WantEqual(t, "b", fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", b.UUID()), want)
		})
	}
}

// ms is an instant as JSON shows a stored one.
func ms(at time.Time) any { return float64(at.UnixMilli()) }

// A downstream with a delay is promoted later, and claimed then.
func TestReleaseOfADelayedNodeEndsInAClaim(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := fixture.Chart(nil, "a>b")
	spec.Nodes[1].Spec.DelayUntil = fixture.Start.Add(time.Minute)
	flow := f.NewFlowOf(t, spec)
	f.Succeed(t, flow, "a")
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateDelayed)
	f.Advance(time.Minute)
	if n, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("promoted %d, error %v", n, err)
	}
	f.Succeed(t, flow, "b")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b"})
}

// F15, M44: members are claimable as soon as their upstreams have ended, and not before. F16: their public state and
// blocking reason follow.
func TestReleasedExecutionIsClaimable_F15_F16_M44(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "b>c")
	for i, key := range []string{"a", "b", "c"} {
		claimed, err := f.Claim(t.Context(), f.Worker(), 10)
		if err != nil || len(claimed) != 1 || claimed[0].ID != f.NodeID(flow, key) {
			t.Fatalf("step %d: claimed %+v, error %v; want %s alone", i, claimed, err, key)
		}
		if got, err := f.ExecutionState(t.Context(), claimed[0].ID); err != nil || got != "active" {
			t.Errorf("%s is shown as %s, error %v", key, got, err)
		}
		if err := f.CompleteExecution(t.Context(), claimed[0].Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c"})
	f.WantCompletionEvents(t, flow, "a success", "b success", "c success")
}

// Once a group is decided, further endings of its upstreams move its counters and nothing else.
func TestLateEndingsOnlyCount_F14(t *testing.T) {
	t.Parallel()
	states := map[string]string{
		"ready":            "",
		"running":          "claim",
		"pending_claim":    "eligibility_state = 'pending_claim'",
		"delayed":          "eligibility_state = 'not_eligible_until_time', ffx_delay_until_ms = 1900000000000, deadline_at_ms = 1900000000000",
		"blocked_by_route": "eligibility_state = 'blocked_by_route'",
		// Even one that reads as if it still waited.
		"held_again": "eligibility_state = 'blocked_by_dependencies'",
	}
	for name, change := range states {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.When{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "c>d", "e>d", "e>f")
			f.ClaimAll(t)
			f.Succeed(t, flow, "a")
			d := f.NodeID(flow, "d")
			switch change {
			case "":
			case "claim":
				f.Lease(t, flow, "d")
			default:
				f.SetExecution(t, d, change)
			}
			before := f.Dump(t, d)
			f.Succeed(t, flow, "b")
			f.Fail(t, flow, "c")
			f.Fail(t, flow, "e")
			f.WantUnchanged(t, d, before)
			f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 2, Fail: 2, KTarget: 1})
			f.WantState(t, f.NodeID(flow, "f"), fixture.StateSkipped)
		})
	}
}

// An execution that does not wait for its dependencies, for any reason, is not made claimable by them.
func TestReleaseIgnoresUnblockedDependents_F14(t *testing.T) {
	t.Parallel()
	for name, assignments := range map[string]string{
		"pending_claim": "eligibility_state = 'pending_claim'",
		"delayed":       "eligibility_state = 'not_eligible_until_time', ffx_delay_until_ms = 1900000000000",
		"gated":         "eligibility_state = 'blocked_by_budget', public_state = 'rate_limited'",
		"suspended":     "lifecycle_phase = 'suspended'",
		"cancelled":     "lifecycle_phase = 'cancelled'",
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b")
			b := f.NodeID(flow, "b")
			f.SetExecution(t, b, assignments)
			before := f.Dump(t, b)
			f.Succeed(t, flow, "a")
			f.WantUnchanged(t, b, before)
			f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1})
		})
	}
}

// The same holds for a group that has become impossible: a program that put its downstream back is not overruled.
func TestLateEndingsOfAnImpossibleGroup_F14(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture.Flows, *testing.T, id.FlowID, ...string){
		"failed": (*fixture.Flows).Fail, "succeeded": (*fixture.Flows).Succeed,
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.When{"d": policy.Quorum(2, policy.LetRun)}, "a>d", "b>d", "c>d", "d>e")
			f.ClaimAll(t)
			f.Fail(t, flow, "a", "b")
			d := f.NodeID(flow, "d")
			f.WantState(t, d, fixture.StateSkipped)
			f.SetExecution(t, d, `lifecycle_phase = 'runnable', eligibility_state = 'blocked_by_dependencies',
				public_state = 'waiting_children', terminal_at_ms = NULL`)
			before := f.Dump(t, d)
			end(f, t, flow, "c")
			f.WantUnchanged(t, d, before)
		})
	}
}

// A downstream that has started is not pulled from under its worker, however its group is decided.
func TestStartedDependentIsLeftAlone_F42(t *testing.T) {
	t.Parallel()
	start := map[string]func(f *fixture.Flows, t *testing.T, flow id.FlowID){
		"active": func(*fixture.Flows, *testing.T, id.FlowID) {},
		"suspended": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.SetExecution(t, f.NodeID(flow, "d"), `lifecycle_phase = 'suspended', ownership_state = 'released',
				eligibility_state = 'not_applicable', public_state = 'suspended', attempt_state = 'attempt_suspended'`)
		},
		"retry_backoff": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.SetExecution(t, f.NodeID(flow, "d"), `lifecycle_phase = 'runnable', ownership_state = 'unowned',
				eligibility_state = 'not_eligible_until_time', public_state = 'delayed', attempt_state = 'pending_retry_attempt'`)
		},
		"retry_at_once": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.RetryAtOnce(t, f.NodeID(flow, "d"))
			if failed, err := f.FailExecution(t.Context(), f.Lease(t, flow, "d"), engine.Failure{}); err != nil || !failed.Retry {
				t.Fatalf("%+v, error %v", failed, err)
			}
		},
		"resumable": func(f *fixture.Flows, t *testing.T, flow id.FlowID) {
			f.SetExecution(t, f.NodeID(flow, "d"), `lifecycle_phase = 'runnable', ownership_state = 'unowned',
				eligibility_state = 'eligible_now', public_state = 'resumable', attempt_state = 'attempt_interrupted'`)
		},
	}
	for name, then := range start {
		for ending, settle := range map[string]func(*fixture.Flows, *testing.T, id.FlowID, ...string){
			"satisfied": (*fixture.Flows).Succeed, "impossible": (*fixture.Flows).Fail,
		} {
			t.Run(name+"_"+ending, func(t *testing.T) {
				f := fixture.NewFlows(t)
				flow := f.Draw(t, nil, "a>d", "d>e")
				d := f.NodeID(flow, "d")
				// d was started although it waits for a.
				f.SetExecution(t, d, "eligibility_state = 'eligible_now'")
				f.Lease(t, flow, "d")
				then(f, t, flow)
				before := f.Dump(t, d)
				settle(f, t, flow, "a")
				f.WantUnchanged(t, d, before)
				f.WantState(t, f.NodeID(flow, "e"), fixture.StateHeld)
			})
		}
	}
}

// An execution that never started is skipped although it does not stand blocked.
func TestSkipOfANodeThatNeverStarted(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>d", "d>e")
	f.Lease(t, flow, "a")
	f.SetExecution(t, f.NodeID(flow, "d"), `eligibility_state = 'not_eligible_until_time', public_state = 'delayed',
		blocking_reason = 'waiting_for_delay', ffx_delay_until_ms = 1900000000000`)
	f.Fail(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "d e"})
}

// F18, F19: an edge that is staged and not applied holds its group undecided, and is not counted for it.
func TestStagedEdgesHoldTheGroup_F18_F19(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"any": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "a>any", "b>any", "b>only")
	f.StageOnly(t, flow, "b", "d")
	f.StageOnly(t, flow, "b", "any")
	f.StageOnly(t, flow, "b", "only")
	f.Succeed(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateRunning: "b", fixture.StateHeld: "d only", fixture.StateReady: "any"})
	f.Succeed(t, flow, "b")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, KTarget: 2})
	f.WantGroup(t, flow, "any", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantGroup(t, flow, "only", fixture.StoredGroup{KTarget: 1})
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateHeld: "d only", fixture.StateReady: "any"})
	fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{
		"a>d": "satisfied success", "a>any": "satisfied success", "b>d": "pending", "b>any": "pending", "b>only": "pending",
	})
}

// With a staged edge a quorum is lost only when one more upstream is.
func TestStagedEdgeDefersALostQuorum_F19(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"e": policy.Quorum(2, policy.LetRun)}, "a>e", "b>e", "c>e", "d>e", "e>f")
	f.ClaimAll(t)
	f.StageOnly(t, flow, "d", "e")
	f.Fail(t, flow, "a")
	f.Fail(t, flow, "b")
	f.WantState(t, f.NodeID(flow, "e"), fixture.StateHeld)
	f.Fail(t, flow, "c")
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a b c", fixture.StateRunning: "d", fixture.StateSkipped: "e f"})
}

// An edge without the key applied_at_ms was not made by staging: it counts.
func TestResolveAForeignEdge(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	f.Exec(t, `UPDATE ff_edge SET policy = '{}' WHERE partition_key = $1 AND flow_id = $2`, fixture.PartitionOf(flow), flow)
	f.Succeed(t, flow, "a")
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b"})
}

// F13: the mark on an edge makes it count once, however often any upstreams complete.
func TestEdgeCountsOnce_F13(t *testing.T) {
	t.Parallel()
	t.Run("completion_repeated", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>c", "b>c")
		l := f.Lease(t, flow, "a")
		for range 3 {
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		f.WantCompletionEvents(t, flow, "a success")
	})
	t.Run("failure_repeated", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.When{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c")
		for range 3 {
			f.Fail(t, flow, "a")
		}
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Fail: 1, Running: 1, KTarget: 1})
		f.WantCompletionEvents(t, flow, "a failed")
	})
	t.Run("upstream_run_again", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>c", "b>c")
		f.Succeed(t, flow, "a")
		// Another program lets a run once more and leaves the edge as it is.
		a := f.NodeID(flow, "a")
		f.SetExecution(t, a, `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
			attempt_state = 'pending_replay_attempt', attempt_index = 1, terminal_at_ms = NULL`)
		delete(f.Leases, a)
		f.Succeed(t, flow, "a")
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateRunning: "b", fixture.StateHeld: "c"})
	})
}

// F12, M21: the effects of an ending on its dependents are part of the transaction that ends it.
func TestResolutionIsAtomic_F12_M21(t *testing.T) {
	t.Parallel()
	settle := map[string]func(f *fixture.Flows, t *testing.T, eng *engine.Engine, l engine.Lease) error{
		"complete": func(_ *fixture.Flows, t *testing.T, eng *engine.Engine, l engine.Lease) error {
			return eng.CompleteExecution(t.Context(), l, []byte("r"))
		},
		"fail": func(_ *fixture.Flows, t *testing.T, eng *engine.Engine, l engine.Lease) error {
			_, err := eng.FailExecution(t.Context(), l, fixture.ForGood)
			return err
		},
	}
	for name, end := range settle {
		t.Run(name+"_rolled_back", func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b", "b>c")
			l := f.Lease(t, flow, "a")
			before := f.DumpFlow(t, flow)
			tx := f.BeginTx(t)
			if err := end(f, t, f.WithTx(tx), l); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := f.DumpFlow(t, flow); after != before {
				t.Errorf("the flow was written to:\n%s\nwas\n%s", after, before)
			}
			if err := end(f, t, f.Engine, l); err != nil {
				t.Errorf("again: %v", err)
			}
		})
		// A fault in the last statement undoes the first.
		t.Run(name+"_fault_at_the_event", func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, nil, "a>b", "b>c")
			l := f.Lease(t, flow, "a")
			f.Exec(t, "ALTER TABLE ff_completion_event ADD CONSTRAINT fault CHECK (flow_id IS NULL)")
			before := f.DumpFlow(t, flow)
			if err := end(f, t, f.Engine, l); !errors.Is(err, fferr.ErrTransport) {
				t.Errorf("error %v, want %v", err, fferr.ErrTransport)
			}
			if after := f.DumpFlow(t, flow); after != before {
				t.Errorf("the flow was written to:\n%s\nwas\n%s", after, before)
			}
			f.Exec(t, "ALTER TABLE ff_completion_event DROP CONSTRAINT fault")
			if err := end(f, t, f.Engine, l); err != nil {
				t.Errorf("again: %v", err)
			}
			if b := f.Members(t, flow)["b"]; b != fixture.StateReady && b != fixture.StateSkipped {
				t.Errorf("b is %s", b)
			}
		})
	}
}

// In the caller's transaction an ending resolves as it does on a pool; a refusal leaves the transaction usable.
func TestResolveInATransaction(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "x>y")
	a, x := f.Lease(t, flow, "a"), f.Lease(t, flow, "x")
	stale := x
	stale.Epoch++
	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	if err := bound.CompleteExecution(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	if err := bound.CompleteExecution(t.Context(), stale, nil); !errors.Is(err, fferr.ErrStaleLease) {
		t.Errorf("error %v, want %v", err, fferr.ErrStaleLease)
	}
	if _, err := bound.FailExecution(t.Context(), stale, fixture.ForGood); !errors.Is(err, fferr.ErrStaleLease) {
		t.Errorf("error %v, want %v", err, fferr.ErrStaleLease)
	}
	if _, err := bound.FailExecution(t.Context(), x, fixture.ForGood); err != nil {
		t.Fatal(err)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a x", fixture.StateHeld: "b y"})
	fixture.Commit(t, tx)
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateFailed: "x", fixture.StateReady: "b", fixture.StateSkipped: "y"})
	f.WantCompletionEvents(t, flow, "a success", "x failed", "y skipped")
}

// A failure that is retried ends nothing, and resolves nothing.
func TestResolveOnlyAfterTheLastAttempt(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	f.RetryAtOnce(t, f.NodeID(flow, "a"))
	for range 3 {
		failed, err := f.FailExecution(t.Context(), f.Lease(t, flow, "a"), engine.Failure{})
		if err != nil || !failed.Retry {
			t.Fatalf("%+v, error %v", failed, err)
		}
		delete(f.Leases, f.NodeID(flow, "a"))
		f.WantGroup(t, flow, "b", fixture.StoredGroup{Running: 1, KTarget: 1})
		f.WantCompletionEvents(t, flow)
	}
	if failed, err := f.FailExecution(t.Context(), f.Lease(t, flow, "a"), engine.Failure{}); err != nil || failed.Retry {
		t.Fatalf("%+v, error %v", failed, err)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b"})
}

// Ends by a background job are resolved like ends by a worker.
func TestResolveEndingsByJobs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		spec    engine.ExecutionSpec
		end     func(f *fixture.Flows, t *testing.T, flow id.FlowID) (int, error)
		outcome string
	}{
		{"deadline", engine.ExecutionSpec{Kind: "test", Deadline: fixture.Start.Add(time.Minute)}, func(f *fixture.Flows, t *testing.T, _ id.FlowID) (int, error) {
			return upkeep.Of(f.Engine).ExpireDeadlines(t.Context(), 10)
		}, "expired"},
		{
			"attempt_timeout",
			engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{
				AttemptTimeout: time.Second, Retry: &policy.Retry{MaxRetries: policy.NoRetries},
			}},
			func(f *fixture.Flows, t *testing.T, _ id.FlowID) (int, error) {
				return upkeep.Of(f.Engine).ExpireAttempts(t.Context(), 10)
			}, "expired",
		},
		{
			"lease_lost_too_often",
			engine.ExecutionSpec{Kind: "test", Policy: &policy.Execution{MaxReclaims: policy.NoReclaims}},
			func(f *fixture.Flows, t *testing.T, _ id.FlowID) (int, error) {
				return upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10)
			}, "failed",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			spec := fixture.Chart(fixture.When{"any": policy.AnyOf(policy.LetRun)}, "a>b", "b>c", "a>any", "c>any")
			spec.Nodes[0].Spec = test.spec
			flow := f.NewFlowOf(t, spec)
			f.Lease(t, flow, "a")
			f.Advance(2 * time.Minute)
			if n, err := test.end(f, t, flow); n != 1 || err != nil {
				t.Fatalf("ended %d, error %v", n, err)
			}
			members := f.Members(t, flow)
			if members["b"] != fixture.StateSkipped || members["c"] != fixture.StateSkipped || members["any"] != fixture.StateSkipped {
				t.Errorf("members %v", members)
			}
			f.WantGroup(t, flow, "any", fixture.StoredGroup{Fail: 1, Skip: 1, KTarget: 1})
			events := f.CompletionEvents(t, flow)
			if !slices.Equal(events, []string{"a " + test.outcome, "b skipped", "c skipped", "any skipped"}) {
				t.Errorf("events %q", events)
			}
			if got := f.Edges(t, flow)["a>b"]; got != "impossible "+test.outcome {
				t.Errorf("edge a>b is %s", got)
			}
		})
	}
}

// A flow whose row is gone still resolves: its lock is enough.
func TestResolveWithoutAFlowRow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "x>y")
	f.Exec(t, "DELETE FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "x")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b", fixture.StateFailed: "x", fixture.StateSkipped: "y"})
}

// A lease that crossed a process boundary does not carry the flow: the completion finds it.
func TestResolveByHandle(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "x>y")
	lease := func(key string) engine.Lease {
		l, err := engine.LeaseFromHandle(f.Lease(t, flow, key).Handle(wire.HandleFresh))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := f.CompleteExecution(t.Context(), lease("a"), []byte("r")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.FailExecution(t.Context(), lease("x"), fixture.ForGood); err != nil {
		t.Fatal(err)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b", fixture.StateFailed: "x", fixture.StateSkipped: "y"})
	f.WantCompletionEvents(t, flow, "a success", "x failed", "y skipped")
}

// Executions of several flows and of none end in one call, each resolving its own.
func TestResolveManyFlowsInOneBatch(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	const flows = 257 // one more than a transaction locks
	var created []id.FlowID
	var completions []engine.Completion
	for range flows {
		flow := f.Draw(t, nil, "a>b")
		created = append(created, flow)
	}
	solo := f.Create(t)
	f.ClaimAll(t)
	for _, flow := range created {
		completions = append(completions, engine.Completion{Lease: f.Lease(t, flow, "a")})
	}
	stale := completions[0]
	stale.Lease.Epoch--
	completions = append(completions, stale, engine.Completion{Lease: f.Leases[solo]})
	var outcomes []error
	sent := fixture.Names(log.During(func() {
		var err error
		if outcomes, err = f.CompleteExecutions(t.Context(), completions); err != nil {
			t.Fatal(err)
		}
	}))
	for i, err := range outcomes {
		if refused := errors.Is(err, fferr.ErrStaleLease); refused != (i == flows) || err != nil && !refused {
			t.Errorf("outcome %d: %v", i, err)
		}
	}
	for _, flow := range created {
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b"})
	}
	f.WantState(t, solo, fixture.StateCompleted)
	if n := len(slices.DeleteFunc(sent, func(name string) bool { return name != "LockDownstreamGroups" })); n != 2 {
		t.Errorf("%d transactions resolved %d flows, want 2", n, flows)
	}
}

// The place of a limit goes back with its execution, completed or skipped.
func TestResolveReturnsPlaces(t *testing.T) {
	f := fixture.NewFlows(t)
	quota := id.NewQuotaPolicyID()
	spec := fixture.Chart(nil, "a>b", "x>y", "z")
	flow := f.NewFlowOf(t, spec)
	for _, node := range spec.Nodes {
		x := f.NodeID(flow, node.Key)
		f.Attach(t, x, nil, &quota)
		f.SetExecution(t, x, `ffx_admitted = true,
			eligibility_state = CASE eligibility_state WHEN 'blocked_by_quota' THEN 'eligible_now' ELSE eligibility_state END`)
	}
	f.ClaimAll(t)
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "x")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b", fixture.StateFailed: "x", fixture.StateSkipped: "y", fixture.StateRunning: "z"})
	got := fixture.Texts(t, f.Pool, "SELECT '{fp:' || partition_key || '}:' || execution_id FROM ff_exec_core WHERE ffx_quota_policy_id = $1 AND ffx_admitted ORDER BY 1", quota)
	want := []string{f.NodeID(flow, "b").String(), f.NodeID(flow, "z").String()}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("places of %q, want %q", got, want)
	}
}
