package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Members skipped by a failure are replayed from the top, one after the other, and run to their end.
func TestReplayOfASkippedBranch_E28(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "b>c")
	f.Fail(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateSkipped: "b c"})
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateSkipped: "b c"})
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Skip: 1, KTarget: 1})
	f.ReplayNode(t, flow, "b", state.PublicWaitingChildren)
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.ReplayNode(t, flow, "c", state.PublicWaitingChildren)
	f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateReplayedHeld: "b c"})
	fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{"a>b": "applied", "b>c": "applied"})
	for x, want := range map[string]string{
		"a": `replayed {"branch": "normal"}`, "b": `replayed {"branch": "skipped_flow_member", "groups_reset": 1}`,
	} {
		if got := operatorEvents(t, f.Fixture, f.NodeID(flow, x)); !slices.Equal(got, []string{want}) {
			t.Errorf("operator events of %s: %q, want %q", x, got, want)
		}
	}
	f.Succeed(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateReplayed: "b", fixture.StateReplayedHeld: "c"})
	f.Succeed(t, flow, "b")
	f.Succeed(t, flow, "c")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c"})
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantCompletionEvents(t, flow, "a failed", "b skipped", "c skipped", "a success", "b success", "c success")
}

// In the other order it waits, for its upstream to be replayed too; a failure then skips it once more.
func TestReplayOfASkippedMemberBeforeItsUpstream_E28(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>d", "b>d", "c>d")
	f.Succeed(t, flow, "b")
	f.Fail(t, flow, "a")
	f.ReplayNode(t, flow, "d", state.PublicWaitingChildren)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 1, Running: 2, KTarget: 3})
	f.Succeed(t, flow, "c")
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 2, Running: 1, KTarget: 3})
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 2, Running: 1, KTarget: 3})
	f.Fail(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateCompleted: "b c", fixture.StateSkipped: "d"})
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.Succeed(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c", fixture.StateSkipped: "d"})
	f.ReplayNode(t, flow, "d", state.PublicWaiting) // all three have succeeded
	f.WantGroup(t, flow, "d", fixture.StoredGroup{Success: 3, KTarget: 3})
	f.Succeed(t, flow, "d")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c d"})
}

// Released members that have not started wait again; those that wait for any or for a quorum that still stands do
// not.
func TestReplayOfASuccessBlocksUnstartedDependents(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t)) // the queue is compared whole
	flow := f.Draw(t, fixture.When{"any": policy.AnyOf(policy.LetRun), "two": policy.Quorum(2, policy.LetRun)},
		"a>all", "b>all", "a>any", "b>any", "a>two", "b>two", "a>one", "a>started")
	f.Lease(t, flow, "a")
	f.Succeed(t, flow, "a")
	started := claimKey(t, f, flow, "started")
	f.Succeed(t, flow, "b")
	f.SeedGrant(t, f.NodeID(flow, "one"))
	f.SetExecution(t, f.NodeID(flow, "one"), "eligibility_state = 'pending_claim'")
	f.WantMembers(t, flow, map[string]string{
		fixture.StateCompleted: "a b", fixture.StateReady: "all any two", fixture.StateRunning: "started",
		"runnable unowned pending_claim waiting pending_first_attempt waiting_for_worker": "one",
	})

	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantMembers(t, flow, map[string]string{
		fixture.StateReplayed: "a", fixture.StateCompleted: "b", fixture.StateReady: "any", fixture.StateHeld: "all two one",
		fixture.StateRunning: "started",
	})
	f.WantGroup(t, flow, "all", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	f.WantGroup(t, flow, "any", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 1})
	f.WantGroup(t, flow, "two", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	f.WantGroup(t, flow, "one", fixture.StoredGroup{Running: 1, KTarget: 1})
	f.WantGroup(t, flow, "started", fixture.StoredGroup{Success: 1, KTarget: 1})
	if f.CountGrants(t, f.NodeID(flow, "one")) != 0 {
		t.Error("the grant of what is blocked is left")
	}
	f.WantQueue(t, t, "the replay")

	f.Leases[started.Execution] = started
	f.Succeed(t, flow, "started")
	f.Succeed(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b started", fixture.StateRunning: "any", fixture.StateReady: "all two one"})
	f.WantGroup(t, flow, "started", fixture.StoredGroup{Success: 1, KTarget: 1})
	f.WantGroup(t, flow, "any", fixture.StoredGroup{Success: 2, KTarget: 1})
}

// claimKey claims one member alone, by putting it first.
func claimKey(t *testing.T, f *fixture.Flows, flow id.FlowID, key string) engine.Lease {
	t.Helper()
	if err := operator.Prioritize(t.Context(), f.Fixture.Engine, f.NodeID(flow, key), engine.MaxPriority); err != nil {
		t.Fatal(err)
	}
	claimed := f.ClaimOne(t)
	if claimed.ID != f.NodeID(flow, key) {
		t.Fatalf("claimed %s, want %s", f.Name(claimed.ID.UUID()), key)
	}
	return claimed.Lease
}

// Started members go on. Their group counts again only while that can still decide something: it is undecided, or its
// dependents were skipped and may be replayed.
func TestReplayLeavesStartedDependentsRunning(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>parked", "b>parked", "x>skipped", "a>skipped")
	for _, key := range []string{"parked", "skipped"} { // both have waited for their upstreams in the middle of an attempt
		f.SetExecution(t, f.NodeID(flow, key), "started_at_ms = 1, attempt_state = 'attempt_interrupted'")
		f.SeedAttempt(t, f.NodeID(flow, key), 0, fixture.Columns{"outcome": "waiting_children"})
	}
	const stateParked = "runnable unowned blocked_by_dependencies waiting_children attempt_interrupted waiting_for_children"
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "x")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a", fixture.StateFailed: "x", fixture.StateRunning: "b", fixture.StateSkipped: "skipped", stateParked: "parked"})
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateFailed: "x", fixture.StateRunning: "b", fixture.StateSkipped: "skipped", stateParked: "parked"})
	f.WantGroup(t, flow, "parked", fixture.StoredGroup{Running: 2, KTarget: 2})
	f.WantGroup(t, flow, "skipped", fixture.StoredGroup{Fail: 1, Running: 1, KTarget: 2})
	f.ReplayNode(t, flow, "x", state.PublicWaiting)
	f.ReplayNode(t, flow, "skipped", state.PublicWaitingChildren)
	f.Succeed(t, flow, "a", "b", "x")
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b x", fixture.StateReplayed: "skipped", fixture.StateReturned: "parked"})
	if next := f.Lease(t, flow, "skipped"); next.Attempt != 0 {
		t.Errorf("claimed %+v, want its attempt to begin again", next)
	}
}

// A delay of its creation holds it again, once it is released again.
func TestReplayOfASuccessKeepsADelay(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := fixture.Chart(nil, "a>b")
	spec.Nodes[1].Spec.DelayUntil, spec.Nodes[1].Spec.Deadline = f.Time().Add(time.Minute), f.Time().Add(time.Hour)
	flow := f.NewFlowOf(t, spec)
	b := f.NodeID(flow, "b")
	f.Succeed(t, flow, "a")
	f.WantState(t, b, fixture.StateDelayed)
	released := f.Stored(t, b)
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	if got := f.Stored(t, b); got.State != fixture.StateHeld || *got.DeadlineAtMs != f.Time().Add(time.Hour).UnixMilli() {
		t.Errorf("stored %+v", got)
	}
	f.Succeed(t, flow, "a")
	if got := f.Stored(t, b); got.State != fixture.StateDelayed || *got.DelayUntilMs != *released.DelayUntilMs || *got.DeadlineAtMs != *released.DeadlineAtMs {
		t.Errorf("stored %+v, want as before %+v", got, released)
	}
}

// Not skipped, but cancelled before it ran: its dependencies still count. The reference, and the letter of its event,
// call that a normal replay and let it run.
func TestReplayOfAMemberThatNeverRan(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, f *fixture.Flows, flow id.FlowID)
		want  string
		group fixture.StoredGroup
		event string
	}{
		{
			"undecided", func(*testing.T, *fixture.Flows, id.FlowID) {}, fixture.StateReplayedHeld,
			fixture.StoredGroup{Running: 2, KTarget: 2},
			`replayed {"branch": "normal"}`,
		},
		{
			"impossible", func(t *testing.T, f *fixture.Flows, flow id.FlowID) { f.Fail(t, flow, "a") }, fixture.StateReplayedHeld,
			fixture.StoredGroup{Running: 2, KTarget: 2},
			`replayed {"branch": "skipped_flow_member", "groups_reset": 1}`,
		},
		{
			"satisfied", func(t *testing.T, f *fixture.Flows, flow id.FlowID) { f.Succeed(t, flow, "a", "b") }, fixture.StateReplayed,
			fixture.StoredGroup{Success: 2, KTarget: 2},
			`replayed {"branch": "normal"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>c", "b>c")
			x := f.NodeID(flow, "c")
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			c.do(t, f, flow)
			f.Replay(t, x)
			f.WantState(t, x, c.want)
			f.WantGroup(t, flow, "c", c.group)
			if got := operatorEvents(t, f.Fixture, x); !slices.Equal(got, []string{c.event}) {
				t.Errorf("operator events %q, want %q", got, c.event)
			}
		})
	}
}

// A member that has run, and failed, does not wait for its upstreams a second time.
func TestReplayOfAMemberThatRan(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b", "b>c")
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1}) // b has started
	f.ReplayNode(t, flow, "b", state.PublicWaiting)
	f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a b", fixture.StateSkipped: "c"})
	f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1})
}

// A cancelled flow stays cancelled, in any state of its members.
func TestReplayInACancelledFlow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>b")
	f.Fail(t, flow, "a")
	f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = 'cancelled' WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	before := f.DumpFlow(t, flow)
	for _, key := range []string{"a", "b"} {
		if _, err := operator.Replay(t.Context(), f.Fixture.Engine, f.NodeID(flow, key), operator.ReplayCompleted); !errors.Is(err, fferr.ErrFlowTerminal) {
			t.Errorf("%s: got %v, want that the flow has ended", key, err)
		}
	}
	if f.DumpFlow(t, flow) != before {
		t.Error("something was written")
	}
}

// A replay writes the flow's row: a transaction with an older snapshot must not overlook the member.
func TestReplayWritesTheFlowRow(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	f.Fail(t, flow, "a")
	f.Advance(time.Second)
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	got := fixture.Texts(t, f.Pool, "SELECT raw_fields ->> 'last_mutation_at_ms' FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
	if want := fmt.Sprint(nowMs(f.Fixture)); got[0] != want {
		t.Errorf("last mutation %s, want %s", got[0], want)
	}
}

// The replay undoes the reference's counts without a mark, or marks the edges if it cannot; edges that are not
// counted stay open. Either way the next end counts exactly once, or not at all, and no completion has to look for
// it.
func TestReplayTakesBackForeignCounts(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>waits", "b>waits", "a>runs")
	f.Succeed(t, flow, "a")
	claimKey(t, f, flow, "runs")
	f.ForgetMarks(t, flow, "a")
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantGroup(t, flow, "waits", fixture.StoredGroup{Running: 2, KTarget: 2})
	f.WantGroup(t, flow, "runs", fixture.StoredGroup{Success: 1, KTarget: 1})
	fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{"a>waits": "applied", "b>waits": "applied", "a>runs": "satisfied success"})
	f.Succeed(t, flow, "a")
	f.WantGroup(t, flow, "waits", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	f.WantGroup(t, flow, "runs", fixture.StoredGroup{Success: 1, KTarget: 1})

	// The reference ended it, and no program has counted that yet.
	flow = f.Draw(t, nil, "a>waits", "b>waits")
	x := f.NodeID(flow, "a")
	l := f.Lease(t, flow, "a")
	f.SetExecution(t, x, `lifecycle_phase = 'terminal', ownership_state = 'unowned', public_state = 'completed',
		attempt_state = 'attempt_terminal', terminal_at_ms = 1`)
	f.SetAttempt(t, x, 0, "outcome = 'success', terminal_at_ms = 1, lease_expires_at_ms = NULL")
	f.Insert(t, "ff_completion_event", fixture.Columns{
		"partition_key": x.Partition(), "execution_id": x.UUID(), "flow_id": flow, "outcome": "success", "occurred_at_ms": 1,
	}, fixture.Columns{})
	f.Succeed(t, flow, "b")
	f.ForgetMarks(t, flow, "b") // counted, where a's end is not
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantGroup(t, flow, "waits", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	f.WantCompletionEvents(t, flow, "a success", "b success") // dispatched, both
	if next := f.Lease(t, flow, "a"); next.Epoch != l.Epoch+2 {
		t.Errorf("claimed %+v", next)
	}
	f.Fail(t, flow, "a")
	f.WantGroup(t, flow, "waits", fixture.StoredGroup{Success: 1, Fail: 1, KTarget: 2})
	f.WantState(t, f.NodeID(flow, "waits"), fixture.StateSkipped)
}

// A group that cannot be decided, and one without a row, get their edges back; nothing is moved because of them.
func TestReplayWithUndecidableGroups(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>unknown", "a>none")
	f.Succeed(t, flow, "a")
	f.Exec(t, `UPDATE ff_edge_group SET policy = '{"kind":"most"}' WHERE partition_key = $1 AND downstream_eid = $2`, fixture.PartitionOf(flow), f.NodeID(flow, "unknown").UUID())
	f.Exec(t, `DELETE FROM ff_edge_group WHERE partition_key = $1 AND downstream_eid = $2`, fixture.PartitionOf(flow), f.NodeID(flow, "none").UUID())
	f.ReplayNode(t, flow, "a", state.PublicWaiting)
	f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateHeld: "unknown", fixture.StateReady: "none"})
	fixture.WantEqual(t, "edges", f.Edges(t, flow), map[string]string{"a>unknown": "applied", "a>none": "applied"})
	f.WantGroup(t, flow, "unknown", fixture.StoredGroup{Running: 1, KTarget: 1})
}

// A replay races every other operation on the same rows: the second finds the result of the first.
func TestReplayRacesOtherOperations(t *testing.T) {
	replay := func(ctx context.Context, e *engine.Engine, x id.ExecutionID) error {
		_, err := operator.Replay(ctx, e, x, operator.ReplayCompleted)
		return err
	}
	t.Run("against one who deletes the row", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		f.Fail(t, l, fixture.ForGood)
		late := f.Rival(t)
		tx := holdRow(t, f, l.Execution)
		fixture.ExecIn(t, tx, "DELETE FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2", l.Execution.Partition(), l.Execution.UUID())
		fixture.ExecIn(t, tx, "DELETE FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", l.Execution.Partition(), l.Execution.UUID())
		wait := fixture.Async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, l.Execution) })
		late.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if err := wait(); !errors.Is(err, fferr.ErrNotFound) {
			t.Errorf("got %v, want not found", err)
		}
		if got := operatorEvents(t, f, l.Execution); len(got) > 0 {
			t.Errorf("operator events %q", got)
		}
	})
	t.Run("before one who deletes the row", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		f.Fail(t, l, fixture.ForGood)
		tx := f.BeginTx(t)
		if err := replay(t.Context(), f.WithTx(tx), l.Execution); err != nil {
			t.Fatal(err)
		}
		const found = `SELECT execution_id::text FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2
			AND lifecycle_phase IN ('terminal', 'cancelled') FOR UPDATE SKIP LOCKED`
		if got := fixture.Texts(t, f.Pool, found, l.Execution.Partition(), l.Execution.UUID()); len(got) > 0 {
			t.Errorf("%q may be deleted", got)
		}
		fixture.Commit(t, tx)
		if got := fixture.Texts(t, f.Pool, found, l.Execution.Partition(), l.Execution.UUID()); len(got) > 0 {
			t.Errorf("%q may be deleted", got)
		}
	})
	t.Run("against another replay", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		f.Fail(t, l, fixture.ForGood)
		late := f.Rival(t)
		tx := f.BeginTx(t)
		if err := replay(t.Context(), f.WithTx(tx), l.Execution); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, l.Execution) })
		late.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if err := wait(); !errors.Is(err, fferr.ErrNotEnded) {
			t.Errorf("got %v, want that it has not ended", err)
		}
		if got := f.Stored(t, l.Execution).Raw(t, "replay_count"); got != "1" {
			t.Errorf("replayed %s times", got)
		}
	})
	t.Run("against the completion of a sibling", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>c", "b>c")
		f.Succeed(t, flow, "a")
		b := f.Lease(t, flow, "b")
		late := f.Rival(t)
		tx := f.BeginTx(t)
		if err := f.WithTx(tx).CompleteExecution(t.Context(), b, nil); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, f.NodeID(flow, "a")) })
		late.AwaitBlocked(t, f.Fixture) // at the flow
		fixture.Commit(t, tx)           // which releases c
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateCompleted: "b", fixture.StateHeld: "c"})
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	})
	t.Run("before the completion of a sibling", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>c", "b>c")
		f.Succeed(t, flow, "a")
		b := f.Lease(t, flow, "b")
		late := f.Rival(t)
		tx := f.BeginTx(t)
		if err := replay(t.Context(), f.WithTx(tx), f.NodeID(flow, "a")); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, b, nil) })
		late.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateCompleted: "b", fixture.StateHeld: "c"})
		f.WantGroup(t, flow, "c", fixture.StoredGroup{Success: 1, Running: 1, KTarget: 2})
	})
	t.Run("against a claim of what depends on it", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>b")
		f.Succeed(t, flow, "a")
		late := f.Rival(t)
		tx := f.BeginTx(t)
		if claimed, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 1); err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, f.NodeID(flow, "a")) })
		late.AwaitBlocked(t, f.Fixture) // at b, which had not started when it read it
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateReplayed: "a", fixture.StateRunning: "b"})
		f.WantGroup(t, flow, "b", fixture.StoredGroup{Success: 1, KTarget: 1})
	})
	t.Run("of an execution that joins a flow", func(t *testing.T) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "m")
		x := id.NewMemberExecutionID(flow, id.Partitions{})
		if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{ID: x, Kind: "test", Lane: f.Lane}); err != nil {
			t.Fatal(err)
		}
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
			t.Fatal(err)
		}
		f.Exec(t, "UPDATE ff_flow_core SET public_flow_state = 'cancelled' WHERE partition_key = $1 AND flow_id = $2", fixture.PartitionOf(flow), flow)
		late := f.Rival(t)
		tx := holdRow(t, f.Fixture, x)
		wait := fixture.Async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, x) })
		late.AwaitBlocked(t, f.Fixture)
		fixture.ExecIn(t, tx, fixture.UpdateExecution("flow_id = '"+flow.String()+"'"), x.Partition(), x.UUID())
		fixture.Commit(t, tx)
		if err := wait(); !errors.Is(err, fferr.ErrFlowTerminal) {
			t.Errorf("got %v, want that the flow it has joined has ended", err)
		}
	})
}
