package tests

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// beyondReach is what FlowFabric reads such a group to need, and by how many too many it reads to run there.
const beyondReach = 1_000_000_000

// waitingFor is a group of which so many upstreams run, as it is stored.
func waitingFor(g storedGroup) storedGroup {
	g.Running += beyondReach
	g.KTarget = beyondReach
	return g
}

// A chain with an error branch and a clean-up behind all of it.
func (f *flowFixture) drawBranches(t *testing.T) id.FlowID {
	t.Helper()
	return f.draw(t, when{"oops": policy.OnFailure(), "tidy": policy.Always()},
		"a>b", "b>c", "a>oops", "b>oops", "c>oops", "oops>told", "c>tidy", "oops>tidy")
}

// An error branch runs when one of a chain fails, although the last of it is only skipped, and in the transaction of the
// failure; a clean-up runs after it.
func TestOnFailure_runs(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.drawBranches(t)
	f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Running: 3}))
	f.wantGroup(t, flow, "tidy", waitingFor(storedGroup{Running: 2}))
	f.succeed(t, flow, "a")
	f.fail(t, flow, "b")
	f.wantMembers(t, flow, map[string]string{
		stateCompleted: "a", stateFailed: "b", stateSkipped: "c", stateReady: "oops", stateHeld: "told tidy",
	})
	f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 1, Fail: 1, Skip: 1}))
	f.succeed(t, flow, "oops")
	f.wantMembers(t, flow, map[string]string{
		stateCompleted: "a oops", stateFailed: "b", stateSkipped: "c", stateReady: "told tidy",
	})
	f.wantCompletionEvents(t, flow, "a success", "b failed", "c skipped", "oops success")
	f.succeed(t, flow, "told")
	f.succeed(t, flow, "tidy")
	f.wantCompletionEvents(t, flow, "a success", "b failed", "c skipped", "oops success", "told success", "tidy success")
}

// Where nothing fails the error branch is skipped, with what depends on it, and the clean-up runs all the same. The
// success leaves that to the dispatcher, which is told at once: it holds the flow shared with other successes.
func TestOnFailure_is_skipped(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(f *flowFixture, t *testing.T, flow id.FlowID, key string){
		"batch": func(f *flowFixture, t *testing.T, flow id.FlowID, key string) { f.succeed(t, flow, key) },
		"alone": func(f *flowFixture, t *testing.T, flow id.FlowID, key string) {
			if err := f.CompleteExecution(t.Context(), f.lease(t, flow, key), nil); err != nil {
				t.Fatal(err)
			}
		},
		"in_a_transaction": func(f *flowFixture, t *testing.T, flow id.FlowID, key string) {
			l := f.lease(t, flow, key)
			tx := f.begin(t)
			if err := f.WithTx(tx).CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
			commit(t, tx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow := f.drawBranches(t)
			for _, key := range []string{"a", "b", "c"} {
				f.wantCompletionEvents(t, flow, []string{"a success", "b success"}[:slices.Index([]string{"a", "b", "c"}, key)]...)
				settle(f, t, flow, key)
			}
			f.wantMembers(t, flow, map[string]string{stateCompleted: "a b c", stateHeld: "oops told tidy"})
			f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 2, Running: 1}))
			f.wantCompletionEvents(t, flow, "a success", "b success", "c success left")
			select {
			case <-f.Maintenance().Undispatched():
				if name == "in_a_transaction" {
					t.Error("told before the caller's commit")
				}
			default:
				if name != "in_a_transaction" {
					t.Error("nobody is told")
				}
			}
			run(t, f.Maintenance().DispatchCompletions, 1)
			f.wantMembers(t, flow, map[string]string{stateCompleted: "a b c", stateSkipped: "oops told", stateReady: "tidy"})
			f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 3}))
			f.wantGroup(t, flow, "tidy", waitingFor(storedGroup{Success: 1, Skip: 1}))
			f.wantCompletionEvents(t, flow, "a success", "b success", "c success", "oops skipped", "told skipped")
		})
	}
}

// What else the success decides does not wait for the dispatcher.
func TestOnFailure_leaves_the_rest_alone(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, when{"oops": policy.OnFailure(), "last": policy.Always()}, "a>oops", "a>next", "a>last", "x>y")
	f.claimAll(t)
	f.succeed(t, flow, "a", "x")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a x", stateHeld: "oops", stateReady: "next last y"})
	events := f.completionEvents(t, flow) // in the order of ids
	slices.Sort(events)
	if want := []string{"a success left", "x success"}; !slices.Equal(events, want) {
		t.Errorf("completion events %q, want %q", events, want)
	}
	run(t, f.Maintenance().DispatchCompletions, 1)
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a x", stateSkipped: "oops", stateReady: "next last y"})
}

// A success may skip any number of levels behind an error branch, and its flow may be busy meanwhile.
func TestOnFailure_is_skipped_with_all_behind_it(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	spec := chain(2*levelsAtOnce + 10)
	spec.Nodes[1].When = policy.OnFailure()
	spec.Nodes = append(spec.Nodes, engine.Node{Key: "other", Spec: engine.ExecutionSpec{Kind: "test"}})
	flow := f.createFlow(t, spec)
	f.claimAll(t)
	f.succeed(t, flow, "0")
	tx := f.begin(t)
	if err := f.WithTx(tx).CompleteExecution(t.Context(), f.lease(t, flow, "other"), nil); err != nil {
		t.Fatal(err)
	}
	run(t, f.Maintenance().DispatchCompletions, 0) // the flow is held, shared
	commit(t, tx)
	run(t, f.Maintenance().DispatchCompletions, 3)
	if n := f.countSkipped(t, flow); n != 2*levelsAtOnce+9 {
		t.Errorf("%d are skipped", n)
	}
	f.wantOneEventEach(t, flow)
}

// It is described by what it waits for, and not by what is stored of it.
func TestOnFailure_is_described(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.drawBranches(t)
	f.fail(t, flow, "a")
	described, err := f.DescribeFlow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]engine.EdgeGroup)
	for _, g := range described.Groups {
		got[f.name(g.Downstream.UUID())] = g
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
	f.wantRow(t, flow, "oops", `{"kind": "quorum", "k": 1000000000, "on_satisfied": "let_run", "ffx_when": "on_failure"}`)
	f.wantRow(t, flow, "tidy", `{"kind": "quorum", "k": 1000000000, "on_satisfied": "let_run", "ffx_when": "always"}`)
}

// wantRow compares the stored policy of a group.
func (f *flowFixture) wantRow(t *testing.T, flow id.FlowID, key, want string) {
	t.Helper()
	row := storedRow(t, f.pool, "ff_edge_group", "flow_id = $1 AND downstream_eid = $2", flow, f.NodeID(flow, key).UUID())
	wantEqual(t, "policy of "+key, row["policy"].(map[string]any), decodeRow(t, want))
}

// An edge that is staged and not applied holds such a group open too.
func TestOnFailure_waits_for_staged_edges(t *testing.T) {
	f := flowsOn(cloneFixture(t))
	flow := f.draw(t, when{"oops": policy.OnFailure(), "tidy": policy.Always()}, "a>oops", "b>oops", "c>oops", "a>tidy", "c>tidy")
	f.claimAll(t)
	f.stageOnly(t, flow, "c", "oops")
	f.stageOnly(t, flow, "c", "tidy")
	f.fail(t, flow, "a")
	f.succeed(t, flow, "b")
	run(t, f.Maintenance().DispatchCompletions, 0)
	f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateCompleted: "b", stateRunning: "c", stateHeld: "oops tidy"})
	f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 1, Fail: 1}))

	other := f.draw(t, when{"oops": policy.OnFailure()}, "a>oops", "c>oops")
	f.claimAll(t)
	f.stageOnly(t, other, "c", "oops")
	f.succeed(t, other, "a")
	run(t, f.Maintenance().DispatchCompletions, 1) // which nothing depends on yet
	f.wantMembers(t, other, map[string]string{stateCompleted: "a", stateRunning: "c", stateHeld: "oops"})
	f.wantGroup(t, other, "oops", waitingFor(storedGroup{Success: 1}))
}

// Replays: an error branch that was skipped because all went well waits again when one of its upstreams runs again, and
// runs when that fails; one that was released waits again, too.
func TestOnFailure_after_a_replay(t *testing.T) {
	t.Parallel()
	t.Run("of_an_upstream", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, when{"oops": policy.OnFailure()}, "a>oops", "b>oops")
		f.succeed(t, flow, "a", "b")
		run(t, f.Maintenance().DispatchCompletions, 2)
		f.wantState(t, f.NodeID(flow, "oops"), stateSkipped)
		f.replay(t, f.NodeID(flow, "oops"))
		f.wantState(t, f.NodeID(flow, "oops"), stateReplayedHeld)
		f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 2}))
		f.advance(time.Minute)
		run(t, f.Maintenance().RepairGroups, 0) // all is counted that was
		f.wantState(t, f.NodeID(flow, "oops"), stateReplayedHeld)
		delete(f.leases, f.NodeID(flow, "a"))
		f.replay(t, f.NodeID(flow, "a"))
		f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 1, Running: 1}))
		f.fail(t, flow, "a")
		f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateCompleted: "b", stateReplayed: "oops"})
	})
	t.Run("before_it_starts", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, when{"oops": policy.OnFailure()}, "a>oops", "b>oops")
		f.succeed(t, flow, "a")
		f.fail(t, flow, "b")
		f.wantState(t, f.NodeID(flow, "oops"), stateReady)
		delete(f.leases, f.NodeID(flow, "b"))
		f.replay(t, f.NodeID(flow, "b"))
		f.wantState(t, f.NodeID(flow, "oops"), stateHeld)
		f.wantGroup(t, flow, "oops", waitingFor(storedGroup{Success: 1, Running: 1}))
		f.succeed(t, flow, "b")
		run(t, f.Maintenance().DispatchCompletions, 1)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a b", stateSkipped: "oops"})
	})
}

// F33: whoever waits for its upstreams is answered by what its group says by then, whatever its policy.
func TestF33_wait_children_looks_at_the_group(t *testing.T) {
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
			f := flowsOn(cloneFixture(t))
			flow := f.draw(t, when{"d": test.when}, "a>d", "b>d")
			l := f.early(t, flow, "d")
			f.succeed(t, flow, "a")
			if test.fails {
				f.fail(t, flow, "b")
			} else {
				f.succeed(t, flow, "b")
			}
			f.settleAll(t)
			f.wantState(t, l.Execution, stateRunning)
			f.wantWaiting(t, l, test.want)
			if test.want == engine.WaitingReady {
				if again := f.claim(t); again.ID != l.Execution || !again.Resumed {
					t.Errorf("claimed %+v", again)
				}
			} else {
				f.wantState(t, l.Execution, stateSkipped)
			}
			parked := f.draw(t, when{"d": test.when}, "a>d", "b>d")
			l = f.early(t, parked, "d")
			f.wantWaiting(t, l, engine.WaitingParked)
			f.succeed(t, parked, "a")
			if test.fails {
				f.fail(t, parked, "b")
			} else {
				f.succeed(t, parked, "b")
			}
			f.settleAll(t)
			want := map[engine.Waiting]string{engine.WaitingReady: stateReturned, engine.WaitingSkipped: stateSkipped}[test.want]
			f.wantState(t, l.Execution, want)
		})
	}
}

// settleAll does what is left to the dispatcher.
func (f *flowFixture) settleAll(t *testing.T) {
	t.Helper()
	if _, err := f.Maintenance().DispatchCompletions(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
}
