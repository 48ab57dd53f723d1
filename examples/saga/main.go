// Command saga books a journey in four steps. If a step fails, the completed steps are undone, the last one first.
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
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Book = engine.Kind[string, struct{}]{Name: "book", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}}
	Undo = engine.Kind[string, struct{}]{Name: "undo"}
	Join = engine.Kind[struct{}, struct{}]{Name: "join"} // does nothing; others wait for it
)

// journey returns a flow of the steps, one after the other, and their undo steps.
func journey(steps []string) engine.FlowSpec {
	spec := engine.FlowSpec{Nodes: []engine.Node{{Key: "failed", Spec: Join.Spec(struct{}{}), When: policy.OnFailure()}}}
	edge := func(from, to string) { spec.Edges = append(spec.Edges, engine.Edge{From: from, To: to}) }
	for i, step := range steps {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: step, Spec: Book.Spec(step)})
		edge(step, "failed")
		if i > 0 {
			edge(steps[i-1], step)
		}
	}
	for i, step := range steps[:len(steps)-1] { // no later step can fail after the last one
		undo := "undo " + step
		spec.Nodes = append(spec.Nodes, engine.Node{Key: undo, Spec: Undo.Spec(step)})
		edge(step, undo) // skipped unless the step was done,
		edge("failed", undo)
		if i+2 < len(steps) { // and runs only after the next step was undone, or was never done
			next := steps[i+1]
			spec.Nodes = append(spec.Nodes, engine.Node{Key: "after " + next, Spec: Join.Spec(struct{}{}), When: policy.Always()})
			edge("undo "+next, "after "+next)
			edge("after "+next, undo)
		}
	}
	return spec
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	undone := make(chan string, 10)

	w := must(worker.New(eng, worker.Config{}))
	worker.HandleFunc(w, Book, func(_ context.Context, job worker.Job[string]) error {
		if job.Args == "guide to the moon" {
			return errors.New("there is none")
		}
		return nil
	})
	worker.HandleFunc(w, Undo, func(_ context.Context, job worker.Job[string]) error {
		undone <- job.Args
		return nil
	})
	worker.HandleFunc(w, Join, func(context.Context, worker.Job[struct{}]) error { return nil })
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	for _, guide := range []string{"guide to Oslo", "guide to the moon"} {
		flow := must(eng.CreateFlow(ctx, journey([]string{"train", "hotel", guide, "dinner"})))
		must(eng.AwaitFlow(ctx, flow.ID))
		fmt.Printf("%s:", guide)
		for len(undone) > 0 {
			fmt.Printf(" %s undone", <-undone)
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
