// Command retention keeps ended work for as long as the engine, a lane or a policy sets, and reads the progress of
// deletion.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Shrink's executions are deleted after an hour, like all others on its lane.
var Shrink = engine.Kind[string, string]{Name: "shrink", Lane: "thumbnails"}

// Charge's executions are kept forever, for any setting of their lane.
var Charge = engine.Kind[int, string]{
	Name:   "charge",
	Policy: &policy.Execution{Retention: policy.KeepForever},
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{Retention: 30 * 24 * time.Hour}))
	must(0, operator.SetLaneRetention(ctx, eng, Shrink.Lane, time.Hour))

	// Besides its work, a worker deletes executions that are due.
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Shrink, func(_ context.Context, job worker.Job[string]) (string, error) { return "small " + job.Args, nil })
	worker.Handle(w, Charge, func(_ context.Context, job worker.Job[int]) (string, error) {
		return fmt.Sprintf("charged %d", job.Args), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	shrunk := must(Shrink.Create(ctx, eng, "cat"))
	charged := must(Charge.Create(ctx, eng, 7))
	fmt.Println(must(Shrink.Await(ctx, eng, shrunk.ID)))
	fmt.Println(must(Charge.Await(ctx, eng, charged.ID)))

	status := must(operator.Retention(ctx, eng))
	for _, lane := range status.Lanes {
		fmt.Printf("%s: kept for %v\n", lane.Lane, lane.Keep)
	}
	fmt.Printf("behind by %v, %d deleted\n", status.Behind, status.Deleted)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
