// Package example is added to examples/agent, as a file of it.
package example

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Work runs a worker until the agent has done its work. When it waits, a person approves.
func Work() {
	var given struct{ DatabaseURL, ModelURL, Name string }
	must(0, json.NewDecoder(os.Stdin).Decode(&given))
	modelURL = given.ModelURL
	ctx, stop := context.WithCancel(context.Background())
	config := must(pgxpool.ParseConfig(given.DatabaseURL))
	config.ConnConfig.RuntimeParams["application_name"] = given.Name
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip for each statement
	pool := must(pgxpool.NewWithConfig(ctx, config))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	w := must(worker.New(eng, worker.Config{
		LeaseTTL: time.Minute, Concurrency: 1, NoReconcile: true, SharePool: true,
		Observer: person(func(work engine.Claimed, settled worker.Settlement) {
			switch settled {
			case worker.Suspended:
				must(0, Approved.Send(ctx, eng, work.ID, "ada", engine.Once("person")))
			case worker.Completed:
				stop()
			}
		}),
	}))
	worker.Handle(w, Clean, clean)
	must(0, w.Run(ctx))
}

type person func(engine.Claimed, worker.Settlement)

func (p person) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	claimed := *work
	return ctx, func(r worker.Report) { p(claimed, r.Settlement) }
}

func (person) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}
