package operator_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
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

// Pause a lane while its workers can't succeed, at most for an hour, and resume it.
func Example() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	if err := operator.PauseLane(ctx, eng, "images", operator.LanePause{
		Reason: "the bucket is being moved", Until: time.Now().Add(time.Hour),
	}); err != nil {
		log.Fatal(err)
	}
	for lane, err := range operator.PausedLanes(ctx, eng) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(lane.Lane, lane.Reason)
	}
	if err := operator.ResumeLane(ctx, eng, "images"); err != nil {
		log.Fatal(err)
	}
	// Output: images the bucket is being moved
}

// Replay all executions of a lane that failed within the last hour, after a dry run.
func ExampleReplayWhere() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	failed := engine.ExecutionFilter{
		Lane: "images", State: state.PublicFailed, CreatedFrom: time.Now().Add(-time.Hour), Order: engine.NewestFirst,
	}
	would, err := operator.ReplayWhere(ctx, eng, failed, operator.Bulk{DryRun: true})
	if err != nil {
		log.Fatal(err)
	}
	done, err := operator.ReplayWhere(ctx, eng, failed, operator.Bulk{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("would replay", would.Matched, "and replayed", done.Changed)
	// Output: would replay 0 and replayed 0
}

// Pause a lane and record who did so, both or neither, then list the log of the person.
func ExampleRecordAction() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	if err := eng.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
		if err := operator.PauseLane(ctx, eng, "mail", operator.LanePause{Reason: "bounces"}); err != nil {
			return err
		}
		return operator.RecordAction(ctx, eng, operator.Action{By: "grace", Name: "lane.pause", Object: "mail", Detail: "bounces"})
	}); err != nil {
		log.Fatal(err)
	}
	page, err := operator.ListLog(ctx, eng, operator.LogFilter{By: "grace"}, "", 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, entry := range page.Items {
		fmt.Println(entry.By, entry.Action, entry.Object, entry.Detail)
	}
	if err := operator.ResumeLane(ctx, eng, "mail"); err != nil {
		log.Fatal(err)
	}
	// Output: grace lane.pause mail bounces
}
