// Command quickstart creates a flow of three executions and runs it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A kind is declared once, for creators, handlers and readers: its name, its input and its output.
var (
	Greet = engine.Kind[string, string]{Name: "greet"}
	Print = engine.Kind[struct{}, struct{}]{Name: "print"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL"))) // migrated by `ff dev` or `ff migrate up`
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	must(eng.CreateFlow(ctx, engine.FlowSpec{
		Nodes: []engine.Node{
			{Key: "ada", Spec: Greet.Spec("Ada")},
			{Key: "grace", Spec: Greet.Spec("Grace")},
			{Key: "all", Spec: Print.Spec(struct{}{})},
		},
		Edges: []engine.Edge{{From: "ada", To: "all"}, {From: "grace", To: "all"}},
	}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		return "hello, " + job.Args, nil
	})
	worker.HandleFunc(w, Print, func(ctx context.Context, job worker.Job[struct{}]) error {
		defer stop() // w.Run returns when this is settled
		upstreams, err := job.Upstreams(ctx)
		for _, upstream := range upstreams {
			fmt.Println(must(Greet.ResultOf(upstream)))
		}
		return err
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
