// Command poll submits a job to a slow service and asks for it until it is done. Each question is a step, and the pauses
// between them hold no worker. The service gets one job, and each question is asked once.
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

// Render names a film at a polled service. Its result is the address of the film.
var Render = engine.Kind[string, string]{Name: "render-film"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	farm := new(farm)

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Render, func(ctx context.Context, job worker.Job[string]) (string, error) {
		ticket, err := worker.Step(ctx, job, "submit", func(ctx context.Context) (string, error) {
			return farm.submit(job.Args, worker.IdempotencyKey(ctx))
		})
		if err != nil {
			return "", err
		}
		pause := 10 * time.Millisecond
		for i := 1; ; i++ {
			url, err := worker.Step(ctx, job, worker.Key("ask", i), func(context.Context) (string, error) {
				return farm.ask(ticket)
			})
			if err != nil || url != "" {
				return url, err
			}
			if err := worker.Sleep(ctx, job, worker.Key("pause", i), pause); err != nil {
				return "", err
			}
			pause = min(2*pause, time.Hour) // each question is two of at most 10,000 steps
		}
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	created := must(Render.Create(ctx, eng, "film-7"))
	fmt.Println("done:", must(Render.Await(ctx, eng, created.ID)))
	for _, step := range must(eng.Steps(ctx, created.ID)) {
		fmt.Println(step.Name, step.Outcome)
	}
}

// farm takes the place of a service that renders films. It is done at the third question, and recognises repeated keys.
type farm struct {
	mu        sync.Mutex
	films     map[string]string // by key
	questions int
}

func (f *farm) submit(film, key string) (ticket string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.films == nil {
		f.films = make(map[string]string)
	}
	if f.films[key] == "" {
		f.films[key] = film
		fmt.Println("submitted", film)
	}
	return key, nil
}

// ask returns the address of a film, or nothing while it is being rendered.
func (f *farm) ask(ticket string) (url string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.questions++; f.questions < 3 {
		fmt.Printf("question %d: not yet\n", f.questions)
		return "", nil
	}
	return "https://example.com/" + f.films[ticket], nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
