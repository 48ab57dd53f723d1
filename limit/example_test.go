package limit_test

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
	"github.com/flowfabric/flowfabric-go/limit"
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

// A program declares a limit when it starts, and its executions name the limit with a key. An operator looks at the limit,
// and lowers it for a while.
func Example() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	// The program: each tenant may make ten calls of the model at once.
	if err := limit.Declare(ctx, eng, limit.Spec{Name: "model-calls", Units: 10}); err != nil {
		log.Fatal(err)
	}
	if _, err := eng.CreateExecution(ctx, engine.ExecutionSpec{
		Lane: "research", Kind: "ask", Limits: []engine.LimitKey{{Name: "model-calls", Key: "acme"}},
	}); err != nil {
		log.Fatal(err)
	}

	// The operator.
	calls := limit.Name{Name: "model-calls"}
	for use, err := range limit.Keys(ctx, eng, calls) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(use.Key, "has", use.InUse+use.Waiting)
	}
	if err := limit.Set(ctx, eng, calls, limit.Setting{Units: 2, By: "ada"}); err != nil {
		log.Fatal(err)
	}
	state, err := limit.Describe(ctx, eng, calls)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Units, "of", state.DeclaredUnits, "since", state.Changes[0].By, state.Changes[0].How, "it")
	if err := limit.Reset(ctx, eng, calls, "ada"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// acme has 1
	// 2 of 10 since ada set it
}

// An operator holds a key for ten minutes, while the tenant's data is moved, and ends the hold.
func ExampleHold() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()

	syncs := limit.Name{Name: "syncs"}
	if err := limit.Declare(ctx, eng, limit.Spec{Name: syncs.Name, Units: 10}); err != nil {
		log.Fatal(err)
	}
	until := time.Now().Add(10 * time.Minute)
	if _, err := limit.Hold(ctx, eng, syncs, "acme", limit.Holding{Until: until, By: "ada"}); err != nil {
		log.Fatal(err)
	}
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{
		Lane: "research", Kind: "sync", Limits: []engine.LimitKey{{Name: syncs.Name, Key: "acme"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(created.State)
	for use, err := range limit.Keys(ctx, eng, syncs) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(use.Key, "is held by", use.Hold.By)
	}
	held, err := limit.Hold(ctx, eng, syncs, "acme", limit.Holding{}) // ends it
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", !held.IsZero())
	// Output:
	// rate_limited
	// acme is held by ada
	// held: false
}
