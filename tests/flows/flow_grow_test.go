package flows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// grow grows a flow.
func grow(t *testing.T, f *fixture.Flows, flow id.FlowID, rules fixture.When, nodes string, edges ...string) engine.Grown {
	t.Helper()
	grown, err := f.GrowFlow(t.Context(), f.Growth(flow, rules, nodes, edges...))
	if err != nil {
		t.Fatal(err)
	}
	return grown
}

// A growth adds the same rows as the creation of the same flow as a whole.
func TestGrowFlowStoresLikeCreateFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	whole := fixture.Chart(fixture.When{"d": policy.Quorum(2, policy.LetRun)}, "a>b", "b>c", "c>d", "x>d", "a>d")
	f.NewFlowOf(t, whole)
	grown := fixture.Chart(nil, "a>b")
	flow := f.NewFlowOf(t, grown)
	edge := id.NewEdgeID()
	g := f.Growth(flow, fixture.When{"d": policy.Quorum(2, policy.LetRun)}, "c d x", "b>c", "c>d", "x>d", "a>d")
	g.Edges[0].ID, g.Edges[0].Kind, g.Edges[0].PassResult = edge, "custom", "rows"
	result, err := f.GrowFlow(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	wantExecutions(t, f, "created", result.Created, "c d x")
	if result.Revision != 10 || result.Nodes != 5 || result.Edges != 5 || len(result.Joined) > 0 || len(result.Linked) != 4 || result.Linked[0] != edge {
		t.Errorf("grown by %+v", result)
	}
	wantCounters(t, f, flow, 10, 5, 5)
	row := fixture.StoredRow(t, f.Pool, "ff_edge", "flow_id = $1 AND edge_id = $2", flow, edge)
	fixture.WantRow(t, "an edge with everything given", row, fmt.Sprintf(`{"partition_key": %d, "flow_id": %q, "edge_id": %q, "upstream_eid": %q,
		"downstream_eid": %q, "policy_version": 0, "policy": {"dependency_kind": "custom", "satisfaction_condition": "all_required",
			"data_passing_ref": "rows", "edge_state": "applied", "created_by": "engine", "created_at_ms": %d,
			"staged_at_ms": %[6]d, "applied_at_ms": %[6]d}}`,
		fixture.PartitionOf(flow), flow, edge, f.NodeID(flow, "b").UUID(), f.NodeID(flow, "c").UUID(), fixture.StartMs))
	f.Exec(t, `UPDATE ff_edge SET policy = policy || '{"dependency_kind": "success_only", "data_passing_ref": ""}' WHERE edge_id = $1`, edge)
	fixture.WantEqual(t, "the flow that grew", structure(t, f, flow), structure(t, f, whole.ID))
	f.WantCompletionEvents(t, flow)
}

// structure renders every row of a flow by the keys of its nodes, without ids.
func structure(t *testing.T, f *fixture.Flows, flow id.FlowID) map[string]string {
	t.Helper()
	type row struct {
		A, B id.ExecutionUUID
		Text string
	}
	shape := make(map[string]string)
	none := id.ExecutionUUID{}
	for _, r := range fixture.All[row](t, f.Pool, `
		SELECT execution_id AS a, $3::uuid AS b, (to_jsonb(e) - 'execution_id' - 'flow_id' - 'partition_key')::text AS text
		FROM ff_exec_core AS e WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT upstream_eid, downstream_eid, (to_jsonb(e) - 'edge_id' - 'flow_id' - 'partition_key' - 'upstream_eid' - 'downstream_eid')::text
		FROM ff_edge AS e WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT downstream_eid, downstream_eid, (to_jsonb(e) - 'flow_id' - 'partition_key' - 'downstream_eid')::text
		FROM ff_edge_group AS e WHERE partition_key = $1::smallint AND flow_id = $2::uuid
		UNION ALL SELECT $3::uuid, $3::uuid, (to_jsonb(e) - 'flow_id' - 'partition_key')::text
		FROM ff_flow_core AS e WHERE partition_key = $1::smallint AND flow_id = $2::uuid`, fixture.PartitionOf(flow), flow, none) {
		shape[f.Name(r.A)+">"+f.Name(r.B)] = r.Text
	}
	return shape
}

func wantExecutions(t *testing.T, f *fixture.Flows, what string, got []id.ExecutionID, want string) {
	t.Helper()
	names := make([]string, len(got))
	for i, x := range got {
		names[i] = f.Name(x.UUID())
	}
	if strings.Join(names, " ") != want {
		t.Errorf("%s: %q, want %q", what, names, want)
	}
}

// A repeated growth finds all its rows, whichever revision it expects.
func TestGrowFlowRepeatedChangesNothing(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	x := f.Standalone(t, flow, "x")
	g := f.Growth(flow, fixture.When{"c": policy.AnyOf(policy.LetRun)}, "c d", "a>c", "b>c", "c>d", "x>c")
	g.Nodes = append(g.Nodes, engine.Node{Key: "x", Execution: x})
	g.Edges[1].ID = id.NewEdgeID()
	revision := int64(3)
	g.Revision = &revision
	first, err := f.GrowFlow(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	wantExecutions(t, f, "joined", first.Joined, "x")
	for _, settled := range []bool{false, true} {
		if settled {
			f.Succeed(t, flow, "a")
		}
		before := f.DumpFlow(t, flow)
		again, err := f.GrowFlow(t.Context(), g)
		if err != nil || again.Revision != first.Revision || again.Nodes != 5 || again.Edges != 5 || len(again.Created)+len(again.Joined)+len(again.Linked) > 0 {
			t.Errorf("grown by %+v, error %v", again, err)
		}
		if after := f.DumpFlow(t, flow); after != before {
			t.Errorf("the rows changed from\n%s\nto\n%s", before, after)
		}
	}
	// A larger growth adds only its new parts, and then the revision counts.
	g.Nodes = append(g.Nodes, engine.Node{Key: "e", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}})
	f.Names[f.NodeID(flow, "e").UUID()] = "e"
	_, err = f.GrowFlow(t.Context(), g)
	stale, ok := errors.AsType[*fferr.RevisionError](err)
	if !ok || !errors.Is(err, fferr.ErrStaleRevision) || *stale != (fferr.RevisionError{Flow: flow, Expected: 3, Revision: first.Revision}) {
		t.Errorf("error %v, want that the revision is stale", err)
	}
	g.Revision = &first.Revision
	more, err := f.GrowFlow(t.Context(), g)
	if err != nil || more.Revision != first.Revision+1 {
		t.Errorf("grown by %+v, error %v", more, err)
	}
	wantExecutions(t, f, "created", more.Created, "e")
}

func TestGrowFlowRefusesBadInput(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "b>c", "up>going", "z")
	other := fixture.Chart(nil, "o")
	for fixture.PartitionOf(other.ID) != fixture.PartitionOf(flow) {
		other.ID = id.NewFlowID()
	}
	f.NewFlowOf(t, other)
	elsewhere := f.Standalone(t, flow, "elsewhere")
	f.Succeed(t, flow, "up")
	f.Lease(t, flow, "going")
	f.Succeed(t, flow, "z")
	foreign := id.NewFlowID()
	for fixture.PartitionOf(foreign) == fixture.PartitionOf(flow) {
		foreign = id.NewFlowID()
	}
	taken := fixture.Texts(t, f.Pool, "SELECT edge_id::text FROM ff_edge WHERE flow_id = $1 AND upstream_eid = $2", flow, f.NodeID(flow, "a").UUID())[0]
	edge, err := id.ParseEdgeID(taken)
	if err != nil {
		t.Fatal(err)
	}
	many := make([]engine.Node, engine.MaxNodes+1)
	tests := []struct {
		name  string
		nodes string
		edges []string
		edit  func(*engine.Growth)
		want  error
		text  string
	}{
		{"no_flow", "", nil, func(g *engine.Growth) { g.Flow = id.FlowID{} }, fferr.ErrInvalidInput, "Flow: is empty"},
		{"missing_flow", "n", nil, func(g *engine.Growth) { g.Flow = id.NewFlowID() }, fferr.ErrNotFound, "flow"},
		{"too_many_nodes", "", nil, func(g *engine.Growth) { g.Nodes = many }, fferr.ErrInvalidInput, "nodes: 10001, limit 10000"},
		{"too_many_edges", "", nil, func(g *engine.Growth) { g.Edges = make([]engine.Edge, engine.MaxEdges+1) }, fferr.ErrInvalidInput, "edges: 50001, limit 50000"},
		{"revision_negative", "n", nil, func(g *engine.Growth) { g.Revision = new(int64(-1)) }, fferr.ErrInvalidInput, "Revision"},
		{"revision_stale", "n", nil, func(g *engine.Growth) { g.Revision = new(int64(1)) }, fferr.ErrStaleRevision, "9, not 1"},
		{"key_empty", "", nil, func(g *engine.Growth) { g.Nodes = make([]engine.Node, 1) }, fferr.ErrInvalidInput, "node 0: has no key"},
		{"key_twice", "n n", nil, nil, fferr.ErrInvalidInput, `node "n": key is used twice`},
		{"end_without_key", "n", []string{"n>"}, nil, fferr.ErrInvalidInput, `edge "n" to "": has no key`},
		{"edge_from_nowhere", "n", []string{"nobody>n"}, nil, fferr.ErrNotFound, `edge "nobody" to "n"`},
		{"edge_to_nowhere", "n", []string{"n>nobody"}, nil, fferr.ErrNotFound, `edge "n" to "nobody"`},
		{"edge_from_itself", "n", []string{"n>n"}, nil, fferr.ErrCycle, `"n" to "n"`},
		{"edge_twice", "n", []string{"a>n", "a>n"}, nil, fferr.ErrInvalidInput, "is given twice"},
		{"edge_id_twice", "n", []string{"a>n", "b>n"}, func(g *engine.Growth) { g.Edges[0].ID, g.Edges[1].ID = edge, edge }, fferr.ErrInvalidInput, "has the id of another edge"},
		{"edge_kind_too_long", "n", []string{"a>n"}, func(g *engine.Growth) { g.Edges[0].Kind = strings.Repeat("k", 256) }, fferr.ErrInvalidInput, "kind: 256 bytes"},
		{"pass_result_too_long", "n", []string{"a>n"}, func(g *engine.Growth) { g.Edges[0].PassResult = strings.Repeat("k", 1025) }, fferr.ErrInvalidInput, "pass result: 1025 bytes"},
		{"cycle_within", "n m", []string{"n>m", "m>n"}, nil, fferr.ErrCycle, `"n" to "m"`},
		{"cycle_with_stored", "", []string{"c>b"}, nil, fferr.ErrCycle, `"c"`},
		{"cycle_by_way_of_new", "n", []string{"c>n", "n>b"}, nil, fferr.ErrCycle, `"n"`},
		{"edge_id_taken", "n", []string{"a>n"}, func(g *engine.Growth) { g.Edges[0].ID = edge }, fferr.ErrEdgeExists, taken},
		{"pair_taken", "n", []string{"a>b"}, func(g *engine.Growth) { g.Edges[0].ID = id.NewEdgeID() }, fferr.ErrEdgeExists, taken},
		{"pair_taken_by_another_kind", "n", []string{"a>b"}, func(g *engine.Growth) { g.Edges[0].Kind = "soft" }, fferr.ErrEdgeExists, taken},
		{"to_one_that_has_ended", "n", []string{"n>z"}, nil, fferr.ErrEnded, `edge "n" to "z": `},
		{"to_one_that_has_started", "n", []string{"n>going"}, nil, fferr.ErrStarted, "it is active"},
		{"quorum_above_fan_in", "n", []string{"a>n"}, func(g *engine.Growth) { g.Nodes[0].When = policy.Quorum(2, policy.LetRun) }, fferr.ErrInvalidInput, "a quorum of 2 of 1"},
		{"policy_without_edge", "n", nil, func(g *engine.Growth) { g.Nodes[0].When = policy.AnyOf(policy.LetRun) }, fferr.ErrInvalidInput, `node "n": When: no edge`},
		{"policy_is_fixed", "n", []string{"n>b"}, func(g *engine.Growth) {
			g.Nodes = append(g.Nodes, engine.Node{Key: "b", Execution: f.NodeID(flow, "b"), When: policy.AnyOf(policy.LetRun)})
		}, fferr.ErrInvalidInput, `node "b": When: edge_group_policy_already_fixed`},
		{"node_of_two", "n", nil, func(g *engine.Growth) { g.Nodes[0].Execution = f.NodeID(flow, "a") }, fferr.ErrInvalidInput, "has both an Execution and a Spec"},
		{"node_of_another_partition", "", nil, func(g *engine.Growth) {
			g.Nodes = []engine.Node{{Key: "n", Execution: id.NewMemberExecutionID(foreign, id.Partitions{})}}
		}, fferr.ErrInvalidInput, "partition_mismatch"},
		{"node_missing", "", nil, func(g *engine.Growth) {
			g.Nodes = []engine.Node{{Key: "n", Execution: id.NewMemberExecutionID(flow, id.Partitions{})}}
		}, fferr.ErrNotFound, `node "n": execution`},
		{"node_of_another_flow", "", nil, func(g *engine.Growth) {
			g.Nodes = []engine.Node{{Key: "n", Execution: f.NodeID(other.ID, "o")}}
		}, fferr.ErrOtherFlow, other.ID.String()},
		{"node_id_twice", "", nil, func(g *engine.Growth) {
			g.Nodes = []engine.Node{{Key: "n", Execution: elsewhere}, {Key: "m", Execution: elsewhere}}
		}, fferr.ErrInvalidInput, `node "m": has the execution id of another one`},
		{"node_of_its_own_flow", "n", nil, func(g *engine.Growth) { g.Nodes[0].Spec.Flow = &flow }, fferr.ErrInvalidInput, "names a flow of its own"},
		{"node_spec", "n", nil, func(g *engine.Growth) { g.Nodes[0].Spec.Kind = "" }, fferr.ErrInvalidInput, `node "n": `},
		{"node_exists_outside", "n", nil, func(g *engine.Growth) { g.Nodes[0].Spec.ID = elsewhere }, fferr.ErrExists, elsewhere.String()},
	}
	before := f.DumpFlow(t, flow) + f.DumpFlow(t, other.ID)
	for _, test := range tests {
		g := f.Growth(flow, nil, test.nodes, test.edges...)
		if test.edit != nil {
			test.edit(&g)
		}
		grown, err := f.GrowFlow(t.Context(), g)
		if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s: grown by %+v, error %v; want %v with %q", test.name, grown, err, test.want, test.text)
		}
	}
	if after := f.DumpFlow(t, flow) + f.DumpFlow(t, other.ID); after != before {
		t.Errorf("a refusal wrote: the rows changed from\n%s\nto\n%s", before, after)
	}
}

// The limits of a flow hold for its size after growth.
func TestGrowFlowLimits(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	setFlow(t, f, flow, fmt.Sprintf(`raw_fields = raw_fields || '{"node_count": %d}'`, engine.MaxMembers-1))
	if _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "c d")); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "limit 100000") {
		t.Errorf("error %v, want the limit of members", err)
	}
	grow(t, f, flow, nil, "c")

	spec := fixture.Chart(nil, "z")
	for i := range engine.MaxInbound - 1 {
		from := fmt.Sprint(i)
		spec.Nodes = append(spec.Nodes, engine.Node{Key: from, Spec: engine.ExecutionSpec{Kind: "test"}})
		spec.Edges = append(spec.Edges, engine.Edge{From: from, To: "z"})
	}
	flow = f.NewFlowOf(t, spec)
	if _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "y x", "y>z", "x>z")); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "more than 10000 edges") {
		t.Errorf("error %v, want the limit of edges", err)
	}
	grow(t, f, flow, nil, "y", "y>z")
	f.WantGroup(t, flow, "z", fixture.StoredGroup{Running: engine.MaxInbound, KTarget: engine.MaxInbound})
}

// A member with a new upstream waits, though it was free to run; a grant of it is lost (F17).
func TestGrowthBlocksUnclaimedMembers_F17_F25(t *testing.T) {
	f := fixture.CloneFlowFixture(t)
	f.SeedKey(t, "k1", nil)
	spec := fixture.Chart(nil, "ready", "granted", "later", "a>released", "a2>released")
	for i := range spec.Nodes {
		switch spec.Nodes[i].Key {
		case "later":
			spec.Nodes[i].Spec.DelayUntil = fixture.Start.Add(time.Hour)
		case "a", "a2":
			spec.Nodes[i].Spec.Priority = 9
		}
	}
	flow := f.NewFlowOf(t, spec)
	for _, c := range f.ClaimN(t, 2) {
		f.Leases[c.ID] = c.Lease
	}
	grant, err := interop.IssueClaimGrant(t.Context(), f.Fixture.Engine, interop.GrantSpec{
		Execution: f.NodeID(flow, "granted"), Lane: f.Lane, Worker: "w", Instance: "w1", TTL: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Succeed(t, flow, "a", "a2")
	grow(t, f, flow, nil, "n", "n>ready", "n>granted", "n>later", "n>released")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a a2", fixture.StateReady: "n", fixture.StateHeld: "ready granted later released"})
	f.WantGroup(t, flow, "released", fixture.StoredGroup{Success: 2, Running: 1, KTarget: 3}) // F25: the target goes along
	f.WantGroup(t, flow, "ready", fixture.StoredGroup{Running: 1, KTarget: 1})
	if _, err := interop.ClaimExecution(t.Context(), f.Fixture.Engine, interop.GrantedClaim{
		Grant: grant, Worker: "w", Instance: "w1", LeaseTTL: time.Minute,
	}); !errors.Is(err, fferr.ErrNotLeaseable) {
		t.Errorf("claimed by the grant: error %v, want %v", err, fferr.ErrNotLeaseable)
	}
	if left := fixture.Texts(t, f.Pool, "SELECT worker_id FROM ff_claim_grant"); len(left) > 0 {
		t.Errorf("grants of %q are left", left)
	}
	f.Succeed(t, flow, "n")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a a2 n", fixture.StateReady: "ready granted released", fixture.StateDelayed: "later"})
}

// An edge whose upstream has ended before counts at once: it releases or skips, with all below (F17).
func TestGrowthCountsEndedUpstreams_F17(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rules fixture.When
		edges []string
		want  map[string]string
		group fixture.StoredGroup
	}{
		{"released", nil, []string{"won>n"}, map[string]string{fixture.StateReady: "n", fixture.StateHeld: "below"}, fixture.StoredGroup{Success: 1, KTarget: 1}},
		{"waits_for_another", nil, []string{"won>n", "going>n"}, map[string]string{fixture.StateHeld: "n below"}, fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2}},
		{"skipped", nil, []string{"lost>n"}, map[string]string{fixture.StateSkipped: "n below"}, fixture.StoredGroup{Fail: 1, KTarget: 1}},
		{"skipped_by_a_skip", nil, []string{"won>n", "passed>n"}, map[string]string{fixture.StateSkipped: "n below"}, fixture.StoredGroup{Success: 1, Skip: 1, KTarget: 2}},
		{"any", fixture.When{"n": policy.AnyOf(policy.LetRun)}, []string{"lost>n", "going>n", "won>n"}, map[string]string{fixture.StateReady: "n", fixture.StateHeld: "below"}, fixture.StoredGroup{Success: 1, Fail: 1, Running: 1, KTarget: 1}},
		{"quorum_lost", fixture.When{"n": policy.Quorum(2, policy.LetRun)}, []string{"lost>n", "passed>n", "going>n"}, map[string]string{fixture.StateSkipped: "n below"}, fixture.StoredGroup{Fail: 1, Skip: 1, Running: 1, KTarget: 2}},
		{"on_failure", fixture.When{"n": policy.OnFailure()}, []string{"lost>n"}, map[string]string{fixture.StateReady: "n", fixture.StateHeld: "below"}, fixture.StoredGroup{Fail: 1, Running: 1_000_000_000, KTarget: 1_000_000_000}},
		{"on_failure_of_none", fixture.When{"n": policy.OnFailure()}, []string{"won>n"}, map[string]string{fixture.StateSkipped: "n below"}, fixture.StoredGroup{Success: 1, Running: 1_000_000_000, KTarget: 1_000_000_000}},
		{"always", fixture.When{"n": policy.Always()}, []string{"won>n", "lost>n", "going>n"}, map[string]string{fixture.StateHeld: "n below"}, fixture.StoredGroup{Success: 1, Fail: 1, Running: 1_000_000_001, KTarget: 1_000_000_000}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "won", "lost>passed", "going")
			f.ClaimAll(t)
			f.Succeed(t, flow, "won")
			f.Fail(t, flow, "lost")
			grow(t, f, flow, test.rules, "n below", append(test.edges, "n>below")...)
			want := map[string]string{fixture.StateCompleted: "won", fixture.StateFailed: "lost", fixture.StateRunning: "going"}
			for state, keys := range test.want {
				want[state] = keys
			}
			want[fixture.StateSkipped] = strings.TrimSpace("passed " + want[fixture.StateSkipped])
			f.WantMembers(t, flow, want)
			f.WantGroup(t, flow, "n", test.group)
			events := []string{"won success", "lost failed", "passed skipped"}
			if strings.Contains(test.want[fixture.StateSkipped], "n") {
				events = append(events, "n skipped", "below skipped")
			}
			f.WantCompletionEvents(t, flow, events...)
		})
	}
}

// An upstream that has ended with its event undispatched is counted by the dispatcher, and once.
func TestGrowFlowLeavesUndispatchedEndsToTheDispatcher(t *testing.T) {
	f := fixture.CloneFlowFixture(t)
	flow := f.Draw(t, nil, "a>b", "c")
	f.ClaimAll(t)
	f.Succeed(t, flow, "a")
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL WHERE flow_id = $1", flow)
	f.Exec(t, "UPDATE ff_edge SET policy = policy - 'resolved_at_ms' - 'resolved_outcome' || '{\"edge_state\": \"applied\"}' WHERE flow_id = $1", flow)
	f.Exec(t, "UPDATE ff_edge_group SET success_count = 0, running_count = 1 WHERE flow_id = $1", flow)
	grow(t, f, flow, nil, "n", "a>n")
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateHeld)
	for range 2 {
		if _, err := upkeep.Of(f.Engine).DispatchCompletions(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateReady)
}

// An end outside flows that is not dispatched counts at once: the dispatcher of its event looks for no edges.
func TestGrowFlowCountsEndsOutsideFlows(t *testing.T) {
	f := fixture.CloneFlowFixture(t)
	flow := f.Draw(t, nil, "a")
	x := f.Standalone(t, flow, "x")
	f.ClaimAll(t)
	if err := f.CompleteExecution(t.Context(), f.Leases[x], nil); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL WHERE execution_id = $1", x.UUID()) // as FlowFabric writes it
	growth := f.Growth(flow, nil, "n", "x>n")
	growth.Nodes = append(growth.Nodes, engine.Node{Key: "x", Execution: x})
	if _, err := f.GrowFlow(t.Context(), growth); err != nil {
		t.Fatal(err)
	}
	fixture.Run(t, upkeep.Of(f.Engine).DispatchCompletions, 1)
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateReady)
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Success: 1, KTarget: 1})
}

// A member that runs is given children and waits for them: it goes on when they have ended as its group asks.
func TestGrowFlowAddsChildrenToARunningMember(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		first  bool // the children end before it waits
		settle func(*fixture.Flows, *testing.T, id.FlowID, ...string)
		want   engine.Waiting
		state  string
	}{
		"parked and released":       {false, (*fixture.Flows).Succeed, engine.WaitingParked, fixture.StateReturned},
		"ready, since they ended":   {true, (*fixture.Flows).Succeed, engine.WaitingReady, fixture.StateReturned},
		"parked and skipped":        {false, (*fixture.Flows).Fail, engine.WaitingParked, fixture.StateSkipped},
		"skipped, since they ended": {true, (*fixture.Flows).Fail, engine.WaitingSkipped, fixture.StateSkipped},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "me>next")
			l := f.Lease(t, flow, "me")
			g := f.Growth(flow, nil, "child1 child2", "child1>me", "child2>me")
			for i := range g.Edges {
				g.Edges[i].AllowStarted = true
			}
			if _, err := f.GrowFlow(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			f.WantState(t, l.Execution, fixture.StateRunning) // it stays with its worker
			if end.first {
				end.settle(f, t, flow, "child1", "child2")
				f.WantState(t, l.Execution, fixture.StateRunning)
			}
			waiting, err := f.WaitForChildren(t.Context(), l)
			if err != nil || waiting != end.want {
				t.Errorf("waits: %s, error %v; want %s", waiting, err, end.want)
			}
			if !end.first {
				end.settle(f, t, flow, "child1", "child2")
			}
			f.WantState(t, l.Execution, end.state)
			if end.state == fixture.StateSkipped {
				f.WantState(t, f.NodeID(flow, "next"), fixture.StateSkipped)
				return
			}
			delete(f.Leases, l.Execution)
			f.Succeed(t, flow, "me")
			f.WantState(t, f.NodeID(flow, "next"), fixture.StateReady)
		})
	}
}

// Executions that exist outside flows become nodes of one, in any state.
func TestCreateFlowAroundExistingExecutions(t *testing.T) {
	f := fixture.NewFlows(t)
	first := id.NewMemberExecutionID(id.NewFlowID(), id.Partitions{})
	spec := func(x id.ExecutionID) engine.ExecutionSpec {
		return engine.ExecutionSpec{ID: x, Kind: "test", Lane: f.Lane}
	}
	inPartition := func() id.ExecutionID { return id.ExecutionIDFromRow(first.Partition(), id.NewExecutionUUID()) }
	done, running, waiting := first, inPartition(), inPartition()
	for i, x := range []id.ExecutionID{done, running, waiting} {
		f.Names[x.UUID()] = []string{"done", "running", "waiting"}[i]
		if _, err := f.CreateExecution(t.Context(), spec(x)); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			f.Leases[x] = f.ClaimN(t, 1)[0].Lease
		}
	}
	if err := f.CompleteExecution(t.Context(), f.Leases[done], []byte("result")); err != nil {
		t.Fatal(err)
	}
	created, err := f.CreateFlow(t.Context(), engine.FlowSpec{
		Kind: "around",
		Nodes: []engine.Node{
			{Key: "done", Execution: done},
			{Key: "running", Execution: running},
			{Key: "waiting", Execution: waiting, When: policy.Quorum(2, policy.LetRun)},
			{Key: "new", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}},
			{Key: "free", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}, When: policy.AnyOf(policy.LetRun)},
		},
		Edges: []engine.Edge{
			{From: "done", To: "waiting", PassResult: "x"}, {From: "running", To: "waiting"}, {From: "done", To: "new"}, {From: "waiting", To: "new"},
		},
	})
	if err != nil || created.Existed {
		t.Fatalf("created %+v, error %v", created, err)
	}
	flow := created.ID
	f.Names[f.NodeID(flow, "new").UUID()], f.Names[f.NodeID(flow, "free").UUID()] = "new", "free"
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "done", fixture.StateRunning: "running", fixture.StateHeld: "waiting new", fixture.StateReady: "free"})
	f.WantGroup(t, flow, "waiting", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	f.WantGroup(t, flow, "new", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	wantCounters(t, f, flow, 9, 5, 4)
	if row := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", waiting.UUID()); row["payload"] != `\x726573756c74` ||
		row["raw_fields"].(map[string]any)["ffx_node_key"] != "waiting" {
		t.Errorf("the one that waits is %v", row)
	}
	// An execution claimed outside the flow ends in it.
	if err := f.CompleteExecution(t.Context(), f.Leases[running], nil); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, waiting, fixture.StateReady)
	again, err := f.CreateFlow(t.Context(), engine.FlowSpec{ID: flow, Nodes: []engine.Node{{Key: "done", Execution: done}}})
	if err != nil || !again.Existed {
		t.Errorf("created %+v, error %v; want that it existed", again, err)
	}
	// Nothing is left of a flow that cannot be.
	refused := id.NewFlowID()
	for fixture.PartitionOf(refused) != first.Partition() {
		refused = id.NewFlowID()
	}
	_, err = f.CreateFlow(t.Context(), engine.FlowSpec{ID: refused, Nodes: []engine.Node{{Key: "done", Execution: done}}})
	if member, ok := errors.AsType[*fferr.MemberError](err); !ok || !errors.Is(err, fferr.ErrOtherFlow) || *member.Flow != flow {
		t.Errorf("error %v, want that it is a member of %s", err, flow)
	}
	f.WantNoFlow(t, refused)
}

func TestAddMembers(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	x, y, z := f.Standalone(t, flow, "x"), f.Standalone(t, flow, "y"), f.Standalone(t, flow, "z")
	f.ClaimAll(t)
	if err := f.CompleteExecution(t.Context(), f.Leases[y], nil); err != nil {
		t.Fatal(err)
	}
	added, err := f.AddMembers(t.Context(), flow, []id.ExecutionID{x, f.NodeID(flow, "a"), y})
	if err != nil || added.Revision != 3 || added.Nodes != 3 {
		t.Errorf("added %+v, error %v", added, err)
	}
	wantExecutions(t, f, "joined", added.Joined, "x y")
	wantExecutions(t, f, "members before", added.Members, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a x", fixture.StateCompleted: "y"})
	wantCounters(t, f, flow, 3, 3, 0)
	before := f.DumpFlow(t, flow)
	if added, err := f.AddMembers(t.Context(), flow, []id.ExecutionID{x, y}); err != nil || len(added.Joined) > 0 || added.Nodes != 3 || len(added.Members) != 2 {
		t.Errorf("added %+v, error %v", added, err)
	}
	missing := id.NewMemberExecutionID(flow, id.Partitions{})
	other := fixture.Chart(nil, "o")
	for fixture.PartitionOf(other.ID) != fixture.PartitionOf(flow) {
		other.ID = id.NewFlowID()
	}
	f.NewFlowOf(t, other)
	for _, test := range []struct {
		flow       id.FlowID
		executions []id.ExecutionID
		want       error
	}{
		{flow, []id.ExecutionID{z, missing}, fferr.ErrNotFound},
		{id.NewFlowID(), nil, fferr.ErrNotFound},
		{flow, []id.ExecutionID{z, f.NodeID(other.ID, "o")}, fferr.ErrOtherFlow},
		{flow, []id.ExecutionID{z, z}, fferr.ErrInvalidInput},
		{flow, []id.ExecutionID{z, {}}, fferr.ErrInvalidInput},
		{flow, make([]id.ExecutionID, engine.MaxNodes+1), fferr.ErrInvalidInput},
	} {
		if added, err := f.AddMembers(t.Context(), test.flow, test.executions); !errors.Is(err, test.want) {
			t.Errorf("added %+v, error %v; want %v", added, err, test.want)
		}
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("the rows changed from\n%s\nto\n%s", before, after)
	}
}

// A node that names no namespace has that of its flow.
func TestGrowFlowInheritsTheNamespace(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a")
	spec.Namespace = "tenant"
	flow := f.NewFlowOf(t, spec)
	g := f.Growth(flow, nil, "b c")
	g.Nodes[1].Spec.Namespace = "own"
	if _, err := f.GrowFlow(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"a": "tenant", "b": "tenant", "c": "own"} {
		if row := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", f.NodeID(flow, key).UUID()); row["ffx_namespace"] != want {
			t.Errorf("%s is of %v, want %s", key, row["ffx_namespace"], want)
		}
	}
}

// Idempotency keys of nodes hold in a growth as in a creation, and a repetition of it is none of them.
func TestGrowFlowIdempotencyKeys(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	keyed := func(node, key string) engine.Growth {
		g := f.Growth(flow, nil, node)
		g.Nodes[0].Spec.IdempotencyKey = id.IdempotencyKey(key)
		return g
	}
	for range 2 {
		if _, err := f.GrowFlow(t.Context(), keyed("b", "key")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.GrowFlow(t.Context(), keyed("c", "key")); !errors.Is(err, fferr.ErrIdempotencyKeyTaken) || !strings.Contains(err.Error(), f.NodeID(flow, "b").String()) {
		t.Errorf("error %v, want %v naming b", err, fferr.ErrIdempotencyKeyTaken)
	}
	wantCounters(t, f, flow, 2, 2, 0)
}

// An edge is refused for a cycle exactly if it closes one, with stored edges and with the others (F21).
func TestGrowFlowRefusesCycles_F21(t *testing.T) {
	f := fixture.NewFlows(t)
	fixture.Check(t, func(r *rapid.T) {
		const most = 8
		n := rapid.IntRange(2, most).Draw(r, "nodes")
		order := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(r, "order")
		spec := engine.FlowSpec{ID: id.NewFlowID()}
		var reaches [most][most]bool
		for i := range n {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}})
		}
		for from := range n {
			for to := range n {
				if order[from] < order[to] && rapid.Bool().Draw(r, "stored") {
					reaches[from][to] = true
					spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(from), To: fmt.Sprint(to)})
				}
			}
		}
		if _, err := f.CreateFlow(t.Context(), spec); err != nil {
			r.Fatal(err)
		}
		growth := engine.Growth{Flow: spec.ID}
		for i := n; i < most; i++ {
			growth.Nodes = append(growth.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}})
		}
		for range rapid.IntRange(1, 4).Draw(r, "edges") {
			from, to := rapid.IntRange(0, most-1).Draw(r, "from"), rapid.IntRange(0, most-1).Draw(r, "to")
			edge := engine.Edge{From: fmt.Sprint(from), To: fmt.Sprint(to)}
			if !slices.Contains(growth.Edges, edge) {
				growth.Edges = append(growth.Edges, edge)
				reaches[from][to] = true
			}
		}
		for via := range most {
			for from := range most {
				for to := range most {
					reaches[from][to] = reaches[from][to] || reaches[from][via] && reaches[via][to]
				}
			}
		}
		cyclic := false
		for i := range most {
			cyclic = cyclic || reaches[i][i]
		}
		before := f.DumpFlow(t, spec.ID)
		_, err := f.GrowFlow(t.Context(), growth)
		if errors.Is(err, fferr.ErrCycle) != cyclic || err != nil && !cyclic {
			r.Fatalf("cyclic %t, error %v: %v and %v", cyclic, err, spec.Edges, growth.Edges)
		}
		if cyclic && f.DumpFlow(t, spec.ID) != before {
			r.Fatal("a refusal wrote")
		}
	})
}

// Growth is held to a number of statements that does not depend on its size.
func TestGrowFlowStatementsAreConstant(t *testing.T) {
	t.Parallel()
	type call struct {
		name string
		most int // statements, besides those that begin and end the transaction
		do   func(t *testing.T, f *fixture.Flows, flow id.FlowID, n int) error
	}
	ends := func(f *fixture.Flows, flow id.FlowID, i int) engine.StagedEdge {
		return engine.StagedEdge{Upstream: f.NodeID(flow, fmt.Sprintf("up%d", i)), Downstream: f.NodeID(flow, fmt.Sprintf("down%d", i))}
	}
	staging := func(f *fixture.Flows, flow id.FlowID, n int, apply bool) engine.EdgeStaging {
		s := engine.EdgeStaging{Flow: flow, Apply: apply}
		for i := range n {
			s.Edges = append(s.Edges, ends(f, flow, i))
		}
		return s
	}
	for _, c := range []call{
		{"grow from one", 19, func(t *testing.T, f *fixture.Flows, flow id.FlowID, n int) error {
			g := engine.Growth{Flow: flow}
			for i := range n {
				key := fmt.Sprintf("new%d", i)
				g.Nodes = append(g.Nodes, engine.Node{Key: key, Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}})
				g.Edges = append(g.Edges, engine.Edge{From: "done", To: key}, engine.Edge{From: key, To: "end"})
			}
			_, err := f.GrowFlow(t.Context(), g)
			return err
		}},
		{"stage", 11, func(t *testing.T, f *fixture.Flows, flow id.FlowID, n int) error {
			_, err := f.StageEdges(t.Context(), staging(f, flow, n, false))
			return err
		}},
		{"stage and apply", 17, func(t *testing.T, f *fixture.Flows, flow id.FlowID, n int) error {
			_, err := f.StageEdges(t.Context(), staging(f, flow, n, true))
			return err
		}},
		{"apply", 14, func(t *testing.T, f *fixture.Flows, flow id.FlowID, n int) error {
			var edges []id.EdgeID
			for _, text := range fixture.Texts(t, f.Pool, "SELECT edge_id::text FROM ff_edge WHERE flow_id = $1 AND policy -> 'applied_at_ms' = 'null'", flow) {
				edge, err := id.ParseEdgeID(text)
				if err != nil {
					return err
				}
				edges = append(edges, edge)
			}
			applied, err := f.ApplyEdges(t.Context(), flow, edges)
			if err == nil && len(applied.Applied) != n {
				err = fmt.Errorf("applied %d of %d", len(applied.Applied), n)
			}
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, log := fixture.LoggedFixture(t)
			var counts [][]string
			for _, n := range []int{10, 1000} {
				spec := fixture.Chart(nil, "done", "end", "other>end")
				for i := range n {
					spec.Nodes = append(spec.Nodes,
						engine.Node{Key: fmt.Sprintf("up%d", i), Spec: engine.ExecutionSpec{Kind: "test"}},
						engine.Node{Key: fmt.Sprintf("down%d", i), Spec: engine.ExecutionSpec{Kind: "test"}})
				}
				flow := f.NewFlowOf(t, spec)
				if strings.HasPrefix(c.name, "grow") {
					l := f.Lease(t, flow, "done")
					delete(f.Leases, l.Execution)
					returnAll(t, f)
					if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
						t.Fatal(err)
					}
				}
				if c.name == "apply" {
					if _, err := f.StageEdges(t.Context(), staging(f, flow, n, false)); err != nil {
						t.Fatal(err)
					}
				}
				counts = append(counts, fixture.Names(log.During(func() {
					if err := c.do(t, f, flow, n); err != nil {
						t.Fatal(err)
					}
				})))
			}
			for i := range counts {
				counts[i] = slices.DeleteFunc(counts[i], func(name string) bool {
					return fixture.IsSettings(name) || slices.Contains([]string{"commit", "EnsureLanes", "SELECT"}, name)
				})
			}
			if !slices.Equal(counts[0], counts[1]) || len(counts[1]) > c.most {
				t.Errorf("10 take %q, 1,000 %q; want at most %d", counts[0], counts[1], c.most)
			}
			t.Logf("%d statements: %q", len(counts[0]), counts[0])
		})
	}
}

// returnAll returns the executions that the test has claimed.
func returnAll(t *testing.T, f *fixture.Flows) {
	t.Helper()
	outcomes, err := f.ReleaseLeases(t.Context(), slices.Collect(maps.Values(f.Leases)))
	if err := errors.Join(append(outcomes, err)...); err != nil {
		t.Fatal(err)
	}
	clear(f.Leases)
}

// A flow may be created around an execution that runs, which then waits for the others.
func TestCreateFlowAroundAStartedExecution(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := id.NewFlowID()
	x := f.Standalone(t, flow, "parent")
	f.ClaimAll(t)
	spec := engine.FlowSpec{
		ID: flow,
		Nodes: []engine.Node{
			{Key: "parent", Execution: x},
			{Key: "child", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}},
		},
		Edges: []engine.Edge{{From: "child", To: "parent"}},
	}
	if _, err := f.CreateFlow(t.Context(), spec); !errors.Is(err, fferr.ErrStarted) {
		t.Errorf("error %v, want %v", err, fferr.ErrStarted)
	}
	f.WantNoFlow(t, flow)
	spec.Edges[0].AllowStarted = true
	if _, err := f.CreateFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	f.Names[f.NodeID(flow, "child").UUID()] = "child"
	if waiting, err := f.WaitForChildren(t.Context(), f.Leases[x]); err != nil || waiting != engine.WaitingParked {
		t.Errorf("waits: %s, error %v", waiting, err)
	}
	f.Succeed(t, flow, "child")
	f.WantState(t, x, fixture.StateReturned)
	// Without a node that exists the permission is stored all the same.
	spec = fixture.Chart(nil, "a>b")
	spec.Edges[0].AllowStarted = true
	f.NewFlowOf(t, spec)
	row := fixture.StoredRow(t, f.Pool, "ff_edge", "flow_id = $1", spec.ID)
	if row["policy"].(map[string]any)["allow_active_downstream"] != true {
		t.Errorf("stored as %v", row)
	}
}
