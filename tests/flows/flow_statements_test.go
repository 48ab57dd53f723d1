package flows

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// keysOf are the numbered nodes of a flow.
func keysOf(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return keys
}

// fanOut draws a node that so many wait for, which then lead into one.
func fanOut(t *testing.T, f *fixture.Flows, n int, rules fixture.When) id.FlowID {
	t.Helper()
	var parts []string
	for _, key := range keysOf("mid", n) {
		parts = append(parts, "root>"+key, key+">end")
	}
	return f.Draw(t, rules, parts...)
}

// Operations on a flow take as many statements for a thousand executions as for ten.
func TestFlowStatementsAreConstant(t *testing.T) {
	t.Parallel()
	want := func(t *testing.T, what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%d %s, want %d", got, what, want)
		}
	}
	cancelling := func(how state.FlowCancelPolicy) func(*testing.T, *fixture.Flows, int) func() {
		return func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := fanOut(t, f, n, nil)
			f.Succeed(t, flow, "root")
			if how == state.CancelAll {
				f.ClaimAll(t)
			}
			return func() { f.CancelBy(t, flow, how) }
		}
	}
	requesting := func(grace time.Duration) func(*testing.T, *fixture.Flows, int) func() {
		return func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.NewFlowOf(t, fixture.Wide(n, true))
			f.ClaimAll(t)
			return func() {
				want(t, "cancelled", len(f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: grace}).Members), n+1)
			}
		}
	}
	for _, c := range []struct {
		name    string
		most    int // statements, besides those that begin and end transactions
		arrange func(t *testing.T, f *fixture.Flows, n int) func()
	}{
		{"a fan-out is released", 5, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := fanOut(t, f, n, nil)
			l := f.Lease(t, flow, "root")
			return func() {
				if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
					t.Error(err)
				}
			}
		}},
		{"a fan-out is skipped", 13, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := fanOut(t, f, n, nil)
			f.Lease(t, flow, "root")
			return func() { f.Fail(t, flow, "root") }
		}},
		{"the last of a fan-in", 5, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.NewFlowOf(t, fixture.Wide(n, true))
			f.ClaimAll(t)
			f.Succeed(t, flow, fixture.Upstreams(n)[1:]...)
			return func() {
				f.Succeed(t, flow, "up0")
				f.WantState(t, f.NodeID(flow, "end"), fixture.StateReady)
			}
		}},
		{"the first of a fan-in that fails", 11, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.NewFlowOf(t, fixture.Wide(n, true))
			f.ClaimAll(t)
			return func() {
				f.Fail(t, flow, "up0")
				f.WantState(t, f.NodeID(flow, "end"), fixture.StateSkipped)
			}
		}},
		{"cancel all", 14, cancelling(state.CancelAll)},
		{"cancel what waits", 13, cancelling(state.CancelPending)},
		{"close", 5, cancelling(state.CancelFlowOnly)},
		{"request a cancel", 16, requesting(0)},
		{"request one with grace", 17, requesting(time.Second)},
		{"cancel after the grace", 16, func(t *testing.T, f *fixture.Flows, n int) func() {
			requesting(time.Second)(t, f, n-1)()
			f.Advance(time.Minute)
			return func() {
				done, err := upkeep.Of(f.Engine).CancelFlows(t.Context(), n)
				if err != nil {
					t.Error(err)
				}
				want(t, "taken off", done, n)
			}
		}},
		{"acknowledge", 3, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.NewFlowOf(t, fixture.Wide(n, true))
			f.ClaimAll(t)
			f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Second})
			return func() {
				if err := f.AckFlowCancel(t.Context(), flow, f.NodeID(flow, "up0")); err != nil {
					t.Error(err)
				}
			}
		}},
		{"add members", 7, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.Draw(t, nil, "a")
			executions := apart(t, f, flow, n)
			return func() {
				added, err := f.AddMembers(t.Context(), flow, executions)
				if err != nil {
					t.Error(err)
				}
				want(t, "joined", len(added.Joined), n)
			}
		}},
		{"create around executions", 15, func(t *testing.T, f *fixture.Flows, n int) func() {
			spec := fixture.Chart(nil, "end")
			for i, x := range apart(t, f, spec.ID, n) {
				key := fmt.Sprint("up", i)
				spec.Nodes = append(spec.Nodes, engine.Node{Key: key, Execution: x})
				spec.Edges = append(spec.Edges, engine.Edge{From: key, To: "end"})
			}
			spec.Nodes[0].Spec.Lane = f.Lane
			return func() {
				if _, err := f.CreateFlow(t.Context(), spec); err != nil {
					t.Error(err)
				}
			}
		}},
		{"grow by executions", 14, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.Draw(t, nil, "end")
			g := engine.Growth{Flow: flow}
			for i, x := range apart(t, f, flow, n) {
				key := fmt.Sprint("up", i)
				g.Nodes = append(g.Nodes, engine.Node{Key: key, Execution: x})
				g.Edges = append(g.Edges, engine.Edge{From: key, To: "end"})
			}
			return func() {
				if _, err := f.GrowFlow(t.Context(), g); err != nil {
					t.Error(err)
				}
			}
		}},
		{"replay what many wait for", 19, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := fanOut(t, f, n, nil)
			f.Succeed(t, flow, "root")
			return func() {
				if _, err := operator.Replay(t.Context(), f.Fixture.Engine, f.NodeID(flow, "root"), operator.ReplayCompleted); err != nil {
					t.Error(err)
				}
				f.WantState(t, f.NodeID(flow, "mid0"), fixture.StateHeld)
			}
		}},
		{"cancel siblings", 14, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := fanOut(t, f, n, fixture.When{"end": policy.AnyOf(policy.CancelRemaining)})
			f.Succeed(t, flow, "root")
			f.Succeed(t, flow, "mid0")
			return func() {
				fixture.Run(t, upkeep.Of(f.Engine).CancelSiblings, 1)
				f.WantState(t, f.NodeID(flow, fmt.Sprint("mid", n-1)), fixture.StateCancelled)
			}
		}},
		{"repair a group", 10, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.NewFlowOf(t, fixture.Wide(n, true))
			for _, key := range fixture.Upstreams(n) {
				f.EndElsewhere(t, flow, key, "success", time.Minute)
			}
			return func() {
				fixture.Run(t, upkeep.Of(f.Engine).RepairGroups, 1)
				f.WantState(t, f.NodeID(flow, "end"), fixture.StateReady)
			}
		}},
		{"summarise", 3, func(t *testing.T, f *fixture.Flows, n int) func() {
			f.NewFlowOf(t, fixture.Wide(n, true))
			return func() {
				if summed, err := upkeep.Of(f.Engine).SummariseFlows(t.Context(), 100); err != nil || summed == 0 {
					t.Errorf("summarised %d, %v", summed, err)
				}
			}
		}},
		{"tag", 1, func(t *testing.T, f *fixture.Flows, n int) func() {
			flow := f.NewFlowOf(t, fixture.Wide(n, true))
			tags := make(map[string]string)
			for _, key := range keysOf("app.tag", n) {
				tags[key] = "v"
			}
			return func() {
				if err := f.SetFlowTags(t.Context(), flow, tags); err != nil {
					t.Error(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shared := fixture.NewCloned(t)
			log := new(fixture.StatementLog)
			pool := log.Open(t, shared.Url)
			var counts [][]string
			for _, n := range []int{10, 10, 1000} { // the first prepares the statements and registers the lane
				f := fixture.FlowsOn(fixture.On(t, pool, shared.Url))
				f.Lane = shared.Lane
				do := c.arrange(t, f, n)
				sent := fixture.Names(log.During(do))
				counts = append(counts, slices.DeleteFunc(sent, func(name string) bool {
					return fixture.IsSettings(name) || name == "commit" || name == "SELECT" // the test's own
				}))
			}
			if !slices.Equal(counts[1], counts[2]) || len(counts[2]) > c.most {
				t.Errorf("10 take %d statements, %q; 1,000 take %d, %q; want as many, and at most %d",
					len(counts[1]), counts[1], len(counts[2]), counts[2], c.most)
			}
			t.Logf("%d statements: %q", len(counts[2]), counts[2])
		})
	}
}

// apart creates executions outside flows that may become members of one.
func apart(t *testing.T, f *fixture.Flows, flow id.FlowID, n int) []id.ExecutionID {
	t.Helper()
	specs, executions := make([]engine.ExecutionSpec, n), make([]id.ExecutionID, n)
	for i := range specs {
		executions[i] = id.NewMemberExecutionID(flow, id.Partitions{})
		specs[i] = engine.ExecutionSpec{ID: executions[i], Kind: "test", Lane: f.Lane}
	}
	created, err := f.CreateExecutions(t.Context(), specs)
	for _, c := range created {
		err = errors.Join(err, c.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return executions
}
