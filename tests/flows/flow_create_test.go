package flows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// TestCreateFlowStoresEveryRow compares every column of every row that a creation leaves.
func TestCreateFlowStoresEveryRow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow, edge := id.NewFlowID(), id.NewEdgeID()
	spec := engine.FlowSpec{
		ID:        flow,
		Kind:      "import",
		Namespace: "tenant",
		Tags:      map[string]string{"app.owner": "me", "cairn.task_id": "7"},
		Nodes: []engine.Node{
			{Key: "read", Spec: engine.ExecutionSpec{Kind: "reader", Payload: []byte("in"), Priority: 4}},
			{Key: "check", Spec: engine.ExecutionSpec{Kind: "test"}},
			{Key: "join", Spec: engine.ExecutionSpec{Kind: "joiner"}, When: policy.Quorum(1, policy.LetRun)},
			{Key: "any", When: policy.AnyOf(policy.LetRun), Spec: engine.ExecutionSpec{Kind: "test"}},
			{Key: "end", Spec: engine.ExecutionSpec{Kind: "test"}},
		},
		Edges: []engine.Edge{
			{From: "read", To: "join", ID: edge, Kind: "custom", PassResult: "rows"},
			{From: "check", To: "join"},
			{From: "check", To: "any"},
			{From: "join", To: "end"},
			{From: "any", To: "end"},
		},
	}
	f.NewFlowOf(t, spec)
	partition := id.Partitions{}.FlowPartition(flow)

	fixture.WantRow(t, "flow", fixture.StoredRow(t, f.Pool, "ff_flow_core", "flow_id = $1", flow), fmt.Sprintf(`{
		"partition_key": %d, "flow_id": %q, "graph_revision": 10, "public_flow_state": "open", "created_at_ms": %d,
		"raw_fields": {"flow_kind": "import", "namespace": "tenant", "node_count": 5, "edge_count": 5,
			"last_mutation_at_ms": %[3]d, "app.owner": "me", "cairn.task_id": "7"}
	}`, partition, flow, fixture.StartMs))

	member := func(key string) map[string]any {
		return fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", f.NodeID(flow, key).UUID())
	}
	const common = `"partition_key": %d, "flow_id": %q, "execution_id": %q, "lane_id": %q, "required_capabilities": [],
		"attempt_index": 0, "lifecycle_phase": "runnable", "ownership_state": "unowned",
		"attempt_state": "pending_first_attempt", "created_at_ms": %d, "lease_reclaim_count": 0,
		"ffx_last_mutation_at_ms": %[5]d, "ffx_attempt_count": 0, "ffx_retry_count": 0, "ffx_lease_epoch": 0,
		"ffx_execution_deadline_ms": 0, "ffx_namespace": "tenant",`
	fixture.WantRow(t, "a node without dependencies", member("read"), fmt.Sprintf(`{`+common+`
		"eligibility_state": "eligible_now", "public_state": "waiting", "blocking_reason": "waiting_for_worker",
		"priority": 4, "payload": "\\x696e",
		"raw_fields": {"namespace": "tenant", "execution_kind": "reader", "creator_identity": "", "tags": {}, "ffx_node_key": "read",
			"total_attempt_count": "0", "last_mutation_at": "%[5]d"}
	}`, partition, flow, f.NodeID(flow, "read").UUID(), f.Lane, fixture.StartMs))
	fixture.WantRow(t, "a node with dependencies", member("join"), fmt.Sprintf(`{`+common+`
		"eligibility_state": "blocked_by_dependencies", "public_state": "waiting_children",
		"blocking_reason": "waiting_for_children", "priority": 0,
		"raw_fields": {"namespace": "tenant", "execution_kind": "joiner", "creator_identity": "", "tags": {}, "ffx_node_key": "join",
			"total_attempt_count": "0", "last_mutation_at": "%[5]d"}
	}`, partition, flow, f.NodeID(flow, "join").UUID(), f.Lane, fixture.StartMs))

	stored := func(from, to string) map[string]any {
		return fixture.StoredRow(t, f.Pool, "ff_edge", "flow_id = $1 AND upstream_eid = $2 AND downstream_eid = $3",
			flow, f.NodeID(flow, from).UUID(), f.NodeID(flow, to).UUID())
	}
	const edgeRow = `{"partition_key": %d, "flow_id": %q, "edge_id": %q, "upstream_eid": %q, "downstream_eid": %q,
		"policy_version": 0, "policy": {"dependency_kind": %q, "satisfaction_condition": "all_required",
			"data_passing_ref": %q, "edge_state": "applied", "created_by": "engine", "created_at_ms": %d,
			"staged_at_ms": %[8]d, "applied_at_ms": %[8]d}}`
	fixture.WantRow(t, "an edge with everything given", stored("read", "join"), fmt.Sprintf(edgeRow, partition, flow, edge,
		f.NodeID(flow, "read").UUID(), f.NodeID(flow, "join").UUID(), "custom", "rows", fixture.StartMs))
	plain := stored("check", "any")
	fixture.WantRow(t, "an edge with nothing given", plain, fmt.Sprintf(edgeRow, partition, flow, plain["edge_id"],
		f.NodeID(flow, "check").UUID(), f.NodeID(flow, "any").UUID(), "success_only", "", fixture.StartMs))

	for key, want := range map[string]string{
		"join": `"policy": {"kind": "quorum", "k": 1, "on_satisfied": "let_run"}, "k_target": 1, "running_count": 2`,
		"any":  `"policy": {"kind": "any_of", "on_satisfied": "let_run"}, "k_target": 1, "running_count": 1`,
		"end":  `"policy": {"kind": "all_of"}, "k_target": 2, "running_count": 2`,
	} {
		downstream := f.NodeID(flow, key).UUID()
		fixture.WantRow(t, "the group of "+key, fixture.StoredRow(t, f.Pool, "ff_edge_group", "flow_id = $1 AND downstream_eid = $2", flow, downstream),
			fmt.Sprintf(`{"partition_key": %d, "flow_id": %q, "downstream_eid": %q, "success_count": 0, "fail_count": 0,
				"skip_count": 0, "cancel_siblings_pending_flag": false, "cancel_siblings_pending_members": [], %s}`,
				partition, flow, downstream, want))
	}
	fixture.WantRow(t, "lane", fixture.StoredRow(t, f.Pool, "ff_lane_registry", "lane_id = $1", string(f.Lane)),
		fmt.Sprintf(`{"lane_id": %q, "registered_at_ms": %d, "registered_by": "create_execution"}`, f.Lane, fixture.StartMs))
	if groups := f.Groups(t, flow); len(groups) != 3 {
		t.Errorf("groups %v, want one for each of the three nodes with dependencies", groups)
	}
	f.WantCompletionEvents(t, flow)
	f.WantEvents(t, f.NodeID(flow, "read"))
}

// The instant that a caller records replaces the clock's, in the flow's row.
func TestCreateFlowRecordsCreatedAt(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b")
	spec.CreatedAt = fixture.Start
	flow := f.NewFlowOf(t, spec)
	row := fixture.StoredRow(t, f.Pool, "ff_flow_core", "flow_id = $1", flow)
	if got := row["created_at_ms"]; got != float64(fixture.StartMs) {
		t.Errorf("created_at_ms %v, want %d", got, fixture.StartMs)
	}
	if got := row["raw_fields"].(map[string]any)["last_mutation_at_ms"]; got != float64(fixture.StartMs) {
		t.Errorf("last_mutation_at_ms %v, want %d", got, fixture.StartMs)
	}
}

// The options of a node's spec are stored, whether the node waits for others or not.
func TestCreateFlowStoresNodeSpecs(t *testing.T) {
	f := fixture.NewFlows(t)
	soon, later := fixture.Start.Add(time.Minute), fixture.Start.Add(time.Hour)
	limited := &policy.Execution{
		Deadline:     5 * time.Second,
		Capabilities: id.Capabilities{"gpu", "big"},
	}
	nodes := []engine.Node{
		{Key: "delayed", Spec: engine.ExecutionSpec{Kind: "test", DelayUntil: soon}},
		{Key: "past delay", Spec: engine.ExecutionSpec{Kind: "test", DelayUntil: fixture.Start.Add(-time.Minute)}},
		{Key: "deadline", Spec: engine.ExecutionSpec{Kind: "test", Deadline: later}},
		{Key: "both", Spec: engine.ExecutionSpec{Kind: "test", DelayUntil: soon, Deadline: later}},
		{Key: "policy", Spec: engine.ExecutionSpec{Kind: "test", Policy: limited}},
		{Key: "own namespace", Spec: engine.ExecutionSpec{Kind: "test", Namespace: "own"}},
	}
	spec := engine.FlowSpec{ID: id.NewFlowID(), Namespace: "flow's", Nodes: []engine.Node{{Key: "root", Spec: engine.ExecutionSpec{Kind: "test"}}}}
	for _, node := range nodes {
		held := node
		held.Key = "held " + node.Key
		spec.Nodes = append(spec.Nodes, node, held)
		spec.Edges = append(spec.Edges, engine.Edge{From: "root", To: held.Key})
	}
	flow := f.NewFlowOf(t, spec)

	const blockedState = "blocked_by_dependencies waiting_children waiting_for_children"
	ms := func(at time.Time) any { return float64(at.UnixMilli()) }
	tests := []struct {
		key, state                      string
		delay, deadline, wake, heldWake any
		capabilities, namespace         any
	}{
		{key: "delayed", state: "not_eligible_until_time delayed waiting_for_delay", delay: ms(soon), deadline: 0.0, wake: ms(soon)},
		{key: "past delay", state: "eligible_now waiting waiting_for_worker", deadline: 0.0},
		{key: "deadline", state: "eligible_now waiting waiting_for_worker", deadline: ms(later), wake: ms(later), heldWake: ms(later)},
		{key: "both", state: "not_eligible_until_time delayed waiting_for_delay", delay: ms(soon), deadline: ms(later), wake: ms(soon), heldWake: ms(later)},
		{
			key: "policy", state: "eligible_now waiting waiting_for_worker", deadline: float64(fixture.StartMs + 5000),
			wake: float64(fixture.StartMs + 5000), heldWake: float64(fixture.StartMs + 5000), capabilities: []any{"big", "gpu"},
		},
		{key: "own namespace", state: "eligible_now waiting waiting_for_worker", deadline: 0.0, namespace: "own"},
	}
	for _, test := range tests {
		for _, held := range []bool{false, true} {
			key, wantState, wake := test.key, test.state, test.wake
			if held {
				key, wantState, wake = "held "+key, blockedState, test.heldWake
			}
			row := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", f.NodeID(flow, key).UUID())
			if got := fmt.Sprintf("%v %v %v", row["eligibility_state"], row["public_state"], row["blocking_reason"]); got != wantState {
				t.Errorf("%s: state %s, want %s", key, got, wantState)
			}
			if test.capabilities == nil {
				test.capabilities = []any{}
			}
			if test.namespace == nil {
				test.namespace = "flow's"
			}
			want := map[string]any{
				"ffx_delay_until_ms": test.delay, "ffx_execution_deadline_ms": test.deadline, "deadline_at_ms": wake,
				"required_capabilities": test.capabilities, "ffx_namespace": test.namespace,
			}
			got := make(map[string]any)
			for column := range want {
				got[column] = row[column]
			}
			fixture.WantEqual(t, key, got, want)
		}
	}
}

func TestCreateFlowRefusesBadInput(t *testing.T) {
	f := fixture.NewFlows(t)
	nodes := func(n int) []engine.Node {
		out := make([]engine.Node, n)
		for i := range out {
			out[i].Key, out[i].Spec.Kind = fmt.Sprint(i), "test"
		}
		return out
	}
	with := func(edit func(*engine.FlowSpec), parts ...string) engine.FlowSpec {
		spec := fixture.Chart(nil, parts...)
		edit(&spec)
		return spec
	}
	quorum := func(k int) engine.FlowSpec {
		return fixture.Chart(fixture.When{"c": policy.Quorum(k, policy.LetRun)}, "a>c", "b>c")
	}
	edge, member, foreign := id.NewEdgeID(), id.NewFlowID(), id.NewFlowID()
	for (id.Partitions{}).FlowPartition(member) == (id.Partitions{}).FlowPartition(foreign) {
		foreign = id.NewFlowID()
	}
	tests := []struct {
		name string
		spec engine.FlowSpec
		want error
		text string // part of the error's
	}{
		{"too_many_nodes", engine.FlowSpec{Nodes: nodes(engine.MaxNodes + 1)}, fferr.ErrInvalidInput, "nodes: 10001, limit 10000"},
		{"too_many_edges", engine.FlowSpec{Edges: make([]engine.Edge, engine.MaxEdges+1)}, fferr.ErrInvalidInput, "edges: 50001, limit 50000"},
		{"key_empty", engine.FlowSpec{Nodes: []engine.Node{{}}}, fferr.ErrInvalidInput, "node 0: has no key"},
		{"key_too_long", engine.FlowSpec{Nodes: []engine.Node{{Key: strings.Repeat("k", 1025), Spec: engine.ExecutionSpec{Kind: "test"}}}}, fferr.ErrInvalidInput, "node key: 1025 bytes"},
		{"key_with_nul", engine.FlowSpec{Nodes: []engine.Node{{Key: "a\x00", Spec: engine.ExecutionSpec{Kind: "test"}}}}, fferr.ErrInvalidInput, "node key"},
		{"key_twice", engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: engine.ExecutionSpec{Kind: "test"}}, {Key: "a", Spec: engine.ExecutionSpec{Kind: "test"}}}}, fferr.ErrInvalidInput, `node "a": key is used twice`},
		{"edge_from_nowhere", with(func(s *engine.FlowSpec) { s.Edges[0].From = "x" }, "a>b"), fferr.ErrInvalidInput, `edge "x" to "b": leads from a node`},
		{"edge_to_nowhere", with(func(s *engine.FlowSpec) { s.Edges[0].To = "x" }, "a>b"), fferr.ErrInvalidInput, `edge "a" to "x": leads to a node`},
		{"edge_to_itself", fixture.Chart(nil, "a>a"), fferr.ErrCycle, `edge "a" to "a"`},
		{"edge_twice", fixture.Chart(nil, "a>b", "a>b"), fferr.ErrInvalidInput, `edge "a" to "b": is given twice`},
		{"cycle_of_two", fixture.Chart(nil, "a>b", "b>a"), fferr.ErrCycle, `"a"`},
		{"cycle_of_three", fixture.Chart(nil, "z>a", "a>b", "b>c", "c>a"), fferr.ErrCycle, `"b" to "c"`},
		{
			"edge_id_twice", with(func(s *engine.FlowSpec) { s.Edges[0].ID, s.Edges[1].ID = edge, edge }, "a>b", "a>c"),
			fferr.ErrInvalidInput, "has the id of another edge",
		},
		{"edge_kind_too_long", with(func(s *engine.FlowSpec) { s.Edges[0].Kind = strings.Repeat("k", 256) }, "a>b"), fferr.ErrInvalidInput, "kind: 256 bytes"},
		{
			"pass_result_too_long", with(func(s *engine.FlowSpec) { s.Edges[0].PassResult = strings.Repeat("p", 1025) }, "a>b"),
			fferr.ErrInvalidInput, "pass result: 1025 bytes, limit 1024",
		},
		{"quorum_of_none", quorum(0), fferr.ErrInvalidInput, `node "c": When.Quorum: `},
		{"quorum_negative", quorum(-1), fferr.ErrInvalidInput, `node "c": When.Quorum: `},
		{"quorum_above_fan_in", quorum(3), fferr.ErrInvalidInput, "a quorum of 3 of 2"},
		{"on_satisfied_unknown", fixture.Chart(fixture.When{"c": policy.AnyOf("explode")}, "a>c"), fferr.ErrInvalidInput, "When.AnyOf: neither CancelRemaining nor LetRun"},
		{"kind_too_long", engine.FlowSpec{Kind: strings.Repeat("k", 257)}, fferr.ErrInvalidInput, "flow kind: 257 bytes, limit 256"},
		{"namespace", engine.FlowSpec{Namespace: "a\nb"}, fferr.ErrInvalidInput, "namespace"},
		{"tag_key", engine.FlowSpec{Tags: map[string]string{"plain": "x"}}, fferr.ErrInvalidInput, "flow tag key"},
		{"tag_value", engine.FlowSpec{Tags: map[string]string{"a.b": "\xff"}}, fferr.ErrInvalidInput, "flow tag"},
		{"created_before_1970", engine.FlowSpec{CreatedAt: time.Unix(-1, 0)}, fferr.ErrInvalidInput, "created at"},
		{"node_of_another_flow", with(func(s *engine.FlowSpec) { s.Nodes[0].Spec.Flow = &member }, "a"), fferr.ErrInvalidInput, `node "a": names a flow`},
		{"node_of_another_partition", with(func(s *engine.FlowSpec) {
			s.ID, s.Nodes[0].Spec.ID = member, id.NewMemberExecutionID(foreign, id.Partitions{})
		}, "a"), fferr.ErrInvalidInput, "partition_mismatch"},
		{"node_id_twice", with(func(s *engine.FlowSpec) {
			s.ID = member
			s.Nodes[0].Spec.ID = id.NewMemberExecutionID(member, id.Partitions{})
			s.Nodes[1].Spec.ID = s.Nodes[0].Spec.ID
		}, "a", "b"), fferr.ErrInvalidInput, `node "b": has the execution id of node "a"`},
		{"node_spec", with(func(s *engine.FlowSpec) { s.Nodes[1].Spec.Kind = strings.Repeat("k", 256) }, "a", "b"), fferr.ErrInvalidInput, `node "b": `},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.spec.ID.IsZero() {
				test.spec.ID = id.NewFlowID()
			}
			created, err := f.CreateFlow(t.Context(), test.spec)
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
				t.Errorf("created %+v, error %v; want %v with %q", created, err, test.want, test.text)
			}
			f.WantNoFlow(t, test.spec.ID)
		})
	}
}

// A kind of the longest length is stored.
func TestCreateFlowStoresTheLongestTexts(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b")
	spec.Kind = strings.Repeat("k", 256)
	spec.Nodes[0].Key = strings.Repeat("n", 1024)
	spec.Edges[0].From, spec.Edges[0].PassResult = spec.Nodes[0].Key, strings.Repeat("p", 1024)
	flow := f.NewFlowOf(t, spec)
	snapshot, err := f.DescribeFlow(t.Context(), flow)
	if err != nil || snapshot.Kind != spec.Kind {
		t.Errorf("described %+v, error %v", snapshot, err)
	}
}

// A flow is refused for a cycle exactly when its graph has one.
func TestCreateFlowRefusesCycles_F21(t *testing.T) {
	f := fixture.NewFlows(t)
	fixture.Check(t, func(r *rapid.T) {
		const most = 7
		n := rapid.IntRange(1, most).Draw(r, "nodes")
		spec := engine.FlowSpec{ID: id.NewFlowID()}
		for i := range n {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}})
		}
		var reaches [most][most]bool
		for from := range n {
			for to := range n {
				// Most edges lead forward, so that graphs with and without a cycle are about as many.
				if rapid.IntRange(0, 15).Draw(r, "edge") < 1 || from < to && rapid.Bool().Draw(r, "forward") {
					reaches[from][to] = true
					spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(from), To: fmt.Sprint(to)})
				}
			}
		}
		for via := range n {
			for from := range n {
				for to := range n {
					reaches[from][to] = reaches[from][to] || reaches[from][via] && reaches[via][to]
				}
			}
		}
		cyclic := false
		for i := range n {
			cyclic = cyclic || reaches[i][i]
		}
		_, err := f.CreateFlow(t.Context(), spec)
		if errors.Is(err, fferr.ErrCycle) != cyclic || err != nil && !cyclic {
			r.Fatalf("cyclic %t, error %v: %v", cyclic, err, spec.Edges)
		}
		if stored := f.DumpFlow(t, spec.ID) != ""; stored == cyclic {
			r.Fatalf("cyclic %t, stored %t", cyclic, stored)
		}
	})
}

// One upstream cannot fill two places of a quorum.
func TestCreateFlowRefusesADuplicateEdge_F21(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(fixture.When{"b": policy.Quorum(2, policy.LetRun)}, "a>b", "a>b")
	if _, err := f.CreateFlow(t.Context(), spec); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("error %v, want %v", err, fferr.ErrInvalidInput)
	}
	f.WantNoFlow(t, spec.ID)
}

// A quorum beyond 2^31-1 neither wraps around nor is satisfied at once: it is refused.
func TestCreateFlowRefusesAQuorumBeyondInt32_F20(t *testing.T) {
	f := fixture.NewFlows(t)
	for _, k := range []int{1 << 31, 1<<31 + 1, 1 << 32, 1<<32 + 1, 1 << 40} {
		spec := fixture.Chart(fixture.When{"b": policy.Quorum(k, policy.LetRun)}, "a>b")
		if _, err := f.CreateFlow(t.Context(), spec); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("k = %d: error %v, want %v", k, err, fferr.ErrInvalidInput)
		}
		f.WantNoFlow(t, spec.ID)
	}
}

// A taken id is named, whichever constraint reports it.
func TestCreateFlowNamesAnExistingNode_F40(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b", "c")
	taken := f.NodeID(spec.ID, "b")
	if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{ID: taken, Lane: f.Lane, Kind: "earlier"}); err != nil {
		t.Fatal(err)
	}
	before := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", taken.UUID())
	_, err := f.CreateFlow(t.Context(), spec)
	if !errors.Is(err, fferr.ErrExists) || !strings.Contains(err.Error(), taken.String()) {
		t.Errorf("error %v, want %v naming %s", err, fferr.ErrExists, taken)
	}
	f.WantNoFlow(t, spec.ID)
	fixture.WantEqual(t, "the execution that was there", fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", taken.UUID()), before)
}

func TestCreateFlowIdempotencyKeys(t *testing.T) {
	f := fixture.NewFlows(t)
	keyed := func(flow id.FlowID, keys ...string) engine.FlowSpec {
		spec := engine.FlowSpec{ID: flow}
		for i, key := range keys {
			spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane, IdempotencyKey: id.IdempotencyKey(key)}})
		}
		return spec
	}
	keysOf := func(t *testing.T, flow id.FlowID) int {
		return len(fixture.Texts(t, f.Pool, "SELECT idempotency_key FROM ffx_create_dedup WHERE partition_key = $1 AND execution_id IN ($2, $3)",
			fixture.PartitionOf(flow), f.NodeID(flow, "0").UUID(), f.NodeID(flow, "1").UUID()))
	}

	t.Run("stored", func(t *testing.T) {
		t.Parallel()
		flow := id.NewFlowID()
		if _, err := f.CreateFlow(t.Context(), keyed(flow, "x", "y")); err != nil {
			t.Fatal(err)
		}
		if n := keysOf(t, flow); n != 2 {
			t.Errorf("%d keys are stored, want 2", n)
		}
	})
	t.Run("taken_by_an_earlier_execution", func(t *testing.T) {
		t.Parallel()
		flow, key := id.NewFlowID(), id.NewFlowID().String()
		earlier := id.NewMemberExecutionID(flow, id.Partitions{})
		if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: earlier, Lane: f.Lane, IdempotencyKey: id.IdempotencyKey(key)}); err != nil {
			t.Fatal(err)
		}
		// As an older version stored it, for the whole partition. Else only a member of the flow has it.
		f.Exec(t, "UPDATE ffx_create_dedup SET idempotency_key = $1 WHERE execution_id = $2", key, earlier.UUID())
		_, err := f.CreateFlow(t.Context(), keyed(flow, "fresh", key))
		if !errors.Is(err, fferr.ErrIdempotencyKeyTaken) || !strings.Contains(err.Error(), earlier.String()) {
			t.Errorf("error %v, want %v naming %s", err, fferr.ErrIdempotencyKeyTaken, earlier)
		}
		f.WantNoFlow(t, flow)
		if n := keysOf(t, flow); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
	t.Run("twice_in_one_flow", func(t *testing.T) {
		t.Parallel()
		flow := id.NewFlowID()
		if _, err := f.CreateFlow(t.Context(), keyed(flow, "same", "same")); !errors.Is(err, fferr.ErrIdempotencyKeyTaken) {
			t.Errorf("error %v, want %v", err, fferr.ErrIdempotencyKeyTaken)
		}
		f.WantNoFlow(t, flow)
		if n := keysOf(t, flow); n != 0 {
			t.Errorf("%d keys were written", n)
		}
	})
}

// A second creation of a flow changes nothing, with any spec.
func TestCreateFlowRepeatedChangesNothing(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b")
	f.NewFlowOf(t, spec)
	f.Succeed(t, spec.ID, "a")
	before := f.DumpFlow(t, spec.ID)
	other := fixture.Chart(nil, "x>y", "y>z")
	other.ID, other.Kind, other.Namespace, other.Tags = spec.ID, "other", "other", map[string]string{"a.b": "c"}
	other.Nodes[0].Spec.Lane = id.LaneID("never-" + spec.ID.String())
	for _, again := range []engine.FlowSpec{spec, other} {
		created, err := f.CreateFlow(t.Context(), again)
		if err != nil || created != (engine.CreatedFlow{ID: spec.ID, Existed: true}) {
			t.Errorf("created %+v, error %v; want that it existed", created, err)
		}
	}
	if after := f.DumpFlow(t, spec.ID); after != before {
		t.Errorf("the rows changed from\n%s\nto\n%s", before, after)
	}
	if lanes := fixture.Texts(t, f.Pool, "SELECT lane_id FROM ff_lane_registry WHERE lane_id = $1", string(other.Nodes[0].Spec.Lane)); len(lanes) > 0 {
		t.Error("the lane of the repeated creation was registered")
	}
}

// Of two creators of one flow at once the second waits and finds it, or creates it when the first gives up.
func TestCreateFlowTwiceConcurrently(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprintf("first_commits_%t", commits), func(t *testing.T) {
			f := fixture.NewFlows(t)
			second := f.Rival(t)
			spec := fixture.Chart(nil, "a>b")
			tx := f.BeginTx(t)
			if _, err := f.WithTx(tx).CreateFlow(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error {
				created, err := second.CreateFlow(ctx, spec)
				if err == nil && created != (engine.CreatedFlow{ID: spec.ID, Existed: commits}) {
					err = fmt.Errorf("created %+v", created)
				}
				return err
			})
			second.AwaitBlocked(t, f.Fixture)
			end := tx.Rollback
			if commits {
				end = tx.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := wait(); err != nil {
				t.Errorf("the second creator: %v", err)
			}
			f.WantMembers(t, spec.ID, map[string]string{
				fixture.StateReady: f.NodeID(spec.ID, "a").UUID().String(), fixture.StateHeld: f.NodeID(spec.ID, "b").UUID().String(),
			})
		})
	}
}

func TestCreateFlowInATransaction(t *testing.T) {
	f := fixture.NewFlows(t)
	kept, dropped, refused, taken := fixture.Chart(nil, "a>b"), fixture.Chart(nil, "a>b"), fixture.Chart(nil, "a>b", "b>a"), fixture.Chart(nil, "a>b")

	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	if _, err := bound.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: f.NodeID(taken.ID, "b"), Lane: f.Lane}); err != nil {
		t.Fatal(err)
	}
	if _, err := bound.CreateFlow(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	// A refusal, also one that is found while writing, leaves the transaction usable.
	if _, err := bound.CreateFlow(t.Context(), refused); !errors.Is(err, fferr.ErrCycle) {
		t.Errorf("error %v, want %v", err, fferr.ErrCycle)
	}
	if _, err := bound.CreateFlow(t.Context(), taken); !errors.Is(err, fferr.ErrExists) {
		t.Errorf("error %v, want %v", err, fferr.ErrExists)
	}
	if created, err := bound.CreateFlow(t.Context(), kept); err != nil || !created.Existed {
		t.Errorf("created %+v, error %v; want that it existed", created, err)
	}
	f.WantNoFlow(t, kept.ID) // not before the commit
	fixture.Commit(t, tx)
	if n := len(f.Members(t, kept.ID)); n != 2 {
		t.Errorf("%d members after the commit, want 2", n)
	}
	f.WantNoFlow(t, refused.ID)
	f.WantNoFlow(t, taken.ID)

	tx = f.BeginTx(t)
	if _, err := f.WithTx(tx).CreateFlow(t.Context(), dropped); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.WantNoFlow(t, dropped.ID)
}

func TestCreateFlowShapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		parts        []string
		nodes, edges int
		ready        string
		groups       int
	}{
		{"empty", nil, 0, 0, "", 0},
		{"without_edges", []string{"a", "b", "c"}, 3, 0, "a b c", 0},
		{"one_edge", []string{"a>b"}, 2, 1, "a", 1},
		{"diamond", []string{"a>b", "a>c", "b>d", "c>d"}, 4, 4, "a", 3},
		{"edges_before_nodes", []string{"c>d", "b>c", "a>b"}, 4, 3, "a", 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, test.parts...)
			snapshot, err := f.DescribeFlow(t.Context(), flow)
			if err != nil {
				t.Fatal(err)
			}
			if snapshot.Nodes != test.nodes || snapshot.Edges != test.edges || len(snapshot.Groups) != test.groups ||
				snapshot.Revision != int64(test.nodes+test.edges) {
				t.Errorf("described %+v", snapshot)
			}
			members := f.Members(t, flow)
			for key := range members {
				want := fixture.StateHeld
				if slices.Contains(strings.Fields(test.ready), key) {
					want = fixture.StateReady
				}
				if members[key] != want {
					t.Errorf("%s is %s, want %s", key, members[key], want)
				}
			}
		})
	}
}

// A policy beside a node that waits for nothing is ignored, also one that could never be satisfied.
func TestCreateFlowIgnoresAPolicyWithoutEdges(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"a": policy.Quorum(7, policy.LetRun)}, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateReady: "a"})
	fixture.WantEqual(t, "groups", f.Groups(t, flow), nil)
}

// The id of a node follows from the flow's and its key alone.
func TestNodeID(t *testing.T) {
	flow, err := id.ParseFlowID("0198c0de-0000-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	f := fixture.NewFlows(t)
	other := f.EngineOn(t, f.Pool, engine.Config{Namespace: "other"})
	x := f.NodeID(flow, "a")
	if got := other.NodeID(flow, "a"); got != x {
		t.Errorf("another engine says %s, this one %s", got, x)
	}
	// Programs store this value once they have used it: it never changes.
	if got, want := x.String(), "{fp:236}:0198c0de-0000-8655-a20d-49bf76e010b5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := x.Partition(), (id.Partitions{}).FlowPartition(flow); got != want {
		t.Errorf("partition %d, want the flow's, %d", got, want)
	}
	u := uuid.UUID(x.UUID())
	if u.Version() != 8 || u.Variant() != uuid.RFC4122 {
		t.Errorf("%s has version %d and variant %d", u, u.Version(), u.Variant())
	}
	seen := map[id.ExecutionID]string{}
	for _, key := range []string{"a", "b", "", "aa", "a\x00"} {
		if earlier, twice := seen[f.NodeID(flow, key)]; twice {
			t.Errorf("%q and %q have one id", earlier, key)
		}
		seen[f.NodeID(flow, key)] = key
	}
	if f.NodeID(id.NewFlowID(), "a") == x {
		t.Error("two flows share a node id")
	}
}

func TestCreateExecutionInAFlow(t *testing.T) {
	t.Parallel()

	t.Run("counts_each_new_member", func(t *testing.T) {
		f := fixture.NewFlows(t)
		spec := fixture.Chart(nil, "a>b")
		spec.CreatedAt = fixture.Start.Add(-time.Hour)
		flow := f.NewFlowOf(t, spec)
		member := engine.ExecutionSpec{Kind: "test", ID: f.NodeID(flow, "late"), Flow: &flow, Lane: f.Lane}
		f.Names[f.NodeID(flow, "late").UUID()] = "late"
		created, err := f.CreateExecution(t.Context(), member)
		if err != nil || created.ID != member.ID || created.State != state.PublicWaiting || created.Duplicate {
			t.Errorf("created %+v, error %v", created, err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateReady: "a late", fixture.StateHeld: "b"})
		wantCounters(t, f, flow, 4, 3, 1)

		// A duplicate adds nothing, also beside a new one.
		again, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{member, {Kind: "test", ID: f.NodeID(flow, "later"), Flow: &flow, Lane: f.Lane}, member})
		if err != nil || !again[0].Value.Duplicate || again[1].Value.Duplicate || !again[2].Value.Duplicate {
			t.Errorf("created %+v, error %v", again, err)
		}
		wantCounters(t, f, flow, 5, 4, 1)
		if created, err := f.CreateExecution(t.Context(), member); err != nil || !created.Duplicate {
			t.Errorf("created %+v, error %v", created, err)
		}
		wantCounters(t, f, flow, 5, 4, 1)
		row := fixture.StoredRow(t, f.Pool, "ff_flow_core", "flow_id = $1", flow)
		if got := row["raw_fields"].(map[string]any)["last_mutation_at_ms"]; got != float64(fixture.StartMs) {
			t.Errorf("last_mutation_at_ms %v, want %d", got, fixture.StartMs)
		}
	})

	t.Run("id_of_its_own", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a")
		created, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: f.Lane})
		if err != nil || created.ID.Partition() != (id.Partitions{}).FlowPartition(flow) {
			t.Errorf("created %+v, error %v", created, err)
		}
	})

	t.Run("counts_read_as_text", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a")
		f.Exec(t, `UPDATE ff_flow_core SET raw_fields = raw_fields || '{"node_count": "41"}' WHERE flow_id = $1`, flow)
		if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: f.Lane}); err != nil {
			t.Fatal(err)
		}
		wantCounters(t, f, flow, 2, 42, 0)
	})

	t.Run("one_too_many", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a")
		setFlow(t, f, flow, fmt.Sprintf(`raw_fields = raw_fields || '{"node_count": %d}'`, engine.MaxMembers-2))
		member := func() engine.ExecutionSpec { return engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: f.Lane} }
		before := f.DumpFlow(t, flow)
		_, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{member(), member(), member()})
		if !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("error %v, want %v", err, fferr.ErrInvalidInput)
		}
		if after := f.DumpFlow(t, flow); after != before {
			t.Errorf("the flow was written to:\n%s\nwas\n%s", after, before)
		}
		created, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{member(), member()})
		if err != nil || created[0].Err != nil || created[1].Err != nil {
			t.Errorf("%+v, error %v", created, err)
		}
	})

	t.Run("missing_flow", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := id.NewFlowID()
		_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: f.Lane})
		missing, ok := errors.AsType[*fferr.NotFoundError](err)
		if !ok || missing.Entity != "flow" || missing.ID != flow.String() {
			t.Errorf("error %v, want that the flow is not found", err)
		}
		f.WantNoFlow(t, flow)
	})

	t.Run("partition_of_another", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow, other := f.Draw(t, nil, "a"), id.NewFlowID()
		for (id.Partitions{}).FlowPartition(flow) == (id.Partitions{}).FlowPartition(other) {
			other = id.NewFlowID()
		}
		_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: f.NodeID(other, "x"), Flow: &flow, Lane: f.Lane})
		if !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "partition_mismatch") {
			t.Errorf("error %v, want a partition mismatch", err)
		}
		wantCounters(t, f, flow, 1, 1, 0)
	})
}

// Only an ended flow refuses new members, in all stored states.
func TestOnlyAnEndedFlowRefusesMembers_F24(t *testing.T) {
	t.Parallel()
	for literal, ended := range map[string]bool{"cancelled": true, "completed": true, "failed": true, "running": false, "blocked": false} {
		t.Run("flow_"+literal, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a")
			f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = $2 WHERE flow_id = $1", flow, literal)
			_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Flow: &flow, Lane: f.Lane})
			switch {
			case ended:
				if !errors.Is(err, fferr.ErrFlowTerminal) {
					t.Errorf("error %v, want %v", err, fferr.ErrFlowTerminal)
				}
				wantCounters(t, f, flow, 1, 1, 0)
			case err != nil:
				t.Errorf("error %v", err)
			default:
				wantCounters(t, f, flow, 2, 2, 0)
			}
		})
	}
}

// wantCounters compares the stored counters of a flow with want, and the number of members with the counters.
func wantCounters(t *testing.T, f *fixture.Flows, flow id.FlowID, revision, nodes, edges int) {
	t.Helper()
	row := fixture.StoredRow(t, f.Pool, "ff_flow_core", "flow_id = $1", flow)
	raw := row["raw_fields"].(map[string]any)
	got := fmt.Sprint(row["graph_revision"], raw["node_count"], raw["edge_count"])
	if want := fmt.Sprint(float64(revision), float64(nodes), float64(edges)); got != want {
		t.Errorf("revision, nodes and edges are %s, want %s", got, want)
	}
}
