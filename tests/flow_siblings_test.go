package tests

import (
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// cancelRemaining is the policy of a node that needs k upstreams, and not the others.
func cancelRemaining(key string, k int) when {
	if k == 1 {
		return when{key: policy.AnyOf(policy.CancelRemaining)}
	}
	return when{key: policy.Quorum(k, policy.CancelRemaining)}
}

// F26, F27: a group that is decided either way, and cancels what remains, lists its unfinished upstreams in
// one place and leaves them running until they are cancelled by transactions of their own.
func TestF26_F27_siblings_are_listed(t *testing.T) {
	t.Parallel()
	t.Run("satisfied", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, cancelRemaining("e", 2), "a>e", "b>e", "c>e", "d>e", "x>d")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.wantGroup(t, flow, "e", storedGroup{Success: 1, Running: 3, KTarget: 2})
		f.succeed(t, flow, "b")
		f.wantGroup(t, flow, "e", storedGroup{Success: 2, Running: 2, KTarget: 2, Flagged: true, Siblings: "c d", Enqueued: true})
		f.wantMembers(t, flow, map[string]string{stateCompleted: "a b", stateRunning: "c x", stateHeld: "d", stateReady: "e"})
		row := storedRow(t, f.pool, "ff_pending_cancel_groups", "partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
		wantRow(t, "pending row", row, fmt.Sprintf(`{"partition_key": %d, "flow_id": %q, "downstream_eid": %q, "enqueued_at_ms": %d}`,
			partitionOf(flow), flow, f.NodeID(flow, "e").UUID(), startMs))
		if targets := texts(t, f.pool, "SELECT reason FROM ff_cancel_dispatch_outbox WHERE flow_id = $1", flow); len(targets) > 0 {
			t.Errorf("%d rows of a second list", len(targets))
		}
	})
	t.Run("impossible", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, cancelRemaining("d", 3), "a>d", "b>d", "c>d", "d>e")
		f.claimAll(t)
		f.fail(t, flow, "a")
		f.wantGroup(t, flow, "d", storedGroup{Fail: 1, Running: 2, KTarget: 3, Flagged: true, Siblings: "b c", Enqueued: true})
		f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateRunning: "b c", stateSkipped: "d e"})
	})
	t.Run("late_endings_only_count", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d", "c>d")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.advance(1)
		f.succeed(t, flow, "b")
		f.fail(t, flow, "c")
		f.wantGroup(t, flow, "d", storedGroup{Success: 2, Fail: 1, KTarget: 1, Flagged: true, Siblings: "b c", Enqueued: true})
	})
	t.Run("nobody_left", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, cancelRemaining("d", 2), "a>d", "b>d")
		f.succeed(t, flow, "a", "b")
		f.wantGroup(t, flow, "d", storedGroup{Success: 2, KTarget: 2, Flagged: true, Enqueued: true})
	})
	t.Run("flagged_already", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, cancelRemaining("d", 1), "a>d", "b>d")
		f.setGroup(t, flow, "d", "cancel_siblings_pending_flag = true")
		f.succeed(t, flow, "a")
		f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true})
	})
	t.Run("not_where_they_may_run", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, when{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "a>e", "c>e")
		f.claimAll(t)
		f.succeed(t, flow, "a")
		f.fail(t, flow, "c")
		f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 1})
		f.wantGroup(t, flow, "e", storedGroup{Success: 1, Fail: 1, KTarget: 2})
	})
}

// F28: an upstream that another undecided group still needs is not listed.
func TestF28_siblings_needed_elsewhere(t *testing.T) {
	f := newFlowFixture(t)
	// b also feeds the undecided "other", c the decided "done", g a group that is decided in the same step.
	flow := f.draw(t, when{
		"done": policy.AnyOf(policy.LetRun), "d": policy.AnyOf(policy.CancelRemaining), "same": policy.AnyOf(policy.CancelRemaining),
	}, "a>d", "b>d", "c>d", "g>d", "b>other", "c>done", "z>done", "a>same", "g>same")
	f.claimAll(t)
	f.succeed(t, flow, "z")
	f.succeed(t, flow, "a")
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 3, KTarget: 1, Flagged: true, Siblings: "c g", Enqueued: true})
	f.wantGroup(t, flow, "same", storedGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "g", Enqueued: true})
	f.wantMembers(t, flow, map[string]string{
		stateCompleted: "a z", stateRunning: "b c g", stateReady: "d done same", stateHeld: "other",
	})
}

// An upstream whose other downstream has started, and does not depend on it any more, is listed.
func TestSiblings_of_a_started_downstream(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, when{"other": policy.AnyOf(policy.LetRun), "d": policy.AnyOf(policy.CancelRemaining)},
		"a>d", "b>d", "x>other", "b>other")
	f.claimAll(t)
	f.succeed(t, flow, "x")
	f.lease(t, flow, "other")
	f.succeed(t, flow, "a")
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "b", Enqueued: true})
}

// An edge that is staged and not applied keeps a group open: nobody is listed, whoever has failed so far.
func TestSiblings_wait_for_staged_edges(t *testing.T) {
	t.Parallel()
	for k, fail := range map[int][]string{1: {"a", "b"}, 2: {"a"}} {
		t.Run(fmt.Sprintf("%d_needed", k), func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, cancelRemaining("d", k), "a>d", "b>d", "c>d")
			f.claimAll(t)
			f.stageOnly(t, flow, "c", "d")
			f.fail(t, flow, fail...)
			f.wantGroup(t, flow, "d", storedGroup{Fail: len(fail), Running: 2 - len(fail), KTarget: k})
			f.wantState(t, f.NodeID(flow, "d"), stateHeld)
		})
	}
}

// A group that is decided lists nobody again, also after the list was worked off.
func TestSiblings_are_listed_once(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*flowFixture, *testing.T, id.FlowID, ...string){
		"failed": (*flowFixture).fail, "succeeded": (*flowFixture).succeed,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, cancelRemaining("d", 2), "a>d", "b>d", "c>d")
			f.claimAll(t)
			f.fail(t, flow, "a", "b")
			f.wantGroup(t, flow, "d", storedGroup{Fail: 2, Running: 1, KTarget: 2, Flagged: true, Siblings: "c", Enqueued: true})
			f.setGroup(t, flow, "d", "cancel_siblings_pending_flag = false, cancel_siblings_pending_members = '{}'")
			f.exec(t, "DELETE FROM ff_pending_cancel_groups WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
			end(f, t, flow, "c")
			if got := f.groups(t, flow)["d"]; got.Flagged || got.Enqueued || got.Running != 0 {
				t.Errorf("group %+v", got)
			}
		})
	}
}
