// Command error-branch books a journey in steps. If a step fails, the earlier bookings are returned. Either way the
// customer gets a letter.
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
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Book   = engine.Kind[string, string]{Name: "book", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}}
	Return = engine.Kind[struct{}, []string]{Name: "give-back"}
	Write  = engine.Kind[struct{}, string]{Name: "write-letter"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Book, func(_ context.Context, job worker.Job[string]) (string, error) {
		if job.Args == "hotel on the moon" {
			return "", errors.New("there is none")
		}
		return job.Args, nil
	})
	worker.Handle(w, Return, func(ctx context.Context, job worker.Job[struct{}]) ([]string, error) {
		var booked []string
		steps, err := job.Upstreams(ctx)
		for _, step := range steps {
			if what, err := Book.ResultOf(step); err == nil { // the others failed, or were never tried
				booked = append(booked, what)
			}
		}
		return booked, err
	})
	worker.Handle(w, Write, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		ends, err := job.Upstreams(ctx)
		for _, end := range ends {
			if end.Kind == Return.Name && end.State == state.PublicCompleted {
				return "we are sorry", err
			}
		}
		return "have a good journey", err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	for _, hotel := range []string{"hotel in Oslo", "hotel on the moon"} {
		flow := must(eng.CreateFlow(ctx, engine.FlowSpec{
			Nodes: []engine.Node{
				{Key: "train", Spec: Book.Spec("train")},
				{Key: "hotel", Spec: Book.Spec(hotel)},
				{Key: "guide", Spec: Book.Spec("guide")},
				{Key: "return", Spec: Return.Spec(struct{}{}), When: policy.OnFailure()},
				{Key: "letter", Spec: Write.Spec(struct{}{}), When: policy.Always()},
			},
			Edges: []engine.Edge{
				{From: "train", To: "hotel"},
				{From: "hotel", To: "guide"},
				{From: "train", To: "return"},
				{From: "hotel", To: "return"},
				{From: "guide", To: "return"},
				{From: "guide", To: "letter"},
				{From: "return", To: "letter"},
			},
		}))
		fmt.Printf("%s: %s", hotel, must(Write.Await(ctx, eng, eng.NodeID(flow.ID, "letter"))))
		if returned, err := Return.Await(ctx, eng, eng.NodeID(flow.ID, "return")); err == nil {
			fmt.Printf(", given back: %q", returned)
		}
		fmt.Println()
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
