// Command await creates an execution and waits for its result. A worker of any process may handle it; here it is this one.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/worker"
)

var Count = engine.Kind[string, int]{Name: "count-words"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Count, func(_ context.Context, job worker.Job[string]) (int, error) {
		words, err := count(job.Args)
		return words, worker.Permanent(err)
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	for _, text := range []string{"to be or not to be", ""} {
		created := must(Count.Create(ctx, eng, text))
		words, err := Count.Await(ctx, eng, created.ID)
		if ended, ok := errors.AsType[*fferr.EndedError](err); ok {
			fmt.Println("no answer:", ended.Failure)
			continue
		}
		fmt.Println("words:", must(words, err))
	}
}

func count(text string) (int, error) {
	if text == "" {
		return 0, errors.New("nothing to count")
	}
	return len(strings.Fields(text)), nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
