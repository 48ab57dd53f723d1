package workers

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A worker without background work warns where no process does it, and not where one does. The first check is a minute
// after the start, the second ten seconds later.
func TestWorkerWarnsOfMissingBackgroundWork(t *testing.T) {
	start := func(t *testing.T, f *fixture.Fixture, asked *fixture.StatementLog) *fixture.LockedBuffer {
		log := new(fixture.LockedBuffer)
		w := fixture.NewWorker(t, f.EngineOn(t, asked.Open(t, f.Url), engine.Config{}), worker.Config{
			Lanes: []worker.Lane{{Name: f.Lane}}, NoReconcile: true, SharePool: true, Log: slog.New(slog.NewTextHandler(log, nil)),
		})
		fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
		ctx, cancel := context.WithCancel(t.Context())
		ran := fixture.Async(t, func(context.Context) error { return w.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			if err := ran(); err != nil {
				t.Error(err)
			}
		})
		return log
	}
	alone, beside := fixture.NewCloned(t), fixture.Clone(t)
	holder := id.WorkerInstanceID("reconciler")
	if _, err := upkeep.Of(beside.Engine).TakeJobs(t.Context(), upkeep.JobSpec{Holder: holder, Hold: 1 << 40, Jobs: []upkeep.Job{upkeep.JobExpireLeases}}); err != nil {
		t.Fatal(err)
	}
	asked := new(fixture.StatementLog)
	served, warned := start(t, beside, new(fixture.StatementLog)), start(t, alone, asked)
	const warning = "no process does the background work"
	// The worker looks for background work after a minute, and asks for other things each second.
	progress.Wait(t, "the warning", func() (int, bool) {
		if asked.Count("name: ListJobs") > 3 {
			t.Fatal("the worker has looked for background work four times, and does not warn")
		}
		return asked.Count(""), strings.Contains(warned.String(), warning)
	})
	if strings.Contains(served.String(), warning) {
		t.Error("a worker warns where another process does the background work")
	}
}
