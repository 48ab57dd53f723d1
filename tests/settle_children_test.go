package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

const stateParked = "runnable unowned blocked_by_dependencies waiting_children attempt_interrupted waiting_for_children"

// early claims a member before its upstreams have ended, as one that was given more of them while it ran.
func (f *flowFixture) early(t *testing.T, flow id.FlowID, key string) engine.Lease {
	t.Helper()
	x := f.NodeID(flow, key)
	f.setExecution(t, x, "eligibility_state = 'eligible_now', public_state = 'waiting', blocking_reason = 'waiting_for_worker'")
	return f.lease(t, flow, key)
}

func (f *flowFixture) wantWaiting(t *testing.T, l engine.Lease, want engine.Waiting) {
	t.Helper()
	if got, err := f.WaitForChildren(t.Context(), l); err != nil || got != want {
		t.Errorf("waiting: %q, %v; want %q", got, err, want)
	}
}

// Parked until the last upstream has ended, and then the same attempt goes on.
func TestWaitForChildren_parks(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>c", "b>c")
	l := f.early(t, flow, "c")
	for range 2 { // the second time is a repetition
		f.wantWaiting(t, l, engine.WaitingParked)
	}
	f.wantMembers(t, flow, map[string]string{stateRunning: "a b", stateParked: "c"})
	attempt := f.attempts(t, l.Execution)[0]
	if attempt.Outcome != "waiting_children" || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs != nil || attempt.DelayUntilMs != nil || attempt.LeaseEpoch != 1 {
		t.Errorf("attempt %+v", attempt)
	}
	f.wantEvents(t, l.Execution, "lease acquired", "lease revoked backend")
	f.succeed(t, flow, "a")
	f.wantState(t, l.Execution, stateParked)
	f.succeed(t, flow, "b")
	f.wantState(t, l.Execution, stateReturned)
	f.wantWaiting(t, l, engine.WaitingReady)
	again := f.claim(t)
	if !again.Resumed || again.Lease.Attempt != 0 || again.Lease.Epoch != 2 {
		t.Errorf("claimed %+v", again)
	}
	_, err := f.WaitForChildren(t.Context(), l)
	wantLeaseError(t, err, engine.ErrStaleLease)
}

// What failed while it was parked ends it, as any other that waits.
func TestWaitForChildren_parked_is_skipped(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>c", "b>c", "c>d")
	l := f.early(t, flow, "c")
	f.wantWaiting(t, l, engine.WaitingParked)
	f.fail(t, flow, "a")
	f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateRunning: "b", stateSkipped: "c d"})
	if a := f.attempts(t, l.Execution)[0]; a.Outcome != "skipped" || a.LeaseEpoch != 2 || a.TerminalAtMs == nil {
		t.Errorf("attempt %+v", a)
	}
}

// The reference parks it although all that it waits for has ended, and nobody wakes it again.
func TestE40_wait_children_of_a_satisfied_group(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>c", "b>c")
	l := f.early(t, flow, "c")
	f.succeed(t, flow, "a", "b")
	f.wantState(t, l.Execution, stateRunning)
	for range 2 {
		f.wantWaiting(t, l, engine.WaitingReady)
	}
	f.wantState(t, l.Execution, stateReturned)
	if a := f.attempts(t, l.Execution)[0]; a.Outcome != "waiting_children" || a.LeaseExpiresAtMs != nil {
		t.Errorf("attempt %+v", a)
	}
	f.wantEvents(t, l.Execution, "lease acquired", "lease revoked backend")
	if again := f.claim(t); !again.Resumed {
		t.Errorf("claimed %+v", again)
	}
}

// Nor does it end there what can no longer go on.
func TestE40_wait_children_of_an_impossible_group(t *testing.T) {
	f := newFlowFixture(t)
	flow := f.draw(t, nil, "a>c", "b>c", "c>d", "d>e")
	l := f.early(t, flow, "c")
	f.fail(t, flow, "a")
	f.wantState(t, l.Execution, stateRunning) // it runs: nobody pulls it from under its worker
	f.advance(time.Second)
	f.wantWaiting(t, l, engine.WaitingSkipped)
	f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateRunning: "b", stateSkipped: "c d e"})
	a := f.attempts(t, l.Execution)[0]
	if a.Outcome != "skipped" || a.LeaseExpiresAtMs != nil || a.WorkerInstanceID != nil || *a.TerminalAtMs != f.now().UnixMilli() || a.LeaseEpoch != 2 ||
		f.stored(t, l.Execution).LeaseEpoch != 2 {
		t.Errorf("attempt %+v", a)
	}
	f.wantEvents(t, l.Execution, "lease acquired", "lease revoked backend", "completion skipped")
	f.wantEvents(t, f.NodeID(flow, "e"), "completion skipped")
	_, err := f.WaitForChildren(t.Context(), l)
	wantLeaseError(t, err, engine.ErrStaleLease)
}

// A quorum is decided by what its rule says, not by all of its upstreams.
func TestWaitForChildren_of_a_quorum(t *testing.T) {
	f := newFlowFixture(t)
	rules := when{"d": policy.Quorum(2, policy.LetRun)}
	flow := f.draw(t, rules, "a>d", "b>d", "c>d")
	l := f.early(t, flow, "d")
	f.succeed(t, flow, "a")
	f.fail(t, flow, "b")
	f.wantWaiting(t, l, engine.WaitingParked)
	f.succeed(t, flow, "c")
	f.wantState(t, l.Execution, stateReturned)
}

// Outside a flow, and without upstreams, it waits for what may be added.
func TestWaitForChildren_of_nothing(t *testing.T) {
	f := newFlowFixture(t)
	solo := f.start(t).Lease
	f.wantWaiting(t, solo, engine.WaitingParked)
	f.wantState(t, solo.Execution, stateParked)
	flow := f.draw(t, nil, "a")
	a := f.lease(t, flow, "a")
	f.wantWaiting(t, a, engine.WaitingParked)
	f.cancel(t, solo.Execution)
	f.cancel(t, a.Execution)
	f.wantMembers(t, flow, map[string]string{stateCancelled: "a"})
	if got := f.attempts(t, a.Execution)[0]; got.Outcome != "" || got.LeaseEpoch != 2 {
		t.Errorf("attempt %+v: the stale outcome shows", got)
	}
}

// In a batch each has its own answer; what is impossible needs other locks than the rest.
func TestWaitForChildrenEach(t *testing.T) {
	f := newFlowFixture(t)
	draw := func() (id.FlowID, engine.Lease) {
		flow := f.draw(t, nil, "a>c", "b>c")
		return flow, f.early(t, flow, "c")
	}
	_, parked := draw()
	ready, satisfied := draw()
	f.succeed(t, ready, "a", "b")
	broken, impossible := draw()
	f.fail(t, broken, "b")
	odd, unreadable := draw()
	f.exec(t, "UPDATE ff_edge_group SET policy = '{\"kind\":\"most\"}' WHERE partition_key = $1::smallint AND flow_id = $2", partitionOf(odd), odd)
	stale := f.start(t).Lease
	stale.Epoch++
	got, err := f.WaitForChildrenEach(t.Context(), []engine.Lease{impossible, parked, stale, satisfied, unreadable, parked})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []engine.Waiting{engine.WaitingSkipped, engine.WaitingParked, "", engine.WaitingReady, "", engine.WaitingParked} {
		if got[i].Value != want {
			t.Errorf("%d: got %+v, want %q", i, got[i], want)
		}
	}
	wantLeaseError(t, got[2].Err, engine.ErrStaleLease)
	if !errors.Is(got[4].Err, engine.ErrCorruption) {
		t.Errorf("got %v", got[4].Err)
	}
	f.wantState(t, unreadable.Execution, stateRunning)
	if _, err := f.WaitForChildren(t.Context(), unreadable); !errors.Is(err, engine.ErrCorruption) {
		t.Errorf("got %v", err)
	}
}

// The last upstream completes while the wait is under way: whichever comes first, it is not lost.
func TestInterleaving_wait_for_children_and_the_last_completion(t *testing.T) {
	arrange := func(t *testing.T) (*flowFixture, id.FlowID, engine.Lease) {
		f := newFlowFixture(t)
		flow := f.draw(t, nil, "a>c", "b>c")
		c := f.early(t, flow, "c")
		f.succeed(t, flow, "b")
		return f, flow, c
	}
	waiting := func(t *testing.T, e *engine.Engine, l engine.Lease) func() engine.Waiting {
		return async(t, func(ctx context.Context) engine.Waiting {
			w, err := e.WaitForChildren(ctx, l)
			if err != nil {
				t.Error(err)
			}
			return w
		})
	}
	t.Run("an uncommitted completion holds the group", func(t *testing.T) {
		f, flow, c := arrange(t)
		tx := f.begin(t)
		if err := f.WithTx(tx).CompleteExecution(t.Context(), f.lease(t, flow, "a"), nil); err != nil {
			t.Fatal(err)
		}
		late := f.rival(t)
		wait := waiting(t, late.Engine, c)
		late.awaitBlocked(t, f.fixture)
		commit(t, tx)
		if w := wait(); w != engine.WaitingReady {
			t.Errorf("%q", w)
		}
		f.wantState(t, c.Execution, stateReturned)
	})
	t.Run("the completion comes before the group is locked", func(t *testing.T) {
		f, flow, c := arrange(t)
		late := f.stoppedBefore(t, "LockGroupsOf")
		wait := waiting(t, late.Engine, c)
		late.awaitStop(t)
		f.succeed(t, flow, "a")
		late.resume()
		if w := wait(); w != engine.WaitingReady {
			t.Errorf("%q", w)
		}
		f.wantState(t, c.Execution, stateReturned)
	})
	t.Run("the completion waits for the group", func(t *testing.T) {
		f, flow, c := arrange(t)
		tx := f.begin(t)
		if w, err := f.WithTx(tx).WaitForChildren(t.Context(), c); err != nil || w != engine.WaitingParked {
			t.Fatal(w, err)
		}
		a := f.lease(t, flow, "a")
		upstream := f.rival(t)
		wait := async(t, func(ctx context.Context) error { return upstream.CompleteExecution(ctx, a, nil) })
		upstream.awaitBlocked(t, f.fixture)
		commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.wantState(t, c.Execution, stateReturned)
	})
	t.Run("a failure comes between the decision and the exclusive lock", func(t *testing.T) {
		f, flow, c := arrange(t)
		f.fail(t, flow, "a")
		late := f.stoppedBefore(t, "LockFlowsExclusive")
		wait := waiting(t, late.Engine, c)
		late.awaitStop(t)
		f.advance(time.Second)
		late.resume()
		if w := wait(); w != engine.WaitingSkipped {
			t.Errorf("%q", w)
		}
		f.wantMembers(t, flow, map[string]string{stateFailed: "a", stateCompleted: "b", stateSkipped: "c"})
	})
}
