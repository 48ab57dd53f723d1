package leases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Parked until the last upstream has ended, and then the same attempt goes on.
func TestWaitForChildrenParksTheAttempt(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c")
	l := f.Early(t, flow, "c")
	for range 2 { // the second time is a repetition
		f.WantWaiting(t, l, engine.WaitingParked)
	}
	f.WantMembers(t, flow, map[string]string{fixture.StateRunning: "a b", fixture.StateParked: "c"})
	attempt := f.StoredAttempts(t, l.Execution)[0]
	if attempt.Outcome != "waiting_children" || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs != nil || attempt.DelayUntilMs != nil || attempt.LeaseEpoch != 1 {
		t.Errorf("attempt %+v", attempt)
	}
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend")
	f.Succeed(t, flow, "a")
	f.WantState(t, l.Execution, fixture.StateParked)
	f.Succeed(t, flow, "b")
	f.WantState(t, l.Execution, fixture.StateReturned)
	f.WantWaiting(t, l, engine.WaitingReady)
	again := f.ClaimOne(t)
	if !again.Resumed || again.Lease.Attempt != 0 || again.Lease.Epoch != 2 {
		t.Errorf("claimed %+v", again)
	}
	_, err := f.WaitForChildren(t.Context(), l)
	fixture.WantLeaseError(t, err, fferr.ErrStaleLease)
}

// An upstream that failed while it was parked ends it, like any other waiting execution.
func TestParkedExecutionIsSkippedOnFailure(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c", "c>d")
	l := f.Early(t, flow, "c")
	f.WantWaiting(t, l, engine.WaitingParked)
	f.Fail(t, flow, "a")
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateRunning: "b", fixture.StateSkipped: "c d"})
	if a := f.StoredAttempts(t, l.Execution)[0]; a.Outcome != "skipped" || a.LeaseEpoch != 2 || a.TerminalAtMs == nil {
		t.Errorf("attempt %+v", a)
	}
}

// The reference parks it although all its upstreams have ended, and never wakes it again.
func TestWaitForChildrenOfASatisfiedGroup_E40(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c")
	l := f.Early(t, flow, "c")
	f.Succeed(t, flow, "a", "b")
	f.WantState(t, l.Execution, fixture.StateRunning)
	for range 2 {
		f.WantWaiting(t, l, engine.WaitingReady)
	}
	f.WantState(t, l.Execution, fixture.StateReturned)
	if a := f.StoredAttempts(t, l.Execution)[0]; a.Outcome != "waiting_children" || a.LeaseExpiresAtMs != nil {
		t.Errorf("attempt %+v", a)
	}
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend")
	if again := f.ClaimOne(t); !again.Resumed {
		t.Errorf("claimed %+v", again)
	}
}

// Nor does the reference end an execution that can no longer go on.
func TestWaitForChildrenOfAnImpossibleGroup_E40(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a>c", "b>c", "c>d", "d>e")
	l := f.Early(t, flow, "c")
	f.Fail(t, flow, "a")
	f.WantState(t, l.Execution, fixture.StateRunning) // it runs, and stays with its worker
	f.Advance(time.Second)
	f.WantWaiting(t, l, engine.WaitingSkipped)
	f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateRunning: "b", fixture.StateSkipped: "c d e"})
	a := f.StoredAttempts(t, l.Execution)[0]
	if a.Outcome != "skipped" || a.LeaseExpiresAtMs != nil || a.WorkerInstanceID != nil || *a.TerminalAtMs != f.Time().UnixMilli() || a.LeaseEpoch != 2 ||
		f.Stored(t, l.Execution).LeaseEpoch != 2 {
		t.Errorf("attempt %+v", a)
	}
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend", "completion skipped")
	f.WantEvents(t, f.NodeID(flow, "e"), "completion skipped")
	_, err := f.WaitForChildren(t.Context(), l)
	fixture.WantLeaseError(t, err, fferr.ErrStaleLease)
}

// A quorum is decided by its rule, not by all of its upstreams.
func TestWaitForChildrenOfAQuorum(t *testing.T) {
	f := fixture.NewFlows(t)
	rules := fixture.When{"d": policy.Quorum(2, policy.LetRun)}
	flow := f.Draw(t, rules, "a>d", "b>d", "c>d")
	l := f.Early(t, flow, "d")
	f.Succeed(t, flow, "a")
	f.Fail(t, flow, "b")
	f.WantWaiting(t, l, engine.WaitingParked)
	f.Succeed(t, flow, "c")
	f.WantState(t, l.Execution, fixture.StateReturned)
}

// Outside a flow, and without upstreams, it waits for upstreams that may be added.
func TestWaitForChildrenWithoutChildren(t *testing.T) {
	f := fixture.NewFlows(t)
	solo := f.Start(t).Lease
	f.WantWaiting(t, solo, engine.WaitingParked)
	f.WantState(t, solo.Execution, fixture.StateParked)
	flow := f.Draw(t, nil, "a")
	a := f.Lease(t, flow, "a")
	f.WantWaiting(t, a, engine.WaitingParked)
	f.Cancel(t, solo.Execution)
	f.Cancel(t, a.Execution)
	f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a"})
	if got := f.StoredAttempts(t, a.Execution)[0]; got.Outcome != "" || got.LeaseEpoch != 2 {
		t.Errorf("attempt %+v: the stale outcome shows", got)
	}
}

// In a batch each has its own answer; impossible ones need other locks than the rest.
func TestWaitForChildrenEach(t *testing.T) {
	f := fixture.NewFlows(t)
	draw := func() (id.FlowID, engine.Lease) {
		flow := f.Draw(t, nil, "a>c", "b>c")
		return flow, f.Early(t, flow, "c")
	}
	_, parked := draw()
	ready, satisfied := draw()
	f.Succeed(t, ready, "a", "b")
	broken, impossible := draw()
	f.Fail(t, broken, "b")
	odd, unreadable := draw()
	f.Exec(t, "UPDATE ff_edge_group SET policy = '{\"kind\":\"most\"}' WHERE partition_key = $1::smallint AND flow_id = $2", fixture.PartitionOf(odd), odd)
	stale := f.Start(t).Lease
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
	fixture.WantLeaseError(t, got[2].Err, fferr.ErrStaleLease)
	if !errors.Is(got[4].Err, fferr.ErrCorruption) {
		t.Errorf("got %v", got[4].Err)
	}
	f.WantState(t, unreadable.Execution, fixture.StateRunning)
	if _, err := f.WaitForChildren(t.Context(), unreadable); !errors.Is(err, fferr.ErrCorruption) {
		t.Errorf("got %v", err)
	}
}

// The last upstream completes while the wait is under way: whichever comes first, it is not lost.
func TestWaitForChildrenRacesTheLastCompletion(t *testing.T) {
	arrange := func(t *testing.T) (*fixture.Flows, id.FlowID, engine.Lease) {
		f := fixture.NewFlows(t)
		flow := f.Draw(t, nil, "a>c", "b>c")
		c := f.Early(t, flow, "c")
		f.Succeed(t, flow, "b")
		return f, flow, c
	}
	waiting := func(t *testing.T, e *engine.Engine, l engine.Lease) func() engine.Waiting {
		return fixture.Async(t, func(ctx context.Context) engine.Waiting {
			w, err := e.WaitForChildren(ctx, l)
			if err != nil {
				t.Error(err)
			}
			return w
		})
	}
	t.Run("an uncommitted completion holds the group", func(t *testing.T) {
		f, flow, c := arrange(t)
		tx := f.BeginTx(t)
		if err := f.WithTx(tx).CompleteExecution(t.Context(), f.Lease(t, flow, "a"), nil); err != nil {
			t.Fatal(err)
		}
		late := f.Rival(t)
		wait := waiting(t, late.Engine, c)
		late.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if w := wait(); w != engine.WaitingReady {
			t.Errorf("%q", w)
		}
		f.WantState(t, c.Execution, fixture.StateReturned)
	})
	t.Run("the completion comes before the group is locked", func(t *testing.T) {
		f, flow, c := arrange(t)
		late := f.StoppedBefore(t, "LockGroupsOf")
		wait := waiting(t, late.Engine, c)
		late.AwaitStop(t)
		f.Succeed(t, flow, "a")
		late.Resume()
		if w := wait(); w != engine.WaitingReady {
			t.Errorf("%q", w)
		}
		f.WantState(t, c.Execution, fixture.StateReturned)
	})
	t.Run("the completion waits for the group", func(t *testing.T) {
		f, flow, c := arrange(t)
		tx := f.BeginTx(t)
		if w, err := f.WithTx(tx).WaitForChildren(t.Context(), c); err != nil || w != engine.WaitingParked {
			t.Fatal(w, err)
		}
		a := f.Lease(t, flow, "a")
		upstream := f.Rival(t)
		wait := fixture.Async(t, func(ctx context.Context) error { return upstream.CompleteExecution(ctx, a, nil) })
		upstream.AwaitBlocked(t, f.Fixture)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantState(t, c.Execution, fixture.StateReturned)
	})
	t.Run("a failure comes between the decision and the exclusive lock", func(t *testing.T) {
		f, flow, c := arrange(t)
		f.Fail(t, flow, "a")
		late := f.StoppedBefore(t, "LockFlowsExclusive")
		wait := waiting(t, late.Engine, c)
		late.AwaitStop(t)
		f.Advance(time.Second)
		late.Resume()
		if w := wait(); w != engine.WaitingSkipped {
			t.Errorf("%q", w)
		}
		f.WantMembers(t, flow, map[string]string{fixture.StateFailed: "a", fixture.StateCompleted: "b", fixture.StateSkipped: "c"})
	})
}
