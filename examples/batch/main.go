// Command batch works on 1,000 items in steps of 50. Its worker stops halfway, in the middle of a step, and a second one
// goes on with that step: some of its 50 items are worked on twice, all others once, and each is counted once.
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

const size = 50 // items in a step: as many as may be repeated

// Import names work on so many items. Its result counts them.
var Import = engine.Kind[int, int]{Name: "import"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	store := &store{times: make(map[int]int)}

	first, kill := context.WithCancel(ctx)
	store.interrupt = func() {
		fmt.Println("the first worker stops")
		kill()
	}
	created := must(Import.Create(ctx, eng, 1000))
	run(first, eng, store)
	progress := must(eng.ExecutionProgress(ctx, created.ID))
	fmt.Printf("%d%%: %s\n", *progress.Percent, progress.Message)

	var working sync.WaitGroup
	working.Go(func() { run(ctx, eng, store) })
	defer working.Wait()
	defer stop()
	fmt.Println("counted:", must(Import.Await(ctx, eng, created.ID)))
	fmt.Println(store.summary())
}

// run runs a worker until ctx ends. It leaves a handler no time to finish.
func run(ctx context.Context, eng *engine.Engine, store *store) {
	w := must(worker.New(eng, worker.Config{DrainTimeout: time.Millisecond}))
	worker.Handle(w, Import, func(ctx context.Context, job worker.Job[int]) (int, error) {
		counted := 0
		for from := 0; from < job.Args; from += size {
			n, err := worker.Step(ctx, job, worker.Key("items", from), func(ctx context.Context) (int, error) {
				to := min(from+size, job.Args)
				for item := from; item < to; item++ {
					if err := store.put(ctx, item); err != nil {
						return 0, err
					}
				}
				return to - from, job.Progress(ctx, 100*to/job.Args, fmt.Sprintf("%d items", to))
			})
			if err != nil {
				return 0, err
			}
			counted += n
		}
		return counted, nil
	})
	must(0, w.Run(ctx))
}

// store takes the place of another system that takes an item twice without harm.
type store struct {
	mu        sync.Mutex
	times     map[int]int // by item
	interrupt func()
}

func (s *store) put(ctx context.Context, item int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times[item]++; item == 520 && s.times[item] == 1 {
		s.interrupt()
		<-ctx.Done() // the drain timeout has passed
		return ctx.Err()
	}
	return nil
}

func (s *store) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	twice, more := 0, 0
	for _, n := range s.times {
		switch {
		case n == 2:
			twice++
		case n > 2:
			more++
		}
	}
	return fmt.Sprintf("items: %d, twice: %d, more often: %d", len(s.times), twice, more)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
