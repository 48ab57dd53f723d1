// Command graceful-worker runs until it is stopped. Then it claims nothing more and finishes its running work, for up to
// ten seconds. Unfinished work returns to its lane at once, at no cost.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

var Nap = engine.Kind[time.Duration, struct{}]{Name: "nap"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{DrainTimeout: 10 * time.Second}))
	worker.HandleFunc(w, Nap, func(ctx context.Context, job worker.Job[time.Duration]) error {
		return nap(ctx, job.Args)
	})
	must(Nap.Create(ctx, eng, time.Second)) // work to interrupt
	must(0, w.Run(ctx))
	fmt.Println("drained")
}

func nap(ctx context.Context, length time.Duration) error {
	fmt.Println("asleep")
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(length):
		fmt.Println("awake")
		return nil
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
