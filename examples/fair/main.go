// Command fair imports files of several tenants, which take turns: a tenant with few files does not wait behind one with many.
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

type File struct{ Tenant, Name string }

var Import = engine.Kind[File, string]{
	Name: "import",
	Fair: engine.RoundRobin(func(f File) string { return f.Tenant }),
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	var mu sync.Mutex
	var turns []string
	w := must(worker.New(eng, worker.Config{Concurrency: 1}))
	worker.Handle(w, Import, func(_ context.Context, job worker.Job[File]) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		turns = append(turns, job.Args.Tenant)
		return "imported " + job.Args.Name, nil
	})

	for n := range 10 {
		must(Import.Create(ctx, eng, File{"ada", fmt.Sprint("file ", n)}))
	}
	last := must(Import.Create(ctx, eng, File{"bob", "the only one"}))

	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()
	fmt.Println(must(Import.Await(ctx, eng, last.ID)))
	mu.Lock()
	defer mu.Unlock()
	fmt.Println("bob's turn was number", 1+slices.Index(turns, "bob"))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
