package tests

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
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/worker"
)

// backlog returns the keys of the members that are noted for a flow, after the header's policy; "" where there is none.
func (f *flowFixture) backlog(t *testing.T, flow id.FlowID) string {
	t.Helper()
	var keys []string
	for _, text := range texts(t, f.pool, "SELECT execution_id FROM ff_cancel_backlog_member WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow) {
		if x, err := id.ParseExecutionID(text); err == nil {
			keys = append(keys, f.name(x.UUID()))
		} else {
			keys = append(keys, text)
		}
	}
	slices.Sort(keys)
	headers := texts(t, f.pool, "SELECT cancellation_policy FROM ff_cancel_backlog WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
	return strings.Join(append(headers, keys...), " ")
}

func (f *flowFixture) wantBacklog(t *testing.T, flow id.FlowID, want string) {
	t.Helper()
	if got := f.backlog(t, flow); got != want {
		t.Errorf("noted %q, want %q", got, want)
	}
}

func (f *flowFixture) request(t *testing.T, request engine.FlowCancelRequest) engine.CancelledFlow {
	t.Helper()
	got, err := f.RequestFlowCancel(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The reference's header cancels every member whatever the policy says, in the execution's row alone.
func TestF8_F9_requests_by_policy(t *testing.T) {
	t.Parallel()
	longest := time.Duration(math.MaxInt64).Truncate(time.Millisecond)
	for _, c := range []struct {
		policy state.FlowCancelPolicy
		grace  time.Duration
		want   map[string]string
		noted  string
	}{
		{state.CancelFlowOnly, 0, map[string]string{stateRunning: "a d", stateHeld: "b", stateReady: "c"}, ""},
		{state.CancelPending, 0, map[string]string{stateRunning: "a d", stateCancelled: "b c"}, "cancel_pending b c"},
		{state.CancelPending, time.Minute, map[string]string{stateRunning: "a d", stateCancelled: "b c"}, "cancel_pending b c"},
		{state.CancelAll, 0, map[string]string{stateCancelled: "a b c d"}, "cancel_all a b c d"},
		{state.CancelAll, time.Minute, map[string]string{stateRunning: "a d", stateCancelled: "b c"}, "cancel_all a b c d"},
		{state.CancelAll, longest, map[string]string{stateRunning: "a d", stateCancelled: "b c"}, "cancel_all a b c d"},
	} {
		t.Run(fmt.Sprintf("%s in %s", c.policy, c.grace), func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, nil, "a>b", "d", "done")
			f.exec(t, `UPDATE ff_flow_core SET raw_fields = raw_fields || '{"cairn.instance_id": "i-7", "namespace": "ns"}' WHERE partition_key = $1 AND flow_id = $2`, partitionOf(flow), flow)
			f.succeed(t, flow, "done")
			f.lease(t, flow, "a")
			f.addMember(t, flow, "c")
			members := len(strings.Fields(c.noted))
			if members > 0 {
				members--
			}
			got := f.request(t, engine.FlowCancelRequest{ID: flow, Policy: c.policy, Grace: c.grace, Reason: "over", Requester: "ops"})
			if got.Policy != c.policy || got.Reason != "over" || got.Already || len(got.Members) != members || !slices.IsSortedFunc(got.Members, id.ExecutionID.Compare) {
				t.Errorf("answer %+v", got)
			}
			f.wantMembers(t, flow, also(c.want, stateCompleted, "done"))
			f.wantBacklog(t, flow, c.noted)
			if row := f.flowRow(t, flow); row["public_flow_state"] != "cancelled" || row["raw_fields"].(map[string]any)["cancel_reason"] != "over" {
				t.Errorf("flow %v", row)
			}
			event := storedRow(t, f.pool, "ff_operator_event", "execution_id = $1::uuid::text", flow)
			delete(event, "event_id")
			wantRow(t, "event", event, fmt.Sprintf(`{"execution_id": %q, "event_type": "flow_cancel_requested", "occurred_at_ms": %d, "partition_key": %d,
				"namespace": "ns", "instance_tag": "i-7",
				"details": {"flow_id": %q, "cancellation_policy": %q, "reason": "over", "member_count": %d}}`,
				flow, f.now().UnixMilli(), partitionOf(flow), flow, c.policy, members))
			if c.noted == "" {
				return
			}
			grace := any(nil)
			if c.grace > 0 {
				grace = f.now().Add(c.grace).UnixMilli()
			}
			header := storedRow(t, f.pool, "ff_cancel_backlog", "partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
			text := fmt.Sprintf(`{"partition_key": %d, "flow_id": %q, "requested_at_ms": %d, "requester": "ops", "reason": "over", "grace_until_ms": %v,
				"cancellation_policy": %q, "status": "pending"}`, partitionOf(flow), flow, f.now().UnixMilli(), grace, c.policy)
			wantRow(t, "header", header, strings.ReplaceAll(text, "<nil>", "null"))
			for _, key := range strings.Fields(c.want[stateCancelled]) {
				x := f.NodeID(flow, key)
				if by := f.fixture.describe(t, x).CancelledBy; by != "cancel_flow_header" {
					t.Errorf("%s: cancelled by %q", key, by)
				}
				if events := f.events(t, x); !slices.Contains(events, "completion cancelled") || (key == "a") != slices.Contains(events, "lease revoked operator") && key != "d" {
					t.Errorf("%s: events %q", key, events)
				}
			}

			// Again, stricter: nothing is written.
			before := f.dumpFlow(t, flow)
			again := f.request(t, engine.FlowCancelRequest{ID: flow, Policy: state.CancelAll})
			if !again.Already || again.Policy != c.policy || again.Reason != "over" || len(again.Members) != members {
				t.Errorf("again: %+v", again)
			}
			if after := f.dumpFlow(t, flow); after != before {
				t.Errorf("stored\n%s, was\n%s", after, before)
			}
			for i, x := range got.Members {
				for range 2 {
					if err := f.AckFlowCancel(t.Context(), flow, x); err != nil {
						t.Error(err)
					}
				}
				if left := len(strings.Fields(f.backlog(t, flow))); (left == 0) != (i == len(got.Members)-1) {
					t.Errorf("%d left", left)
				}
			}
			if again := f.request(t, engine.FlowCancelRequest{ID: flow}); len(again.Members) != 5 {
				t.Errorf("all are acknowledged: %d members", len(again.Members))
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		f := newFlowFixture(t)
		if _, err := f.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: id.NewFlowID()}); !errors.Is(err, engine.ErrNotFound) {
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

// Nobody looks at the reference's backlog again: a header without members stays for ever, and so does what a crash left.
func TestF10_requests_are_carried_out(t *testing.T) {
	t.Parallel()
	t.Run("grace", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.draw(t, nil, "a>b", "d>e", "s")
		f.claimAll(t)
		f.suspend(t, f.NodeID(flow, "s"))
		f.request(t, engine.FlowCancelRequest{ID: flow, Grace: 5 * time.Second, Reason: "over"})
		run(t, f.Maintenance().CancelFlows, 0)
		f.advance(5*time.Second - time.Millisecond)
		run(t, f.Maintenance().CancelFlows, 0)
		f.succeed(t, flow, "d")
		f.advance(time.Millisecond)
		run(t, f.Maintenance().CancelFlows, 5)
		f.wantMembers(t, flow, map[string]string{stateCompleted: "d", stateCancelled: "a b e s"})
		f.wantBacklog(t, flow, "")
		x := f.NodeID(flow, "a")
		f.wantEvents(t, x, "lease acquired", "lease revoked operator", "completion cancelled")
		if s := f.fixture.describe(t, x); s.CancelledBy != "cancel_flow_header" || s.CancellationReason != "over" {
			t.Errorf("described as %+v", s)
		}
		run(t, f.Maintenance().CancelFlows, 0)
	})
	t.Run("what the reference leaves", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow, empty, stray := f.draw(t, nil, "a>b", "c"), f.draw(t, nil, "a"), f.draw(t, nil, "a")
		f.lease(t, flow, "a")
		header := func(flow id.FlowID, at int64) {
			f.insert(t, "ff_cancel_backlog", columns{
				"partition_key": partitionOf(flow), "flow_id": flow, "requested_at_ms": at, "cancellation_policy": "cancel_all",
			}, nil)
		}
		member := func(flow id.FlowID, text string) {
			f.insert(t, "ff_cancel_backlog_member", columns{"partition_key": partitionOf(flow), "flow_id": flow, "execution_id": text}, nil)
		}
		at := f.now().UnixMilli()
		header(flow, at)
		header(empty, at-1)
		header(stray, at)
		f.setExecution(t, f.NodeID(flow, "c"), "lifecycle_phase = 'cancelled', public_state = 'cancelled', eligibility_state = 'cancelled', terminal_at_ms = 1")
		for _, key := range []string{"a", "b", "c"} {
			member(flow, f.NodeID(flow, key).String())
		}
		member(flow, "{fp:1}:no uuid")
		member(flow, id.MemberExecutionIDFor(flow, id.Partitions{}, id.ExecutionUUID{1}).String()) // not there
		member(stray, id.MemberExecutionIDFor(flow, id.Partitions{}, f.NodeID(flow, "a").UUID()).String())
		run(t, f.Maintenance().CancelFlows, 7)
		f.wantBacklog(t, flow, "")
		f.wantBacklog(t, stray, "")
		f.wantBacklog(t, empty, "")
		if got := f.members(t, flow); got["a"] != stateCancelled || got["b"] != stateCancelled || !strings.HasPrefix(got["c"], "cancelled") {
			t.Errorf("members %v", got)
		}
		if s := f.fixture.describe(t, f.NodeID(flow, "a")); s.CancellationReason != "flow_cancelled" {
			t.Errorf("described as %+v", s)
		}
	})
	t.Run("many", func(t *testing.T) {
		f := flowsOn(cloneFixture(t))
		flow := f.createFlow(t, wide(1200, true))
		f.claimAll(t)
		f.request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Minute})
		f.advance(time.Minute)
		done := 0
		for {
			n, err := f.Maintenance().CancelFlows(t.Context(), 500)
			if err != nil {
				t.Fatal(err)
			}
			if done += n; n < 500 {
				break
			}
		}
		if f.wantBacklog(t, flow, ""); done != 1201 {
			t.Errorf("%d are done", done)
		}
		for key, got := range f.members(t, flow) {
			if got != stateCancelled {
				t.Fatalf("%s is %s", key, got)
			}
		}
	})
}

// What somebody holds is left for the next call, and the rest is done.
func TestCancelFlows_of_what_others_hold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hold func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID)
		left string
		done int
	}{
		"a member": {func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
			lockExecution(t, tx, f.NodeID(flow, "a"))
		}, "cancel_all a", 3},
		"its attempt": {func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
			lockAttempt(t, tx, f.NodeID(flow, "a"), 0)
		}, "cancel_all a", 3},
		"a group": {func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
			execIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
		}, "cancel_all a", 3},
		"the request": {func(t *testing.T, f *flowFixture, tx pgx.Tx, flow id.FlowID) {
			execIn(t, tx, "SELECT FROM ff_cancel_backlog WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", partitionOf(flow), flow)
		}, "cancel_all a b c", 1},
		"the lock of the flow": {func(t *testing.T, _ *flowFixture, tx pgx.Tx, flow id.FlowID) {
			execIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
		}, "cancel_all a b c", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := flowsOn(cloneFixture(t))
			flow, other := f.draw(t, nil, "a>b", "c"), f.draw(t, nil, "a")
			f.claimAll(t)
			for _, flow := range []id.FlowID{flow, other} {
				f.request(t, engine.FlowCancelRequest{ID: flow, Grace: time.Minute})
			}
			f.advance(time.Minute)
			tx := f.begin(t)
			c.hold(t, f, tx, flow)
			n, err := f.Maintenance().CancelFlows(t.Context(), 100)
			if err != nil || n != c.done {
				t.Errorf("%d are done, %v; want %d", n, err, c.done)
			}
			f.wantBacklog(t, flow, c.left)
			f.wantBacklog(t, other, "")
			commit(t, tx)
			run(t, f.Maintenance().CancelFlows, 4-c.done)
			f.wantMembers(t, flow, map[string]string{stateCancelled: "a b c"})
			f.wantBacklog(t, flow, "")
		})
	}
}

// The last two members are acknowledged at once: exactly one of the two deletes the request.
func TestAckFlowCancel_by_two(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a", "b")
	f.request(t, engine.FlowCancelRequest{ID: flow})
	late := f.rival(t)
	tx := f.begin(t)
	if err := f.WithTx(tx).AckFlowCancel(t.Context(), flow, f.NodeID(flow, "a")); err != nil {
		t.Fatal(err)
	}
	wait := async(t, func(ctx context.Context) error { return late.AckFlowCancel(ctx, flow, f.NodeID(flow, "b")) })
	late.awaitBlocked(t, f.fixture)
	commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	f.wantBacklog(t, flow, "")
}

// The reference's single cancel ends a member and tells nobody: what waits for it hangs.
func TestF11_cancel_of_a_member_resolves(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b", "b>c")
	l := f.lease(t, flow, "a")
	f.cancel(t, l.Execution)
	f.wantMembers(t, flow, map[string]string{stateCancelled: "a", stateSkipped: "b c"})
	f.wantCompletionEvents(t, flow, "a cancelled", "b skipped", "c skipped")
	f.wantEvents(t, l.Execution, "lease acquired", "lease revoked operator", "completion cancelled")
	wantLeaseError(t, f.CompleteExecution(t.Context(), l, nil), engine.ErrStaleLease)
}

// Handlers of cancelled members are told at once, whichever process cancels the flow, and when their grace is over.
func TestWorker_hears_of_a_cancelled_flow(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, f *fixture, r *rival, flow id.FlowID){
		"cancelled": func(t *testing.T, _ *fixture, r *rival, flow id.FlowID) {
			if _, err := r.CancelFlow(t.Context(), engine.CancelFlowSpec{ID: flow}); err != nil {
				t.Fatal(err)
			}
		},
		"requested": func(t *testing.T, f *fixture, r *rival, flow id.FlowID) {
			if _, err := r.RequestFlowCancel(t.Context(), engine.FlowCancelRequest{ID: flow, Grace: time.Minute}); err != nil {
				t.Fatal(err)
			}
			f.advance(time.Minute)
			run(t, r.Maintenance().CancelFlows, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := cloneFixture(t)
			c := crewOn(t, f, engine.Config{})
			cfg := alone
			cfg.LeaseTTL, cfg.DrainTimeout = 3*time.Hour, time.Second
			began, causes := c.long(t, cfg)
			spec := chart(nil, "a", "b", "a>c")
			for i := range spec.Nodes {
				spec.Nodes[i].Spec.Lane, spec.Nodes[i].Spec.Kind = f.lane, "long"
			}
			if _, err := f.CreateFlow(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				received(t, began)
			}
			end(t, f, f.rival(t), spec.ID)
			for range 2 {
				if cause := received(t, causes); !errors.Is(cause, worker.ErrCancelled) {
					t.Errorf("cause %v", cause)
				}
			}
			for _, key := range []string{"a", "b", "c"} {
				f.wantState(t, f.NodeID(spec.ID, key), stateCancelled)
			}
		})
	}
}
