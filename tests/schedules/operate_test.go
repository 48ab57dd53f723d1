package schedules

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var s = schedule.Name{Name: "s"}

// A paused schedule has no ticks, and goes on with the first one after the pause.
func TestPauseAndResume(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	if err := schedule.Pause(t.Context(), f.Engine, s, "repair"); err != nil {
		t.Fatal(err)
	}
	f.Advance(150 * time.Second)
	run(t, f, 0)
	if got := describe(t, f, "s"); !got.PausedSince.Equal(fixture.Start) || got.PauseReason != "repair" || !got.Next.IsZero() {
		t.Errorf("%+v", got)
	}
	set(t, f, every(f, "s", 2*time.Minute)) // stays paused
	run(t, f, 0)
	for range 2 {
		if err := schedule.Resume(t.Context(), f.Engine, s); err != nil {
			t.Fatal(err)
		}
	}
	run(t, f, 0)
	f.Advance(90 * time.Second)
	run(t, f, 1)
	wantCreated(t, f, "4m0s")
}

// A trigger creates an execution at once, and is the one that the next tick must not overlap.
func TestTrigger(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Overlap = schedule.OverlapSkip }))
	f.Advance(10 * time.Second)
	x, err := schedule.Trigger(t.Context(), f.Engine, s)
	if err != nil {
		t.Fatal(err)
	}
	wantCreated(t, f, "10s")
	if got := describe(t, f, "s"); got.Last.Outcome != schedule.TickTriggered || got.Last.Execution != x || got.Next.Sub(fixture.Start) != time.Minute {
		t.Errorf("%+v", got)
	}
	f.Advance(50 * time.Second)
	run(t, f, 1)
	wantCreated(t, f, "10s")
	if got := describe(t, f, "s"); got.Last.Outcome != schedule.TickSkipped || got.Last.Execution != x {
		t.Errorf("%+v", got.Last)
	}
}

// A backfill creates the ticks of a time, and leaves the schedule alone.
func TestBackfill(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	before := describe(t, f, "s")
	got, err := schedule.Backfill(t.Context(), f.Engine, s, fixture.Start.Add(-2*time.Minute), fixture.Start.Add(30*time.Second))
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, error %v", got, err)
	}
	wantCreated(t, f, "-2m0s -1m0s 0s")
	if after := describe(t, f, "s"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%+v, before %+v", after, before)
	}
	if _, err := schedule.Backfill(t.Context(), f.Engine, s, fixture.Start, fixture.Start.Add(17*time.Hour)); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a thousand and more: %v", err)
	}
	if n := f.CountOnLane(t); n != 3 {
		t.Errorf("%d executions, want 3", n)
	}
}

// A changed definition keeps the next tick unless its times change. A tick that is due already is created in any case.
func TestSetScheduleKeepsTheNextTick(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	f.Advance(70 * time.Second) // it is late
	set(t, f, every(f, "s", time.Minute, func(s *schedule.Spec) { s.Execution.Priority = 3 }))
	run(t, f, 1)
	wantCreated(t, f, "1m0s")
	f.Advance(time.Minute)
	set(t, f, every(f, "s", 7*time.Minute))
	run(t, f, 1)
	wantCreated(t, f, "1m0s 2m0s")
	run(t, f, 0)
	if got := describe(t, f, "s"); got.Next.Before(f.Time()) || got.Priority != 0 {
		t.Errorf("%+v", got)
	}
}

func TestSchedulesThatDoNotExist(t *testing.T) {
	f := fixture.NewCloned(t)
	for name, act := range map[string]func() error{
		"pause":  func() error { return schedule.Pause(t.Context(), f.Engine, s, "") },
		"resume": func() error { return schedule.Resume(t.Context(), f.Engine, s) },
		"delete": func() error { return schedule.Delete(t.Context(), f.Engine, s) },
		"trigger": func() error {
			_, err := schedule.Trigger(t.Context(), f.Engine, s)
			return err
		},
		"backfill": func() error {
			_, err := schedule.Backfill(t.Context(), f.Engine, s, fixture.Start, fixture.Start)
			return err
		},
		"describe": func() error {
			_, _, err := schedule.Describe(t.Context(), f.Engine, s, 3)
			return err
		},
	} {
		if err := act(); !errors.Is(err, fferr.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSetScheduleRefuses(t *testing.T) {
	f := fixture.NewCloned(t)
	for name, change := range map[string]func(*schedule.Spec){
		"no name":            func(s *schedule.Spec) { s.Name = "" },
		"two times":          func(s *schedule.Spec) { s.Cron = "@daily" },
		"no times":           func(s *schedule.Spec) { s.Every = 0 },
		"a bare zone":        func(s *schedule.Spec) { s.Every, s.Cron = 0, "TZ=" },
		"a zone of nothing":  func(s *schedule.Spec) { s.Zone = "Europe/Berlin" },
		"too often":          func(s *schedule.Spec) { s.Every = time.Millisecond },
		"negative jitter":    func(s *schedule.Spec) { s.Jitter = -1 },
		"a window too many":  func(s *schedule.Spec) { s.Window = time.Hour },
		"no window":          func(s *schedule.Spec) { s.Missed = schedule.MissedAll },
		"an unknown overlap": func(s *schedule.Spec) { s.Overlap = "twice" },
		"an end too early":   func(s *schedule.Spec) { s.Start, s.End = fixture.Start, fixture.Start.Add(-1) },
		"no kind":            func(s *schedule.Spec) { s.Execution.Kind = "" },
		"a key":              func(s *schedule.Spec) { s.Execution.IdempotencyKey = "k" },
		"an instant":         func(s *schedule.Spec) { s.Execution.Deadline = fixture.Start },
		"a tag of the tick":  func(s *schedule.Spec) { s.Execution.Tags = map[string]string{schedule.Tag: "x"} },
	} {
		if err := schedule.Put(t.Context(), f.Engine, every(f, "s", time.Minute, change)); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v, want invalid input", name, err)
		}
	}
}

func declare(t *testing.T, f *fixture.Fixture, vanished schedule.Vanished, names ...string) []string {
	t.Helper()
	set := schedule.Set{Name: "app", Vanished: vanished}
	for _, name := range names {
		set.Schedules = append(set.Schedules, every(f, name, time.Minute))
	}
	declared, err := schedule.Declare(t.Context(), f.Engine, set)
	if err != nil {
		t.Fatal(err)
	}
	return declared.Vanished
}

func listed(t *testing.T, f *fixture.Fixture, filter schedule.Filter) []string {
	t.Helper()
	var names []string
	for s, err := range schedule.All(t.Context(), f.Engine, filter) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, s.Name)
	}
	return names
}

// A set is what its program declares; schedules of others are left alone.
func TestDeclareSchedules(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "mine", time.Minute))
	declare(t, f, schedule.RemoveVanished, "c", "a", "b")
	written := fixture.Texts(t, f.Pool, "SELECT xmin::text FROM ffx_schedule ORDER BY name")
	if gone := declare(t, f, schedule.RemoveVanished, "a", "b", "c"); len(gone) != 0 ||
		!slices.Equal(written, fixture.Texts(t, f.Pool, "SELECT xmin::text FROM ffx_schedule ORDER BY name")) {
		t.Errorf("the same again: gone %q, or written", gone)
	}
	if gone := declare(t, f, schedule.PauseVanished, "a", "b"); !slices.Equal(gone, []string{"c"}) {
		t.Errorf("gone %q", gone)
	}
	if got := listed(t, f, schedule.Filter{Paused: true}); !slices.Equal(got, []string{"c"}) {
		t.Errorf("paused %q", got)
	}
	if gone := declare(t, f, schedule.RemoveVanished, "b"); !slices.Equal(gone, []string{"a", "c"}) {
		t.Errorf("gone %q", gone)
	}
	if got := listed(t, f, schedule.Filter{}); !slices.Equal(got, []string{"b", "mine"}) {
		t.Errorf("left %q", got)
	}
	if got := listed(t, f, schedule.Filter{Set: "app", Kind: "tick"}); !slices.Equal(got, []string{"b"}) {
		t.Errorf("of the set %q", got)
	}
}

// Deploys at once neither fail nor wait for each other in a circle: the schedules are those of one of them.
func TestDeploysAtOnce(t *testing.T) {
	f := fixture.NewCloned(t)
	for range 5 {
		var all sync.WaitGroup
		for i := range 6 {
			names := [][]string{{"a", "b", "c"}, {"b", "c", "d"}, {"c", "d", "a"}}[i%3]
			all.Go(func() { declare(t, f, schedule.RemoveVanished, names...) })
		}
		all.Wait()
		if got := listed(t, f, schedule.Filter{}); len(got) < 3 {
			t.Errorf("%q", got)
		}
	}
}
