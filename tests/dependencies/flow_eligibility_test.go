package dependencies

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func eligible(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) engine.Eligibility {
	t.Helper()
	got, err := f.Eligibility(t.Context(), f.NodeID(flow, key))
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return got
}

func wantEligible(t *testing.T, f *fixture.Flows, flow id.FlowID, key string, status state.EligibilityStatus, reason string) {
	t.Helper()
	if got := eligible(t, f, flow, key); got.Status != status || got.Reason != reason {
		t.Errorf("%s is %q, %q; want %q, %q", key, got.Status, got.Reason, status, reason)
	}
}

// forget sets the row of an execution back to waiting for its dependencies, as if no end had been counted for it yet.
func forget(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) {
	t.Helper()
	f.SetExecution(t, f.NodeID(flow, key), `lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'blocked_by_dependencies',
		public_state = 'waiting_children', attempt_state = 'pending_first_attempt', blocking_reason = 'waiting_for_children', terminal_at_ms = NULL`)
}

// The reference reads the policy from a column that no edge has, and the outcome from one that most paths do not
// write: every waiting execution is eligible there. Here each policy is judged by the ends of the upstreams, and
// names its condition.
func TestEligibilityUnderEachPolicy_F30(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		when          policy.Group
		succeed, fail []string
		status        state.EligibilityStatus
		reason        string
	}{
		{"all_open", policy.AllOf(), nil, nil, state.StatusBlocked, "waits for 3 of 3: a, b, c"},
		{"all_two_left", policy.AllOf(), []string{"b"}, nil, state.StatusBlocked, "waits for 2 of 3: a, c"},
		{"all_met", policy.AllOf(), []string{"a", "b", "c"}, nil, state.StatusEligible, "3 of 3 succeeded"},
		{"all_lost", policy.AllOf(), []string{"a"}, []string{"b"}, state.StatusImpossible, "1 of 3 did not succeed: b (failed)"},
		{"any_open", policy.AnyOf(policy.LetRun), nil, []string{"a"}, state.StatusBlocked, "waits for 1 of 3: b, c"},
		{"any_met", policy.AnyOf(policy.LetRun), []string{"c"}, []string{"a"}, state.StatusEligible, "1 of 3 succeeded"},
		{"any_lost", policy.AnyOf(policy.LetRun), nil, []string{"a", "b", "c"}, state.StatusImpossible, "3 of 3 did not succeed: a (failed), b (failed), c (failed)"},
		{"quorum_open", policy.Quorum(2, policy.LetRun), nil, nil, state.StatusBlocked, "waits for 2 of 3: a, b, c"},
		{"quorum_one_left", policy.Quorum(2, policy.LetRun), []string{"a"}, []string{"b"}, state.StatusBlocked, "waits for 1 of 3: c"},
		{"quorum_met", policy.Quorum(2, policy.LetRun), []string{"a", "c"}, nil, state.StatusEligible, "2 of 3 succeeded"},
		{"quorum_lost", policy.Quorum(2, policy.LetRun), nil, []string{"a", "b"}, state.StatusImpossible, "2 of 3 did not succeed: a (failed), b (failed)"},
		{"on_failure_open", policy.OnFailure(), []string{"a"}, []string{"c"}, state.StatusBlocked, "waits for the end of 1 of 3: b"},
		{"on_failure_met", policy.OnFailure(), []string{"a", "b"}, []string{"c"}, state.StatusEligible, "2 of 3 succeeded"},
		{"on_failure_lost", policy.OnFailure(), []string{"a", "b", "c"}, nil, state.StatusImpossible, "3 of 3 succeeded"},
		{"always_open", policy.Always(), nil, nil, state.StatusBlocked, "waits for the end of 3 of 3: a, b, c"},
		{"always_met", policy.Always(), nil, []string{"a", "b", "c"}, state.StatusEligible, "0 of 3 succeeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.When{"d": test.when}, "a>d", "b>d", "c>d")
			f.Succeed(t, flow, test.succeed...)
			f.Fail(t, flow, test.fail...)
			forget(t, f, flow, "d")
			// Counters that say nothing, or the wrong, make no difference.
			f.SetGroup(t, flow, "d", "success_count = 0, fail_count = 0, skip_count = 0, running_count = 9")
			wantEligible(t, f, flow, "d", test.status, test.reason)
			got := eligible(t, f, flow, "d")
			if got.When == nil || *got.When != test.when || got.Edges != 3 || got.Succeeded != len(test.succeed) || got.Failed != len(test.fail) ||
				len(got.Lost) != len(test.fail) || len(got.Open) != 3-len(test.succeed)-len(test.fail) {
				t.Errorf("judged as %+v", got)
			}
		})
	}
}

// A reason names no more upstreams than a line has room for.
func TestEligibilityNamesFewUpstreams(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>z", "b>z", "c>z", "d>z", "e>z", "f>z", "g>z")
	if got := eligible(t, f, flow, "z"); !strings.HasSuffix(got.Reason, "a, b, c, d, e and 2 more") || len(got.Open) != 7 {
		t.Errorf("judged as %+v", got)
	}
}

// Cancelled, expired and skipped upstreams are lost as failed ones are; the reference knows the failed alone.
func TestEligibilityCountsEveryFailureAsLost_F30(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>s", "s>d", "c>e", "x>g")
	f.Fail(t, flow, "a")
	forget(t, f, flow, "d")
	wantEligible(t, f, flow, "d", state.StatusImpossible, "1 of 1 did not succeed: s (skipped)")
	for key, ended := range map[string][2]string{
		"c": {"'cancelled', public_state = 'cancelled', attempt_state = 'cancelled'", "cancelled"},
		"x": {"'terminal', public_state = 'expired', attempt_state = 'attempt_terminal'", "expired"},
	} {
		f.SetExecution(t, f.NodeID(flow, key), "terminal_at_ms = 1800000000000, eligibility_state = 'not_applicable', lifecycle_phase = "+ended[0])
		down := map[string]string{"c": "e", "x": "g"}[key]
		wantEligible(t, f, flow, down, state.StatusImpossible, "1 of 1 did not succeed: "+key+" ("+ended[1]+")")
	}
}

// An execution blocked for another reason than its dependencies names that first.
func TestEligibilityNamesOtherReasonsFirst(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "c")
	wantEligible(t, f, flow, "c", state.StatusEligible, "has no dependencies")
	plain := f.Create(t)
	got, err := f.Eligibility(t.Context(), plain)
	if err != nil || got.Status != state.StatusEligible || got.When != nil || got.Edges != 0 {
		t.Errorf("outside flows: %+v, %v", got, err)
	}
	f.Lease(t, flow, "a")
	wantEligible(t, f, flow, "a", state.StatusNotRunnable, "is active")
	f.Succeed(t, flow, "a")
	wantEligible(t, f, flow, "a", state.StatusNotRunnable, "has ended: completed")
	wantEligible(t, f, flow, "b", state.StatusEligible, "1 of 1 succeeded")
	f.SetExecution(t, f.NodeID(flow, "b"), "ownership_state = 'leased'")
	wantEligible(t, f, flow, "b", state.StatusOwned, "it has an owner")
	f.SetExecution(t, f.NodeID(flow, "b"), "ownership_state = 'released', lifecycle_phase = 'submitted'")
	wantEligible(t, f, flow, "b", state.StatusEligible, "1 of 1 succeeded")
	f.SetExecution(t, f.NodeID(flow, "b"), "lifecycle_phase = 'suspended', public_state = 'suspended'")
	wantEligible(t, f, flow, "b", state.StatusNotRunnable, "is suspended")
	missing := f.NodeID(flow, "?")
	_, err = f.Eligibility(t.Context(), missing)
	fixture.WantNotFound(t, err, "execution", missing.String())
	_, err = f.Eligibility(t.Context(), id.ExecutionID{})
	fixture.WantInputError(t, err, "execution id")
}

// A key that a replay by the reference leaves behind makes no rerun one that has ended, and a failed rerun no success.
func TestEligibilityIgnoresAStaleOutcome_F43(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	const left = `raw_fields = raw_fields || '{"terminal_outcome": "success", "replay_count": "1"}'`
	f.SetExecution(t, f.NodeID(flow, "b"), left)
	wantEligible(t, f, flow, "b", state.StatusBlocked, "waits for 1 of 1: a")
	f.SetExecution(t, f.NodeID(flow, "b"), "raw_fields = raw_fields - 'replay_count'")
	wantEligible(t, f, flow, "b", state.StatusTerminal, "another program recorded its end: success")
	f.SetExecution(t, f.NodeID(flow, "b"), "raw_fields = raw_fields - 'terminal_outcome'")
	f.SetExecution(t, f.NodeID(flow, "a"), left)
	f.Fail(t, flow, "a")
	forget(t, f, flow, "b")
	wantEligible(t, f, flow, "b", state.StatusImpossible, "1 of 1 did not succeed: a (failed)")
}

// Edges that are staged only, that were opened again, and whose upstream is not there any more.
func TestEligibilityOfUnusualEdges(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>d", "b>d", "c>d")
	f.StageOnly(t, flow, "c", "d")
	f.Succeed(t, flow, "a", "b", "c")
	wantEligible(t, f, flow, "d", state.StatusBlocked, "waits for 1 of 3: c")
	edge := func(from, set string) {
		f.Exec(t, "UPDATE ff_edge SET policy = "+set+" WHERE partition_key = $1 AND flow_id = $2 AND upstream_eid = $3",
			fixture.PartitionOf(flow), flow, f.NodeID(flow, from).UUID())
	}
	edge("c", `policy - 'applied_at_ms'`)
	forget(t, f, flow, "d")
	wantEligible(t, f, flow, "d", state.StatusEligible, "3 of 3 succeeded")
	edge("b", `policy || '{"reopened_at_ms": 1800000000001}'`)
	wantEligible(t, f, flow, "d", state.StatusBlocked, "waits for 1 of 3: b")
	edge("b", `policy - 'reopened_at_ms'`)

	f.Exec(t, "DELETE FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2", fixture.PartitionOf(flow), f.NodeID(flow, "a").UUID())
	f.Exec(t, "DELETE FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", fixture.PartitionOf(flow), f.NodeID(flow, "a").UUID())
	wantEligible(t, f, flow, "d", state.StatusEligible, "3 of 3 succeeded")
	edge("a", `policy - 'resolved_outcome'`) // as the reference leaves it: its success was counted
	f.SetGroup(t, flow, "d", "success_count = 3")
	wantEligible(t, f, flow, "d", state.StatusEligible, "3 of 3 succeeded")
	f.SetGroup(t, flow, "d", "success_count = 2")
	if got := eligible(t, f, flow, "d"); got.Status != state.StatusImpossible || got.Failed != 1 || got.Succeeded != 2 {
		t.Errorf("judged as %+v", got)
	}
}

// Without a group row all upstreams are needed, and unreadable values are named.
func TestEligibilityOfUnreadableRows_F45(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c")
	f.SetGroup(t, flow, "c", `policy = '{"kind": "quorum", "k": -1}'`)
	_, err := f.Eligibility(t.Context(), f.NodeID(flow, "c"))
	fixture.WantCorruption(t, err, "ff_edge_group.policy")
	f.Exec(t, "DELETE FROM ff_edge_group WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	wantEligible(t, f, flow, "c", state.StatusBlocked, "waits for 2 of 2: a, b")
	f.SetExecution(t, f.NodeID(flow, "a"), "lifecycle_phase = 'who knows'")
	_, err = f.Eligibility(t.Context(), f.NodeID(flow, "c"))
	fixture.WantCorruption(t, err, "ff_exec_core.lifecycle_phase")
}
