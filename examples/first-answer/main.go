// Command first-answer asks two carriers for an offer and takes the first one. Each answers by a signed link of its own.
// The transaction of the first answer closes the other link, so the slower carrier gets a refusal.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
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
	Ship  = engine.Kind[string, string]{Name: "ship"}
	Offer = engine.Signal[int]{Name: "offer"}
)

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	must(operator.SeedKey(ctx, eng, "k1", wire.NewSecret())) // or once: ff key seed

	server := httptest.NewServer(http.StripPrefix("/offers/", waitpoint.Handler(eng, waitpoint.Config{
		Actions: []waitpoint.Action{{Signal: Offer.Name}},
	})))
	defer server.Close()

	carriers := map[id.WaitpointKey]chan string{"by-sea": make(chan string, 1), "by-air": make(chan string, 1)}
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Ship, func(ctx context.Context, job worker.Job[string]) (string, error) {
		for key, carrier := range carriers {
			_, err := worker.Step(ctx, job, worker.Key("ask", key), func(ctx context.Context) (struct{}, error) {
				point, err := job.Waitpoint(ctx, key, time.Hour)
				if err == nil {
					carrier <- waitpoint.Link(server.URL+"/offers/", point)
				}
				return struct{}{}, err
			})
			if err != nil {
				return "", err
			}
		}
		won, err := engine.AwaitAny(ctx, job, engine.Wait{Timeout: time.Hour},
			Offer.Received().At("by-sea"), Offer.Received().At("by-air"))
		if err != nil {
			return "", err
		}
		euros, err := Offer.Decode(won)
		return fmt.Sprintf("%s goes %s for %d euros", job.Args, won.Key, euros), err
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Ship.Create(ctx, eng, "a piano"))
	fmt.Println("by air:", answer(<-carriers["by-air"], 900))
	fmt.Println(must(Ship.Await(ctx, eng, created.ID)))
	fmt.Println("by sea:", answer(<-carriers["by-sea"], 90)) // too late
}

// answer posts a carrier's offer to its link, and returns the answer to it.
func answer(link string, euros int) string {
	body := fmt.Sprintf(`{"signal": "offer", "payload": %d}`, euros)
	response := must(http.Post(link, "application/json", strings.NewReader(body)))
	defer response.Body.Close()
	return response.Status + " " + strings.TrimSpace(string(must(io.ReadAll(response.Body))))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
