// Command replay reads why a job failed, fixes the cause, and runs the job again.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/worker"
)

type Letter struct{ To, Text string }

var Send = engine.Kind[Letter, string]{Name: "send-letter"}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Send, func(_ context.Context, job worker.Job[Letter]) (string, error) {
		town, known := towns.Load(job.Args.To)
		if !known {
			return "", worker.Permanent(errors.New("no address of " + job.Args.To))
		}
		return fmt.Sprintf("on its way to %s, attempt %d", town, job.Lease.Attempt), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	sent := must(Send.Create(ctx, eng, Letter{To: "Ada", Text: "hello"}))
	if _, err := Send.Await(ctx, eng, sent.ID); err == nil {
		log.Fatal("there is an address already")
	}
	why := must(eng.DescribeExecution(ctx, sent.ID))
	fmt.Printf("%s: %s\n", why.State.Public, why.FailureReason)

	towns.Store("Ada", "London")
	replayed := must(operator.Replay(ctx, eng, sent.ID))
	fmt.Printf("replayed %d times\n", replayed.Replays)
	fmt.Println(must(Send.Await(ctx, eng, sent.ID)))
}

// towns maps people to their towns.
var towns sync.Map

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
