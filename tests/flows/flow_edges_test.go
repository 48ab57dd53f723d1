package flows

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// shape renders edges by the keys of their nodes.
func shape(f *fixture.Flows, edges []engine.FlowEdge) []string {
	var shape []string
	for _, edge := range edges {
		shape = append(shape, f.Name(edge.From.UUID())+">"+f.Name(edge.To.UUID())+" "+string(edge.State))
	}
	return shape
}

func TestEdges(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>c", "b>c", "c>d", "a>d", "e")
	spec.Edges[0].Kind, spec.Edges[0].PassResult = "custom", "rows"
	flow := f.NewFlowOf(t, spec)
	f.StageOnly(t, flow, "a", "d")
	f.Advance(time.Second)
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")

	var all []engine.FlowEdge
	for edge, err := range f.FlowEdges(t.Context(), flow) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, edge)
	}
	want := []string{"a>c satisfied", "b>c impossible", "c>d impossible", "a>d pending"}
	if got := shape(f, all); !slices.Equal(got, want) {
		t.Errorf("edges %q, want %q", got, want)
	}
	if got, want := all[0], (engine.FlowEdge{
		ID: all[0].ID, From: f.NodeID(flow, "a"), To: f.NodeID(flow, "c"), Kind: "custom", PassResult: "rows", State: state.EdgeSatisfied,
		Outcome: state.CompletionSuccess, Condition: "all_required", CreatedBy: "engine", CreatedAt: fixture.Start, AppliedAt: fixture.Start, EndedAt: f.Time(),
	}); got != want {
		t.Errorf("described\n\t%+v, want\n\t%+v", got, want)
	}
	if all[1].Kind != "success_only" || all[1].Outcome != state.CompletionFailure || !all[3].AppliedAt.IsZero() {
		t.Errorf("edges %+v", all)
	}
	for i := range all {
		described, err := f.DescribeEdge(t.Context(), flow, all[i].ID)
		if err != nil || *described != all[i] {
			t.Errorf("described %+v, %v; want %+v", described, err, all[i])
		}
	}
	for key, directions := range map[string][2][]string{
		"a": {nil, {"a>c satisfied", "a>d pending"}},
		"c": {{"a>c satisfied", "b>c impossible"}, {"c>d impossible"}},
		"d": {{"c>d impossible", "a>d pending"}, nil},
		"e": {nil, nil},
		"?": {nil, nil},
	} {
		into, err := f.EdgesInto(t.Context(), flow, f.NodeID(flow, key))
		if got := shape(f, into); err != nil || !slices.Equal(got, directions[0]) {
			t.Errorf("into %s: %q, %v; want %q", key, got, err, directions[0])
		}
		from, err := f.EdgesFrom(t.Context(), flow, f.NodeID(flow, key))
		if got := shape(f, from); err != nil || !slices.Equal(got, directions[1]) {
			t.Errorf("from %s: %q, %v; want %q", key, got, err, directions[1])
		}
	}
}

func TestFlowEdgesOfSeveralPages(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	const n = engine.MaxPage + 1
	for i := range n {
		key := fmt.Sprint(i)
		spec.Nodes = append(spec.Nodes, engine.Node{Key: key, Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: "a", To: key})
	}
	edges := fixture.Listed(t, f.FlowEdges(t.Context(), f.NewFlowOf(t, spec)))
	last, sorted := id.EdgeID{}, true
	for _, edge := range edges {
		sorted = sorted && edge.ID.Compare(last) > 0
		last = edge.ID
	}
	if len(edges) != n || !sorted {
		t.Errorf("%d edges, sorted: %v", len(edges), sorted)
	}
}

func TestEdgesReportMissingRows(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	missing, edge := id.NewFlowID(), id.NewEdgeID()
	if edges := fixture.Listed(t, f.FlowEdges(t.Context(), flow)); len(edges) > 0 {
		t.Errorf("a flow without edges has %+v", edges)
	}
	fixture.WantNotFound(t, fixture.Unlisted(t, f.FlowEdges(t.Context(), missing)), "flow", missing.String())
	for _, of := range []id.FlowID{flow, missing} {
		_, err := f.DescribeEdge(t.Context(), of, edge)
		fixture.WantNotFound(t, err, "edge", edge.String())
	}
	_, err := f.EdgesInto(t.Context(), missing, id.MemberExecutionIDFor(missing, id.Partitions{}, id.NewExecutionUUID()))
	fixture.WantNotFound(t, err, "flow", missing.String())
	_, err = f.EdgesFrom(t.Context(), missing, id.MemberExecutionIDFor(missing, id.Partitions{}, id.NewExecutionUUID()))
	fixture.WantNotFound(t, err, "flow", missing.String())
	stranger := id.MemberExecutionIDFor(missing, id.Partitions{}, id.NewExecutionUUID())
	if stranger.Partition() == fixture.PartitionOf(flow) {
		stranger = id.ExecutionIDFromRow((stranger.Partition()+1)%256, stranger.UUID())
	}
	_, err = f.EdgesInto(t.Context(), flow, stranger)
	fixture.WantInputError(t, err, "execution id")
	_, err = f.EdgesFrom(t.Context(), flow, stranger)
	fixture.WantInputError(t, err, "execution id")
}

// Fields that other programs leave out have their defaults, and unreadable ones are named.
func TestDescribeEdgeDocuments(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	edges, err := f.EdgesInto(t.Context(), flow, f.NodeID(flow, "b"))
	if err != nil {
		t.Fatal(err)
	}
	set := func(document string) (*engine.FlowEdge, error) {
		f.Exec(t, "UPDATE ff_edge SET policy = $3::jsonb WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow, document)
		return f.DescribeEdge(t.Context(), flow, edges[0].ID)
	}
	epoch := time.UnixMilli(0)
	got, err := set(`{}`)
	want := &engine.FlowEdge{
		ID: edges[0].ID, From: f.NodeID(flow, "a"), To: f.NodeID(flow, "b"), Kind: "success_only", State: state.EdgePending,
		Condition: "all_required", CreatedBy: "engine", CreatedAt: epoch, AppliedAt: epoch,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("described\n\t%+v, %v; want\n\t%+v", got, err, want)
	}
	if got, err := set(`{"created_at_ms": "7", "applied_at_ms": null, "edge_state": "pending"}`); err != nil || got.CreatedAt != time.UnixMilli(7) || !got.AppliedAt.IsZero() {
		t.Errorf("described %+v, %v", got, err)
	}
	for document, column := range map[string]string{
		`[]`:                      "ff_edge.policy",
		`{"dependency_kind": 7}`:  "ff_edge.policy",
		`{"edge_state": "odd"}`:   "ff_edge.policy.edge_state",
		`{"created_at_ms": -1}`:   "ff_edge.policy.created_at_ms",
		`{"applied_at_ms": "no"}`: "ff_edge.policy.applied_at_ms",
		`{"resolved_at_ms": 1.5}`: "ff_edge.policy.resolved_at_ms",
	} {
		_, err := set(document)
		fixture.WantCorruption(t, err, column)
	}
	if fixture.Unlisted(t, f.FlowEdges(t.Context(), flow)) == nil {
		t.Error("an edge that cannot be read is no error")
	}
}

func TestExecutionFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	if got, err := f.ExecutionFlow(t.Context(), f.NodeID(flow, "a")); err != nil || got == nil || *got != flow {
		t.Errorf("flow of a member %v, %v; want %s", got, err, flow)
	}
	if got, err := f.ExecutionFlow(t.Context(), f.Create(t)); err != nil || got != nil {
		t.Errorf("flow of an execution outside flows %v, %v", got, err)
	}
	missing := f.NodeID(flow, "?")
	_, err := f.ExecutionFlow(t.Context(), missing)
	fixture.WantNotFound(t, err, "execution", missing.String())
}

// The whole flow for drawing: the nodes by key with their states, the edges between them.
func TestFlowGraph(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "b>c", "a>c", "c>d", "e")
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")
	graph, err := f.FlowGraph(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	var nodes, edges []string
	for _, n := range graph.Nodes {
		waits := "-"
		if n.When != nil {
			waits = n.When.String()
		}
		nodes = append(nodes, fmt.Sprintf("%s %s %s %s", n.Key, n.State, n.Outcome, waits))
		if n.ID != f.NodeID(flow, n.Key) || n.Kind != "test" || n.Lane != f.Lane || n.Err != nil {
			t.Errorf("node %+v", n)
		}
	}
	for _, e := range graph.Edges {
		edges = append(edges, fmt.Sprintf("%s>%s %s", graph.Nodes[e.From].Key, graph.Nodes[e.To].Key, e.State))
	}
	if want := []string{"a completed success -", "b failed failed -", "c skipped skipped all of", "d skipped skipped all of", "e active  -"}; !slices.Equal(nodes, want) {
		t.Errorf("nodes %q, want %q", nodes, want)
	}
	if want := []string{"b>c impossible", "a>c satisfied", "c>d impossible"}; !slices.Equal(edges, want) {
		t.Errorf("edges %q, want %q", edges, want)
	}

	empty := f.Draw(t, nil)
	if graph, err := f.FlowGraph(t.Context(), empty); err != nil || len(graph.Nodes)+len(graph.Edges) > 0 {
		t.Errorf("a flow without members is drawn as %+v, %v", graph, err)
	}
	missing := id.NewFlowID()
	_, err = f.FlowGraph(t.Context(), missing)
	fixture.WantNotFound(t, err, "flow", missing.String())

	f.SetExecution(t, f.NodeID(flow, "e"), "lifecycle_phase = 'who knows'")
	f.SetGroup(t, flow, "c", `policy = '{"kind": "some_of"}'`)
	graph, err = f.FlowGraph(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	fixture.WantCorruption(t, graph.Nodes[4].Err, "ff_exec_core.lifecycle_phase")
	fixture.WantCorruption(t, graph.Nodes[2].Err, "ff_edge_group.policy")
}

func TestFlowProgress(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "c>d", "e")
	want := func(flowState state.FlowState, total, ended int, counts map[state.PublicState]int) {
		t.Helper()
		got, err := f.FlowProgress(t.Context(), flow)
		if err != nil || got.Total != total || got.Ended != ended || got.State != flowState || got.Done() != (total == ended) {
			t.Errorf("progress %+v, %v; want %s, %d of %d", got, err, flowState, ended, total)
		}
		fixture.WantEqual(t, "counts", got.Counts, counts)
	}
	want(state.FlowBlocked, 5, 0, map[state.PublicState]int{state.PublicWaiting: 3, state.PublicWaitingChildren: 2})
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "c")
	want(state.FlowRunning, 5, 3, map[state.PublicState]int{state.PublicCompleted: 1, state.PublicFailed: 1, state.PublicSkipped: 1, state.PublicWaiting: 1, state.PublicActive: 1})
	f.Succeed(t, flow, "b", "e")
	want(state.FlowFailed, 5, 5, map[state.PublicState]int{state.PublicCompleted: 3, state.PublicFailed: 1, state.PublicSkipped: 1})

	missing := id.NewFlowID()
	_, err := f.FlowProgress(t.Context(), missing)
	fixture.WantNotFound(t, err, "flow", missing.String())
	if got, err := f.FlowProgress(t.Context(), f.Draw(t, nil)); err != nil || !got.Done() || got.Total != 0 {
		t.Errorf("a flow without members: %+v, %v", got, err)
	}
}
