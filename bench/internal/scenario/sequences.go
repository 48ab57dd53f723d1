package scenario

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// sequences measures work that runs one at a time per key, beside work that doesn't.
func sequences(ctx context.Context, b *Bench) error {
	for _, way := range []struct {
		name       string
		keys, jobs int
	}{
		{"without a sequence", 0, 10_000},
		{"in 1,000 sequences of ten", 1000, 10_000},
		{"in one sequence", 1, 1000},
	} {
		measured := fmt.Sprintf("%d executions %s, created in batches of 1000, until a worker has completed them", way.jobs, way.name)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			took, err := drainSequences(ctx, b, c, way.keys, way.jobs)
			return []reading{{name: "executions " + way.name, unit: "executions/s", value: float64(way.jobs) / took.Seconds()}}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// drainSequences creates executions of a number of sequences in turn, 0 for none, and returns the time until all have run.
func drainSequences(ctx context.Context, b *Bench, c contender.Contender, keys, jobs int) (time.Duration, error) {
	config := c.Pool().Config()
	config.MaxConns = 30 // a worker has a connection for each job of the background work
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{Log: b.Log})
	if err != nil {
		return 0, err
	}
	kind := engine.Kind[int, struct{}]{Name: "sequenced"}
	if keys > 0 {
		kind.Sequence = func(n int) engine.Sequence { return engine.Sequence{Key: fmt.Sprint(n % keys)} }
	}
	for n := 0; n < jobs; {
		specs := make([]engine.ExecutionSpec, 1000)
		for i := range specs {
			specs[i], n = kind.Spec(n), n+1
		}
		if _, err := eng.CreateExecutions(ctx, specs); err != nil {
			return 0, err
		}
	}
	if err := rest(ctx, c); err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var left atomic.Int64
	left.Store(int64(jobs))
	w, err := worker.New(eng, worker.Config{Log: b.Log})
	if err != nil {
		return 0, err
	}
	worker.Handle(w, kind, func(context.Context, worker.Job[int]) (struct{}, error) {
		if left.Add(-1) == 0 {
			stop()
		}
		return struct{}{}, nil
	})
	began := time.Now()
	err = w.Run(running)
	return time.Since(began), err
}
