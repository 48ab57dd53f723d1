package flows

import (
	"bytes"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// passing is a chart whose edges all pass their result on, in the order of their ids.
func passing(rules fixture.When, parts ...string) engine.FlowSpec {
	spec := fixture.Chart(rules, parts...)
	ids := make([]id.EdgeID, len(spec.Edges))
	for i := range ids {
		ids[i] = id.NewEdgeID()
	}
	slices.SortFunc(ids, id.EdgeID.Compare)
	for i := range spec.Edges {
		spec.Edges[i].ID, spec.Edges[i].PassResult = ids[i], "input"
	}
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Payload = []byte("payload of " + spec.Nodes[i].Key)
	}
	return spec
}

func wantPayload(t *testing.T, f *fixture.Flows, flow id.FlowID, key string, want []byte) {
	t.Helper()
	if got := f.Stored(t, f.NodeID(flow, key)).Payload; !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%s has payload %q, want %q", key, got, want)
	}
}

func succeedWith(t *testing.T, f *fixture.Flows, flow id.FlowID, key string, result []byte) {
	t.Helper()
	if err := f.CompleteExecution(t.Context(), f.Lease(t, flow, key), result); err != nil {
		t.Fatal(err)
	}
}

// The result of an upstream becomes the payload of the downstream, whose worker gets it.
func TestPassResultBecomesThePayload_F34(t *testing.T) {
	t.Parallel()
	t.Run("claimed_with_it", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(nil, "a>b"))
		succeedWith(t, f, flow, "a", []byte("out\x00put"))
		wantPayload(t, f, flow, "b", []byte("out\x00put"))
		claimed := f.ClaimOne(t)
		if claimed.ID != f.NodeID(flow, "b") || string(claimed.Payload) != "out\x00put" {
			t.Errorf("claimed %+v", claimed)
		}
	})
	t.Run("only_along_edges_that_ask", func(t *testing.T) {
		f := fixture.NewFlows(t)
		spec := passing(nil, "a>b", "a>c")
		spec.Edges[1].PassResult = ""
		flow := f.NewFlowOf(t, spec)
		succeedWith(t, f, flow, "a", []byte("r"))
		wantPayload(t, f, flow, "b", []byte("r"))
		wantPayload(t, f, flow, "c", []byte("payload of c"))
	})
	t.Run("no_result", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(nil, "a>b"))
		succeedWith(t, f, flow, "a", nil)
		wantPayload(t, f, flow, "b", []byte("payload of b"))
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReady: "b"})
	})
	t.Run("empty_result", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(nil, "a>b"))
		succeedWith(t, f, flow, "a", []byte{})
		wantPayload(t, f, flow, "b", []byte{})
	})
	t.Run("not_of_a_failure", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(fixture.When{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c"))
		f.Fail(t, flow, "a")
		wantPayload(t, f, flow, "c", []byte("payload of c"))
	})
	t.Run("not_along_an_edge_that_an_earlier_end_resolved", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(fixture.When{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c", "a>d"))
		l := f.Lease(t, flow, "a")
		// It failed once, and another program replayed it.
		f.Exec(t, `UPDATE ff_edge SET policy = policy || '{"edge_state":"impossible","resolved_at_ms":1,"resolved_outcome":"failed"}'
			WHERE partition_key = $1 AND flow_id = $2 AND upstream_eid = $3 AND downstream_eid = $4`,
			fixture.PartitionOf(flow), flow, l.Execution.UUID(), f.NodeID(flow, "c").UUID())
		f.SetGroup(t, flow, "c", "fail_count = 1, running_count = 1")
		succeedWith(t, f, flow, "a", []byte("of a"))
		wantPayload(t, f, flow, "d", []byte("of a"))
		wantPayload(t, f, flow, "c", []byte("payload of c"))
	})
	t.Run("last_of_several", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(nil, "a>c", "b>c"))
		succeedWith(t, f, flow, "b", []byte("of b"))
		wantPayload(t, f, flow, "c", []byte("of b")) // already, although c still waits
		succeedWith(t, f, flow, "a", []byte("of a"))
		wantPayload(t, f, flow, "c", []byte("of a"))
	})
	t.Run("greatest_edge_of_a_batch", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(nil, "a>d", "c>d", "b>d"))
		var batch []engine.Completion
		for _, key := range []string{"b", "c", "a"} {
			batch = append(batch, engine.Completion{Lease: f.Lease(t, flow, key), Result: []byte("of " + key)})
		}
		outcomes, err := f.CompleteExecutions(t.Context(), batch)
		if err != nil || outcomes[0] != nil || outcomes[1] != nil || outcomes[2] != nil {
			t.Fatalf("%v, error %v", outcomes, err)
		}
		wantPayload(t, f, flow, "d", []byte("of b"))
	})
	t.Run("not_after_the_start", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(fixture.When{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "c>d"))
		f.ClaimAll(t)
		succeedWith(t, f, flow, "a", []byte("of a"))
		succeedWith(t, f, flow, "b", []byte("of b"))
		wantPayload(t, f, flow, "d", []byte("of b")) // released, and not started yet
		f.Lease(t, flow, "d")
		succeedWith(t, f, flow, "c", []byte("of c"))
		wantPayload(t, f, flow, "d", []byte("of b"))
	})
	t.Run("not_before_a_retry", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(fixture.When{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c"))
		f.ClaimAll(t)
		succeedWith(t, f, flow, "a", []byte("of a"))
		if failed, err := f.FailExecution(t.Context(), f.Lease(t, flow, "c"), engine.Failure{}); err != nil || !failed.Retry {
			t.Fatalf("%+v, error %v", failed, err)
		}
		succeedWith(t, f, flow, "b", []byte("of b"))
		wantPayload(t, f, flow, "c", []byte("of a"))
	})
	t.Run("not_to_what_has_ended", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.NewFlowOf(t, passing(nil, "a>c", "b>c"))
		f.Lease(t, flow, "b")
		f.Fail(t, flow, "a")
		succeedWith(t, f, flow, "b", []byte("of b"))
		wantPayload(t, f, flow, "c", []byte("payload of c"))
	})
}
