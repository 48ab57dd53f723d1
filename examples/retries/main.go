// Command retries runs failing jobs. One succeeds at its third attempt, and one fails permanently.
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
	"github.com/flowfabric/flowfabric-go/worker"
)

type Letter struct{ To, Text string }

var Send = engine.Kind[Letter, string]{
	Name: "send-letter",
	Policy: &policy.Execution{
		Retry: &policy.Retry{MaxRetries: 5, Backoff: policy.Exponential(50*time.Millisecond, time.Minute)},
	},
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Send, func(_ context.Context, job worker.Job[Letter]) (string, error) {
		receipt, err := post(job.Args, job.Lease.Attempt)
		if errors.Is(err, errNoAddress) {
			return "", worker.Permanent(err)
		}
		return receipt, err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	for _, letter := range []Letter{{To: "Ada", Text: "hello"}, {To: "nobody", Text: "hello"}} {
		sent := must(Send.Create(ctx, eng, letter))
		receipt, err := Send.Await(ctx, eng, sent.ID)
		fmt.Printf("to %s: %q, failed: %t\n", letter.To, receipt, err != nil)
	}
}

var errNoAddress = errors.New("no such address")

func post(letter Letter, attempt int) (receipt string, err error) {
	switch {
	case letter.To == "nobody":
		return "", errNoAddress
	case attempt < 2:
		return "", errors.New("the post office is closed")
	}
	return fmt.Sprintf("taken at attempt %d", attempt), nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
