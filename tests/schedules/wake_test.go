package schedules

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Each change by which a schedule may be due sooner reaches other processes that listen for work, and those alone.
func TestChangedScheduleNotifiesOtherProcesses(t *testing.T) {
	f := fixture.NewCloned(t)
	other := f.Rival(t)
	woken := make(chan struct{}, 100)
	defer upkeep.Of(other.Engine).OnRescheduled(func() { woken <- struct{}{} })()
	ready := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := fixture.Async(t, func(context.Context) error {
		return other.Listen(ctx, func(lane id.LaneID) { ready <- struct{}{} })
	})
	progress.Receive(t, "the listener to connect", ready)
	name := schedule.Name{Name: "s"}
	for _, change := range []struct {
		name string
		do   func() error
	}{
		{"set", func() error { return schedule.Put(t.Context(), f.Engine, every(f, "s", time.Minute)) }},
		{"pause, resume", func() error {
			if err := schedule.Pause(t.Context(), f.Engine, name, ""); err != nil {
				return err
			}
			return schedule.Resume(t.Context(), f.Engine, name)
		}},
		{"declare", func() error {
			_, err := schedule.Declare(t.Context(), f.Engine, schedule.Set{
				Name: "set", Vanished: schedule.RemoveVanished, Schedules: []schedule.Spec{every(f, "s", time.Hour)},
			})
			return err
		}},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		progress.Receive(t, "the notification of "+change.name, woken)
	}
	f.Flush()
	cancel()
	_ = ended()
}

// The end of an execution makes the tick that waits for it due, in the process that knows of the tick.
func TestEndHastensTheWaitingTick(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Overlap = schedule.OverlapQueue }))
	woken := make(chan struct{}, 100)
	defer upkeep.Of(f.Engine).OnEnded(func() { woken <- struct{}{} })()
	f.Advance(time.Minute)
	run(t, f, 1)
	if upkeep.Of(f.Engine).TicksWait() {
		t.Error("a tick waits before one is late")
	}
	f.Advance(time.Minute)
	run(t, f, 1)
	if !upkeep.Of(f.Engine).TicksWait() {
		t.Error("no tick waits")
	}
	f.Advance(100 * time.Millisecond) // it is due in a second
	run(t, f, 0)
	first := f.ClaimOne(t)
	for len(woken) > 0 {
		<-woken
	}
	if err := f.CompleteExecution(t.Context(), first.Lease, nil); err != nil {
		t.Fatal(err)
	}
	progress.Receive(t, "the end", woken)
	run(t, f, 1)
	wantCreated(t, f, "1m0s 2m0s")
	if upkeep.Of(f.Engine).TicksWait() {
		t.Error("a tick still waits")
	}
}

// A waiting tick whose schedule is locked is left to a later call.
func TestEndPassesOverLockedSchedules(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Overlap = schedule.OverlapQueue }))
	for range 2 {
		f.Advance(time.Minute)
		run(t, f, 1)
	}
	cancel(t, f, describe(t, f, "s").Last.Execution)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ffx_schedule FOR UPDATE")
	run(t, f, 0)
	fixture.Commit(t, tx)
	run(t, f, 1)
	wantCreated(t, f, "1m0s 2m0s")
}

// A change that is committed long after its time is found by the next look at all schedules.
func TestLateCommitIsFoundByTheNextWholeLook(t *testing.T) {
	f := fixture.NewCloned(t)
	tx := f.BeginTx(t)
	if err := schedule.Put(t.Context(), f.WithTx(tx), every(f, "s", time.Minute)); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Hour)
	run(t, f, 0) // and everything before the last minute has been looked at
	fixture.Commit(t, tx)
	fixture.Await(t, "the tick", func() bool {
		n, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), engine.MaxBatch)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
}
