// Command why-it-failed runs a job that fails, is retried and fails for good, and reads the outcome of each attempt.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/worker"
)

var Send = engine.Kind[string, struct{}]{
	Name:   "send-letter",
	Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: 5, Backoff: policy.Fixed(50 * time.Millisecond)}},
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.HandleFunc(w, Send, func(_ context.Context, job worker.Job[string]) error {
		if job.Lease.Attempt == 0 {
			return errors.New("the post office is closed")
		}
		return worker.Permanent(errors.New("no such address"))
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	sent := must(Send.Create(ctx, eng, "nobody"))
	if _, err := Send.Await(ctx, eng, sent.ID); err == nil {
		log.Fatal("it was sent")
	}

	// List failed executions, newest first. A page may be short, or empty, without being the last.
	failed := engine.ExecutionFilter{Kind: Send.Name, State: state.PublicFailed, Order: engine.NewestFirst}
	for x, err := range eng.Executions(ctx, failed) {
		if err != nil {
			log.Fatal(err)
		}
		for attempt, err := range eng.Attempts(ctx, x.ID) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("attempt %d: %s: %s failure: %s\n", attempt.Index, attempt.Outcome, attempt.Failure.Class, attempt.Failure.Message)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
