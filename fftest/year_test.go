package fftest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/worker"
)

// tripsOfATick are the round trips of a Drain for a tick of a schedule whose execution fails once: 5 for the tick, 3 claims, one
// of them with the completion, 4 for the failure, one for the timers of the leases, and one to ask for the next due work.
const tripsOfATick = 14

func TestAYearOfADailySchedule(t *testing.T) {
	t.Parallel()
	const zone = "Europe/Berlin"
	berlin, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	midnight := time.Date(2028, 1, 1, 0, 0, 0, 0, berlin)
	kit := fftest.New(t, fftest.StartAt(midnight))
	daily := engine.Kind[string, int]{Name: "daily", Policy: &policy.Execution{Retry: policy.ImmediateRetries(3)}}
	attempts := make(map[string][]int) // by tick
	worker.Handle(kit.Worker, daily, func(_ context.Context, job worker.Job[string]) (int, error) {
		tick := job.Tags[schedule.TimeTag]
		attempts[tick] = append(attempts[tick], job.Lease.Attempt)
		if job.Lease.Attempt == 0 {
			return 0, errors.New("once")
		}
		return job.Lease.Attempt, nil
	})
	spec := schedule.Of(daily, "daily", "eu", schedule.Spec{Cron: "30 3 * * *", Zone: zone})
	if err := schedule.Put(t.Context(), kit.Engine, spec); err != nil {
		t.Fatal(err)
	}
	kit.Drain()
	began, most := time.Now(), 0
	for day := range 366 {
		before := kit.Trips()
		kit.Advance(midnight.AddDate(0, 0, day+1).Sub(kit.Now()))
		kit.Drain()
		if day > 0 { // the first one learns the lane and the form of the executions
			most = max(most, kit.Trips()-before)
		}
	}
	t.Logf("a leap year in %v, at most %d round trips for a tick", time.Since(began), most)
	if most > tripsOfATick {
		t.Errorf("%d round trips for a tick, want at most %d", most, tripsOfATick)
	}
	fftest.RequireCreated(t, kit, daily, fftest.Args("eu"), fftest.Times(366))
	if len(attempts) != 366 {
		t.Errorf("executions of %d ticks, want 366", len(attempts))
	}
	for tick, of := range attempts {
		at, err := time.Parse(time.RFC3339, tick)
		if local := at.In(berlin); err != nil || local.Hour() != 3 || local.Minute() != 30 {
			t.Errorf("a tick at %s, %v", tick, err)
		}
		if len(of) != 2 || of[0] != 0 || of[1] != 1 {
			t.Errorf("the execution of %s has the attempts %v, want 0 and 1", tick, of)
		}
	}
}
