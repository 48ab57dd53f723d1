package schedule_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/schedule"
)

// TestMain runs the examples on the migrated database that FF_EXAMPLES names. A test in the tests module sets it; this module
// cannot start a server and only compiles them.
func TestMain(m *testing.M) {
	databaseURL := os.Getenv("FF_EXAMPLES")
	_ = os.Setenv("DATABASE_URL", databaseURL)
	if databaseURL == "" {
		flag.Parse()
		_ = flag.Set("test.skip", "^Example")
	}
	m.Run()
}

// connect opens a pool and an engine on it.
func connect(ctx context.Context) (*pgxpool.Pool, *engine.Engine) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool, eng
}

type ReportArgs struct{ Of string }

// Report is declared once, for its schedules and its handler.
var Report = engine.Kind[ReportArgs, string]{Name: "report", Lane: "reports"}

// A program declares its schedules when it starts. Its workers create and run the executions.
func Example() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	if _, err := schedule.Declare(ctx, eng, schedule.Set{
		Name: "reports", Vanished: schedule.RemoveVanished,
		Schedules: []schedule.Spec{
			schedule.Of(Report, "nightly", ReportArgs{Of: "the day"}, schedule.Spec{Cron: "30 3 * * *", Zone: "Europe/Berlin"}),
			schedule.Of(Report, "hourly", ReportArgs{Of: "the hour"}, schedule.Spec{Every: time.Hour, Overlap: schedule.OverlapSkip}),
		},
	}); err != nil {
		log.Fatal(err)
	}

	_, ticks, err := schedule.Describe(ctx, eng, schedule.Name{Name: "hourly"}, 3)
	if err != nil {
		log.Fatal(err)
	}
	for _, tick := range ticks {
		fmt.Println(tick.Sub(ticks[0]))
	}
	// Output:
	// 0s
	// 1h0m0s
	// 2h0m0s
}

// An operator creates the executions of a weekend without workers.
func ExampleBackfill() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	if err := schedule.Put(ctx, eng, schedule.Of(Report, "daily", ReportArgs{Of: "the day"}, schedule.Spec{Cron: "@daily"})); err != nil {
		log.Fatal(err)
	}

	saturday := time.Date(2026, time.June, 6, 0, 0, 0, 0, time.UTC)
	created, err := schedule.Backfill(ctx, eng, schedule.Name{Name: "daily"}, saturday, saturday.AddDate(0, 0, 1))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(created), "executions")
	// Output: 2 executions
}
