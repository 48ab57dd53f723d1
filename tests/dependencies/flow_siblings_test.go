package dependencies

import (
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// F26, F27: a group that is decided either way, and cancels its remaining upstreams, lists the unfinished ones in one
// place and leaves them running until they are cancelled by transactions of their own.
func TestDecidedGroupListsSiblings_F26_F27(t *testing.T) {
	t.Parallel()
	t.Run("satisfied", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.CancelRemaining("e", 2), "a>e", "b>e", "c>e", "d>e", "x>d")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.WantGroup(t, flow, "e", fixture.StoredGroup{Success: 1, Running: 3, KTarget: 2})
		f.Succeed(t, flow, "b")
		f.WantGroup(t, flow, "e", fixture.StoredGroup{Success: 2, Running: 2, KTarget: 2, Flagged: true, Siblings: "c d", Enqueued: true})
		f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b", fixture.StateRunning: "c x", fixture.StateHeld: "d", fixture.StateReady: "e"})
		row := fixture.StoredRow(t, f.Pool, "ff_pending_cancel_groups", "partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
		fixture.WantRow(t, "pending row", row, fmt.Sprintf(`{"partition_key": %d, "flow_id": %q, "downstream_eid": %q, "enqueued_at_ms": %d}`,
			fixture.PartitionOf(flow), flow, f.NodeID(flow, "e").UUID(), fixture.StartMs))
		if targets := fixture.Texts(t, f.Pool, "SELECT reason FROM ff_cancel_dispatch_outbox WHERE flow_id = $1", flow); len(targets) > 0 {
			t.Errorf("%d rows of a second list", len(targets))
		}
	})
	t.Run("impossible", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.CancelRemaining("d", 3), "a>d", "b>d", "c>d", "d>e")
		f.ClaimAll(t)
		f.Fail(t, flow, "a")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Fail: 1, Running: 2, KTarget: 3, Flagged: true, Siblings: "b c", Enqueued: true})
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateRunning: "b c", fixture.StateSkipped: "d e"})
	})
	t.Run("late_endings_only_count", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d", "c>d")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.Advance(1)
		f.Succeed(t, flow, "b")
		f.Fail(t, flow, "c")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 2, Fail: 1, KTarget: 1, Flagged: true, Siblings: "b c", Enqueued: true})
	})
	t.Run("nobody_left", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.CancelRemaining("d", 2), "a>d", "b>d")
		f.Succeed(t, flow, "a", "b")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 2, KTarget: 2, Flagged: true, Enqueued: true})
	})
	t.Run("flagged_already", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.CancelRemaining("d", 1), "a>d", "b>d")
		f.SetGroup(t, flow, "d", "cancel_siblings_pending_flag = true")
		f.Succeed(t, flow, "a")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true})
	})
	t.Run("not_where_they_may_run", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, fixture.When{"d": policy.AnyOf(policy.LetRun)}, "a>d", "b>d", "a>e", "c>e")
		f.ClaimAll(t)
		f.Succeed(t, flow, "a")
		f.Fail(t, flow, "c")
		f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1})
		f.WantGroup(t, flow, "e", fixture.StoredGroup{Success: 1, Fail: 1, KTarget: 2})
	})
}

// F28: an upstream that another undecided group still needs is not listed.
func TestNeededSiblingsAreNotListed_F28(t *testing.T) {
	f := fixture.NewFlows(t)
	// b also feeds the undecided "other", c the decided "done", g a group that is decided in the same step.
	flow := f.Draw(t, fixture.When{
		"done": policy.AnyOf(policy.LetRun), "d": policy.AnyOf(policy.CancelRemaining), "same": policy.AnyOf(policy.CancelRemaining),
	}, "a>d", "b>d", "c>d", "g>d", "b>other", "c>done", "z>done", "a>same", "g>same")
	f.ClaimAll(t)
	f.Succeed(t, flow, "z")
	f.Succeed(t, flow, "a")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 3, KTarget: 1, Flagged: true, Siblings: "c g", Enqueued: true})
	f.WantGroup(t, flow, "same", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "g", Enqueued: true})
	f.WantMembers(t, flow, map[string]string{
		fixture.StateCompleted: "a z", fixture.StateRunning: "b c g", fixture.StateReady: "d done same", fixture.StateHeld: "other",
	})
}

// An upstream whose other downstream has started, and does not depend on it any more, is listed.
func TestSiblingsWithAStartedDependentAreListed(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"other": policy.AnyOf(policy.LetRun), "d": policy.AnyOf(policy.CancelRemaining)},
		"a>d", "b>d", "x>other", "b>other")
	f.ClaimAll(t)
	f.Succeed(t, flow, "x")
	f.Lease(t, flow, "other")
	f.Succeed(t, flow, "a")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1, Flagged: true, Siblings: "b", Enqueued: true})
}

// An edge that is staged and not applied keeps a group open: no sibling is listed, however many have failed so far.
func TestSiblingsWaitForStagedEdges(t *testing.T) {
	t.Parallel()
	for k, fail := range map[int][]string{1: {"a", "b"}, 2: {"a"}} {
		t.Run(fmt.Sprintf("%d_needed", k), func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.CancelRemaining("d", k), "a>d", "b>d", "c>d")
			f.ClaimAll(t)
			f.StageOnly(t, flow, "c", "d")
			f.Fail(t, flow, fail...)
			f.WantGroup(t, flow, "d", fixture.StoredGroup{Fail: len(fail), Running: 2 - len(fail), KTarget: k})
			f.WantState(t, f.NodeID(flow, "d"), fixture.StateHeld)
		})
	}
}

// A decided group lists no sibling again, even after the list was worked off.
func TestSiblingsAreListedOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fixture.Flows, *testing.T, id.FlowID, ...string){
		"failed": (*fixture.Flows).Fail, "succeeded": (*fixture.Flows).Succeed,
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, fixture.CancelRemaining("d", 2), "a>d", "b>d", "c>d")
			f.ClaimAll(t)
			f.Fail(t, flow, "a", "b")
			f.WantGroup(t, flow, "d", fixture.StoredGroup{Fail: 2, Running: 1, KTarget: 2, Flagged: true, Siblings: "c", Enqueued: true})
			f.SetGroup(t, flow, "d", "cancel_siblings_pending_flag = false, cancel_siblings_pending_members = '{}'")
			f.Exec(t, "DELETE FROM ff_pending_cancel_groups WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
			end(f, t, flow, "c")
			if got := f.Groups(t, flow)["d"]; got.Flagged || got.Enqueued || got.Running != 0 {
				t.Errorf("group %+v", got)
			}
		})
	}
}
