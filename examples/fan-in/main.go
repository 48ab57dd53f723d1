// Command fan-in asks three shops for a price and goes on when two have answered. One shop never does: what needs all
// three answers is skipped, what needs two runs.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Ask    = engine.Kind[string, int]{Name: "ask", Lane: "example-fan-in"}
	Choose = engine.Kind[struct{}, int]{Name: "choose", Lane: "example-fan-in"}
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}

	spec := engine.FlowSpec{Kind: "compare-prices"}
	for _, shop := range []string{"north", "south", "closed"} {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: shop, Spec: Ask.Spec(shop)})
		spec.Edges = append(spec.Edges, engine.Edge{From: shop, To: "choose"}, engine.Edge{From: shop, To: "survey"})
	}
	spec.Nodes = append(spec.Nodes,
		engine.Node{
			Key: "choose", Spec: Choose.Spec(struct{}{}),
			When: policy.Quorum(2, policy.LetRun),
		},
		engine.Node{
			Key: "survey", Spec: Choose.Spec(struct{}{}),
			When: policy.AllOf(), // the default
		},
	)
	flow, err := eng.CreateFlow(ctx, spec)
	if err != nil {
		return err
	}

	w, err := worker.New(eng, worker.Config{})
	if err != nil {
		return err
	}
	worker.Handle(w, Ask, ask)
	worker.Handle(w, Choose, choose)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	err = wait(ctx, eng, flow.ID)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}

	for _, key := range []string{"choose", "survey"} {
		state, err := eng.ExecutionState(ctx, eng.NodeID(flow.ID, key))
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", key, state)
	}
	return nil
}

func ask(_ context.Context, job worker.Job[string]) (int, error) {
	if job.Args == "closed" {
		return 0, worker.Permanent(errors.New("nobody answers"))
	}
	return 10 * len(job.Args), nil
}

func choose(ctx context.Context, job worker.Job[struct{}]) (int, error) {
	upstreams, err := job.Upstreams(ctx)
	if err != nil {
		return 0, err
	}
	best := 0
	for _, upstream := range upstreams {
		price, err := Ask.ResultOf(upstream)
		if err == nil && (best == 0 || price < best) { // two have answered; the third need not
			best = price
		}
	}
	fmt.Println("best price:", best)
	return best, nil
}

// wait returns when every member of the flow has ended.
func wait(ctx context.Context, eng *engine.Engine, flow id.FlowID) error {
	for look := time.NewTicker(50 * time.Millisecond); ; {
		open := 0
		for member, err := range eng.FlowMembers(ctx, flow) {
			if err != nil {
				return err
			}
			if !member.State.Terminal() {
				open++
			}
		}
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
}
