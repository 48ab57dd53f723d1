package flows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// group returns the described group of a node.
func group(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) engine.EdgeGroup {
	t.Helper()
	for _, g := range f.Describe(t, flow).Groups {
		if g.Downstream == f.NodeID(flow, key) {
			return g
		}
	}
	t.Fatalf("%s has no group", key)
	return engine.EdgeGroup{}
}

func setFlow(t *testing.T, f *fixture.Flows, flow id.FlowID, assignments string) {
	t.Helper()
	f.Exec(t, "UPDATE ff_flow_core SET "+assignments+" WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
}

func TestDescribeFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(fixture.When{"any": policy.AnyOf(policy.LetRun), "two": policy.Quorum(2, policy.LetRun)},
		"a>all", "b>all", "a>any", "b>any", "a>two", "b>two", "c>two", "a>cancel")
	spec.Kind, spec.Namespace = "import", "tenant"
	spec.Tags = map[string]string{"app.owner": "me", "app.deep.er": "x", "cairn.task_id": ""}
	spec.CreatedAt = fixture.Start.Add(-time.Hour)
	spec.Retention, spec.PruneMembersAfter = 90*24*time.Hour, 36*time.Hour
	flow := f.NewFlowOf(t, spec)
	f.SetGroup(t, flow, "cancel", `policy = '{"kind": "any_of", "on_satisfied": "cancel_remaining"}'`)

	got := f.Describe(t, flow)
	groups := []engine.EdgeGroup{
		{Downstream: f.NodeID(flow, "all"), When: policy.AllOf(), Edges: 2, Active: 2, State: state.EdgeGroupPending},
		{Downstream: f.NodeID(flow, "any"), When: policy.AnyOf(policy.LetRun), Edges: 2, Active: 2, State: state.EdgeGroupPending},
		{Downstream: f.NodeID(flow, "two"), When: policy.Quorum(2, policy.LetRun), Edges: 3, Active: 3, State: state.EdgeGroupPending},
		{Downstream: f.NodeID(flow, "cancel"), When: policy.AnyOf(policy.CancelRemaining), Edges: 1, Active: 1, State: state.EdgeGroupPending},
	}
	slices.SortFunc(groups, func(a, b engine.EdgeGroup) int { return a.Downstream.Compare(b.Downstream) })
	want := &engine.FlowSnapshot{
		ID: flow, Kind: "import", Namespace: "tenant", Tags: spec.Tags, State: state.FlowBlocked, Revision: 15, Nodes: 7, Edges: 8,
		CreatedAt: spec.CreatedAt, LastMutationAt: spec.CreatedAt, Groups: groups,
		Counts:    map[state.PublicState]int{state.PublicWaiting: 3, state.PublicWaitingChildren: 4},
		Retention: spec.Retention, PruneMembersAfter: spec.PruneMembersAfter,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("described\n\t%+v, want\n\t%+v", got, want)
	}
}

// What is described is what retention acts on, in whatever form it is stored.
func TestDescribeFlowRetention(t *testing.T) {
	f := fixture.NewFlows(t)
	for _, c := range []struct {
		name         string
		spec         engine.FlowSpec
		stored       string // merged into raw_fields
		keep, prunes time.Duration
	}{
		{name: "default"},
		{name: "forever", spec: engine.FlowSpec{Retention: policy.KeepForever}, keep: policy.KeepForever},
		{name: "pruned", spec: engine.FlowSpec{PruneMembersAfter: time.Hour}, prunes: time.Hour},
		{name: "longer than a duration", stored: `{"ffx_retention_ms": 9223372036854775807}`, keep: policy.KeepForever},
		{name: "larger than a bigint", stored: `{"ffx_retention_ms": 1e30}`, keep: policy.KeepForever},
		{name: "numbers as text", stored: `{"ffx_retention_ms": "60000", "ffx_prune_members_after_ms": "60000"}`, prunes: time.Minute},
	} {
		c.spec.ID = id.NewFlowID()
		flow := f.NewFlowOf(t, c.spec)
		if c.stored != "" {
			setFlow(t, f, flow, "raw_fields = raw_fields || '"+c.stored+"'")
		}
		got := f.Describe(t, flow)
		if got.Retention != c.keep || got.PruneMembersAfter != c.prunes {
			t.Errorf("%s: described %v and %v, want %v and %v", c.name, got.Retention, got.PruneMembersAfter, c.keep, c.prunes)
		}
		kept := fixture.One[struct{ Ms int64 }](t, f.Pool, "SELECT ffx_retention_of(raw_fields, NULL, 0) AS ms FROM ff_flow_core WHERE flow_id = $1", flow).Ms
		if c.keep > 0 && kept != c.keep.Milliseconds() || c.keep < 0 && kept < int64(1)<<62 || c.keep == 0 && kept != 0 {
			t.Errorf("%s: retention keeps it for %d ms", c.name, kept)
		}
	}
}

func TestDescribeFlowReportsAMissingFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := id.NewFlowID()
	got, err := f.DescribeFlow(t.Context(), flow)
	if got != nil {
		t.Errorf("described %+v", got)
	}
	fixture.WantNotFound(t, err, "flow", flow.String())
}

func TestDescribeFlowDefaults(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil)
	setFlow(t, f, flow, "raw_fields = '{}'")
	got := f.Describe(t, flow)
	want := &engine.FlowSnapshot{ID: flow, Namespace: "default", State: state.FlowOpen, Ended: true, CreatedAt: fixture.Start, LastMutationAt: fixture.Start}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("described\n\t%+v, want\n\t%+v", got, want)
	}
}

// Other programs' forms read the same.
func TestDescribeFlowReadsForeignForms(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	setFlow(t, f, flow, `graph_revision = 9, public_flow_state = 'cancelled', terminal_at_ms = 1800000000077, raw_fields = '{
		"node_count": "41", "edge_count": "40", "last_mutation_at_ms": "1800000000001",
		"cancel_reason": "no longer needed", "cancellation_policy": "cancel_pending",
		"a.b": "tag", "a.b.c": "too", "A.b": "no tag", "a.n": 5, "plain": "no tag"}'`)
	got := f.Describe(t, flow)
	got.Groups, got.Counts = nil, nil
	want := &engine.FlowSnapshot{
		ID: flow, Namespace: "default", Tags: map[string]string{"a.b": "tag", "a.b.c": "too"}, State: state.FlowCancelled,
		Revision: 9, Nodes: 41, Edges: 40, CreatedAt: fixture.Start, LastMutationAt: fixture.Start.Add(time.Millisecond),
		CancelledAt: fixture.Start.Add(77 * time.Millisecond), CancelReason: "no longer needed", CancelPolicy: state.CancelPending,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("described\n\t%+v, want\n\t%+v", got, want)
	}
}

// Counts equal those of the members one by one, however they ended and whichever program wrote it.
func TestDescribeFlowCounts(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "c>d")
	wantCounts := func() {
		t.Helper()
		counts, open := make(map[state.PublicState]int), 0
		for member, err := range f.FlowMembers(t.Context(), flow) {
			if err != nil {
				t.Fatal(err)
			}
			counts[member.State]++
			if !member.State.Terminal() {
				open++
			}
		}
		got := f.Describe(t, flow)
		fixture.WantEqual(t, "counts", got.Counts, counts)
		if got.Ended != (open == 0) {
			t.Errorf("ended %t with %d open members", got.Ended, open)
		}
		progress, err := f.FlowProgress(t.Context(), flow)
		if err != nil || progress.Done() != got.Ended || progress.Total-progress.Ended != open {
			t.Errorf("progress %+v, %v with %d open members", progress, err, open)
		}
		fixture.WantEqual(t, "counts of the progress", progress.Counts, counts)
	}
	wantCounts()
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "c")
	wantCounts()
	f.Succeed(t, flow, "b")
	wantCounts()
	if got := f.Describe(t, flow); !got.Ended || got.Counts[state.PublicSkipped] != 1 {
		t.Errorf("ended %t, counts %v", got.Ended, got.Counts)
	}
	for name, row := range fixture.ReferenceRows() {
		changed := maps.Clone(row.Execution)
		if changed == nil {
			changed = fixture.Columns{}
		}
		x := id.NewMemberExecutionID(flow, id.Partitions{})
		changed["partition_key"], changed["execution_id"], changed["flow_id"] = x.Partition(), x.UUID(), flow
		f.Seed(t, changed)
		for i, attempt := range row.Attempts {
			f.SeedAttempt(t, x, int32(i), attempt)
		}
		wantCounts()
		if t.Failed() {
			t.Fatalf("after the member %q", name)
		}
	}
	f.SetExecution(t, f.NodeID(flow, "a"), "lifecycle_phase = 'unheard of'")
	snapshot, err := f.DescribeFlow(t.Context(), flow)
	if err != nil || snapshot.Unreadable != 1 || snapshot.Ended {
		t.Errorf("got %+v, %v; want a member that cannot be read", snapshot, err)
	}
}

func TestDescribeFlowGroupDocuments(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	for document, want := range map[string]policy.Group{
		`{}`:                 policy.AllOf(),
		`{"kind": "all_of"}`: policy.AllOf(),
		`{"kind": "any_of"}`: policy.AnyOf(policy.CancelRemaining),
		`{"kind": "any_of", "on_satisfied": "?"}`:                        policy.AnyOf(policy.CancelRemaining),
		`{"kind": "any_of", "on_satisfied": "let_run"}`:                  policy.AnyOf(policy.LetRun),
		`{"kind": "quorum"}`:                                             policy.Quorum(1, policy.CancelRemaining),
		`{"kind": "quorum", "k": 4294967295, "on_satisfied": "let_run"}`: policy.Quorum(4294967295, policy.LetRun),
	} {
		f.SetGroup(t, flow, "b", fmt.Sprintf("policy = '%s'", document))
		if got := group(t, f, flow, "b").When; got != want {
			t.Errorf("%s reads as %+v, want %+v", document, got, want)
		}
	}
}

// A quorum that no int32 holds is not taken for one that is met.
func TestDescribeFlowReadsAQuorumBeyondInt32_F20(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"b": policy.Quorum(1, policy.LetRun)}, "a>b")
	f.SetGroup(t, flow, "b", `policy = '{"kind": "quorum", "k": 4294967295, "on_satisfied": "let_run"}'`)
	f.Succeed(t, flow, "a")
	if got := group(t, f, flow, "b"); got.State != state.EdgeGroupPending {
		t.Errorf("the group is %s, want %s", got.State, state.EdgeGroupPending)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateHeld: "b"})
}

// Unreadable values are named, and not replaced by a default.
func TestDescribeFlowNamesCorruptedColumns_F45(t *testing.T) {
	t.Parallel()
	raw := func(document string) string { return "raw_fields = raw_fields || '" + document + "'" }
	group := func(document string) string { return "policy = '" + document + "'" }
	tests := []struct{ name, flow, group, column string }{
		{"negative_revision", "graph_revision = -1", "", "ff_flow_core.graph_revision"},
		{"negative_nodes", raw(`{"node_count": -1}`), "", "ff_flow_core.raw_fields.node_count"},
		{"text_for_nodes", raw(`{"node_count": "many"}`), "", "ff_flow_core.raw_fields.node_count"},
		{"fraction_of_nodes", raw(`{"node_count": 1.5}`), "", "ff_flow_core.raw_fields.node_count"},
		{"nodes_beyond_64_bits", raw(`{"node_count": 9223372036854775808}`), "", "ff_flow_core.raw_fields.node_count"},
		{"no_edges", raw(`{"edge_count": null}`), "", "ff_flow_core.raw_fields.edge_count"},
		{"list_for_edges", raw(`{"edge_count": []}`), "", "ff_flow_core.raw_fields.edge_count"},
		{"number_for_kind", raw(`{"flow_kind": 7}`), "", "ff_flow_core.raw_fields.flow_kind"},
		{"list_for_namespace", raw(`{"namespace": []}`), "", "ff_flow_core.raw_fields.namespace"},
		{"no_instant", raw(`{"last_mutation_at_ms": "yesterday"}`), "", "ff_flow_core.raw_fields.last_mutation_at_ms"},
		{"no_object", "raw_fields = '[]'", "", "ff_flow_core.raw_fields"},
		{"unknown_group", "", group(`{"kind": "some_of"}`), "ff_edge_group.policy"},
		{"negative_k", "", group(`{"kind": "quorum", "k": -1}`), "ff_edge_group.policy"},
		{"fraction_of_k", "", group(`{"kind": "quorum", "k": 1.5}`), "ff_edge_group.policy"},
		{"text_for_k", "", group(`{"kind": "quorum", "k": "2"}`), "ff_edge_group.policy"},
		{"k_beyond_32_bits", "", group(`{"kind": "quorum", "k": 4294967296}`), "ff_edge_group.policy"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b")
			if test.flow != "" {
				setFlow(t, f, flow, test.flow)
			}
			if test.group != "" {
				f.SetGroup(t, flow, "b", test.group)
			}
			got, err := f.DescribeFlow(t.Context(), flow)
			corrupted, ok := errors.AsType[*fferr.CorruptionError](err)
			if got != nil || !ok || corrupted.Column != test.column || !errors.Is(err, fferr.ErrCorruption) {
				t.Errorf("described %+v, error %v; want a corruption of %s", got, err, test.column)
			}
		})
	}
}

// The state of a group follows from its policy and its counters, and k_target lets another reader see a
// satisfied one too.
func TestDescribeFlowDerivesGroupStates_F25_M16(t *testing.T) {
	t.Parallel()
	three := []string{"a>d", "b>d", "c>d"}
	tests := []struct {
		name          string
		rules         policy.Group
		succeed, fail []string
		want          state.EdgeGroupState
		kTarget       int
	}{
		{"all_pending", policy.AllOf(), []string{"a", "b"}, nil, state.EdgeGroupPending, 3},
		{"all_satisfied", policy.AllOf(), []string{"a", "b", "c"}, nil, state.EdgeGroupSatisfied, 3},
		{"all_impossible", policy.AllOf(), []string{"a", "b"}, []string{"c"}, state.EdgeGroupImpossible, 3},
		{"any_pending", policy.AnyOf(policy.LetRun), nil, []string{"a", "b"}, state.EdgeGroupPending, 1},
		{"any_satisfied", policy.AnyOf(policy.LetRun), []string{"a"}, []string{"b"}, state.EdgeGroupSatisfied, 1},
		{"any_impossible", policy.AnyOf(policy.LetRun), nil, []string{"a", "b", "c"}, state.EdgeGroupImpossible, 1},
		{"quorum_pending", policy.Quorum(2, policy.LetRun), []string{"a"}, []string{"b"}, state.EdgeGroupPending, 2},
		{"quorum_satisfied", policy.Quorum(2, policy.LetRun), []string{"a", "b"}, nil, state.EdgeGroupSatisfied, 2},
		{"quorum_impossible", policy.Quorum(2, policy.LetRun), nil, []string{"a", "b"}, state.EdgeGroupImpossible, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.When{"d": test.rules}, three...)
			f.Succeed(t, flow, test.succeed...)
			f.Fail(t, flow, test.fail...)
			got := group(t, f, flow, "d")
			want := engine.EdgeGroup{
				Downstream: f.NodeID(flow, "d"), When: test.rules, Edges: 3, Succeeded: len(test.succeed), Failed: len(test.fail),
				Active: 3 - len(test.succeed) - len(test.fail), State: test.want,
			}
			if got != want {
				t.Errorf("described %+v, want %+v", got, want)
			}
			stored := f.Groups(t, flow)["d"]
			if stored.KTarget != test.kTarget {
				t.Errorf("k_target %d, want %d", stored.KTarget, test.kTarget)
			}
			if met := stored.Success >= stored.KTarget; met != (test.want == state.EdgeGroupSatisfied) {
				t.Errorf("%d of k_target %d, state %s", stored.Success, stored.KTarget, test.want)
			}
		})
	}
}

// Counters that another program drove below zero read as zero.
func TestDescribeFlowNegativeCounters(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c")
	f.SetGroup(t, flow, "c", "success_count = 1, fail_count = -1, skip_count = -2, running_count = -3")
	want := engine.EdgeGroup{Downstream: f.NodeID(flow, "c"), When: policy.AllOf(), Edges: 1, Succeeded: 1, State: state.EdgeGroupSatisfied}
	if got := group(t, f, flow, "c"); got != want {
		t.Errorf("described %+v, want %+v", got, want)
	}
}

// An edge that is staged and not applied counts among the edges of its group.
func TestDescribeFlowCountsStagedEdges_F19(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c")
	f.StageOnly(t, flow, "b", "c")
	f.Succeed(t, flow, "a")
	want := engine.EdgeGroup{Downstream: f.NodeID(flow, "c"), When: policy.AllOf(), Edges: 2, Succeeded: 1, State: state.EdgeGroupPending}
	if got := group(t, f, flow, "c"); got != want {
		t.Errorf("described %+v, want %+v", got, want)
	}
}

func TestListFlowMembers(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b", "c", "d>e")
	spec.Nodes[2].Spec.Kind = "see"
	flow := f.NewFlowOf(t, spec)
	// A neighbour in the flow's partition that is no member.
	if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", ID: id.NewMemberExecutionID(flow, id.Partitions{}), Lane: "elsewhere"}); err != nil {
		t.Fatal(err)
	}
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "d")
	f.SetExecution(t, f.NodeID(flow, "c"), "lease_reclaim_count = 2")

	want := []engine.ExecutionSummary{
		{ID: f.NodeID(flow, "a"), State: state.PublicCompleted, Outcome: state.OutcomeSuccess},
		{ID: f.NodeID(flow, "b"), State: state.PublicWaiting, Outcome: state.OutcomeNone},
		{ID: f.NodeID(flow, "c"), State: state.PublicActive, Outcome: state.OutcomeNone, Kind: "see", LeasesLost: 2},
		{ID: f.NodeID(flow, "d"), State: state.PublicFailed, Outcome: state.OutcomeFailed, Failure: fixture.ForGood.Message},
		{ID: f.NodeID(flow, "e"), State: state.PublicSkipped, Outcome: state.OutcomeSkipped},
	}
	for i := range want {
		want[i].Namespace, want[i].Lane, want[i].Flow, want[i].CreatedAt = "default", f.Lane, &flow, fixture.Start
		want[i].Node = f.Name(want[i].ID.UUID())
		if want[i].Outcome != state.OutcomeNone {
			want[i].EndedAt = f.Time()
		}
		if want[i].Kind == "" {
			want[i].Kind = "test"
		}
	}
	slices.SortFunc(want, func(a, b engine.ExecutionSummary) int { return a.ID.Compare(b.ID) })

	if got := fixture.Listed(t, f.FlowMembers(t.Context(), flow)); !reflect.DeepEqual(got, want) {
		t.Errorf("listed\n\t%+v, want\n\t%+v", got, want)
	}
}

// A flow without members lists none, and one that is not there has an error.
func TestFlowMembersOfAMissingFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	empty := f.NewFlowOf(t, engine.FlowSpec{ID: id.NewFlowID()})
	if members := fixture.Listed(t, f.FlowMembers(t.Context(), empty)); len(members) > 0 {
		t.Errorf("a flow without members has %+v", members)
	}
	missing := id.NewFlowID()
	fixture.WantNotFound(t, fixture.Unlisted(t, f.FlowMembers(t.Context(), missing)), "flow", missing.String())
}

// FlowMembers goes on where a page ends, and stops where its caller does.
func TestFlowMembers(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	for i := range engine.MaxPage + 1 {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "test"}})
	}
	flow := f.NewFlowOf(t, spec)
	var last id.ExecutionID
	n := 0
	for member, err := range f.FlowMembers(t.Context(), flow) {
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && member.ID.Compare(last) <= 0 {
			t.Fatalf("%s follows %s", member.ID, last)
		}
		last = member.ID
		n++
	}
	if n != engine.MaxPage+1 {
		t.Errorf("%d members, want %d", n, engine.MaxPage+1)
	}
	for range f.FlowMembers(t.Context(), flow) {
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range f.FlowMembers(ended, flow) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	}
}

func TestFlowMembersReportsACorruptedMember(t *testing.T) {
	t.Parallel()
	for _, column := range []string{"lifecycle_phase", "eligibility_state", "public_state"} {
		t.Run(column, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b")
			f.SetExecution(t, f.NodeID(flow, "a"), column+" = 'bogus'")
			members := fixture.Listed(t, f.FlowMembers(t.Context(), flow))
			if len(members) != 2 {
				t.Fatal(members)
			}
			for _, member := range members {
				if member.ID == f.NodeID(flow, "a") {
					fixture.WantCorruption(t, member.Err, "ff_exec_core."+column)
				} else if member.Err != nil {
					t.Errorf("a neighbour has the error %v", member.Err)
				}
			}
			_, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "b"))
			if corrupted, ok := errors.AsType[*fferr.CorruptionError](err); !ok || corrupted.Column != "ff_exec_core."+column {
				t.Errorf("upstreams: error %v, want a corruption of %s", err, column)
			}
		})
	}
}

func TestUpstreamResults(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(fixture.When{"end": policy.AnyOf(policy.LetRun)},
		"text>end", "empty>end", "none>end", "failed>end", "failed>skipped", "skipped>end", "running>end", "held>end", "source>held")
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Kind = "kind of " + spec.Nodes[i].Key
	}
	flow := f.NewFlowOf(t, spec)
	for key, result := range map[string][]byte{"text": []byte("out\x00put"), "empty": {}, "none": nil} {
		if err := f.CompleteExecution(t.Context(), f.Lease(t, flow, key), result); err != nil {
			t.Fatal(err)
		}
	}
	f.Fail(t, flow, "failed")

	want := []engine.UpstreamResult{
		{Execution: f.NodeID(flow, "text"), State: state.PublicCompleted, Outcome: state.OutcomeSuccess, Result: []byte("out\x00put")},
		{Execution: f.NodeID(flow, "empty"), State: state.PublicCompleted, Outcome: state.OutcomeSuccess, Result: []byte{}},
		{Execution: f.NodeID(flow, "none"), State: state.PublicCompleted, Outcome: state.OutcomeSuccess},
		{Execution: f.NodeID(flow, "failed"), State: state.PublicFailed, Outcome: state.OutcomeFailed, Failure: fixture.ForGood.Message},
		{Execution: f.NodeID(flow, "skipped"), State: state.PublicSkipped, Outcome: state.OutcomeSkipped},
		{Execution: f.NodeID(flow, "running"), State: state.PublicActive, Outcome: state.OutcomeNone},
		{Execution: f.NodeID(flow, "held"), State: state.PublicWaitingChildren, Outcome: state.OutcomeNone},
	}
	for i := range want {
		want[i].Kind = "kind of " + f.Name(want[i].Execution.UUID())
	}
	slices.SortFunc(want, func(a, b engine.UpstreamResult) int { return a.Execution.Compare(b.Execution) })
	got, err := f.UpstreamResults(t.Context(), f.NodeID(flow, "end"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(got, want, sameUpstream) {
		t.Errorf("read\n\t%+v, want\n\t%+v", got, want)
	}

	for what, x := range map[string]id.ExecutionID{
		"a node without dependencies": f.NodeID(flow, "text"),
		"an execution outside a flow": f.Create(t),
	} {
		if got, err := f.UpstreamResults(t.Context(), x); err != nil || len(got) != 0 {
			t.Errorf("%s: %+v, error %v", what, got, err)
		}
	}
	if _, err := f.UpstreamResults(t.Context(), id.ExecutionID{}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("no id: error %v", err)
	}
}

// sameUpstream distinguishes an empty result from none.
func sameUpstream(a, b engine.UpstreamResult) bool {
	return a.Execution == b.Execution && a.Kind == b.Kind && a.State == b.State && a.Outcome == b.Outcome && a.Failure == b.Failure &&
		bytes.Equal(a.Result, b.Result) && (a.Result == nil) == (b.Result == nil)
}

// In the caller's transaction the reads see its own changes.
func TestFlowReadsInATransaction(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	tx := f.BeginTx(t)
	bound := f.WithTx(tx)
	if err := bound.CompleteExecution(t.Context(), f.Lease(t, flow, "a"), []byte("r")); err != nil {
		t.Fatal(err)
	}
	succeeded := func(eng *engine.Engine) (group, results int, members int) {
		snapshot, err := eng.DescribeFlow(t.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		upstreams, err := eng.UpstreamResults(t.Context(), f.NodeID(flow, "b"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range fixture.Listed(t, eng.FlowMembers(t.Context(), flow)) {
			if m.Outcome == state.OutcomeSuccess {
				members++
			}
		}
		return snapshot.Groups[0].Succeeded, len(upstreams[0].Result), members
	}
	if group, results, members := succeeded(bound); group != 1 || results != 1 || members != 1 {
		t.Errorf("inside: %d counted, result of %d bytes, %d members", group, results, members)
	}
	if group, results, members := succeeded(f.Engine); group != 0 || results != 0 || members != 0 {
		t.Errorf("outside: %d counted, result of %d bytes, %d members", group, results, members)
	}
}

// Every read of a member returns the key of its node, with any id. A member that was no node has none.
func TestNodeKeys(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "fetch>\"quoted\" ключ")
	spec.Nodes[0].Spec.ID = id.NewMemberExecutionID(spec.ID, id.Partitions{})
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Lane = f.Lane
	}
	if _, err := f.CreateFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	added, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Flow: &spec.ID})
	if err != nil {
		t.Fatal(err)
	}
	upstream, downstream := spec.Nodes[0].Spec.ID, f.NodeID(spec.ID, spec.Nodes[1].Key)
	keys := map[id.ExecutionID]string{upstream: spec.Nodes[0].Key, downstream: spec.Nodes[1].Key, added.ID: ""}
	listed := make(map[id.ExecutionID]string)
	for member, err := range f.FlowMembers(t.Context(), spec.ID) {
		if err != nil {
			t.Fatal(err)
		}
		listed[member.ID] = member.Node
	}
	fixture.WantEqual(t, "keys of members", listed, keys)
	for x, key := range keys {
		described, err := f.DescribeExecution(t.Context(), x)
		if err != nil || described.Node != key {
			t.Errorf("%s is described as node %q, %v; want %q", x, described.Node, err, key)
		}
	}
	upstreams, err := f.UpstreamResults(t.Context(), downstream)
	if err != nil || len(upstreams) != 1 || upstreams[0].Node != "fetch" {
		t.Errorf("upstreams %+v, %v", upstreams, err)
	}
	partition := int(upstream.Partition())
	for x, err := range f.Executions(t.Context(), engine.ExecutionFilter{Partition: &partition, Lane: f.Lane}) {
		if err != nil || x.Node != keys[x.ID] {
			t.Errorf("%s is listed as node %q, %v", x.ID, x.Node, err)
		}
	}
}
