package schedules

import (
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Ticks of every minute that come due while nothing runs, for five and a half minutes.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		missed  schedule.Missed
		window  time.Duration
		late    time.Duration
		created string
		outcome schedule.Outcome
		at      time.Duration // the last tick that was acted on
	}{
		{"the last one by default", "", 0, 5*time.Minute + 50*time.Second, "5m0s", schedule.TickCreated, 5 * time.Minute},
		{"the last one", schedule.MissedLast, 0, 5*time.Minute + 50*time.Second, "5m0s", schedule.TickCreated, 5 * time.Minute},
		{"none", schedule.MissedNone, 0, 5*time.Minute + 50*time.Second, "", schedule.TickMissed, 5 * time.Minute},
		{"none but one that is hardly late", schedule.MissedNone, 0, 5*time.Minute + 10*time.Second, "5m0s", schedule.TickCreated, 5 * time.Minute},
		{"all", schedule.MissedAll, time.Hour, 3*time.Minute + 30*time.Second, "1m0s 2m0s 3m0s", schedule.TickCreated, 3 * time.Minute},
		{"all within a window", schedule.MissedAll, 2 * time.Minute, 5*time.Minute + 30*time.Second, "4m0s 5m0s", schedule.TickCreated, 5 * time.Minute},
		{"all within a window without one", schedule.MissedAll, time.Second, 5*time.Minute + 30*time.Second, "", schedule.TickMissed, 5 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Missed, s.Window = test.missed, test.window }))
			f.Advance(test.late)
			run(t, f, 1)
			wantCreated(t, f, test.created)
			s := describe(t, f, "s")
			if s.Last.Outcome != test.outcome || s.Last.ScheduledFor.Sub(fixture.Start) != test.at {
				t.Errorf("%+v", s.Last)
			}
			run(t, f, 0)
			if next := s.Next.Sub(fixture.Start); next != test.at+time.Minute {
				t.Errorf("next %v", next)
			}
		})
	}
}

// More ticks than one transaction creates: each once, in several.
func TestManyMissedTicks(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Second, func(s *schedule.Spec) { s.Missed, s.Window = schedule.MissedAll, time.Hour }))
	f.Advance(4*time.Minute + 10*time.Second)
	for range 3 {
		run(t, f, 1)
	}
	run(t, f, 0)
	if got := created(t, f); len(got) != 250 {
		t.Errorf("%d executions, want 250", len(got))
	}
}

// The last execution runs during three ticks, and has ended before the fourth.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		overlap schedule.Overlap
		created string // before the end of the first one
		outcome schedule.Outcome
		after   string // after it
	}{
		{schedule.OverlapAllow, "1m0s 2m0s 3m0s", schedule.TickCreated, "1m0s 2m0s 3m0s 4m0s"},
		{schedule.OverlapSkip, "1m0s", schedule.TickSkipped, "1m0s 4m0s"},
		{schedule.OverlapQueue, "1m0s", schedule.TickSkipped, "1m0s 2m0s"},
		{schedule.OverlapCancel, "1m0s 2m0s 3m0s", schedule.TickCreated, "1m0s 2m0s 3m0s 4m0s"},
	} {
		t.Run(string(test.overlap), func(t *testing.T) {
			f := fixture.NewCloned(t)
			set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Overlap = test.overlap }))
			f.Advance(time.Minute)
			run(t, f, 1)
			first := f.ClaimOne(t)
			for range 2 {
				f.Advance(time.Minute)
				run(t, f, 1)
			}
			wantCreated(t, f, test.created)
			if s := describe(t, f, "s"); s.Last.Outcome != test.outcome || (test.overlap == schedule.OverlapQueue) != !s.Queued.IsZero() {
				t.Errorf("%+v", s)
			}
			if test.overlap != schedule.OverlapCancel {
				cancel(t, f, first.ID)
			}
			f.WantState(t, first.ID, fixture.StateCancelled)
			f.Advance(time.Minute)
			run(t, f, 1)
			wantCreated(t, f, test.after)
			if test.overlap == schedule.OverlapQueue {
				if s := describe(t, f, "s"); s.Queued.Sub(fixture.Start) != 4*time.Minute || s.Last.Outcome != schedule.TickQueued {
					t.Errorf("the next tick does not wait: %+v", s)
				}
			}
		})
	}
}

// A waiting tick starts within a second of the end, long before the next tick.
func TestQueuedTickFollowsTheEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Hour, func(s *schedule.Spec) { s.Overlap = schedule.OverlapQueue }))
	f.Advance(time.Hour)
	run(t, f, 1)
	first := f.ClaimOne(t)
	f.Advance(time.Hour)
	run(t, f, 1)
	f.Advance(time.Second)
	run(t, f, 1) // looks
	wantCreated(t, f, "1h0m0s")
	if err := schedule.Pause(t.Context(), f.Engine, schedule.Name{Name: "other"}, ""); err == nil {
		t.Error("paused a schedule that does not exist")
	}
	cancel(t, f, first.ID)
	f.Advance(time.Second)
	run(t, f, 1)
	wantCreated(t, f, "1h0m0s 2h0m0s")
	f.Advance(10 * time.Second)
	run(t, f, 0)
}

// An execution that another session holds can't be cancelled: the tick comes a little later.
func TestCancelOfALockedExecutionWaits(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, name := range []string{"a", "b"} {
		set(t, f, every(f, name, time.Minute, func(s *schedule.Spec) { s.Overlap = schedule.OverlapCancel }))
	}
	f.Advance(time.Minute)
	run(t, f, 2)
	locked := describe(t, f, "a").Last.Execution
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM ff_exec_core WHERE execution_id = $1 FOR UPDATE", locked.UUID()); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Minute)
	run(t, f, 2)
	wantCreated(t, f, "1m0s 1m0s 2m0s")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	run(t, f, 1)
	wantCreated(t, f, "1m0s 1m0s 2m0s 2m0s")
	f.WantState(t, locked, fixture.StateCancelled)
}

// Each tick has a jitter of its own, the same for every process and at each look.
func TestJitterIsTheTicks(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Jitter = 30 * time.Second }))
	delays := make(map[time.Duration]bool)
	for range 5 {
		due := nextDue(t, f, "s")
		next := describe(t, f, "s").Next
		delay := due.Sub(next)
		if delay < 0 || delay > 30*time.Second {
			t.Errorf("a delay of %v", delay)
		}
		delays[delay] = true
		f.Clock.Store(due.UnixMilli() - 1)
		run(t, f, 0)
		f.Clock.Store(due.UnixMilli())
		run(t, f, 1)
	}
	wantCreated(t, f, "1m0s 2m0s 3m0s 4m0s 5m0s")
	if len(delays) < 3 {
		t.Errorf("delays %v, want different ones", delays)
	}
}

// A schedule has no tick before its start and none after its end.
func TestStartAndEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) {
		s.Start, s.End = fixture.Start.Add(90*time.Second), fixture.Start.Add(210*time.Second)
	}))
	for range 10 {
		f.Advance(30 * time.Second)
		if _, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
	}
	wantCreated(t, f, "1m30s 2m30s 3m30s")
	if s := describe(t, f, "s"); !s.Next.IsZero() {
		t.Errorf("next %v", s.Next)
	}
}

// A definition that this version can't use is kept, with its tick and the reason, and is tried again.
func TestUnusableScheduleIsKept(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	set(t, f, every(f, "t", time.Minute))
	f.Exec(t, "UPDATE ffx_schedule SET cron = 'TZ=', every_ms = 0 WHERE name = 's'")
	f.Advance(time.Minute)
	run(t, f, 2)
	if s := describe(t, f, "s"); s.Last.Outcome != schedule.TickFailed || !strings.Contains(s.Last.Error, "Cron") {
		t.Errorf("%+v", s.Last)
	}
	wantCreated(t, f, "1m0s")
	f.Exec(t, "UPDATE ffx_schedule SET cron = '', every_ms = 60000 WHERE name = 's'")
	f.Advance(time.Minute)
	run(t, f, 2)
	wantCreated(t, f, "1m0s 2m0s 2m0s")
}
