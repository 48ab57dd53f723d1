package cli

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLISchedules(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	ff.run(t, f.Url, "schedule", "list").succeeds(t, "There are no schedules.")
	eng, err := engine.New(f.Pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := schedule.Put(t.Context(), eng, schedule.Spec{
		Name: "nightly", Cron: "30 3 * * *", Zone: "Europe/Berlin", Execution: engine.ExecutionSpec{Kind: "report", Lane: f.Lane},
	}); err != nil {
		t.Fatal(err)
	}
	ff.run(t, f.Url, "schedule", "show", "nightly", "--next", "2").succeeds(t, "30 3 * * * Europe/Berlin")
	ff.run(t, f.Url, "schedule", "pause", "nightly", "--reason", "repair").succeeds(t, "is paused")
	ff.run(t, f.Url, "schedule", "list").succeeds(t, "paused")
	ff.run(t, f.Url, "schedule", "show", "nightly", "--json").succeeds(t, `"pause_reason": "repair"`)
	ff.run(t, f.Url, "schedule", "resume", "nightly").succeeds(t, "has ticks again")
	ff.run(t, f.Url, "schedule", "trigger", "nightly").succeeds(t, "{fp:")
	ff.run(t, f.Url, "schedule", "show", "nightly").succeeds(t, "triggered waiting {fp:")
	ff.run(t, f.Url, "schedule", "show", "nightly", "--json").succeeds(t, `"state": "waiting"`)
	ff.run(t, f.Url, "schedule", "backfill", "nightly", "--from", "2026-03-01T00:00:00Z", "--to", "2026-03-04T00:00:00Z").succeeds(t, "{fp:")
	if n := f.CountOnLane(t); n != 4 {
		t.Errorf("%d executions, want 4", n)
	}
	ff.run(t, f.Url, "schedule", "pause", "nightyl").fails(t, cliNotFound, "ff schedule list")
	ff.run(t, f.Url, "schedule", "backfill", "nightly", "--from", "yesterday", "--to", time.Now().Format(time.RFC3339)).fails(t, cliUsage, "--from")
}
