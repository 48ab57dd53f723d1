package tests

import (
	"bytes"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// passing is a chart whose edges all pass their result on, in the order of their ids.
func passing(rules when, parts ...string) engine.FlowSpec {
	spec := chart(rules, parts...)
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

func (f *flowFixture) wantPayload(t *testing.T, flow id.FlowID, key string, want []byte) {
	t.Helper()
	if got := f.stored(t, f.NodeID(flow, key)).Payload; !bytes.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%s has payload %q, want %q", key, got, want)
	}
}

func (f *flowFixture) succeedWith(t *testing.T, flow id.FlowID, key string, result []byte) {
	t.Helper()
	if err := f.CompleteExecution(t.Context(), f.lease(t, flow, key), result); err != nil {
		t.Fatal(err)
	}
}

// The result of an upstream becomes the payload of the downstream, whose worker gets it.
func TestF34_PassResult(t *testing.T) {
	t.Parallel()
	t.Run("claimed_with_it", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(nil, "a>b"))
		f.succeedWith(t, flow, "a", []byte("out\x00put"))
		f.wantPayload(t, flow, "b", []byte("out\x00put"))
		claimed := f.claim(t)
		if claimed.ID != f.NodeID(flow, "b") || string(claimed.Payload) != "out\x00put" {
			t.Errorf("claimed %+v", claimed)
		}
	})
	t.Run("only_along_edges_that_ask", func(t *testing.T) {
		f := newFlowFixture(t)
		spec := passing(nil, "a>b", "a>c")
		spec.Edges[1].PassResult = ""
		flow := f.createFlow(t, spec)
		f.succeedWith(t, flow, "a", []byte("r"))
		f.wantPayload(t, flow, "b", []byte("r"))
		f.wantPayload(t, flow, "c", []byte("payload of c"))
	})
	t.Run("no_result", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(nil, "a>b"))
		f.succeedWith(t, flow, "a", nil)
		f.wantPayload(t, flow, "b", []byte("payload of b"))
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateReady: "b"})
	})
	t.Run("empty_result", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(nil, "a>b"))
		f.succeedWith(t, flow, "a", []byte{})
		f.wantPayload(t, flow, "b", []byte{})
	})
	t.Run("not_of_a_failure", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(when{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c"))
		f.fail(t, flow, "a")
		f.wantPayload(t, flow, "c", []byte("payload of c"))
	})
	t.Run("not_along_an_edge_that_an_earlier_end_resolved", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(when{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c", "a>d"))
		l := f.lease(t, flow, "a")
		// It failed once, and another program replayed it.
		f.exec(t, `UPDATE ff_edge SET policy = policy || '{"edge_state":"impossible","resolved_at_ms":1,"resolved_outcome":"failed"}'
			WHERE partition_key = $1 AND flow_id = $2 AND upstream_eid = $3 AND downstream_eid = $4`,
			partitionOf(flow), flow, l.Execution.UUID(), f.NodeID(flow, "c").UUID())
		f.setGroup(t, flow, "c", "fail_count = 1, running_count = 1")
		f.succeedWith(t, flow, "a", []byte("of a"))
		f.wantPayload(t, flow, "d", []byte("of a"))
		f.wantPayload(t, flow, "c", []byte("payload of c"))
	})
	t.Run("last_of_several", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(nil, "a>c", "b>c"))
		f.succeedWith(t, flow, "b", []byte("of b"))
		f.wantPayload(t, flow, "c", []byte("of b")) // already, although c still waits
		f.succeedWith(t, flow, "a", []byte("of a"))
		f.wantPayload(t, flow, "c", []byte("of a"))
	})
	t.Run("greatest_edge_of_a_batch", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(nil, "a>d", "c>d", "b>d"))
		var batch []engine.Completion
		for _, key := range []string{"b", "c", "a"} {
			batch = append(batch, engine.Completion{Lease: f.lease(t, flow, key), Result: []byte("of " + key)})
		}
		outcomes, err := f.CompleteExecutions(t.Context(), batch)
		if err != nil || outcomes[0] != nil || outcomes[1] != nil || outcomes[2] != nil {
			t.Fatalf("%v, error %v", outcomes, err)
		}
		f.wantPayload(t, flow, "d", []byte("of b"))
	})
	t.Run("not_after_the_start", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(when{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "c>d"))
		f.claimAll(t)
		f.succeedWith(t, flow, "a", []byte("of a"))
		f.succeedWith(t, flow, "b", []byte("of b"))
		f.wantPayload(t, flow, "d", []byte("of b")) // released, and not started yet
		f.lease(t, flow, "d")
		f.succeedWith(t, flow, "c", []byte("of c"))
		f.wantPayload(t, flow, "d", []byte("of b"))
	})
	t.Run("not_before_a_retry", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(when{"c": policy.AnyOf(policy.LetRun)}, "a>c", "b>c"))
		f.claimAll(t)
		f.succeedWith(t, flow, "a", []byte("of a"))
		if failed, err := f.FailExecution(t.Context(), f.lease(t, flow, "c"), engine.Failure{}); err != nil || !failed.Retry {
			t.Fatalf("%+v, error %v", failed, err)
		}
		f.succeedWith(t, flow, "b", []byte("of b"))
		f.wantPayload(t, flow, "c", []byte("of a"))
	})
	t.Run("not_to_what_has_ended", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.createFlow(t, passing(nil, "a>c", "b>c"))
		f.lease(t, flow, "b")
		f.fail(t, flow, "a")
		f.succeedWith(t, flow, "b", []byte("of b"))
		f.wantPayload(t, flow, "c", []byte("payload of c"))
	})
}
