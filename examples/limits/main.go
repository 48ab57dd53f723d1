// Command limits synchronises the shops of several tenants: one at a time for each tenant, over all workers, and only as many
// calls of the shops' API as the owner allows.
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
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

type Shop struct{ Tenant, Name string }

var Sync = engine.Kind[Shop, string]{
	Name: "sync",
	Limits: []engine.Limit[Shop]{
		engine.Concurrency[Shop](1).Per("tenant", func(s Shop) string { return s.Tenant }),
		engine.Rate[Shop](2, 100*time.Millisecond).Per("api", func(Shop) string { return "shops" }),
	},
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	running := counter{now: map[string]int{}, most: map[string]int{}}
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Sync, func(_ context.Context, job worker.Job[Shop]) (string, error) {
		defer running.enter(job.Args.Tenant)()
		return job.Args.Name + " is in sync", nil
	})

	var all []id.ExecutionID
	for _, shop := range []Shop{{"ada", "books"}, {"ada", "maps"}, {"ada", "globes"}, {"bob", "bikes"}} {
		all = append(all, must(Sync.Create(ctx, eng, shop)).ID)
	}
	if wait := must(eng.DescribeExecution(ctx, all[2])).LimitWait; wait != nil {
		fmt.Printf("globes waits for %s %s behind %d\n", wait.Name, wait.Key, wait.Ahead)
	}

	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()
	for _, x := range all {
		fmt.Println(must(Sync.Await(ctx, eng, x)))
	}
	fmt.Println("at most", running.most["ada"], "of ada at once")
}

type counter struct {
	mu        sync.Mutex
	now, most map[string]int
}

// enter counts a running handler of a tenant until the returned function is called.
func (c *counter) enter(tenant string) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[tenant]++
	c.most[tenant] = max(c.most[tenant], c.now[tenant])
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now[tenant]--
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
