package schedules

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// recent returns the outcomes of a schedule, the newest first, as seconds after [fixture.Start].
func recent(t *testing.T, f *fixture.Fixture, name string) (outcomes []string) {
	t.Helper()
	for _, tick := range describe(t, f, name).Recent {
		outcomes = append(outcomes, fmt.Sprint(tick.Outcome, " ", tick.ScheduledFor.Sub(fixture.Start), " at ", tick.At.Sub(fixture.Start)))
		created := tick.Outcome == schedule.TickCreated || tick.Outcome == schedule.TickTriggered
		if created == tick.Execution.IsZero() {
			t.Errorf("%s: execution %s", outcomes[len(outcomes)-1], tick.Execution)
		}
		if !created {
			continue
		}
		x, err := f.DescribeExecution(t.Context(), tick.Execution)
		if err != nil {
			t.Fatal(err)
		}
		if at := x.Tags[schedule.TimeTag]; at != tick.ScheduledFor.UTC().Format(time.RFC3339Nano) {
			t.Errorf("%s has the execution of %s", outcomes[len(outcomes)-1], at)
		}
	}
	return outcomes
}

// A schedule keeps its last ten outcomes, with their executions. Ticks that were skipped, missed or left waiting count.
func TestRecentOutcomes(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "queue", time.Minute, func(s *schedule.Spec) { s.Overlap = schedule.OverlapQueue }))
	if got := recent(t, f, "queue"); got != nil {
		t.Errorf("%q before the first tick", got)
	}
	for range 4 {
		f.Advance(time.Minute)
		run(t, f, 1)
	}
	cancel(t, f, describe(t, f, "queue").Last.Execution)
	f.Advance(30 * time.Second)
	run(t, f, 1)
	if _, err := schedule.Trigger(t.Context(), f.Engine, schedule.Name{Name: "queue"}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"triggered 4m30s at 4m30s", "created 2m0s at 4m30s", "skipped 4m0s at 4m0s", "skipped 3m0s at 3m0s", "queued 2m0s at 2m0s",
		"created 1m0s at 1m0s",
	}
	if got := recent(t, f, "queue"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// The definition changes, and the outcomes stay.
	set(t, f, every(f, "queue", time.Minute, func(s *schedule.Spec) { s.Missed, s.Window = schedule.MissedAll, 3*time.Minute }))
	f.Advance(10 * time.Minute)
	run(t, f, 1)
	want = append([]string{
		"created 14m0s at 14m30s", "created 13m0s at 14m30s", "created 12m0s at 14m30s", "missed 11m0s at 14m30s",
	}, want...)
	if got := recent(t, f, "queue"); !slices.Equal(got, want) || len(got) != schedule.MaxRecent {
		t.Errorf("%q, want %q", got, want)
	}
	f.Advance(time.Minute)
	run(t, f, 1)
	if got := recent(t, f, "queue"); !slices.Equal(got[1:], want[:9]) {
		t.Errorf("%q, want one more and the first nine of %q", got, want)
	}
}

// A tick that fails again and again is one outcome.
func TestRecentFailureIsNotedOnce(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	f.Exec(t, "UPDATE ffx_schedule SET every_ms = 0, cron = 'never'")
	for range 3 {
		f.Advance(time.Minute)
		run(t, f, 1)
	}
	if got, want := recent(t, f, "s"), []string{"failed 1m0s at 1m0s"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A stored outcome that this version doesn't know is an error, not another outcome.
func TestUnknownRecentOutcome(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "s", time.Minute))
	for _, stored := range []string{"\\x00", "\\x" + fmt.Sprintf("%070x", 1)} {
		f.Exec(t, "UPDATE ffx_schedule SET recent = $1::text::bytea", stored)
		if _, _, err := schedule.Describe(t.Context(), f.Engine, schedule.Name{Name: "s"}, 0); err == nil {
			t.Errorf("reads %s", stored)
		}
	}
}
