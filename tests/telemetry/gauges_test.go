package telemetry

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/ffotel"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

const gaugesEvery = 40 * time.Millisecond

// runGauges reports the gauges of an engine until stop is called.
func runGauges(t *testing.T, eng *engine.Engine) (e *exporter, stop func()) {
	t.Helper()
	e = newExporter(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- ffotel.RunGauges(ctx, eng, ffotel.Options{MeterProvider: e, GaugesEvery: gaugesEvery})
	}()
	stop = func() {
		cancel()
		if err := progress.Receive(t, "the end of the gauges", ended); err != nil {
			t.Error(err)
		}
	}
	return e, stop
}

func (e *exporter) reports(t *testing.T) bool {
	t.Helper()
	_, ok := value(e.scrape(t), "flowfabric_places_free")
	return ok
}

func TestGaugesHaveTheStateOfTheDatabase(t *testing.T) {
	f := fixture.NewCloned(t)
	ctx := t.Context()
	for range 3 {
		f.Create(t)
	}
	f.ClaimOne(t)
	f.Advance(time.Minute)
	if err := operator.PauseLane(ctx, f.Engine, f.Lane, operator.LanePause{Reason: "moving"}); err != nil {
		t.Fatal(err)
	}
	if err := limit.Declare(ctx, f.Engine, limit.Spec{Name: "sync", Units: 7}); err != nil {
		t.Fatal(err)
	}
	made, err := budget.Create(ctx, f.Engine, budget.Spec{Key: "july", Limits: map[string]budget.Limit{"tokens": {Hard: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := budget.Report(ctx, f.Engine, budget.Usage{Budget: made.ID, Amounts: map[string]int64{"tokens": 75}}); err != nil {
		t.Fatal(err)
	}

	e, stop := runGauges(t, f.Engine)
	defer stop()
	progress.Until(t, "a reading", func() bool { return e.reports(t) })
	got := e.scrape(t)
	lane := "lane=" + string(f.Lane)
	want(t, got, 2, "flowfabric_executions_waiting", lane)
	want(t, got, 60, "flowfabric_executions_oldest_seconds", lane)
	want(t, got, 1, "flowfabric_executions_active", lane)
	want(t, got, 1, "flowfabric_lanes_paused", lane)
	want(t, got, 0, "flowfabric_places_free")
	want(t, got, 7, "flowfabric_limit_units", "namespace=default", "limit=sync")
	want(t, got, 0, "flowfabric_limit_used", "namespace=default", "limit=sync")
	want(t, got, 0.25, "flowfabric_budget_left_ratio", "dimension=tokens")
	want(t, got, 0, "flowfabric_budgets_exhausted", "dimension=tokens")
	want(t, got, 0, "flowfabric_retention_behind_seconds")
}

// Two processes ask for the job on their own clock: the database's is fixed, so a hold never ends by itself.
func TestGaugesAreReportedByOneProcess(t *testing.T) {
	f := fixture.NewCloned(t)
	first, stopFirst := runGauges(t, f.Engine)
	progress.Until(t, "a reading of the first", func() bool { return first.reports(t) })
	asked := new(fixture.StatementLog)
	second, stopSecond := runGauges(t, f.EngineOn(t, asked.Open(t, f.Url), engine.Config{}))
	defer stopSecond()
	held := func() bool {
		jobs := slices.Collect(func(yield func(operator.BackgroundJob) bool) {
			for job, err := range operator.Jobs(t.Context(), f.Engine) {
				if err != nil {
					t.Fatal(err)
				}
				if job.Name == ffotel.GaugesJob && !yield(job) {
					return
				}
			}
		})
		return len(jobs) == 1 && jobs[0].Held
	}
	progress.Wait(t, "two questions of the second", func() (int, bool) { n := asked.Count("name: TakeJobs"); return n, n >= 2 }) // it would read between them
	if !held() || second.reports(t) {
		t.Error("the job has no holder, or both report")
	}
	stopFirst()
	if first.reports(t) {
		t.Error("a process reports after its end")
	}
	progress.Until(t, "a reading of the second", func() bool { return second.reports(t) })
}
