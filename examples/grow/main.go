// Command grow counts the words in a shelf of books. A handler finds out which books there are, adds an execution for each
// book to its flow, and waits for them.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Read  = engine.Kind[struct{}, int]{Name: "read-shelf"}
	Count = engine.Kind[string, int]{Name: "count-words"}
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Read, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		books, err := job.Upstreams(ctx)
		if err != nil {
			return 0, err
		}
		if len(books) == 0 { // the first time
			growth := engine.Growth{Flow: *job.Flow}
			for name, text := range shelf() {
				growth.Nodes = append(growth.Nodes, engine.Node{Key: name, Spec: Count.Spec(text)})
				growth.Edges = append(growth.Edges, engine.Edge{From: name, To: "shelf", AllowStarted: true})
			}
			if _, err := eng.GrowFlow(ctx, growth); err != nil { // repeating it adds nothing
				return 0, err
			}
			return 0, job.WaitForChildren()
		}
		total := 0
		for _, book := range books {
			words, err := Count.ResultOf(book)
			if err != nil { // some have not ended: this worker took over from one that died
				return 0, job.WaitForChildren()
			}
			total += words
		}
		return total, nil
	})
	worker.Handle(w, Count, func(_ context.Context, job worker.Job[string]) (int, error) {
		return len(strings.Fields(job.Args)), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	flow := must(eng.CreateFlow(ctx, engine.FlowSpec{Nodes: []engine.Node{{Key: "shelf", Spec: Read.Spec(struct{}{})}}}))
	fmt.Println("words:", must(Read.Await(ctx, eng, eng.NodeID(flow.ID, "shelf"))))
	progress := must(eng.FlowProgress(ctx, flow.ID))
	fmt.Printf("%d of %d ended\n", progress.Ended, progress.Total)
}

func shelf() map[string]string {
	return map[string]string{"Genesis": "In the beginning", "Moby-Dick": "Call me Ishmael", "Hamlet": "Who's there?"}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
