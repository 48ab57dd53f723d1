// Command fan-in asks three shops for a price at the same time, and picks the lowest when all have answered.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Ask    = engine.Kind[string, int]{Name: "ask-price"}
	Choose = engine.Kind[struct{}, int]{Name: "choose-price"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Ask, func(_ context.Context, job worker.Job[string]) (int, error) {
		return price(job.Args), nil
	})
	worker.Handle(w, Choose, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		answers, err := job.Upstreams(ctx)
		if err != nil {
			return 0, err
		}
		var prices []int
		for _, answer := range answers {
			price, err := Ask.ResultOf(answer)
			if err != nil {
				return 0, err
			}
			prices = append(prices, price)
		}
		return slices.Min(prices), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	spec := engine.FlowSpec{Nodes: []engine.Node{{Key: "choose", Spec: Choose.Spec(struct{}{})}}}
	for _, shop := range []string{"north", "south", "harbour"} {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: shop, Spec: Ask.Spec(shop)})
		spec.Edges = append(spec.Edges, engine.Edge{From: shop, To: "choose"})
	}
	flow := must(eng.CreateFlow(ctx, spec))
	fmt.Println("best price:", must(Choose.Await(ctx, eng, eng.NodeID(flow.ID, "choose"))))
}

func price(shop string) int { return 10 * len(shop) }

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
