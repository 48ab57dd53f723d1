package schedules

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var s = engine.ScheduleName{Name: "s"}

// A paused schedule has no ticks, and goes on with the first one after the pause.
func TestPauseAndResume(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	if err := f.Operator().PauseSchedule(t.Context(), s, "repair"); err != nil {
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
		if err := f.Operator().ResumeSchedule(t.Context(), s); err != nil {
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
	set(t, f, every(f, "s", time.Minute, func(s *engine.ScheduleSpec) { s.Overlap = engine.OverlapSkip }))
	f.Advance(10 * time.Second)
	x, err := f.Operator().TriggerSchedule(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	wantCreated(t, f, "10s")
	if got := describe(t, f, "s"); got.Last.Outcome != engine.TickTriggered || got.Last.Execution != x || got.Next.Sub(fixture.Start) != time.Minute {
		t.Errorf("%+v", got)
	}
	f.Advance(50 * time.Second)
	run(t, f, 1)
	wantCreated(t, f, "10s")
	if got := describe(t, f, "s"); got.Last.Outcome != engine.TickSkipped || got.Last.Execution != x {
		t.Errorf("%+v", got.Last)
	}
}

// A backfill creates the ticks of a time, and leaves the schedule alone.
func TestBackfill(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	before := describe(t, f, "s")
	got, err := f.Operator().BackfillSchedule(t.Context(), s, fixture.Start.Add(-2*time.Minute), fixture.Start.Add(30*time.Second))
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, error %v", got, err)
	}
	wantCreated(t, f, "-2m0s -1m0s 0s")
	if after := describe(t, f, "s"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("%+v, before %+v", after, before)
	}
	if _, err := f.Operator().BackfillSchedule(t.Context(), s, fixture.Start, fixture.Start.Add(17*time.Hour)); !errors.Is(err, fferr.ErrInvalidInput) {
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
	set(t, f, every(f, "s", time.Minute, func(s *engine.ScheduleSpec) { s.Execution.Priority = 3 }))
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
	o := f.Operator()
	for name, act := range map[string]func() error{
		"pause":  func() error { return o.PauseSchedule(t.Context(), s, "") },
		"resume": func() error { return o.ResumeSchedule(t.Context(), s) },
		"delete": func() error { return o.DeleteSchedule(t.Context(), s) },
		"trigger": func() error {
			_, err := o.TriggerSchedule(t.Context(), s)
			return err
		},
		"backfill": func() error {
			_, err := o.BackfillSchedule(t.Context(), s, fixture.Start, fixture.Start)
			return err
		},
		"describe": func() error {
			_, _, err := o.DescribeSchedule(t.Context(), s, 3)
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
	for name, change := range map[string]func(*engine.ScheduleSpec){
		"no name":            func(s *engine.ScheduleSpec) { s.Name = "" },
		"two times":          func(s *engine.ScheduleSpec) { s.Cron = "@daily" },
		"no times":           func(s *engine.ScheduleSpec) { s.Every = 0 },
		"a bare zone":        func(s *engine.ScheduleSpec) { s.Every, s.Cron = 0, "TZ=" },
		"a zone of nothing":  func(s *engine.ScheduleSpec) { s.Zone = "Europe/Berlin" },
		"too often":          func(s *engine.ScheduleSpec) { s.Every = time.Millisecond },
		"negative jitter":    func(s *engine.ScheduleSpec) { s.Jitter = -1 },
		"a window too many":  func(s *engine.ScheduleSpec) { s.Window = time.Hour },
		"no window":          func(s *engine.ScheduleSpec) { s.Missed = engine.MissedAll },
		"an unknown overlap": func(s *engine.ScheduleSpec) { s.Overlap = "twice" },
		"an end too early":   func(s *engine.ScheduleSpec) { s.Start, s.End = fixture.Start, fixture.Start.Add(-1) },
		"no kind":            func(s *engine.ScheduleSpec) { s.Execution.Kind = "" },
		"a key":              func(s *engine.ScheduleSpec) { s.Execution.IdempotencyKey = "k" },
		"an instant":         func(s *engine.ScheduleSpec) { s.Execution.Deadline = fixture.Start },
		"a tag of the tick":  func(s *engine.ScheduleSpec) { s.Execution.Tags = map[string]string{engine.ScheduleTag: "x"} },
	} {
		if err := f.Operator().SetSchedule(t.Context(), every(f, "s", time.Minute, change)); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v, want invalid input", name, err)
		}
	}
}

func declare(t *testing.T, f *fixture.Fixture, vanished engine.Vanished, names ...string) []string {
	t.Helper()
	set := engine.ScheduleSet{Name: "app", Vanished: vanished}
	for _, name := range names {
		set.Schedules = append(set.Schedules, every(f, name, time.Minute))
	}
	declared, err := f.Operator().DeclareSchedules(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	return declared.Vanished
}

func listed(t *testing.T, f *fixture.Fixture, filter engine.ScheduleFilter) []string {
	t.Helper()
	var names []string
	for s, err := range f.Operator().Schedules(t.Context(), filter) {
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
	declare(t, f, engine.RemoveVanished, "c", "a", "b")
	written := fixture.Texts(t, f.Pool, "SELECT xmin::text FROM ffx_schedule ORDER BY name")
	if gone := declare(t, f, engine.RemoveVanished, "a", "b", "c"); len(gone) != 0 ||
		!slices.Equal(written, fixture.Texts(t, f.Pool, "SELECT xmin::text FROM ffx_schedule ORDER BY name")) {
		t.Errorf("the same again: gone %q, or written", gone)
	}
	if gone := declare(t, f, engine.PauseVanished, "a", "b"); !slices.Equal(gone, []string{"c"}) {
		t.Errorf("gone %q", gone)
	}
	if got := listed(t, f, engine.ScheduleFilter{Paused: true}); !slices.Equal(got, []string{"c"}) {
		t.Errorf("paused %q", got)
	}
	if gone := declare(t, f, engine.RemoveVanished, "b"); !slices.Equal(gone, []string{"a", "c"}) {
		t.Errorf("gone %q", gone)
	}
	if got := listed(t, f, engine.ScheduleFilter{}); !slices.Equal(got, []string{"b", "mine"}) {
		t.Errorf("left %q", got)
	}
	if got := listed(t, f, engine.ScheduleFilter{Set: "app", Kind: "tick"}); !slices.Equal(got, []string{"b"}) {
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
			all.Go(func() { declare(t, f, engine.RemoveVanished, names...) })
		}
		all.Wait()
		if got := listed(t, f, engine.ScheduleFilter{}); len(got) < 3 {
			t.Errorf("%q", got)
		}
	}
}
