package explain_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
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

// Ask why an execution does not run: no process claims from its lane.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}

	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Kind: "resize", Lane: "images"})
	if err != nil {
		log.Fatal(err)
	}
	why, err := explain.Execution(ctx, eng, created.ID)
	if err != nil {
		log.Fatal(err)
	}
	for _, cause := range why.Causes {
		fmt.Println(cause.Code, "-", cause.Text)
		for _, command := range cause.Do {
			fmt.Println("   ", command)
		}
	}
	// Output:
	// no_worker - No registered worker claims from lane images.
	//     ff worker list --lane images
}
