package dependencies

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// beyondReach is the number that FlowFabric reads such a group to need, and by which it reads too many to run there.
const beyondReach = 1_000_000_000

// waitingFor is a group of which so many upstreams run, in its stored form.
func waitingFor(g fixture.StoredGroup) fixture.StoredGroup {
	g.Running += beyondReach
	g.KTarget = beyondReach
	return g
}

// A chain with an error branch and a clean-up behind all of it.
func drawBranches(t *testing.T, f *fixture.Flows) id.FlowID {
	t.Helper()
	return f.Draw(t, fixture.When{"oops": policy.OnFailure(), "tidy": policy.Always()},
		"a>b", "b>c", "a>oops", "b>oops", "c>oops", "oops>told", "c>tidy", "oops>tidy")
}

// An error branch runs when one of a chain fails, although the last of it is only skipped, and in the transaction of the
// failure; a clean-up runs after it.
func TestOnFailureRuns(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := drawBranches(t, f)
	f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Running: 3}))
	f.WantGroup(t, flow, "tidy", waitingFor(fixture.StoredGroup{Running: 2}))
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")
	f.WantMembers(t, flow, map[string]string{
		fixture.StateCompleted: "a", fixture.StateFailed: "b", fixture.StateSkipped: "c", fixture.StateReady: "oops", fixture.StateHeld: "told tidy",
	})
	f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 1, Fail: 1, Skip: 1}))
	f.Succeed(t, flow, "oops")
	f.WantMembers(t, flow, map[string]string{
		fixture.StateCompleted: "a oops", fixture.StateFailed: "b", fixture.StateSkipped: "c", fixture.StateReady: "told tidy",
	})
	f.WantCompletionEvents(t, flow, "a success", "b failed", "c skipped", "oops success")
	f.Succeed(t, flow, "told")
	f.Succeed(t, flow, "tidy")
	f.WantCompletionEvents(t, flow, "a success", "b failed", "c skipped", "oops success", "told success", "tidy success")
}

// If nothing fails the error branch is skipped, with its dependents, and the clean-up runs all the same. The success
// leaves that to the dispatcher, and wakes it at once: it holds the flow shared with other successes.
func TestOnFailureIsSkipped(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(f *fixture.Flows, t *testing.T, flow id.FlowID, key string){
		"batch": func(f *fixture.Flows, t *testing.T, flow id.FlowID, key string) { f.Succeed(t, flow, key) },
		"alone": func(f *fixture.Flows, t *testing.T, flow id.FlowID, key string) {
			if err := f.CompleteExecution(t.Context(), f.Lease(t, flow, key), nil); err != nil {
				t.Fatal(err)
			}
		},
		"in_a_transaction": func(f *fixture.Flows, t *testing.T, flow id.FlowID, key string) {
			l := f.Lease(t, flow, key)
			tx := f.BeginTx(t)
			if err := f.WithTx(tx).CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := drawBranches(t, f)
			for _, key := range []string{"a", "b", "c"} {
				f.WantCompletionEvents(t, flow, []string{"a success", "b success"}[:slices.Index([]string{"a", "b", "c"}, key)]...)
				settle(f, t, flow, key)
			}
			f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c", fixture.StateHeld: "oops told tidy"})
			f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 2, Running: 1}))
			f.WantCompletionEvents(t, flow, "a success", "b success", "c success left")
			select {
			case <-upkeep.Of(f.Engine).Undispatched():
				if name == "in_a_transaction" {
					t.Error("told before the caller's commit")
				}
			default:
				if name != "in_a_transaction" {
					t.Error("nobody is told")
				}
			}
			fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
			f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c", fixture.StateSkipped: "oops told", fixture.StateReady: "tidy"})
			f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 3}))
			f.WantGroup(t, flow, "tidy", waitingFor(fixture.StoredGroup{Success: 1, Skip: 1}))
			f.WantCompletionEvents(t, flow, "a success", "b success", "c success", "oops skipped", "told skipped")
		})
	}
}

// Other effects of the success do not wait for the dispatcher.
func TestOnFailureLeavesTheRestAlone(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, fixture.When{"oops": policy.OnFailure(), "last": policy.Always()}, "a>oops", "a>next", "a>last", "x>y")
	f.ClaimAll(t)
	f.Succeed(t, flow, "a", "x")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a x", fixture.StateHeld: "oops", fixture.StateReady: "next last y"})
	events := f.CompletionEvents(t, flow) // in the order of ids
	slices.Sort(events)
	if want := []string{"a success left", "x success"}; !slices.Equal(events, want) {
		t.Errorf("completion events %q, want %q", events, want)
	}
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a x", fixture.StateSkipped: "oops", fixture.StateReady: "next last y"})
}

// A success may skip any number of levels behind an error branch, even if its flow is busy.
func TestOnFailureIsSkippedWithItsDependents(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := chain(2*levelsAtOnce + 10)
	spec.Nodes[1].When = policy.OnFailure()
	spec.Nodes = append(spec.Nodes, engine.Node{Key: "other", Spec: engine.ExecutionSpec{Kind: "test"}})
	flow := f.NewFlowOf(t, spec)
	f.ClaimAll(t)
	f.Succeed(t, flow, "0")
	tx := f.BeginTx(t)
	if err := f.WithTx(tx).CompleteExecution(t.Context(), f.Lease(t, flow, "other"), nil); err != nil {
		t.Fatal(err)
	}
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 0) // the flow is held, shared
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 3)
	if n := countSkipped(t, f, flow); n != 2*levelsAtOnce+9 {
		t.Errorf("%d are skipped", n)
	}
	wantOneEventEach(t, f, flow)
}

// The description has the condition that it waits for, and not the stored columns.
func TestOnFailureIsDescribed(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := drawBranches(t, f)
	f.Fail(t, flow, "a")
	described, err := f.DescribeFlow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]engine.EdgeGroup)
	for _, g := range described.Groups {
		got[f.Name(g.Downstream.UUID())] = g
	}
	for key, want := range map[string]engine.EdgeGroup{
		"oops": {When: policy.OnFailure(), Edges: 3, Failed: 1, Skipped: 2, State: state.EdgeGroupSatisfied},
		"tidy": {When: policy.Always(), Edges: 2, Skipped: 1, Active: 1, State: state.EdgeGroupPending},
	} {
		want.Downstream = f.NodeID(flow, key)
		if got[key] != want {
			t.Errorf("%s: %+v, want %+v", key, got[key], want)
		}
	}
	wantRow(t, f, flow, "oops", `{"kind": "quorum", "k": 1000000000, "on_satisfied": "let_run", "ffx_when": "on_failure"}`)
	wantRow(t, f, flow, "tidy", `{"kind": "quorum", "k": 1000000000, "on_satisfied": "let_run", "ffx_when": "always"}`)
}

// wantRow compares the stored policy of a group.
func wantRow(t *testing.T, f *fixture.Flows, flow id.FlowID, key, want string) {
	t.Helper()
	row := fixture.StoredRow(t, f.Pool, "ff_edge_group", "flow_id = $1 AND downstream_eid = $2", flow, f.NodeID(flow, key).UUID())
	fixture.WantEqual(t, "policy of "+key, row["policy"].(map[string]any), fixture.DecodeRow(t, want))
}

// An edge that is staged and not applied holds such a group open too.
func TestOnFailureWaitsForStagedEdges(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := f.Draw(t, fixture.When{"oops": policy.OnFailure(), "tidy": policy.Always()}, "a>oops", "b>oops", "c>oops", "a>tidy", "c>tidy")
	f.ClaimAll(t)
	f.StageOnly(t, flow, "c", "oops")
	f.StageOnly(t, flow, "c", "tidy")
	f.Fail(t, flow, "a")
	f.Succeed(t, flow, "b")
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 0)
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateCompleted: "b", fixture.StateRunning: "c", fixture.StateHeld: "oops tidy"})
	f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 1, Fail: 1}))

	other := f.Draw(t, fixture.When{"oops": policy.OnFailure()}, "a>oops", "c>oops")
	f.ClaimAll(t)
	f.StageOnly(t, other, "c", "oops")
	f.Succeed(t, other, "a")
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1) // which nothing depends on yet
	f.WantMembers(t, other, map[string]string{fixture.StateCompleted: "a", fixture.StateRunning: "c", fixture.StateHeld: "oops"})
	f.WantGroup(t, other, "oops", waitingFor(fixture.StoredGroup{Success: 1}))
}

// Replays: an error branch that was skipped because all went well waits again when one of its upstreams runs again, and
// runs when that fails; one that was released waits again, too.
func TestOnFailureAfterAReplay(t *testing.T) {
	t.Parallel()
	t.Run("of_an_upstream", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.When{"oops": policy.OnFailure()}, "a>oops", "b>oops")
		f.Succeed(t, flow, "a", "b")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 2)
		f.WantState(t, f.NodeID(flow, "oops"), fixture.StateSkipped)
		f.Replay(t, f.NodeID(flow, "oops"))
		f.WantState(t, f.NodeID(flow, "oops"), fixture.StateReplayedHeld)
		f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 2}))
		f.Advance(time.Minute)
		fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 0) // all is counted that was
		f.WantState(t, f.NodeID(flow, "oops"), fixture.StateReplayedHeld)
		delete(f.Leases, f.NodeID(flow, "a"))
		f.Replay(t, f.NodeID(flow, "a"))
		f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 1, Running: 1}))
		f.Fail(t, flow, "a")
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateCompleted: "b", fixture.StateReplayed: "oops"})
	})
	t.Run("before_it_starts", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, fixture.When{"oops": policy.OnFailure()}, "a>oops", "b>oops")
		f.Succeed(t, flow, "a")
		f.Fail(t, flow, "b")
		f.WantState(t, f.NodeID(flow, "oops"), fixture.StateReady)
		delete(f.Leases, f.NodeID(flow, "b"))
		f.Replay(t, f.NodeID(flow, "b"))
		f.WantState(t, f.NodeID(flow, "oops"), fixture.StateHeld)
		f.WantGroup(t, flow, "oops", waitingFor(fixture.StoredGroup{Success: 1, Running: 1}))
		f.Succeed(t, flow, "b")
		fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateSkipped: "oops"})
	})
}

// F33: an execution that waits for its upstreams is answered by the present decision of its group, under any policy.
func TestWaitForChildrenFollowsTheGroup_F33(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		when  policy.Group
		fails bool
		want  engine.Waiting
	}{
		{policy.AllOf(), false, engine.WaitingReady},
		{policy.AllOf(), true, engine.WaitingSkipped},
		{policy.AnyOf(policy.CancelRemaining), false, engine.WaitingReady},
		{policy.Quorum(2, policy.CancelRemaining), true, engine.WaitingSkipped},
		{policy.OnFailure(), true, engine.WaitingReady},
		{policy.OnFailure(), false, engine.WaitingSkipped},
		{policy.Always(), false, engine.WaitingReady},
		{policy.Always(), true, engine.WaitingReady},
	} {
		t.Run(fmt.Sprintf("%v_%t", test.when, test.fails), func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow := f.Draw(t, fixture.When{"d": test.when}, "a>d", "b>d")
			l := f.Early(t, flow, "d")
			f.Succeed(t, flow, "a")
			if test.fails {
				f.Fail(t, flow, "b")
			} else {
				f.Succeed(t, flow, "b")
			}
			settleAll(t, f)
			f.WantState(t, l.Execution, fixture.StateRunning)
			f.WantWaiting(t, l, test.want)
			if test.want == engine.WaitingReady {
				if again := f.ClaimOne(t); again.ID != l.Execution || !again.Resumed {
					t.Errorf("claimed %+v", again)
				}
			} else {
				f.WantState(t, l.Execution, fixture.StateSkipped)
			}
			parked := f.Draw(t, fixture.When{"d": test.when}, "a>d", "b>d")
			l = f.Early(t, parked, "d")
			f.WantWaiting(t, l, engine.WaitingParked)
			f.Succeed(t, parked, "a")
			if test.fails {
				f.Fail(t, parked, "b")
			} else {
				f.Succeed(t, parked, "b")
			}
			settleAll(t, f)
			want := map[engine.Waiting]string{engine.WaitingReady: fixture.StateReturned, engine.WaitingSkipped: fixture.StateSkipped}[test.want]
			f.WantState(t, l.Execution, want)
		})
	}
}

// settleAll does the work left to the dispatcher.
func settleAll(t *testing.T, f *fixture.Flows) {
	t.Helper()
	if _, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
}
