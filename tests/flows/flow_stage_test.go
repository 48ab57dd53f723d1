package flows

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func applyEdges(t *testing.T, f *fixture.Flows, flow id.FlowID, edges ...id.EdgeID) engine.AppliedEdges {
	t.Helper()
	applied, err := f.ApplyEdges(t.Context(), flow, edges)
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func TestStageEdgesStoresRows(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b", "c")
	s := f.Staged(flow, false, "a>b", "a>c")
	s.Edges[1] = engine.StagedEdge{Upstream: s.Edges[1].Upstream, Downstream: s.Edges[1].Downstream, Kind: "soft", PassResult: "rows", AllowStarted: true}
	s.Revision = new(int64(3))
	staged, err := f.StageEdges(t.Context(), s)
	if err != nil || staged.Revision != 5 || len(staged.Edges) != 2 || staged.Edges[0] != s.Edges[0].ID || fmt.Sprint(staged.New) != fmt.Sprint(staged.Edges) {
		t.Errorf("staged %+v, error %v", staged, err)
	}
	wantCounters(t, f, flow, 5, 3, 2)
	stored := func(edge id.EdgeID) map[string]any {
		return fixture.StoredRow(t, f.Pool, "ff_edge", "flow_id = $1 AND edge_id = $2", flow, edge)
	}
	const row = `{"partition_key": %d, "flow_id": %q, "edge_id": %q, "upstream_eid": %q, "downstream_eid": %q, "policy_version": 0,
		"policy": {"dependency_kind": %q, "satisfaction_condition": "all_required", "data_passing_ref": %q, "edge_state": %q,
			"created_by": "engine", "created_at_ms": %d, "staged_at_ms": %[9]d, "applied_at_ms": %[10]s %[11]s}}`
	a, b, c := f.NodeID(flow, "a").UUID(), f.NodeID(flow, "b").UUID(), f.NodeID(flow, "c").UUID()
	fixture.WantRow(t, "a plain one", stored(staged.Edges[0]), fmt.Sprintf(row, fixture.PartitionOf(flow), flow, staged.Edges[0], a, b, "success_only", "", "pending", fixture.StartMs, "null", ""))
	fixture.WantRow(t, "one with everything", stored(staged.Edges[1]),
		fmt.Sprintf(row, fixture.PartitionOf(flow), flow, staged.Edges[1], a, c, "soft", "rows", "pending", fixture.StartMs, "null", `, "allow_active_downstream": true`))
	fixture.WantEqual(t, "groups", f.Groups(t, flow), nil)
	f.WantMembers(t, flow, map[string]string{fixture.StateReady: "a b c"})

	applied := applyEdges(t, f, flow, staged.Edges[1])
	if len(applied.Applied) != 1 || applied.Open[f.NodeID(flow, "c")] != 1 {
		t.Errorf("applied %+v", applied)
	}
	wantCounters(t, f, flow, 5, 3, 2)
	fixture.WantRow(t, "one that is applied", stored(staged.Edges[1]), fmt.Sprintf(row, fixture.PartitionOf(flow), flow, staged.Edges[1], a, c, "soft", "rows", "applied",
		fixture.StartMs, fmt.Sprint(fixture.StartMs), `, "allow_active_downstream": true`))
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.WantMembers(t, flow, map[string]string{fixture.StateReady: "a b", fixture.StateHeld: "c"})
	before := f.DumpFlow(t, flow)
	if again := applyEdges(t, f, flow, staged.Edges[1]); len(again.Applied) > 0 || f.DumpFlow(t, flow) != before {
		t.Errorf("applied again: %+v", again)
	}
}

// A repetition changes nothing, whichever revision it expects; another edge in its place is named.
func TestStageEdgesRepeatedChangesNothing(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b", "c>d")
	s := f.Staged(flow, false, "a>b")
	first := f.StageAll(t, s)
	before := f.DumpFlow(t, flow)
	s.Revision = new(int64(0))
	for _, minted := range []bool{false, true} {
		if minted {
			s.Edges[0].ID = id.EdgeID{}
		}
		if again, err := f.StageEdges(t.Context(), s); err != nil || again.Revision != 6 || again.Edges[0] != first[0] || len(again.New) > 0 {
			t.Errorf("staged %+v, error %v", again, err)
		}
	}
	s.Edges[0].ID = first[0]
	for name, edit := range map[string]func(*engine.StagedEdge){
		"kind":        func(d *engine.StagedEdge) { d.Kind = "soft" },
		"reference":   func(d *engine.StagedEdge) { d.PassResult = "rows" },
		"end":         func(d *engine.StagedEdge) { d.Downstream = f.NodeID(flow, "d") },
		"begin":       func(d *engine.StagedEdge) { d.Upstream = f.NodeID(flow, "c") },
		"another id":  func(d *engine.StagedEdge) { d.ID = id.NewEdgeID() },
		"kind, no id": func(d *engine.StagedEdge) { d.ID, d.Kind = id.EdgeID{}, "soft" },
	} {
		other := s
		other.Revision = nil
		other.Edges = append([]engine.StagedEdge(nil), s.Edges...)
		edit(&other.Edges[0])
		_, err := f.StageEdges(t.Context(), other)
		exists, ok := errors.AsType[*fferr.EdgeExistsError](err)
		want := fferr.EdgeExistsError{Edge: first[0], Upstream: f.NodeID(flow, "a"), Downstream: f.NodeID(flow, "b")}
		if !ok || !errors.Is(err, fferr.ErrEdgeExists) || *exists != want {
			t.Errorf("another %s: error %v, want that %+v exists", name, err, want)
		}
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("the rows changed from\n%s\nto\n%s", before, after)
	}
	// A repetition with Apply applies staged edges.
	s.Apply = true
	if _, err := f.StageEdges(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateHeld)
	wantCounters(t, f, flow, 6, 4, 2)
}

// One edge is checked in a fixed order, so that of several mistakes the same one is reported.
func TestStageEdgesRefusesInOrder_F21(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "b>c", "done", "going")
	stranger, foreign := f.Standalone(t, flow, "stranger"), id.NewFlowID()
	for fixture.PartitionOf(foreign) == fixture.PartitionOf(flow) {
		foreign = id.NewFlowID()
	}
	f.Succeed(t, flow, "done")
	node := func(key string) id.ExecutionID { return f.NodeID(flow, key) }
	before := f.DumpFlow(t, flow)
	for _, test := range []struct {
		name     string
		from, to id.ExecutionID
		revision int64
		want     error
	}{
		{"itself, of another partition", f.NodeID(foreign, "x"), f.NodeID(foreign, "x"), 0, fferr.ErrCycle},
		{"from another partition", f.NodeID(foreign, "x"), stranger, 0, fferr.ErrInvalidInput},
		{"to another partition", node("a"), f.NodeID(foreign, "x"), 0, fferr.ErrInvalidInput},
		{"no id", node("a"), id.ExecutionID{}, 0, fferr.ErrInvalidInput},
		{"revision, no member", stranger, node("done"), 0, fferr.ErrStaleRevision},
		{"from no member, to one that has ended", stranger, node("done"), 7, fferr.ErrNotMember},
		{"to no member", node("a"), stranger, 7, fferr.ErrNotMember},
		{"to nobody", node("a"), node("nobody"), 7, fferr.ErrNotFound},
		{"to one that has ended", node("a"), node("done"), 7, fferr.ErrEnded},
		{"to one that has started, in a circle", node("c"), node("a"), 7, fferr.ErrStarted},
		{"circle", node("c"), node("b"), 7, fferr.ErrCycle},
	} {
		for _, apply := range []bool{false, true} {
			_, err := f.StageEdges(t.Context(), engine.EdgeStaging{
				Flow: flow, Apply: apply, Revision: &test.revision, Edges: []engine.StagedEdge{{ID: id.NewEdgeID(), Upstream: test.from, Downstream: test.to}},
			})
			if !errors.Is(err, test.want) {
				t.Errorf("%s: error %v, want %v", test.name, err, test.want)
			}
		}
	}
	_, err := f.StageEdges(t.Context(), f.Staged(flow, true, "a>c", "a>done"))
	if !errors.Is(err, fferr.ErrEnded) {
		t.Errorf("error %v, want %v for the second", err, fferr.ErrEnded)
	}
	if after := f.DumpFlow(t, flow); after != before {
		t.Errorf("a refusal wrote: the rows changed from\n%s\nto\n%s", before, after)
	}
}

// Edges that are staged one by one hold the group until the last one counts (F18, F19), though an upstream ends between.
func TestStageEdgesOneByOneHoldsTheGroup_F18_F19(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b", "c", "d")
	for _, key := range []string{"a", "b", "c"} {
		f.SetExecution(t, f.NodeID(flow, key), "priority = 9")
	}
	f.Exec(t, "UPDATE ffx_ready SET rank = -9 WHERE execution_id = ANY ($1)",
		[]id.ExecutionUUID{f.NodeID(flow, "a").UUID(), f.NodeID(flow, "b").UUID(), f.NodeID(flow, "c").UUID()})
	for _, c := range f.ClaimN(t, 3) {
		f.Leases[c.ID] = c.Lease
	}
	edges := f.StageAll(t, f.Staged(flow, false, "a>d", "b>d"))
	applyEdges(t, f, flow, edges[0])
	edges = append(edges, f.StageAll(t, f.Staged(flow, false, "c>d"))...)
	f.Succeed(t, flow, "b") // staged only: it is not counted for another edge
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.Succeed(t, flow, "a")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateHeld)
	if applied := applyEdges(t, f, flow, edges[1]); applied.Open[f.NodeID(flow, "d")] != 0 {
		t.Errorf("applied %+v", applied)
	}
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateHeld)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 2, KTarget: 2})
	applyEdges(t, f, flow, edges[2])
	f.Succeed(t, flow, "c")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 3, KTarget: 3})
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateReady)
}

// An edge is applied where it stands, in its own group and flow, however it is asked for (F22).
func TestApplyEdges_F22(t *testing.T) {
	f := fixture.NewFlows(t)
	flow, other := f.Draw(t, nil, "a", "b", "x>y"), fixture.Chart(nil, "a", "b")
	for fixture.PartitionOf(other.ID) != fixture.PartitionOf(flow) {
		other.ID = id.NewFlowID()
	}
	f.NewFlowOf(t, other)
	edge := f.StageAll(t, f.Staged(flow, false, "a>b"))[0]
	before := f.DumpFlow(t, flow) + f.DumpFlow(t, other.ID)
	for _, test := range []struct {
		name  string
		flow  id.FlowID
		edges []id.EdgeID
		want  error
		text  string
	}{
		{"another flow", other.ID, []id.EdgeID{edge}, fferr.ErrNotFound, "edge " + edge.String()},
		{"no such edge", flow, []id.EdgeID{edge, id.NewEdgeID()}, fferr.ErrNotFound, "edge"},
		{"no such flow", id.NewFlowID(), []id.EdgeID{edge}, fferr.ErrNotFound, "flow"},
		{"no flow", id.FlowID{}, []id.EdgeID{edge}, fferr.ErrInvalidInput, "Flow"},
		{"twice", flow, []id.EdgeID{edge, edge}, fferr.ErrInvalidInput, "is given twice"},
		{"too many", flow, make([]id.EdgeID, engine.MaxEdges+1), fferr.ErrInvalidInput, "edges: 50001"},
	} {
		_, err := f.ApplyEdges(t.Context(), test.flow, test.edges)
		if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s: error %v, want %v with %q", test.name, err, test.want, test.text)
		}
	}
	if after := f.DumpFlow(t, flow) + f.DumpFlow(t, other.ID); after != before {
		t.Errorf("a refusal wrote: the rows changed from\n%s\nto\n%s", before, after)
	}
	applyEdges(t, f, flow, edge)
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.WantGroup(t, flow, "y", fixture.StoredGroup{Running: 1, KTarget: 1})
}

// An edge is not applied to a dependent that has ended or started since it was staged; it is to one that may have
// started.
func TestApplyEdgesRefusesEndedDependents(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "ended", "started", "allowed")
	s := f.Staged(flow, false, "a>ended", "a>started", "a>allowed")
	s.Edges[2].AllowStarted = true
	edges := f.StageAll(t, s)
	f.Succeed(t, flow, "ended") // claims all
	for i, want := range []error{fferr.ErrEnded, fferr.ErrStarted} {
		if _, err := f.ApplyEdges(t.Context(), flow, edges[i:i+1]); !errors.Is(err, want) || !strings.Contains(err.Error(), edges[i].String()) {
			t.Errorf("edge %d: error %v, want %v", i, err, want)
		}
	}
	applyEdges(t, f, flow, edges[2])
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "ended", fixture.StateRunning: "a started allowed"})
	f.WantGroup(t, flow, "allowed", fixture.StoredGroup{Running: 1, KTarget: 1})
	if waiting, err := f.WaitForChildren(t.Context(), f.Leases[f.NodeID(flow, "allowed")]); err != nil || waiting != engine.WaitingParked {
		t.Errorf("waits: %s, error %v", waiting, err)
	}
	f.Succeed(t, flow, "a")
	f.WantState(t, f.NodeID(flow, "allowed"), fixture.StateReturned)
}

// The policy of a group is the one set before its first edge (test 3 of the flows).
func TestSetGroupPolicy(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b", "c", "d")
	x := f.NodeID(flow, "d")
	set := func(p policy.Group) (bool, error) { return f.SetGroupPolicy(t.Context(), flow, x, p) }
	for _, step := range []struct {
		policy  policy.Group
		changed bool
		stored  string
		kTarget int
		running int
	}{
		{policy.AllOf(), true, `{"kind": "all_of"}`, 0, 0},
		{policy.AllOf(), false, `{"kind": "all_of"}`, 0, 0},
		{policy.Always(), true, `{"kind": "quorum", "k": 1000000000, "on_satisfied": "let_run", "ffx_when": "always"}`, 1_000_000_000, 1_000_000_000},
		{policy.AnyOf(policy.LetRun), true, `{"kind": "any_of", "on_satisfied": "let_run"}`, 1, 0},
		{policy.AnyOf(policy.CancelRemaining), true, `{"kind": "any_of", "on_satisfied": "cancel_remaining"}`, 1, 0},
		{policy.Quorum(1<<31-1, policy.LetRun), true, `{"kind": "quorum", "k": 2147483647, "on_satisfied": "let_run"}`, 1<<31 - 1, 0},
		{policy.Quorum(2, policy.LetRun), true, `{"kind": "quorum", "k": 2, "on_satisfied": "let_run"}`, 2, 0},
	} {
		before := f.DumpFlow(t, flow)
		changed, err := set(step.policy)
		if err != nil || changed != step.changed {
			t.Errorf("%v: changed %t, error %v", step.policy, changed, err)
		}
		if !changed && f.DumpFlow(t, flow) != before {
			t.Errorf("%v: was written though it is set", step.policy)
		}
		fixture.WantRow(t, step.policy.String(), fixture.StoredRow(t, f.Pool, "ff_edge_group", "flow_id = $1", flow), fmt.Sprintf(`{"partition_key": %d, "flow_id": %q,
			"downstream_eid": %q, "policy": %s, "k_target": %d, "success_count": 0, "fail_count": 0, "skip_count": 0, "running_count": %d,
			"cancel_siblings_pending_flag": false, "cancel_siblings_pending_members": []}`,
			fixture.PartitionOf(flow), flow, x.UUID(), step.stored, step.kTarget, step.running))
	}
	wantCounters(t, f, flow, 4, 4, 0)
	f.WantState(t, x, fixture.StateReady) // it waits for nothing yet
	for _, p := range []policy.Group{policy.Quorum(0, policy.LetRun), policy.Quorum(1<<31, policy.LetRun), policy.Quorum(-1, policy.LetRun), policy.AnyOf("explode")} {
		if _, err := set(p); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%v: error %v, want %v", p, err, fferr.ErrInvalidInput)
		}
	}
	// From the first edge on, staged or not, it is fixed, though it were the same.
	edges := f.StageAll(t, f.Staged(flow, false, "a>d"))
	for _, p := range []policy.Group{policy.Quorum(2, policy.LetRun), policy.AllOf()} {
		if _, err := set(p); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), ": edge_group_policy_already_fixed") {
			t.Errorf("%v: error %v, want that it is fixed", p, err)
		}
	}
	edges = append(edges, f.StageAll(t, f.Staged(flow, false, "b>d", "c>d"))...)
	applyEdges(t, f, flow, edges...)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Running: 3, KTarget: 2})
	f.Succeed(t, flow, "a", "b")
	f.WantState(t, x, fixture.StateReady)
}

// A policy is set for a flow that is there and open, and for an execution that is, or may become, its member (F23).
func TestSetGroupPolicyRefuses_F23(t *testing.T) {
	f := fixture.NewFlows(t)
	flow, other := f.Draw(t, nil, "a"), fixture.Chart(nil, "o")
	for fixture.PartitionOf(other.ID) != fixture.PartitionOf(flow) {
		other.ID = id.NewFlowID()
	}
	f.NewFlowOf(t, other)
	foreign := id.NewFlowID()
	for fixture.PartitionOf(foreign) == fixture.PartitionOf(flow) {
		foreign = id.NewFlowID()
	}
	missing := id.NewFlowID()
	for fixture.PartitionOf(missing) != fixture.PartitionOf(flow) {
		missing = id.NewFlowID()
	}
	for _, test := range []struct {
		name string
		flow id.FlowID
		x    id.ExecutionID
		want error
	}{
		{"missing flow", missing, f.NodeID(missing, "a"), fferr.ErrNotFound},
		{"no flow", id.FlowID{}, f.NodeID(flow, "a"), fferr.ErrInvalidInput},
		{"no execution", flow, id.ExecutionID{}, fferr.ErrInvalidInput},
		{"another partition", flow, f.NodeID(foreign, "a"), fferr.ErrInvalidInput},
		{"member of another flow", flow, f.NodeID(other.ID, "o"), fferr.ErrOtherFlow},
	} {
		if _, err := f.SetGroupPolicy(t.Context(), test.flow, test.x, policy.AnyOf(policy.LetRun)); !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
	}
	fixture.WantEqual(t, "groups", f.Groups(t, flow), nil)
	f.WantNoFlow(t, missing)
	// One that is not there yet is created into its group.
	if changed, err := f.SetGroupPolicy(t.Context(), flow, f.NodeID(flow, "n"), policy.AnyOf(policy.LetRun)); err != nil || !changed {
		t.Fatal(changed, err)
	}
	grow(t, f, flow, nil, "m n", "a>n", "m>n")
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Running: 2, KTarget: 1})
	f.Succeed(t, flow, "a")
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateReady)
}

// A flow that has ended refuses every change of its structure, and no other flow does (F24): a state that is neither
// is not called a stale revision.
func TestOnlyAnEndedFlowRefusesGrowth_F24(t *testing.T) {
	t.Parallel()
	for literal, ended := range map[string]bool{
		"cancelled": true, "completed": true, "failed": true, "open": false, "running": false, "blocked": false, "who knows": false,
	} {
		t.Run(literal, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a", "b", "c")
			x := f.Standalone(t, flow, "x")
			edges := f.StageAll(t, f.Staged(flow, false, "a>c"))
			f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = $2 WHERE flow_id = $1", flow, literal)
			for name, change := range map[string]func() error{
				"grow":  func() error { _, err := f.GrowFlow(t.Context(), f.Growth(flow, nil, "n", "a>n")); return err },
				"add":   func() error { _, err := f.AddMembers(t.Context(), flow, []id.ExecutionID{x}); return err },
				"stage": func() error { _, err := f.StageEdges(t.Context(), f.Staged(flow, true, "a>b")); return err },
				"apply": func() error { _, err := f.ApplyEdges(t.Context(), flow, edges); return err },
				"policy": func() error {
					_, err := f.SetGroupPolicy(t.Context(), flow, f.NodeID(flow, "later"), policy.AllOf())
					return err
				},
			} {
				err := change()
				if ended && !errors.Is(err, fferr.ErrFlowTerminal) || !ended && err != nil {
					t.Errorf("%s: error %v", name, err)
				}
			}
		})
	}
}

// Siblings are listed when a group that cancels them is decided by growth.
func TestGrowFlowListsSiblings(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "won", "going", "needed>other")
	f.ClaimAll(t)
	f.Succeed(t, flow, "won")
	if _, err := f.SetGroupPolicy(t.Context(), flow, f.NodeID(flow, "n"), policy.AnyOf(policy.CancelRemaining)); err != nil {
		t.Fatal(err)
	}
	grow(t, f, flow, nil, "n", "won>n", "going>n", "needed>n")
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Success: 1, Running: 2, KTarget: 1, Flagged: true, Enqueued: true, Siblings: "going"})
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateReady)
}

// A result is handed over along an edge that counts at once.
func TestGrowthPassesResults_F34(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b", "c")
	for key, result := range map[string]string{"a": "of a", "b": "of b"} {
		if err := f.CompleteExecution(t.Context(), f.Lease(t, flow, key), []byte(result)); err != nil {
			t.Fatal(err)
		}
	}
	g := f.Growth(flow, nil, "n m", "a>n", "b>n", "c>n", "a>m")
	ids := id.NewEdgeIDs(3)
	for i, edge := range []id.EdgeID{ids[2], ids[1], ids[0]} { // of several the greatest id wins
		g.Edges[i].ID, g.Edges[i].PassResult = edge, "x"
	}
	if _, err := f.GrowFlow(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"n": `\x6f662061`, "m": nil} {
		if row := fixture.StoredRow(t, f.Pool, "ff_exec_core", "execution_id = $1", f.NodeID(flow, key).UUID()); row["payload"] != want {
			t.Errorf("%s has the payload %v, want %v", key, row["payload"], want)
		}
	}
}
