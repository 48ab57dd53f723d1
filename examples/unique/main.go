// Command unique keeps work from being done twice at the same time. Three requests to rebuild an index make one
// execution. Edits of a document are indexed once they pause for a moment, with the last text.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Rebuild needs one execution for each shop at a time: until it has ended, another creation makes no second one.
var Rebuild = engine.Kind[string, struct{}]{Name: "rebuild", Unique: &engine.Unique{ByArgs: true}}

// Edit is an edit of a document.
type Edit struct {
	Document string `json:"document"`
	Text     string `json:"text"`
}

// Index waits for a pause in the edits of a document, at most for a minute.
var Index = engine.Kind[Edit, struct{}]{Name: "index", Unique: &engine.Unique{
	Fields: []string{"document"}, IfTaken: engine.ReplaceWaiting, Within: time.Minute,
}}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	first := must(Rebuild.Create(ctx, eng, "toys"))
	for range 2 {
		again := must(Rebuild.Create(ctx, eng, "toys"))
		fmt.Printf("rebuild toys: duplicate %t, the same %t\n", again.Duplicate, again.ID == first.ID)
	}
	index := must(Index.Create(ctx, eng, Edit{"letter", "Dear"}, engine.After(time.Second)))
	for _, text := range []string{"Dear Ada", "Dear Ada, hello"} {
		again := must(Index.Create(ctx, eng, Edit{"letter", text}, engine.After(time.Second)))
		fmt.Printf("index letter: replaced %t\n", again.Replaced)
	}

	w := must(worker.New(eng, worker.Config{}))
	worker.HandleFunc(w, Rebuild, func(_ context.Context, job worker.Job[string]) error {
		fmt.Println("rebuilt", job.Args)
		return nil
	})
	worker.HandleFunc(w, Index, func(_ context.Context, job worker.Job[Edit]) error {
		fmt.Println("indexed", job.Args.Text)
		return nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()
	must(Rebuild.Await(ctx, eng, first.ID))
	must(Index.Await(ctx, eng, index.ID))

	next := must(Rebuild.Create(ctx, eng, "toys"))
	fmt.Println("rebuild toys again: duplicate", next.Duplicate)
	must(Rebuild.Await(ctx, eng, next.ID))
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
