// Command review-links publishes an article when two of its three reviewers have approved it, each by a link of their own. Ada
// clicks twice, which counts once.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/waitpoint"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Publish   = engine.Kind[string, int]{Name: "publish-by-links"}
	Approved  = engine.Signal[struct{}]{Name: "approved"}
	reviewers = []id.WaitpointKey{"ada", "grace", "linus"}
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	must(operator.SeedKey(ctx, eng, "k1", wire.NewSecret())) // or once: ff key seed

	server := httptest.NewServer(http.StripPrefix("/reviews/", waitpoint.Handler(eng, waitpoint.Config{
		Actions: []waitpoint.Action{{Signal: "approved", Label: "Approve"}},
	})))
	defer server.Close()

	links := make(chan map[id.WaitpointKey]string, 1) // the mails to the reviewers
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Publish, func(ctx context.Context, job worker.Job[string]) (int, error) {
		_, err := worker.Step(ctx, job, "ask", func(ctx context.Context) (struct{}, error) {
			mails := make(map[id.WaitpointKey]string)
			for _, reviewer := range reviewers {
				point, err := job.Waitpoint(ctx, reviewer, 7*24*time.Hour)
				if err != nil {
					return struct{}{}, err
				}
				mails[reviewer] = waitpoint.Link(server.URL+"/reviews/", point)
			}
			links <- mails
			return struct{}{}, nil
		})
		if err != nil {
			return 0, err
		}
		approvals, err := Approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{
			Timeout: 7 * 24 * time.Hour,
			Asked:   "Publish " + job.Args + "?",
		}, reviewers...)
		return len(approvals), err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Publish.Create(ctx, eng, "an article"))
	mails := <-links
	for _, reviewer := range []id.WaitpointKey{"ada", "ada", "linus"} { // before the wait or during it
		response := must(http.PostForm(mails[reviewer], url.Values{"signal": {"approved"}}))
		fmt.Printf("%s: %d\n", reviewer, response.StatusCode)
		must(0, response.Body.Close())
	}
	fmt.Println("approved by", must(Publish.Await(ctx, eng, created.ID)), "reviewers")
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
