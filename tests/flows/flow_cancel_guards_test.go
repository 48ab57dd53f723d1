package flows

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The first page of a request has only locked members. The rest of the flow follows.
func TestCancelFlowsReadsPastAPageOfLockedMembers(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	keys := make([]string, 80)
	for i := range keys {
		keys[i] = fmt.Sprintf("n%d", i)
	}
	flow := f.Draw(t, nil, keys...)
	f.ClaimAll(t)
	f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Minute})
	f.Advance(time.Minute)
	tx := f.BeginTx(t)
	for _, text := range fixture.Texts(t, f.Pool, "SELECT execution_id FROM ff_cancel_backlog_member WHERE flow_id = $1 ORDER BY execution_id LIMIT 64", flow) {
		x, err := id.ParseExecutionID(text)
		if err != nil {
			t.Fatal(err)
		}
		fixture.LockExecution(t, tx, x)
	}
	for i := range 16 {
		if n, err := upkeep.Of(f.Engine).CancelFlows(t.Context(), 1); err != nil || n != 1 {
			t.Fatalf("call %d: %d members are done, %v; want 1", i, n, err)
		}
	}
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 64)
	wantBacklog(t, f, flow, "")
}

// A member that was resumed from a suspension counts as running, though it is not claimed again.
func TestCancelSparesAResumedMember(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]engine.FlowCancelRequest{
		"during its grace":    {Grace: time.Minute},
		"that is not pending": {Policy: state.CancelPending},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a", "b")
			f.SeedSuspension(t, f.Lease(t, flow, "a").Execution)
			f.SetExecution(t, f.NodeID(flow, "a"), `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'resumable',
				blocking_reason = 'waiting_for_worker'`)
			resumed := f.Members(t, flow)["a"]
			request.ID = flow
			f.Request(t, request)
			if got := f.Members(t, flow)["a"]; got != resumed {
				t.Errorf("a is %s, want %s", got, resumed)
			}
		})
	}
}

// A cancelled flow takes its blocked members off the list. The clock goes on, so that no trigger does it.
func TestCancelFlowUnlistsBlockedMembers(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b")
	a := f.NodeID(flow, "a")
	f.Block(t, a, state.PausedByOperator, "")
	f.Advance(time.Millisecond)
	f.CancelBy(t, flow, state.CancelAll)
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b"})
	if f.IsListed(t, a) {
		t.Error("a is still listed as blocked")
	}
}

// strayFlows are two flows of one partition, and a member of the first that both have noted as to be cancelled.
func strayFlows(t *testing.T, f *fixture.Flows) (first, second id.FlowID) {
	t.Helper()
	first = f.Draw(t, nil, "a")
	spec := fixture.Chart(nil, "b")
	for fixture.PartitionOf(spec.ID) != fixture.PartitionOf(first) {
		spec.ID = id.NewFlowID()
	}
	second = f.NewFlowOf(t, spec)
	f.ClaimAll(t)
	f.Insert(t, "ff_cancel_backlog", fixture.Columns{
		"partition_key": fixture.PartitionOf(second), "flow_id": second, "cancellation_policy": "cancel_all", "reason": "of another",
		"requested_at_ms": f.Time().UnixMilli(),
	}, nil)
	f.Insert(t, "ff_cancel_backlog_member", fixture.Columns{
		"partition_key": fixture.PartitionOf(second), "flow_id": second, "execution_id": f.NodeID(first, "a").String(),
	}, nil)
	return first, second
}

// A request that names a member of another flow, in the same partition, cancels nothing of that flow.
func TestCancelFlowsSparesMembersOfOtherFlows(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	first, second := strayFlows(t, f)
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 1)
	wantBacklog(t, f, second, "")
	f.WantMembers(t, first, map[string]string{fixture.StateRunning: "a"})
	f.WantMembers(t, second, map[string]string{fixture.StateRunning: "b"})
}

// Where the requests of two flows name a member, it is cancelled for the reason of its own flow.
func TestCancelFlowsGivesTheReasonOfTheMembersFlow(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	first, second := strayFlows(t, f)
	f.Request(t, engine.FlowCancelRequest{ID: first, Grace: time.Minute, Reason: "its own"})
	f.Exec(t, "UPDATE ff_cancel_backlog SET grace_until_ms = $1 WHERE flow_id = $2", f.Time().Add(2*time.Minute).UnixMilli(), second)
	f.Advance(2 * time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 2)
	wantBacklog(t, f, first, "")
	wantBacklog(t, f, second, "")
	if s := f.Fixture.Describe(t, f.NodeID(first, "a")); s.CancellationReason != "its own" {
		t.Errorf("cancelled because of %q", s.CancellationReason)
	}
}
