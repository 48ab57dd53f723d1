// Command approval lets an article wait for an approval by a signed link. While it waits, nothing holds it: no worker, no
// connection, no timer. A browser that follows the link would see a page with two buttons; here a POST decides.
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

// Publish names the publication of an article.
var Publish = engine.Kind[string, string]{Name: "publish"}

const decision = id.WaitpointKey("decision")

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	must(operator.SeedKey(ctx, eng, "k1", wire.NewSecret())) // or once: ff key seed

	server := httptest.NewServer(http.StripPrefix("/decisions/", waitpoint.Handler(eng, waitpoint.Config{
		Actions: []waitpoint.Action{{Signal: "approved", Label: "Approve"}, {Signal: "rejected", Label: "Reject"}},
	})))
	defer server.Close()

	links := make(chan string, 1) // the mail to the editor
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Publish, func(ctx context.Context, job worker.Job[string]) (string, error) {
		_, err := worker.Step(ctx, job, "ask", func(ctx context.Context) (struct{}, error) { // its result isn't the link, a secret
			point, err := job.Waitpoint(ctx, decision, 24*time.Hour)
			if err == nil {
				links <- waitpoint.Link(server.URL+"/decisions/", point)
			}
			return struct{}{}, err
		})
		if err != nil {
			return "", err
		}
		decided, err := engine.AwaitAny(ctx, job, engine.Wait{
			Timeout: 24 * time.Hour,
			Asked:   "Publish " + job.Args + "?",
		}, engine.Received("approved").At(decision), engine.Received("rejected").At(decision))
		if err != nil {
			return "", err
		}
		return job.Args + ": " + decided.Name, nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Publish.Create(ctx, eng, "an article"))
	link := <-links
	for range 2 { // the editor clicks twice
		response := must(http.PostForm(link, url.Values{"signal": {"approved"}}))
		fmt.Println("answer:", response.StatusCode)
		must(0, response.Body.Close())
	}
	fmt.Println("done:", must(Publish.Await(ctx, eng, created.ID)))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
