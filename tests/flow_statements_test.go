package tests

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
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
func (f *flowFixture) fanOut(t *testing.T, n int, rules when) id.FlowID {
	t.Helper()
	var parts []string
	for _, key := range keysOf("mid", n) {
		parts = append(parts, "root>"+key, key+">end")
	}
	return f.draw(t, rules, parts...)
}

// What is done to a flow takes as many statements whether ten executions or a thousand are concerned.
func TestFlow_statements(t *testing.T) {
	t.Parallel()
	want := func(t *testing.T, what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%d %s, want %d", got, what, want)
		}
	}
	cancelling := func(how state.FlowCancelPolicy) func(*testing.T, *flowFixture, int) func() {
		return func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.fanOut(t, n, nil)
			f.succeed(t, flow, "root")
			if how == state.CancelAll {
				f.claimAll(t)
			}
			return func() { f.cancelFlow(t, flow, how) }
		}
	}
	requesting := func(grace time.Duration) func(*testing.T, *flowFixture, int) func() {
		return func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.createFlow(t, wide(n, true))
			f.claimAll(t)
			return func() {
				want(t, "cancelled", len(f.request(t, engine.FlowCancelRequest{ID: flow, Grace: grace}).Members), n+1)
			}
		}
	}
	for _, c := range []struct {
		name    string
		most    int // statements, besides those that begin and end transactions
		arrange func(t *testing.T, f *flowFixture, n int) func()
	}{
		{"a fan-out is released", 5, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.fanOut(t, n, nil)
			l := f.lease(t, flow, "root")
			return func() {
				if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
					t.Error(err)
				}
			}
		}},
		{"a fan-out is skipped", 13, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.fanOut(t, n, nil)
			f.lease(t, flow, "root")
			return func() { f.fail(t, flow, "root") }
		}},
		{"the last of a fan-in", 5, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.createFlow(t, wide(n, true))
			f.claimAll(t)
			f.succeed(t, flow, upstreams(n)[1:]...)
			return func() {
				f.succeed(t, flow, "up0")
				f.wantState(t, f.NodeID(flow, "end"), stateReady)
			}
		}},
		{"the first of a fan-in that fails", 11, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.createFlow(t, wide(n, true))
			f.claimAll(t)
			return func() {
				f.fail(t, flow, "up0")
				f.wantState(t, f.NodeID(flow, "end"), stateSkipped)
			}
		}},
		{"cancel all", 11, cancelling(state.CancelAll)},
		{"cancel what waits", 11, cancelling(state.CancelPending)},
		{"close", 4, cancelling(state.CancelFlowOnly)},
		{"request a cancel", 13, requesting(0)},
		{"request one with grace", 13, requesting(time.Second)},
		{"cancel after the grace", 16, func(t *testing.T, f *flowFixture, n int) func() {
			requesting(time.Second)(t, f, n-1)()
			f.advance(time.Minute)
			return func() {
				done, err := f.Maintenance().CancelFlows(t.Context(), n)
				if err != nil {
					t.Error(err)
				}
				want(t, "taken off", done, n)
			}
		}},
		{"acknowledge", 3, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.createFlow(t, wide(n, true))
			f.claimAll(t)
			f.request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Second})
			return func() {
				if err := f.AckFlowCancel(t.Context(), flow, f.NodeID(flow, "up0")); err != nil {
					t.Error(err)
				}
			}
		}},
		{"add members", 7, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.draw(t, nil, "a")
			executions := f.apart(t, flow, n)
			return func() {
				added, err := f.AddMembers(t.Context(), flow, executions)
				if err != nil {
					t.Error(err)
				}
				want(t, "joined", len(added.Joined), n)
			}
		}},
		{"create around executions", 15, func(t *testing.T, f *flowFixture, n int) func() {
			spec := chart(nil, "end")
			for i, x := range f.apart(t, spec.ID, n) {
				key := fmt.Sprint("up", i)
				spec.Nodes = append(spec.Nodes, engine.Node{Key: key, Execution: x})
				spec.Edges = append(spec.Edges, engine.Edge{From: key, To: "end"})
			}
			spec.Nodes[0].Spec.Lane = f.lane
			return func() {
				if _, err := f.CreateFlow(t.Context(), spec); err != nil {
					t.Error(err)
				}
			}
		}},
		{"grow by executions", 14, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.draw(t, nil, "end")
			g := engine.Growth{Flow: flow}
			for i, x := range f.apart(t, flow, n) {
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
		{"replay what many wait for", 16, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.fanOut(t, n, nil)
			f.succeed(t, flow, "root")
			return func() {
				if _, err := f.Operator().ReplayExecution(t.Context(), f.NodeID(flow, "root")); err != nil {
					t.Error(err)
				}
				f.wantState(t, f.NodeID(flow, "mid0"), stateHeld)
			}
		}},
		{"cancel siblings", 13, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.fanOut(t, n, when{"end": policy.AnyOf(policy.CancelRemaining)})
			f.succeed(t, flow, "root")
			f.succeed(t, flow, "mid0")
			return func() {
				run(t, f.Maintenance().CancelSiblings, 1)
				f.wantState(t, f.NodeID(flow, fmt.Sprint("mid", n-1)), stateCancelled)
			}
		}},
		{"repair a group", 10, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.createFlow(t, wide(n, true))
			for _, key := range upstreams(n) {
				f.endElsewhere(t, flow, key, "success", time.Minute)
			}
			return func() {
				run(t, f.Maintenance().RepairGroups, 1)
				f.wantState(t, f.NodeID(flow, "end"), stateReady)
			}
		}},
		{"summarise", 2, func(t *testing.T, f *flowFixture, n int) func() {
			f.createFlow(t, wide(n, true))
			return func() {
				if summed, err := f.Maintenance().SummariseFlows(t.Context(), 100); err != nil || summed == 0 {
					t.Errorf("summarised %d, %v", summed, err)
				}
			}
		}},
		{"tag", 1, func(t *testing.T, f *flowFixture, n int) func() {
			flow := f.createFlow(t, wide(n, true))
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
			shared := cloneFixture(t)
			log := new(statementLog)
			pool := log.open(t, shared.url)
			var counts [][]string
			for _, n := range []int{10, 10, 1000} { // the first prepares the statements and registers the lane
				f := flowsOn(fixtureOn(t, pool, shared.url))
				f.lane = shared.lane
				do := c.arrange(t, f, n)
				sent := names(log.during(do))
				counts = append(counts, slices.DeleteFunc(sent, func(name string) bool {
					return isSettings(name) || name == "commit" || name == "SELECT" // the test's own
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
func (f *flowFixture) apart(t *testing.T, flow id.FlowID, n int) []id.ExecutionID {
	t.Helper()
	specs, executions := make([]engine.ExecutionSpec, n), make([]id.ExecutionID, n)
	for i := range specs {
		executions[i] = id.NewMemberExecutionID(flow, id.Partitions{})
		specs[i] = engine.ExecutionSpec{ID: executions[i], Kind: "test", Lane: f.lane}
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
