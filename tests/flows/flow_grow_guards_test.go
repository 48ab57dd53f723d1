package flows

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// growFrom grows a flow by one edge that passes its result on, into a member that may have started.
func growFrom(t *testing.T, f *fixture.Flows, flow id.FlowID, edge string) {
	t.Helper()
	g := f.Growth(flow, nil, "", edge)
	g.Edges[0].PassResult, g.Edges[0].AllowStarted = "input", true
	if _, err := f.GrowFlow(t.Context(), g); err != nil {
		t.Fatal(err)
	}
}

// A member that has started keeps its payload, even with new upstreams.
func TestGrowthKeepsThePayloadOfAStartedMember(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(t *testing.T, f *fixture.Flows, l engine.Lease){
		"parked": func(t *testing.T, f *fixture.Flows, l engine.Lease) {
			if waiting, err := f.WaitForChildren(t.Context(), l); err != nil || waiting != engine.WaitingParked {
				t.Fatalf("waits: %s, %v", waiting, err)
			}
		},
		"to be retried": func(t *testing.T, f *fixture.Flows, l engine.Lease) {
			if failed, err := f.FailExecution(t.Context(), l, engine.Failure{}); err != nil || !failed.Retry {
				t.Fatalf("%+v, %v", failed, err)
			}
		},
		"resumable": func(t *testing.T, f *fixture.Flows, l engine.Lease) {
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{l}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
			f.SetExecution(t, l.Execution, "public_state = 'resumable', started_at_ms = NULL")
		},
		"running": func(*testing.T, *fixture.Flows, engine.Lease) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			spec := fixture.Chart(nil, "done", "child", "me")
			for i := range spec.Nodes {
				spec.Nodes[i].Spec.Payload = []byte("payload of " + spec.Nodes[i].Key)
			}
			flow := f.NewFlowOf(t, spec)
			f.ClaimAll(t)
			succeedWith(t, f, flow, "done", []byte("of done"))
			growFrom(t, f, flow, "child>me")
			pause(t, f, f.Lease(t, flow, "me"))
			growFrom(t, f, flow, "done>me")
			wantPayload(t, f, flow, "me", []byte("payload of me"))
		})
	}
}

// A group is decided once, and so are its upstreams that are not needed listed once. Those that lead to it later are
// live work.
func TestGrowthIntoADecidedGroupListsNoSiblings(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"n": policy.AnyOf(policy.CancelRemaining)}, "won>n", "late")
	f.ClaimAll(t)
	f.Succeed(t, flow, "won")
	f.Exec(t, "DELETE FROM ff_pending_cancel_groups WHERE flow_id = $1", flow) // as the job that cancels them does
	f.SetGroup(t, flow, "n", "cancel_siblings_pending_flag = false")
	grow(t, f, flow, nil, "", "late>n")
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1})
	f.WantState(t, f.NodeID(flow, "late"), fixture.StateRunning)
}

// An event of a resumption is no end, even of an execution that has ended since. Growth counts the end, which has
// been dispatched.
func TestGrowthCountsAnEndBesideAnUndispatchedResumption(t *testing.T) {
	f := fixture.CloneFlowFixture(t)
	flow := f.Draw(t, nil, "a", "b")
	f.ForeignEvent(t, f.NodeID(flow, "a"), &flow, "resumable")
	f.Succeed(t, flow, "a")
	grow(t, f, flow, nil, "n", "a>n")
	f.WantGroup(t, flow, "n", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantState(t, f.NodeID(flow, "n"), fixture.StateReady)
}
