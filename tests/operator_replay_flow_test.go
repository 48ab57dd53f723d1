package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

func (f *flowFixture) replayNode(t *testing.T, flow id.FlowID, key string, want state.PublicState) {
	t.Helper()
	x := f.NodeID(flow, key)
	if got := f.replay(t, x); got.State != want {
		t.Errorf("%s: %+v, want %s", key, got, want)
	}
	delete(f.leases, x)
}

// What a failure has skipped is replayed from the top, one after the other, and runs to its end.
func TestE28_a_skipped_branch_is_replayed(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b", "b>c")
	f.fail(t, flow, "a")
	f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateSkipped: "b c"})
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateSkipped: "b c"})
	f.wantGroup(t, flow, "b", storedGroup{Running: 1, KTarget: 1})
	f.wantGroup(t, flow, "c", storedGroup{Skip: 1, KTarget: 1})
	f.replayNode(t, flow, "b", state.PublicWaitingChildren)
	f.wantGroup(t, flow, "c", storedGroup{Running: 1, KTarget: 1})
	f.replayNode(t, flow, "c", state.PublicWaitingChildren)
	f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateReplayedHeld: "b c"})
	wantEqual(t, "edges", f.edges(t, flow), map[string]string{"a>b": "applied", "b>c": "applied"})
	for x, want := range map[string]string{
		"a": `replayed {"branch": "normal"}`, "b": `replayed {"branch": "skipped_flow_member", "groups_reset": 1}`,
	} {
		if got := f.operatorEvents(t, f.NodeID(flow, x)); !slices.Equal(got, []string{want}) {
			t.Errorf("operator events of %s: %q, want %q", x, got, want)
		}
	}
	f.succeed(t, flow, "a")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateReplayed: "b", stateReplayedHeld: "c"})
	f.succeed(t, flow, "b")
	f.succeed(t, flow, "c")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a b c"})
	f.wantGroup(t, flow, "b", storedGroup{Success: 1, KTarget: 1})
	f.wantGroup(t, flow, "c", storedGroup{Success: 1, KTarget: 1})
	f.wantCompletionEvents(t, flow, "a failed", "b skipped", "c skipped", "a success", "b success", "c success")
}

// In the other order it waits, for its upstream to be replayed too; a failure then skips it once more.
func TestE28_a_skipped_member_is_replayed_before_its_upstream(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>d", "b>d", "c>d")
	f.succeed(t, flow, "b")
	f.fail(t, flow, "a")
	f.replayNode(t, flow, "d", state.PublicWaitingChildren)
	f.wantGroup(t, flow, "d", storedGroup{Success: 1, Running: 2, KTarget: 3})
	f.succeed(t, flow, "c")
	f.wantGroup(t, flow, "d", storedGroup{Success: 2, Running: 1, KTarget: 3})
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantGroup(t, flow, "d", storedGroup{Success: 2, Running: 1, KTarget: 3})
	f.fail(t, flow, "a")
	f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateCompleted: "b c", stateSkipped: "d"})
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.succeed(t, flow, "a")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a b c", stateSkipped: "d"})
	f.replayNode(t, flow, "d", state.PublicWaiting) // all three have succeeded
	f.wantGroup(t, flow, "d", storedGroup{Success: 3, KTarget: 3})
	f.succeed(t, flow, "d")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a b c d"})
}

// What was released and has not been started waits again; what waits for any or for a quorum that still stands does not.
func TestReplay_of_a_success_blocks_what_has_not_started(t *testing.T) {
	f := flowsOn(cloneFixture(t)) // the queue is compared whole
	flow := f.draw(t, when{"any": policy.AnyOf(policy.LetRun), "two": policy.Quorum(2, policy.LetRun)},
		"a>all", "b>all", "a>any", "b>any", "a>two", "b>two", "a>one", "a>started")
	f.lease(t, flow, "a")
	f.succeed(t, flow, "a")
	started := f.claimKey(t, flow, "started")
	f.succeed(t, flow, "b")
	f.seedGrant(t, f.NodeID(flow, "one"))
	f.setExecution(t, f.NodeID(flow, "one"), "eligibility_state = 'pending_claim'")
	f.wantMembers(t, flow, map[string]string{
		stateCompleted: "a b", stateReady: "all any two", stateRunning: "started",
		"runnable unowned pending_claim waiting pending_first_attempt waiting_for_worker": "one",
	})

	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantMembers(t, flow, map[string]string{
		stateReplayed: "a", stateCompleted: "b", stateReady: "any", stateHeld: "all two one",
		stateRunning: "started",
	})
	f.wantGroup(t, flow, "all", storedGroup{Success: 1, Running: 1, KTarget: 2})
	f.wantGroup(t, flow, "any", storedGroup{Success: 1, Running: 1, KTarget: 1})
	f.wantGroup(t, flow, "two", storedGroup{Success: 1, Running: 1, KTarget: 2})
	f.wantGroup(t, flow, "one", storedGroup{Running: 1, KTarget: 1})
	f.wantGroup(t, flow, "started", storedGroup{Success: 1, KTarget: 1})
	if f.grants(t, f.NodeID(flow, "one")) != 0 {
		t.Error("the grant of what is blocked is left")
	}
	f.wantQueue(t, t, "the replay")

	f.leases[started.Execution] = started
	f.succeed(t, flow, "started")
	f.succeed(t, flow, "a")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a b started", stateRunning: "any", stateReady: "all two one"})
	f.wantGroup(t, flow, "started", storedGroup{Success: 1, KTarget: 1})
	f.wantGroup(t, flow, "any", storedGroup{Success: 2, KTarget: 1})
}

// claimKey claims one member alone, by putting it first.
func (f *flowFixture) claimKey(t *testing.T, flow id.FlowID, key string) engine.Lease {
	t.Helper()
	if err := f.Operator().ChangePriority(t.Context(), f.NodeID(flow, key), engine.MaxPriority); err != nil {
		t.Fatal(err)
	}
	claimed := f.claim(t)
	if claimed.ID != f.NodeID(flow, key) {
		t.Fatalf("claimed %s, want %s", f.name(claimed.ID.UUID()), key)
	}
	return claimed.Lease
}

// What has been started goes on. Its group counts again only while that can decide something still: it is undecided, or
// what depends on it was skipped and may be replayed.
func TestReplay_of_an_upstream_of_what_has_started(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>parked", "b>parked", "x>skipped", "a>skipped")
	for _, key := range []string{"parked", "skipped"} { // both have waited for their upstreams in the middle of an attempt
		f.setExecution(t, f.NodeID(flow, key), "started_at_ms = 1, attempt_state = 'attempt_interrupted'")
		f.seedAttempt(t, f.NodeID(flow, key), 0, columns{"outcome": "waiting_children"})
	}
	const stateParked = "runnable unowned blocked_by_dependencies waiting_children attempt_interrupted waiting_for_children"
	f.succeed(t, flow, "a")
	f.fail(t, flow, "x")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a", stateFailed: "x", stateRunning: "b", stateSkipped: "skipped", stateParked: "parked"})
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateFailed: "x", stateRunning: "b", stateSkipped: "skipped", stateParked: "parked"})
	f.wantGroup(t, flow, "parked", storedGroup{Running: 2, KTarget: 2})
	f.wantGroup(t, flow, "skipped", storedGroup{Fail: 1, Running: 1, KTarget: 2})
	f.replayNode(t, flow, "x", state.PublicWaiting)
	f.replayNode(t, flow, "skipped", state.PublicWaitingChildren)
	f.succeed(t, flow, "a", "b", "x")
	f.wantMembers(t, flow, map[string]string{stateCompleted: "a b x", stateReplayed: "skipped", stateReturned: "parked"})
	if next := f.lease(t, flow, "skipped"); next.Attempt != 0 {
		t.Errorf("claimed %+v, want its attempt to begin again", next)
	}
}

// A delay of its creation holds it again, once it is released again.
func TestReplay_of_a_success_keeps_a_delay(t *testing.T) {
	f := newFlowFixture(t)
	spec := chart(nil, "a>b")
	spec.Nodes[1].Spec.DelayUntil, spec.Nodes[1].Spec.Deadline = f.now().Add(time.Minute), f.now().Add(time.Hour)
	flow := f.createFlow(t, spec)
	b := f.NodeID(flow, "b")
	f.succeed(t, flow, "a")
	f.wantState(t, b, stateDelayed)
	released := f.stored(t, b)
	f.replayNode(t, flow, "a", state.PublicWaiting)
	if got := f.stored(t, b); got.State != stateHeld || *got.DeadlineAtMs != f.now().Add(time.Hour).UnixMilli() {
		t.Errorf("stored %+v", got)
	}
	f.succeed(t, flow, "a")
	if got := f.stored(t, b); got.State != stateDelayed || *got.DelayUntilMs != *released.DelayUntilMs || *got.DeadlineAtMs != *released.DeadlineAtMs {
		t.Errorf("stored %+v, want as before %+v", got, released)
	}
}

// Not skipped, but cancelled before it ran: what it depends on is not passed over. The reference, and the letter of its
// event, call that a normal replay and let it run.
func TestReplay_of_a_member_that_never_ran(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(t *testing.T, f *flowFixture, flow id.FlowID)
		want  string
		group storedGroup
		event string
	}{
		{
			"undecided", func(*testing.T, *flowFixture, id.FlowID) {}, stateReplayedHeld,
			storedGroup{Running: 2, KTarget: 2},
			`replayed {"branch": "normal"}`,
		},
		{
			"impossible", func(t *testing.T, f *flowFixture, flow id.FlowID) { f.fail(t, flow, "a") }, stateReplayedHeld,
			storedGroup{Running: 2, KTarget: 2},
			`replayed {"branch": "skipped_flow_member", "groups_reset": 1}`,
		},
		{
			"satisfied", func(t *testing.T, f *flowFixture, flow id.FlowID) { f.succeed(t, flow, "a", "b") }, stateReplayed,
			storedGroup{Success: 2, KTarget: 2},
			`replayed {"branch": "normal"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFlowFixture(t)
			flow := f.draw(t, nil, "a>c", "b>c")
			x := f.NodeID(flow, "c")
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			c.do(t, f, flow)
			f.replay(t, x)
			f.wantState(t, x, c.want)
			f.wantGroup(t, flow, "c", c.group)
			if got := f.operatorEvents(t, x); !slices.Equal(got, []string{c.event}) {
				t.Errorf("operator events %q, want %q", got, c.event)
			}
		})
	}
}

// A member that has run, and failed, does not wait for its upstreams a second time.
func TestReplay_of_a_member_that_ran(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b", "b>c")
	f.succeed(t, flow, "a")
	f.fail(t, flow, "b")
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantGroup(t, flow, "b", storedGroup{Success: 1, KTarget: 1}) // b has started
	f.replayNode(t, flow, "b", state.PublicWaiting)
	f.wantMembers(t, flow, map[string]string{stateReplayed: "a b", stateSkipped: "c"})
	f.wantGroup(t, flow, "b", storedGroup{Success: 1, KTarget: 1})
}

// A flow that was cancelled stays so, whatever its members.
func TestReplay_in_a_cancelled_flow(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>b")
	f.fail(t, flow, "a")
	f.exec(t, "UPDATE ff_flow_core SET public_flow_state = 'cancelled' WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
	before := f.dumpFlow(t, flow)
	for _, key := range []string{"a", "b"} {
		if _, err := f.Operator().ReplayExecution(t.Context(), f.NodeID(flow, key)); !errors.Is(err, engine.ErrFlowTerminal) {
			t.Errorf("%s: got %v, want that the flow has ended", key, err)
		}
	}
	if f.dumpFlow(t, flow) != before {
		t.Error("something was written")
	}
}

// A replay writes the flow's row: who has an older snapshot must not overlook the member.
func TestReplay_writes_the_flow(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a")
	f.fail(t, flow, "a")
	f.advance(time.Second)
	f.replayNode(t, flow, "a", state.PublicWaiting)
	got := texts(t, f.pool, "SELECT raw_fields ->> 'last_mutation_at_ms' FROM ff_flow_core WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
	if want := fmt.Sprint(nowMs(f.fixture)); got[0] != want {
		t.Errorf("last mutation %s, want %s", got[0], want)
	}
}

// forgetMarks leaves the edges from a node as the reference's dispatcher does, which counts and marks nothing.
func (f *flowFixture) forgetMarks(t *testing.T, flow id.FlowID, key string) {
	t.Helper()
	f.exec(t, `UPDATE ff_edge SET policy = (policy - 'resolved_at_ms' - 'resolved_outcome') || '{"edge_state":"applied"}'
		WHERE partition_key = $1 AND flow_id = $2 AND upstream_eid = $3`, partitionOf(flow), flow, f.NodeID(flow, key).UUID())
}

// What the reference counted, without a mark, is taken back, or marked where that cannot be; what it has not counted is
// not. Either way the next end counts exactly once, or not at all, and no completion has to look for it.
func TestReplay_of_what_another_program_counted(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>waits", "b>waits", "a>runs")
	f.succeed(t, flow, "a")
	f.claimKey(t, flow, "runs")
	f.forgetMarks(t, flow, "a")
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantGroup(t, flow, "waits", storedGroup{Running: 2, KTarget: 2})
	f.wantGroup(t, flow, "runs", storedGroup{Success: 1, KTarget: 1})
	wantEqual(t, "edges", f.edges(t, flow), map[string]string{"a>waits": "applied", "b>waits": "applied", "a>runs": "satisfied success"})
	f.succeed(t, flow, "a")
	f.wantGroup(t, flow, "waits", storedGroup{Success: 1, Running: 1, KTarget: 2})
	f.wantGroup(t, flow, "runs", storedGroup{Success: 1, KTarget: 1})

	// It had ended by the hand of the reference, and nobody has counted that yet.
	flow = f.draw(t, nil, "a>waits", "b>waits")
	x := f.NodeID(flow, "a")
	l := f.lease(t, flow, "a")
	f.setExecution(t, x, `lifecycle_phase = 'terminal', ownership_state = 'unowned', public_state = 'completed',
		attempt_state = 'attempt_terminal', terminal_at_ms = 1`)
	f.setAttempt(t, x, 0, "outcome = 'success', terminal_at_ms = 1, lease_expires_at_ms = NULL")
	f.insert(t, "ff_completion_event", columns{
		"partition_key": x.Partition(), "execution_id": x.UUID(), "flow_id": flow, "outcome": "success", "occurred_at_ms": 1,
	}, columns{})
	f.succeed(t, flow, "b")
	f.forgetMarks(t, flow, "b") // counted, where a's end is not
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantGroup(t, flow, "waits", storedGroup{Success: 1, Running: 1, KTarget: 2})
	f.wantCompletionEvents(t, flow, "a success", "b success") // dispatched, both
	if next := f.lease(t, flow, "a"); next.Epoch != l.Epoch+2 {
		t.Errorf("claimed %+v", next)
	}
	f.fail(t, flow, "a")
	f.wantGroup(t, flow, "waits", storedGroup{Success: 1, Fail: 1, KTarget: 2})
	f.wantState(t, f.NodeID(flow, "waits"), stateSkipped)
}

// A group that nobody can decide, and one without a row, get their edges back; nothing is moved because of them.
func TestReplay_of_an_upstream_of_groups_that_cannot_be_decided(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>unknown", "a>none")
	f.succeed(t, flow, "a")
	f.exec(t, `UPDATE ff_edge_group SET policy = '{"kind":"most"}' WHERE partition_key = $1 AND downstream_eid = $2`, partitionOf(flow), f.NodeID(flow, "unknown").UUID())
	f.exec(t, `DELETE FROM ff_edge_group WHERE partition_key = $1 AND downstream_eid = $2`, partitionOf(flow), f.NodeID(flow, "none").UUID())
	f.replayNode(t, flow, "a", state.PublicWaiting)
	f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateHeld: "unknown", stateReady: "none"})
	wantEqual(t, "edges", f.edges(t, flow), map[string]string{"a>unknown": "applied", "a>none": "applied"})
	f.wantGroup(t, flow, "unknown", storedGroup{Running: 1, KTarget: 1})
}

// A replay and whatever else acts on the same rows: whoever is second finds what the first has made of them.
func TestInterleaving_replay(t *testing.T) {
	replay := func(ctx context.Context, e *engine.Engine, x id.ExecutionID) error {
		_, err := e.Operator().ReplayExecution(ctx, x)
		return err
	}
	t.Run("against one who deletes the row", func(t *testing.T) {
		f := newFixture(t)
		l := f.start(t).Lease
		f.fail(t, l, forGood)
		late := f.rival(t)
		tx := f.holdRow(t, l.Execution)
		execIn(t, tx, "DELETE FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2", l.Execution.Partition(), l.Execution.UUID())
		execIn(t, tx, "DELETE FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", l.Execution.Partition(), l.Execution.UUID())
		wait := async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, l.Execution) })
		late.awaitBlocked(t, f)
		commit(t, tx)
		if err := wait(); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("got %v, want not found", err)
		}
		if got := f.operatorEvents(t, l.Execution); len(got) > 0 {
			t.Errorf("operator events %q", got)
		}
	})
	t.Run("before one who deletes the row", func(t *testing.T) {
		f := newFixture(t)
		l := f.start(t).Lease
		f.fail(t, l, forGood)
		tx := f.begin(t)
		if err := replay(t.Context(), f.WithTx(tx), l.Execution); err != nil {
			t.Fatal(err)
		}
		const found = `SELECT execution_id::text FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2
			AND lifecycle_phase IN ('terminal', 'cancelled') FOR UPDATE SKIP LOCKED`
		if got := texts(t, f.pool, found, l.Execution.Partition(), l.Execution.UUID()); len(got) > 0 {
			t.Errorf("%q may be deleted", got)
		}
		commit(t, tx)
		if got := texts(t, f.pool, found, l.Execution.Partition(), l.Execution.UUID()); len(got) > 0 {
			t.Errorf("%q may be deleted", got)
		}
	})
	t.Run("against another replay", func(t *testing.T) {
		f := newFixture(t)
		l := f.start(t).Lease
		f.fail(t, l, forGood)
		late := f.rival(t)
		tx := f.begin(t)
		if err := replay(t.Context(), f.WithTx(tx), l.Execution); err != nil {
			t.Fatal(err)
		}
		wait := async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, l.Execution) })
		late.awaitBlocked(t, f)
		commit(t, tx)
		if err := wait(); !errors.Is(err, engine.ErrNotEnded) {
			t.Errorf("got %v, want that it has not ended", err)
		}
		if got := f.stored(t, l.Execution).raw(t, "replay_count"); got != "1" {
			t.Errorf("replayed %s times", got)
		}
	})
	t.Run("against the completion of a sibling", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "a>c", "b>c")
		f.succeed(t, flow, "a")
		b := f.lease(t, flow, "b")
		late := f.rival(t)
		tx := f.begin(t)
		if err := f.WithTx(tx).CompleteExecution(t.Context(), b, nil); err != nil {
			t.Fatal(err)
		}
		wait := async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, f.NodeID(flow, "a")) })
		late.awaitBlocked(t, f.fixture) // at the flow
		commit(t, tx)                   // which releases c
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateCompleted: "b", stateHeld: "c"})
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
	})
	t.Run("before the completion of a sibling", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "a>c", "b>c")
		f.succeed(t, flow, "a")
		b := f.lease(t, flow, "b")
		late := f.rival(t)
		tx := f.begin(t)
		if err := replay(t.Context(), f.WithTx(tx), f.NodeID(flow, "a")); err != nil {
			t.Fatal(err)
		}
		wait := async(t, func(ctx context.Context) error { return late.CompleteExecution(ctx, b, nil) })
		late.awaitBlocked(t, f.fixture)
		commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateCompleted: "b", stateHeld: "c"})
		f.wantGroup(t, flow, "c", storedGroup{Success: 1, Running: 1, KTarget: 2})
	})
	t.Run("against a claim of what depends on it", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "a>b")
		f.succeed(t, flow, "a")
		late := f.rival(t)
		tx := f.begin(t)
		if claimed, err := f.WithTx(tx).Claim(t.Context(), f.worker(), 1); err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %v, %v", claimed, err)
		}
		wait := async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, f.NodeID(flow, "a")) })
		late.awaitBlocked(t, f.fixture) // at b, of which it read that nobody had started it
		commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.wantMembers(t, flow, map[string]string{stateReplayed: "a", stateRunning: "b"})
		f.wantGroup(t, flow, "b", storedGroup{Success: 1, KTarget: 1})
	})
	t.Run("of an execution that joins a flow", func(t *testing.T) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "m")
		x := id.NewMemberExecutionID(flow, id.Partitions{})
		if _, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{ID: x, Kind: "test", Lane: f.lane}); err != nil {
			t.Fatal(err)
		}
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
			t.Fatal(err)
		}
		f.exec(t, "UPDATE ff_flow_core SET public_flow_state = 'cancelled' WHERE partition_key = $1 AND flow_id = $2", partitionOf(flow), flow)
		late := f.rival(t)
		tx := f.holdRow(t, x)
		wait := async(t, func(ctx context.Context) error { return replay(ctx, late.Engine, x) })
		late.awaitBlocked(t, f.fixture)
		execIn(t, tx, updateExecution("flow_id = '"+flow.String()+"'"), x.Partition(), x.UUID())
		commit(t, tx)
		if err := wait(); !errors.Is(err, engine.ErrFlowTerminal) {
			t.Errorf("got %v, want that the flow it has joined has ended", err)
		}
	})
}
