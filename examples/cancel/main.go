// Command cancel ends a running execution. The worker is notified at once, and its handler's context is cancelled with the
// reason: the handler stops and cleans up.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/worker"
)

var Export = engine.Kind[string, string]{Name: "export"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	begun := make(chan struct{})
	worker.Handle(w, Export, func(ctx context.Context, job worker.Job[string]) (string, error) {
		close(begun)
		<-ctx.Done() // otherwise it would run for hours
		if errors.Is(context.Cause(ctx), worker.ErrCancelled) {
			fmt.Println("cancelled: the file is removed")
		}
		return "", ctx.Err() // discarded: a cancelled execution stores no result
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Export.Create(ctx, eng, "customers.csv"))
	<-begun
	if err := eng.CancelExecution(ctx, engine.CancelSpec{ID: created.ID, Reason: "the customer changed his mind"}); err != nil {
		log.Fatal(err)
	}
	_, err := Export.Await(ctx, eng, created.ID)
	if ended, ok := errors.AsType[*fferr.EndedError](err); ok {
		fmt.Printf("%s: %s\n", ended.Outcome, ended.Failure)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
