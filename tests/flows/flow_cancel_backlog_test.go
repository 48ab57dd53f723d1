package flows

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// backlog returns the keys of the members that are noted for a flow, after the header's policy; "" where there is none.
func backlog(t *testing.T, f *fixture.Flows, flow id.FlowID) string {
	t.Helper()
	var keys []string
	for _, text := range fixture.Texts(t, f.Pool, "SELECT execution_id FROM ff_cancel_backlog_member WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow) {
		if x, err := id.ParseExecutionID(text); err == nil {
			keys = append(keys, f.Name(x.UUID()))
		} else {
			keys = append(keys, text)
		}
	}
	slices.Sort(keys)
	headers := fixture.Texts(t, f.Pool, "SELECT cancellation_policy FROM ff_cancel_backlog WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	return strings.Join(append(headers, keys...), " ")
}

func wantBacklog(t *testing.T, f *fixture.Flows, flow id.FlowID, want string) {
	t.Helper()
	if got := backlog(t, f, flow); got != want {
		t.Errorf("noted %q, want %q", got, want)
	}
}

// The reference's header cancels every member under every policy, and only in the execution's row.
func TestCancelRequestsFollowThePolicy_F8_F9(t *testing.T) {
	t.Parallel()
	longest := time.Duration(math.MaxInt64).Truncate(time.Millisecond)
	for _, c := range []struct {
		policy state.FlowCancelPolicy
		grace  time.Duration
		want   map[string]string
		noted  string
	}{
		{state.CancelFlowOnly, 0, map[string]string{fixture.StateRunning: "a d", fixture.StateHeld: "b", fixture.StateReady: "c"}, ""},
		{state.CancelPending, 0, map[string]string{fixture.StateRunning: "a d", fixture.StateCancelled: "b c"}, "cancel_pending b c"},
		{state.CancelPending, time.Minute, map[string]string{fixture.StateRunning: "a d", fixture.StateCancelled: "b c"}, "cancel_pending b c"},
		{state.CancelAll, 0, map[string]string{fixture.StateCancelled: "a b c d"}, "cancel_all a b c d"},
		{state.CancelAll, time.Minute, map[string]string{fixture.StateRunning: "a d", fixture.StateCancelled: "b c"}, "cancel_all a b c d"},
		{state.CancelAll, longest, map[string]string{fixture.StateRunning: "a d", fixture.StateCancelled: "b c"}, "cancel_all a b c d"},
	} {
		t.Run(fmt.Sprintf("%s in %s", c.policy, c.grace), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>b", "d", "done")
			f.Exec(t, `UPDATE ff_flow_core SET raw_fields = raw_fields || '{"cairn.instance_id": "i-7", "namespace": "ns"}' WHERE partition_key = $1 AND flow_id = $2`, fixture.PartitionOf(flow), flow)
			f.Succeed(t, flow, "done")
			f.Lease(t, flow, "a")
			addMember(t, f, flow, "c")
			members := len(strings.Fields(c.noted))
			if members > 0 {
				members--
			}
			got := f.Request(t, engine.FlowCancelRequest{ID: flow, Policy: c.policy, Grace: c.grace, Reason: "over", Requester: "ops"})
			if got.Policy != c.policy || got.Reason != "over" || got.Already || len(got.Members) != members || !slices.IsSortedFunc(got.Members, id.ExecutionID.Compare) {
				t.Errorf("answer %+v", got)
			}
			f.WantMembers(t, flow, also(c.want, fixture.StateCompleted, "done"))
			wantBacklog(t, f, flow, c.noted)
			if row := flowRow(t, f, flow); row["public_flow_state"] != "cancelled" || row["raw_fields"].(map[string]any)["cancel_reason"] != "over" {
				t.Errorf("flow %v", row)
			}
			event := fixture.StoredRow(t, f.Pool, "ff_operator_event", "execution_id = $1::uuid::text", flow)
			delete(event, "event_id")
			fixture.WantRow(t, "event", event, fmt.Sprintf(`{"execution_id": %q, "event_type": "flow_cancel_requested", "occurred_at_ms": %d, "partition_key": %d,
				"namespace": "ns", "instance_tag": "i-7",
				"details": {"flow_id": %q, "cancellation_policy": %q, "reason": "over", "member_count": %d}}`,
				flow, f.Time().UnixMilli(), fixture.PartitionOf(flow), flow, c.policy, members))
			if c.noted == "" {
				return
			}
			grace := any(nil)
			if c.grace > 0 {
				grace = f.Time().Add(c.grace).UnixMilli()
			}
			header := fixture.StoredRow(t, f.Pool, "ff_cancel_backlog", "partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
			text := fmt.Sprintf(`{"partition_key": %d, "flow_id": %q, "requested_at_ms": %d, "requester": "ops", "reason": "over", "grace_until_ms": %v,
				"cancellation_policy": %q, "status": "pending"}`, fixture.PartitionOf(flow), flow, f.Time().UnixMilli(), grace, c.policy)
			fixture.WantRow(t, "header", header, strings.ReplaceAll(text, "<nil>", "null"))
			for _, key := range strings.Fields(c.want[fixture.StateCancelled]) {
				x := f.NodeID(flow, key)
				if by := f.Fixture.Describe(t, x).CancelledBy; by != "cancel_flow_header" {
					t.Errorf("%s: cancelled by %q", key, by)
				}
				if events := f.Events(t, x); !slices.Contains(events, "completion cancelled") || (key == "a") != slices.Contains(events, "lease revoked operator") && key != "d" {
					t.Errorf("%s: events %q", key, events)
				}
			}

			// Again, stricter, with the same grace: nothing is written.
			before := f.DumpFlow(t, flow)
			again := f.Request(t, engine.FlowCancelRequest{ID: flow, Policy: state.CancelAll, Grace: c.grace})
			if !again.Already || again.Policy != c.policy || again.Reason != "over" || len(again.Members) != members {
				t.Errorf("again: %+v", again)
			}
			if after := f.DumpFlow(t, flow); after != before {
				t.Errorf("stored\n%s, was\n%s", after, before)
			}
			for i, x := range got.Members {
				for range 2 {
					if err := f.AckFlowCancel(t.Context(), flow, x); err != nil {
						t.Error(err)
					}
				}
				if left := len(strings.Fields(backlog(t, f, flow))); (left == 0) != (i == len(got.Members)-1) {
					t.Errorf("%d left", left)
				}
			}
			if again := f.Request(t, engine.FlowCancelRequest{ID: flow}); len(again.Members) != 5 {
				t.Errorf("all are acknowledged: %d members", len(again.Members))
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		f := fixture.NewFlows(t)
		if _, err := f.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: id.NewFlowID()}); !errors.Is(err, fferr.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func also(members map[string]string, state, keys string) map[string]string {
	all := map[string]string{state: keys}
	for s, k := range members {
		all[s] = strings.TrimSpace(all[s] + " " + k)
	}
	return all
}

// The reference never looks at its backlog again: a header without members stays for ever, and so do the rows of a
// crash.
func TestCancelRequestsAreCarriedOut_F10(t *testing.T) {
	t.Parallel()
	t.Run("grace", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.Draw(t, nil, "a>b", "d>e", "s")
		f.ClaimAll(t)
		f.SeedSuspension(t, f.NodeID(flow, "s"))
		f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: 5 * time.Second, Reason: "over"})
		fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 0)
		f.Advance(5*time.Second - time.Millisecond)
		fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 0)
		f.Succeed(t, flow, "d")
		f.Advance(time.Millisecond)
		fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 5)
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "d", fixture.StateCancelled: "a b e s"})
		wantBacklog(t, f, flow, "")
		x := f.NodeID(flow, "a")
		f.WantEvents(t, x, "lease acquired", "lease revoked operator", "completion cancelled")
		if s := f.Fixture.Describe(t, x); s.CancelledBy != "cancel_flow_header" || s.CancellationReason != "over" {
			t.Errorf("described as %+v", s)
		}
		fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 0)
	})
	t.Run("what the reference leaves", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow, empty, stray := f.Draw(t, nil, "a>b", "c"), f.Draw(t, nil, "a"), f.Draw(t, nil, "a")
		f.Lease(t, flow, "a")
		header := func(flow id.FlowID, at int64) {
			f.Insert(t, "ff_cancel_backlog", fixture.Columns{
				"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "requested_at_ms": at, "cancellation_policy": "cancel_all",
			}, nil)
		}
		member := func(flow id.FlowID, text string) {
			f.Insert(t, "ff_cancel_backlog_member", fixture.Columns{"partition_key": fixture.PartitionOf(flow), "flow_id": flow, "execution_id": text}, nil)
		}
		at := f.Time().UnixMilli()
		header(flow, at)
		header(empty, at-1)
		header(stray, at)
		f.SetExecution(t, f.NodeID(flow, "c"), "lifecycle_phase = 'cancelled', public_state = 'cancelled', eligibility_state = 'cancelled', terminal_at_ms = 1")
		for _, key := range []string{"a", "b", "c"} {
			member(flow, f.NodeID(flow, key).String())
		}
		member(flow, "{fp:1}:no uuid")
		member(flow, id.MemberExecutionIDFor(flow, id.Partitions{}, id.ExecutionUUID{1}).String()) // not there
		member(stray, id.MemberExecutionIDFor(flow, id.Partitions{}, f.NodeID(flow, "a").UUID()).String())
		fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 7)
		wantBacklog(t, f, flow, "")
		wantBacklog(t, f, stray, "")
		wantBacklog(t, f, empty, "")
		if got := f.Members(t, flow); got["a"] != fixture.StateCancelled || got["b"] != fixture.StateCancelled || !strings.HasPrefix(got["c"], "cancelled") {
			t.Errorf("members %v", got)
		}
		if s := f.Fixture.Describe(t, f.NodeID(flow, "a")); s.CancellationReason != "flow_cancelled" {
			t.Errorf("described as %+v", s)
		}
	})
	t.Run("many", func(t *testing.T) {
		f := fixture.FlowsOn(fixture.NewCloned(t))
		flow := f.NewFlowOf(t, fixture.Wide(1200, true))
		f.ClaimAll(t)
		f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Minute})
		f.Advance(time.Minute)
		done := 0
		for {
			n, err := upkeep.Of(f.Engine).CancelFlows(t.Context(), 500)
			if err != nil {
				t.Fatal(err)
			}
			if done += n; n < 500 {
				break
			}
		}
		if wantBacklog(t, f, flow, ""); done != 1201 {
			t.Errorf("%d are done", done)
		}
		for key, got := range f.Members(t, flow) {
			if got != fixture.StateCancelled {
				t.Fatalf("%s is %s", key, got)
			}
		}
	})
}

// Locked flows are left for the next call, and the rest is done.
func TestCancelFlowsSkipsLockedFlows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID)
		left string
		done int
	}{
		"a member": {func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockExecution(t, tx, f.NodeID(flow, "a"))
		}, "cancel_all a", 3},
		"its attempt": {func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockAttempt(t, tx, f.NodeID(flow, "a"), 0)
		}, "cancel_all a", 3},
		"a group": {func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
		}, "cancel_all a", 3},
		"the request": {func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT FROM ff_cancel_backlog WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
		}, "cancel_all a b c", 1},
		"the lock of the flow": {func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
		}, "cancel_all a b c", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t))
			flow, other := f.Draw(t, nil, "a>b", "c"), f.Draw(t, nil, "a")
			f.ClaimAll(t)
			for _, flow := range []id.FlowID{flow, other} {
				f.Request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Minute})
			}
			f.Advance(time.Minute)
			tx := f.BeginTx(t)
			c.hold(t, f, tx, flow)
			n, err := upkeep.Of(f.Engine).CancelFlows(t.Context(), 100)
			if err != nil || n != c.done {
				t.Errorf("%d are done, %v; want %d", n, err, c.done)
			}
			wantBacklog(t, f, flow, c.left)
			wantBacklog(t, f, other, "")
			fixture.Commit(t, tx)
			fixture.Run(t, upkeep.Of(f.Engine).CancelFlows, 4-c.done)
			f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a b c"})
			wantBacklog(t, f, flow, "")
		})
	}
}

// The last two members are acknowledged at once: exactly one of the two deletes the request.
func TestConcurrentAcksDeleteTheRequestOnce(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a", "b")
	f.Request(t, engine.FlowCancelRequest{ID: flow})
	late := f.Rival(t)
	tx := f.BeginTx(t)
	if err := f.WithTx(tx).AckFlowCancel(t.Context(), flow, f.NodeID(flow, "a")); err != nil {
		t.Fatal(err)
	}
	wait := fixture.Async(t, func(ctx context.Context) error { return late.AckFlowCancel(ctx, flow, f.NodeID(flow, "b")) })
	late.AwaitBlocked(t, f.Fixture)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	wantBacklog(t, f, flow, "")
}

// The reference's single cancel ends a member and notifies no one: its dependents hang.
func TestCancelOfAMemberResolvesDependents_F11(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "b>c")
	l := f.Lease(t, flow, "a")
	f.Cancel(t, l.Execution)
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a", fixture.StateSkipped: "b c"})
	f.WantCompletionEvents(t, flow, "a cancelled", "b skipped", "c skipped")
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked operator", "completion cancelled")
	fixture.WantLeaseError(t, f.CompleteExecution(t.Context(), l, nil), fferr.ErrStaleLease)
}

// Handlers of cancelled members are notified at once, whichever process cancels the flow, and when their grace ends.
func TestWorkerIsNotifiedOfACancelledFlow(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, f *fixture.Fixture, r *fixture.Rival, flow id.FlowID){
		"cancelled": func(t *testing.T, _ *fixture.Fixture, r *fixture.Rival, flow id.FlowID) {
			if _, err := r.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
		},
		"requested": func(t *testing.T, f *fixture.Fixture, r *fixture.Rival, flow id.FlowID) {
			if _, err := r.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: flow, Grace: time.Minute}); err != nil {
				t.Fatal(err)
			}
			f.Advance(time.Minute)
			fixture.Run(t, upkeep.Of(r.Engine).CancelFlows, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			c := fixture.CrewOn(t, f, engine.Config{})
			cfg := fixture.Alone
			cfg.LeaseTTL, cfg.DrainTimeout = 3*time.Hour, time.Second
			began, causes := c.Long(t, cfg)
			spec := fixture.Chart(nil, "a", "b", "a>c")
			for i := range spec.Nodes {
				spec.Nodes[i].Spec.Lane, spec.Nodes[i].Spec.Kind = f.Lane, "long"
			}
			if _, err := f.CreateFlow(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				fixture.Received(t, began)
			}
			end(t, f, f.Rival(t), spec.ID)
			for range 2 {
				if cause := fixture.Received(t, causes); !errors.Is(cause, worker.ErrCancelled) {
					t.Errorf("cause %v", cause)
				}
			}
			for _, key := range []string{"a", "b", "c"} {
				f.WantState(t, f.NodeID(spec.ID, key), fixture.StateCancelled)
			}
		})
	}
}
