package explain_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
)

// TestExamples runs the examples on the migrated database that FF_EXAMPLES names. See the test of package engine.
func TestExamples(t *testing.T) {
	databaseURL := os.Getenv("FF_EXAMPLES")
	if databaseURL == "" {
		t.Skip("FF_EXAMPLES names no database")
	}
	t.Setenv("DATABASE_URL", databaseURL)
	Example()
}

// Ask why an execution does not run: no process handles its kind.
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
		fmt.Println(cause.Code, cause.Text) // no_worker No registered worker claims from lane images.
		for _, command := range cause.Do {
			fmt.Println("    ", command)
		}
	}
}
