// Command quorum stores a file in three places and continues once two have it. One place is down.
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
	Store   = engine.Kind[string, struct{}]{Name: "store-copy", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}}
	Publish = engine.Kind[struct{}, int]{Name: "publish"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.HandleFunc(w, Store, func(_ context.Context, job worker.Job[string]) error {
		if job.Args == "rome" {
			return errors.New("nobody is there")
		}
		return nil
	})
	worker.Handle(w, Publish, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		copies := 0
		places, err := job.Upstreams(ctx)
		for _, place := range places {
			if _, err := Store.ResultOf(place); err == nil {
				copies++
			}
		}
		return copies, err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	spec := engine.FlowSpec{Nodes: []engine.Node{
		// The third place may finish too; policy.CancelRemaining would cancel it.
		{Key: "publish", Spec: Publish.Spec(struct{}{}), When: policy.Quorum(2, policy.LetRun)},
	}}
	for _, place := range []string{"oslo", "rome", "lima"} {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: place, Spec: Store.Spec(place)})
		spec.Edges = append(spec.Edges, engine.Edge{From: place, To: "publish"})
	}
	flow := must(eng.CreateFlow(ctx, spec))
	fmt.Println("published, copies:", must(Publish.Await(ctx, eng, eng.NodeID(flow.ID, "publish"))))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
