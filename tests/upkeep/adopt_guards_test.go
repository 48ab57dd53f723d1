package upkeep

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// An execution that joins a flow after it was found to be in none is not adopted as if nothing led to it.
func TestAdoptSkipsAnExecutionThatJoinedAFlow(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	foreign(t, f, b)
	f.SetExecution(t, b, "flow_id = NULL")
	f.Advance(time.Minute)
	late := f.StoppedBefore(t, "TakeForeign")
	wait := actAsync(t, late.Maintenance().Adopt)
	late.AwaitStop(t)
	f.Exec(t, "UPDATE ff_exec_core SET flow_id = $3 WHERE partition_key = $1 AND execution_id = $2", b.Partition(), b.UUID(), flow)
	late.Resume()
	if n := wait(); n != 0 {
		t.Errorf("adopted %d", n)
	}
	if n := f.AdoptAll(t); n != 1 {
		t.Errorf("adopted %d with the next call", n)
	}
	f.WantState(t, b, fixture.StateHeld)
}

// Another program counts an upstream's success while adoption reads the group. Adoption judges by the group as that
// leaves it.
func TestAdoptReadsGroupsUnderTheirLocks(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>b")
	b := f.NodeID(flow, "b")
	foreign(t, f, b)
	f.EndElsewhere(t, flow, "a", "success", time.Second)
	f.Advance(time.Minute)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "UPDATE ff_edge_group SET success_count = 1, running_count = 0 WHERE partition_key = $1::smallint AND flow_id = $2", fixture.PartitionOf(flow), flow)
	late := f.Rival(t)
	returned, wait := fixture.Watched(t, func(ctx context.Context) error {
		_, err := late.Maintenance().Adopt(ctx, 10)
		return err
	})
	late.AwaitBlockedOr(t, f.Fixture, returned)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	f.AdoptAll(t)
	f.WantState(t, b, fixture.StateReady)
}

// cancelledElsewhere cancels an execution as FlowFabric does: without an event, and without taking its lease.
func cancelledElsewhere(t *testing.T, f *fixture.Flows, x id.ExecutionID) {
	t.Helper()
	f.SetExecution(t, x, fmt.Sprintf(`lifecycle_phase = 'cancelled', eligibility_state = 'cancelled', public_state = 'cancelled',
		attempt_state = 'cancelled', cancellation_reason = 'flow_cancelled', terminal_at_ms = %d`, f.Clock.Load()))
}

// An execution found half ended is judged again under its lock: it may run again, or belong to a flow that is not
// locked.
func TestRepairQueueJudgesTheHalfEndedUnderTheirLock(t *testing.T) {
	for name, c := range map[string]struct {
		before, since string // assignments
		later         int    // the effect of the next sweep
	}{
		"replayed": {"attempt_index = 0", `lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'waiting',
			attempt_state = 'attempt_interrupted', blocking_reason = 'waiting_for_worker', terminal_at_ms = NULL, cancellation_reason = NULL`, 0},
		"joined a flow": {"flow_id = NULL", "flow_id = '%s'", 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
			flow := f.Draw(t, nil, "a>b")
			a, b := f.NodeID(flow, "a"), f.NodeID(flow, "b")
			f.Lease(t, flow, "a")
			f.Advance(time.Second)
			cancelledElsewhere(t, f, a)
			f.SetExecution(t, a, c.before)
			late := f.StoppedBefore(t, "TakeHalfDone")
			wait := actAsync(t, late.Maintenance().RepairQueue)
			late.AwaitStop(t)
			since := c.since
			if name == "joined a flow" {
				since = fmt.Sprintf(since, flow)
			}
			f.SetExecution(t, a, since)
			before := f.DumpFlow(t, flow)
			late.Resume()
			if n := wait(); n != 0 {
				t.Errorf("healed %d", n)
			}
			if after := f.DumpFlow(t, flow); after != before {
				t.Errorf("the flow changed from\n%s\nto\n%s", before, after)
			}
			if c.later == 0 {
				return
			}
			if n := sweepAll(t, f.Fixture); n != c.later {
				t.Errorf("healed %d with the next sweep, want %d", n, c.later)
			}
			f.WantState(t, b, fixture.StateSkipped)
		})
	}
}

// HealEnded skips a half-ended execution if another session held its attempt when it was to be read, even if the lock has
// been released since: the lease to take was never read.
func TestRepairQueueLeavesTheHalfEndedWhoseAttemptWasHeld(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "free>b", "held>d")
	free, held := f.NodeID(flow, "free"), f.NodeID(flow, "held")
	f.ClaimAll(t)
	f.Advance(time.Second)
	cancelledElsewhere(t, f, free)
	cancelledElsewhere(t, f, held)
	before := f.Dump(t, held)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_attempt WHERE partition_key = $1::smallint AND execution_id = $2::uuid FOR UPDATE", held.Partition(), held.UUID())
	late := f.StoppedBefore(t, "HealEnded")
	wait := actAsync(t, late.Maintenance().RepairQueue)
	late.AwaitStop(t)
	fixture.Commit(t, tx)
	late.Resume()
	if n := wait(); n != 1 {
		t.Errorf("healed %d, want the one that was free", n)
	}
	f.WantUnchanged(t, held, before)
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateSkipped)
	if n := sweepAll(t, f.Fixture); n != 1 {
		t.Errorf("healed %d with the next sweep, want 1", n)
	}
	f.WantState(t, f.NodeID(flow, "d"), fixture.StateSkipped)
	if a := f.StoredAttempts(t, held)[0]; a.LeaseExpiresAtMs != nil || a.Outcome != "cancelled" {
		t.Errorf("the lease was not taken: %+v", a)
	}
}

// An event of a resumption does not report a cancel at the same instant.
func TestRepairQueueReportsACancelBesideAResumption(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t).Share(t))
	flow := f.Draw(t, nil, "a>b")
	a := f.NodeID(flow, "a")
	f.Advance(time.Second)
	cancelledElsewhere(t, f, a)
	f.ForeignEvent(t, a, &flow, "resumable")
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = 1 WHERE outcome = 'resumable'")
	if n := sweepAll(t, f.Fixture); n != 1 {
		t.Errorf("healed %d", n)
	}
	if got := f.Events(t, a); !slices.Equal(got, []string{"completion resumable", "completion cancelled"}) {
		t.Errorf("events %q", got)
	}
	f.WantState(t, f.NodeID(flow, "b"), fixture.StateSkipped)
}
