package flows

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// graced draws a flow with a running member and one that waits, and requests its cancel with a grace of a day.
func graced(t *testing.T, f *fixture.Flows, how state.FlowCancelPolicy) id.FlowID {
	t.Helper()
	flow := f.Draw(t, nil, "a>b", "c")
	f.ClaimAll(t)
	f.Request(t, engine.FlowCancelRequest{ID: flow, Policy: how, Grace: 24 * time.Hour, Reason: "over"})
	f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a c", fixture.StateCancelled: "b"})
	return flow
}

// graceEnds returns when the grace of a flow ends.
func graceEnds(t *testing.T, f *fixture.Flows, flow id.FlowID) time.Time {
	t.Helper()
	row := fixture.StoredRow(t, f.Pool, "ff_cancel_backlog", "partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	return time.UnixMilli(int64(row["grace_until_ms"].(float64)))
}

// After a request with a grace of a day, a cancel ends the running members, and the holders are refused.
func TestCancelFlowEndsTheGrace(t *testing.T) {
	t.Parallel()
	for how, policies := range map[state.FlowCancelPolicy][]state.FlowCancelPolicy{
		state.CancelAll:        {state.CancelAll, state.CancelEverything},
		state.CancelEverything: {state.CancelEverything},
	} {
		for _, policy := range policies {
			t.Run(fmt.Sprintf("%s/%s", how, policy), func(t *testing.T) {
				f := fixture.FlowsOn(fixture.NewCloned(t))
				flow := graced(t, f, how)
				l := f.Lease(t, flow, "a")
				f.Advance(time.Minute)
				got := f.CancelBy(t, flow, policy)
				if got.Already || got.Policy != policy || got.Reason != "over" || len(got.StillRunning) > 0 || keysOfExecutions(f, got.Members) != "a c" {
					t.Errorf("answer %+v", got)
				}
				f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b c"})
				f.WantEvents(t, l.Execution, "lease acquired", "lease revoked operator", "completion cancelled")
				fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), l, nil), fferr.ErrStaleLease)
				if got := f.CancelBy(t, flow, policy); !got.Already {
					t.Errorf("again: %+v", got)
				}
				f.Advance(24 * time.Hour)
				fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 3)
				wantBacklog(t, f, flow, "")
				wantOneEnd(t, f, flow)
			})
		}
	}
}

// A milder cancel leaves the grace, and so do members that were acknowledged before they ended.
func TestCancelFlowLeavesAGraceThatIsNotItsOwn(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := graced(t, f, state.CancelAll)
	ends := graceEnds(t, f, flow)
	for _, milder := range []state.FlowCancelPolicy{state.CancelFlowOnly, state.CancelPending} {
		if got := f.CancelBy(t, flow, milder); !got.Already || keysOfExecutions(f, got.StillRunning) != "a c" {
			t.Errorf("%s: %+v", milder, got)
		}
		if got := f.Request(t, engine.FlowCancelRequest{ID: flow, Policy: milder}); !got.Already || !graceEnds(t, f, flow).Equal(ends) {
			t.Errorf("%s: requested %+v", milder, got)
		}
	}
	if err := f.AckFlowCancel(t.Context(), flow, f.NodeID(flow, "c")); err != nil {
		t.Fatal(err)
	}
	wantCancelled(t, f, f.CancelBy(t, flow, state.CancelAll), "a", "c")
	f.Succeed(t, flow, "c")
}

// A further request with a shorter grace moves its end forward, never backward, and one without a grace ends it.
func TestAShorterGraceMovesTheDeadlineForward(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := graced(t, f, state.CancelAll)
	ends := graceEnds(t, f, flow)
	request := func(grace time.Duration) engine.CancelledFlow {
		t.Helper()
		return f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: grace, Reason: "sooner"})
	}
	for _, longer := range []time.Duration{24 * time.Hour, 48 * time.Hour} {
		if got := request(longer); !got.Already || !graceEnds(t, f, flow).Equal(ends) {
			t.Errorf("%v: %+v, until %v", longer, got, graceEnds(t, f, flow))
		}
	}
	got := request(time.Hour - time.Microsecond)
	if got.Already || got.Reason != "over" || got.Policy != state.CancelAll {
		t.Errorf("answer %+v", got)
	}
	wantCancelled(t, f, got, "a b c", "a c")
	if want := f.Time().Add(time.Hour); !graceEnds(t, f, flow).Equal(want) {
		t.Errorf("until %v, want %v", graceEnds(t, f, flow), want)
	}
	events := fixture.Texts(t, f.Pool, "SELECT details ->> 'reason' FROM ff_operator_event WHERE execution_id = $1::uuid::text", flow)
	if !slices.Equal(events, []string{"over", "over"}) {
		t.Errorf("requested for %q", events)
	}
	f.Advance(time.Hour - time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 0)
	f.Advance(time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 3)
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b c"})

	flow = graced(t, f, state.CancelAll)
	wantCancelled(t, f, request(0), "a b c", "")
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b c"})
	if by := f.Fixture.Describe(t, f.NodeID(flow, "a")); by.CancelledBy != "cancel_flow_header" || by.CancellationReason != "over" {
		t.Errorf("described as %+v", by)
	}
	fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 3)
	wantBacklog(t, f, flow, "")
	wantOneEnd(t, f, flow)
}

// The job that ends a grace and a cancel that comes at the same time end each member once.
func TestCancelFlowBesideTheJobThatEndsTheGrace(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	flow := graced(t, f, state.CancelAll)
	f.Advance(24 * time.Hour)
	late := f.Rival(t)
	tx := f.BeginTx(t)
	if n, err := upkeep.Of(f.WithTx(tx)).CancelFlows(t.Context(), 10); err != nil || n != 3 {
		t.Fatalf("%d, %v", n, err)
	}
	var got engine.CancelledFlow
	wait := fixture.Async(t, func(ctx context.Context) (err error) {
		got, err = late.CancelFlow(ctx, engine.CancelFlowSpec{ID: flow})
		return err
	})
	late.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); err != nil || !got.Already {
		t.Errorf("answer %+v, %v", got, err)
	}
	wantOneEnd(t, f, flow)
}
