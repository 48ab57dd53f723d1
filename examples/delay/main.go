// Command delay polls a slow service. The handler asks it, and returns when to ask again. All polls are one attempt and
// use no retry. Between two polls no process holds anything.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Transcode names a job at a service that is polled now and then.
var Transcode = engine.Kind[string, string]{Name: "transcode"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Transcode, func(_ context.Context, job worker.Job[string]) (string, error) {
		url, done := ask(job.Args)
		if !done {
			fmt.Printf("attempt %d: not yet\n", job.Lease.Attempt)
			return "", job.Delay(100 * time.Millisecond)
		}
		return url, nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Transcode.Create(ctx, eng, "video-7"))
	fmt.Println("done:", must(Transcode.Await(ctx, eng, created.ID)))
	snapshot := must(eng.DescribeExecution(ctx, created.ID))
	fmt.Printf("attempts: %d, retries: %d\n", snapshot.Attempts, snapshot.Retries)
}

var asked atomic.Int64

// ask polls a service that is done at the third call.
func ask(job string) (url string, done bool) {
	return "https://example.com/" + job, asked.Add(1) == 3
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
