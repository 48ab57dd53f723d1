// Command two-of-three publishes an article when two of its three reviewers have approved it. Ada approves twice, which
// counts once: the article waits for another reviewer.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Approval is a reviewer's approval.
type Approval struct{ By string }

var (
	Publish  = engine.Kind[string, string]{Name: "publish-reviewed"}
	Approved = engine.Signal[Approval]{Name: "approved"}
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Publish, func(ctx context.Context, job worker.Job[string]) (string, error) {
		approvals, err := Approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{
			Timeout: 7 * 24 * time.Hour,
			Asked:   "Publish " + job.Args + "?",
		})
		if err != nil {
			return "", err
		}
		var names []string // of all approvals, Ada's second one too
		for _, approval := range approvals {
			names = append(names, approval.By)
		}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), " and "), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Publish.Create(ctx, eng, "an article"))
	for _, reviewer := range []string{"Ada", "Ada", "Grace"} { // before the wait or during it
		must(0, Approved.Send(ctx, eng, created.ID, Approval{By: reviewer}, engine.From("reviewer", reviewer)))
	}
	fmt.Println("approved by", must(Publish.Await(ctx, eng, created.ID)))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
