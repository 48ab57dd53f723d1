package schedules

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A schedule whose times change while it is paused stays paused, and a tick that waited before the pause is dropped.
func TestPauseOutlastsAChange(t *testing.T) {
	f := fixture.NewCloned(t)
	queue := func(s *schedule.Spec) { s.Overlap = schedule.OverlapQueue }
	set(t, f, every(f, "s", time.Minute, queue))
	for range 2 {
		f.Advance(time.Minute)
		run(t, f, 1)
	}
	name := schedule.Name{Name: "s"}
	if err := schedule.Pause(t.Context(), f.Engine, name, "stop"); err != nil {
		t.Fatal(err)
	}
	cancel(t, f, describe(t, f, "s").Last.Execution)
	set(t, f, every(f, "s", 10*time.Minute, queue))
	for range 20 {
		f.Advance(time.Minute)
		run(t, f, 0)
	}
	if err := schedule.Resume(t.Context(), f.Engine, name); err != nil {
		t.Fatal(err)
	}
	run(t, f, 0)
	wantCreated(t, f, "1m0s")
	f.Advance(10 * time.Minute)
	run(t, f, 1)
	wantCreated(t, f, "1m0s 30m0s")
}

// A tick that is due when the times of its schedule change is created, or counts as missed, as the schedule says. L15
func TestDueTickOutlastsAChange(t *testing.T) {
	for _, test := range []struct {
		name    string
		missed  schedule.Missed
		late    time.Duration
		created string
		recent  []schedule.Outcome // the newest first
	}{
		{"one", schedule.MissedLast, time.Second, "1m0s", []schedule.Outcome{schedule.TickCreated}},
		{"the last one", schedule.MissedLast, 2 * time.Minute, "3m0s", []schedule.Outcome{schedule.TickCreated, schedule.TickMissed}},
		{"none", schedule.MissedNone, 31 * time.Second, "", []schedule.Outcome{schedule.TickMissed}},
		{"the last of all", schedule.MissedAll, time.Minute, "2m0s", []schedule.Outcome{schedule.TickCreated, schedule.TickMissed}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			change := func(s *schedule.Spec) {
				if s.Missed = test.missed; test.missed == schedule.MissedAll {
					s.Window = time.Hour
				}
			}
			set(t, f, every(f, "s", time.Minute, change))
			f.Advance(time.Minute + test.late)
			set(t, f, every(f, "s", time.Hour, change))
			if _, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			wantCreated(t, f, test.created)
			s := describe(t, f, "s")
			if next := s.Next.Sub(fixture.Start); next != time.Hour {
				t.Errorf("next %v", next)
			}
			for i, tick := range s.Recent {
				if i >= len(test.recent) || tick.Outcome != test.recent[i] {
					t.Fatalf("outcomes %+v, want %v", s.Recent, test.recent)
				}
			}
			if len(s.Recent) != len(test.recent) {
				t.Errorf("outcomes %+v, want %v", s.Recent, test.recent)
			}
		})
	}
}

// A schedule that was paused because its set did not declare it goes on when it is declared again, and not if an operator
// paused it, before or after. L15
func TestVanishedScheduleComesBack(t *testing.T) {
	f := fixture.NewCloned(t)
	pause := func(name string) {
		t.Helper()
		if err := schedule.Pause(t.Context(), f.Engine, schedule.Name{Name: name}, "stop"); err != nil {
			t.Fatal(err)
		}
	}
	declare(t, f, schedule.PauseVanished, "a", "before", "after")
	pause("before")
	declare(t, f, schedule.PauseVanished)
	pause("after")
	f.Advance(10 * time.Minute)
	run(t, f, 0)
	declare(t, f, schedule.PauseVanished, "a", "before", "after")
	run(t, f, 0)
	f.Advance(time.Minute)
	run(t, f, 1)
	wantCreated(t, f, "11m0s")
	if s := describe(t, f, "a"); !s.PausedSince.IsZero() || s.PauseReason != "" {
		t.Errorf("%+v", s)
	}
	for _, name := range []string{"before", "after"} {
		if s := describe(t, f, name); s.PauseReason != "stop" {
			t.Errorf("%+v", s)
		}
	}
}

// After a clock that was a day ahead, schedules go on at once, also those that were set then, and a paused one stays paused.
// L13
func TestSchedulesGoOnAfterAClockThatWasAhead(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	set(t, f, every(f, "paused", time.Minute))
	f.Advance(24 * time.Hour)
	run(t, f, 2)
	set(t, f, every(f, "new", time.Minute))
	if err := schedule.Pause(t.Context(), f.Engine, schedule.Name{Name: "paused"}, ""); err != nil {
		t.Fatal(err)
	}
	f.Advance(-24 * time.Hour)
	asked, err := upkeep.Of(f.Engine).TakeJobs(t.Context(), upkeep.JobSpec{Holder: "p", Jobs: []upkeep.Job{upkeep.JobRunSchedules}})
	if due := asked.Jobs[upkeep.JobRunSchedules].Due; err != nil || !due.Equal(asked.Now) {
		t.Errorf("due %v, now %v, error %v", due, asked.Now, err)
	}
	late := f.EngineOn(t, f.Pool, engine.Config{})
	if _, err := upkeep.Of(late).RunSchedules(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s", "new"} {
		if next := describe(t, f, name).Next.Sub(fixture.Start); next != time.Minute {
			t.Errorf("%s: next %v", name, next)
		}
	}
	f.Advance(time.Minute)
	if n, err := upkeep.Of(late).RunSchedules(t.Context(), 10); n != 2 || err != nil {
		t.Errorf("%d schedules, error %v", n, err)
	}
	wantCreated(t, f, "1m0s 1m0s 24h0m0s 24h0m0s")
}

// Nothing but the engine sets tags that begin with "ffx.". L15
func TestTagsOfTheEngineAreRefused(t *testing.T) {
	f := fixture.New(t)
	lease := f.Start(t).Lease
	x := f.Create(t)
	tags := map[string]string{schedule.Tag: "nightly"}
	for name, call := range map[string]func() error{
		"create": func() error {
			_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, Tags: tags})
			return err
		},
		"create many": func() error {
			outcomes, err := f.CreateExecutions(t.Context(), []engine.ExecutionSpec{
				{Kind: "test", Lane: f.Lane}, {Kind: "test", Lane: f.Lane, Tags: tags},
			})
			if err != nil || outcomes[0].Err != nil {
				t.Fatal(outcomes, err)
			}
			return outcomes[1].Err
		},
		"call": func() error {
			_, err := f.Call(t.Context(), engine.CallSpec{
				Lease: lease, Name: "call", Executions: []engine.ExecutionSpec{{Kind: "test", Lane: f.Lane + ".called", Tags: tags}},
			})
			return err
		},
		"set": func() error { return f.SetExecutionTag(t.Context(), x, "ffx.caller", "me") },
		"schedule": func() error {
			return schedule.Put(t.Context(), f.Engine, every(f, f.Name, time.Minute, func(s *schedule.Spec) {
				s.Execution.Tags = map[string]string{"ffx.other": "x"}
			}))
		},
	} {
		if err := call(); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v, want ErrInvalidInput", name, err)
		}
	}
	if _, err := f.Pool.Exec(t.Context(), `SELECT ffx_create(kind => 'test', tags => '{"ffx.schedule": "nightly"}')`); err == nil {
		t.Error("created from SQL")
	}
}
