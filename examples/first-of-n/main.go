// Command first-of-n asks three shops for a price, takes the first answer and stops asking. One shop never answers, and
// one would take forever.
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
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Ask  = engine.Kind[string, int]{Name: "ask-shop"}
	Take = engine.Kind[struct{}, int]{Name: "take-first"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Ask, func(ctx context.Context, job worker.Job[string]) (int, error) {
		return ask(ctx, job.Args)
	})
	worker.Handle(w, Take, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		answers, err := job.Upstreams(ctx)
		for _, answer := range answers {
			if price, err := Ask.ResultOf(answer); err == nil { // others have failed, or have not ended
				return price, nil
			}
		}
		return 0, err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	spec := engine.FlowSpec{Nodes: []engine.Node{
		{Key: "first", Spec: Take.Spec(struct{}{}), When: policy.AnyOf(policy.CancelRemaining)},
	}}
	for _, shop := range []string{"closed", "slow", "harbour"} {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: shop, Spec: Ask.Spec(shop)})
		spec.Edges = append(spec.Edges, engine.Edge{From: shop, To: "first"})
	}
	flow := must(eng.CreateFlow(ctx, spec))
	fmt.Println("first price:", must(Take.Await(ctx, eng, eng.NodeID(flow.ID, "first"))))

	_, err := Ask.Await(ctx, eng, eng.NodeID(flow.ID, "slow"))
	if ended, ok := errors.AsType[*fferr.EndedError](err); ok {
		fmt.Println("slow shop:", ended.Outcome)
	}
}

func ask(ctx context.Context, shop string) (int, error) {
	switch shop {
	case "closed":
		return 0, errors.New("nobody answers")
	case "slow":
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return 10 * len(shop), nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
