// Command schedule declares schedules, lets a worker greet at two ticks of one, and triggers the other by hand.
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
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/worker"
)

var Greet = engine.Kind[string, string]{Name: "greet-on-time"}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	ticks := make(chan string, 100)
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		ticks <- "hello, " + job.Args
		return "", nil
	})

	// Each start of the program declares all its schedules.
	must(schedule.Declare(ctx, eng, schedule.Set{
		Name:     "greetings",
		Vanished: schedule.RemoveVanished,
		Schedules: []schedule.Spec{
			schedule.Of(Greet, "every second", "Ada", schedule.Spec{Every: time.Second}),
			schedule.Of(Greet, "nightly", "Grace", schedule.Spec{Cron: "30 3 * * *", Zone: "Europe/Berlin", Overlap: schedule.OverlapSkip}),
		},
	}))
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()
	fmt.Println(<-ticks)
	fmt.Println(<-ticks)

	must(0, schedule.Pause(ctx, eng, schedule.Name{Name: "every second"}, "enough"))
	must(schedule.Trigger(ctx, eng, schedule.Name{Name: "nightly"}))
	for greeting := range ticks {
		if greeting == "hello, Grace" { // Ada may have been greeted once more
			fmt.Println(greeting)
			return
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
