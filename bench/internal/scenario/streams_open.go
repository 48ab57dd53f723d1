package scenario

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

// openStreams measures the cost of many open streams to their process, to the server, and to completions.
func openStreams(ctx context.Context, b *Bench) error {
	f := b.Field
	n := max(100, b.N/10)
	measured := fmt.Sprintf("%d streams of running executions, each followed by a tail of one process that waits, for %s; the process's heap and stacks after a collection", n, b.Span)
	err := b.compare(ctx, measured, 1, lineup{ours: f.Worker}, func(ctx context.Context, _ contender.Contender) ([]reading, error) {
		return openOnce(ctx, f.Worker, n, b.Span)
	})
	if err != nil {
		return err
	}
	parked := max(10, b.N/100)
	measured = fmt.Sprintf("burn-down of %d executions; ours beside %d tails that wait, in the workers' process, the peer without", b.N, parked)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: tailing{f.Worker, parked}, peer: f.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		run := burn("burn-down beside open streams", b.N, contender.Work{})
		beside, ok := c.(tailing)
		if !ok {
			return run(ctx, c)
		}
		leave, err := beside.follow(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		return run(ctx, beside.Worker)
	})
}

// idleLane has executions no worker claims, whose streams stay open.
const idleLane = "streaming"

// waitingStreams creates n executions no worker claims.
func waitingStreams(ctx context.Context, eng *engine.Engine, n int) ([]id.ExecutionID, error) {
	var all []id.ExecutionID
	for len(all) < n {
		specs := make([]engine.ExecutionSpec, min(n-len(all), engine.MaxBatch))
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Lane: idleLane, Kind: "stream"}
		}
		created, err := eng.CreateExecutions(ctx, specs)
		if err != nil {
			return nil, err
		}
		for _, c := range created {
			if c.Err != nil {
				return nil, c.Err
			}
			all = append(all, c.Value.ID)
		}
	}
	return all, nil
}

// tailAll follows executions until ctx ends, and returns a function that waits for the end of the tails.
func tailAll(ctx context.Context, eng *engine.Engine, executions []id.ExecutionID) func() {
	var following sync.WaitGroup
	for _, x := range executions {
		following.Go(func() {
			for range stream.Tail(ctx, eng, x, stream.TailOptions{}) {
			}
		})
	}
	return following.Wait
}

// openOnce opens n tails in an engine of its own, and counts its statements and bytes for a while.
func openOnce(ctx context.Context, w *contender.Worker, n int, span time.Duration) ([]reading, error) {
	executions, err := waitingStreams(ctx, w.Events(), n)
	if err != nil {
		return nil, err
	}
	eng, count, stop, err := anotherProcess(ctx, w, engine.Config{})
	if err != nil {
		return nil, err
	}
	defer stop()
	empty := inUse()
	tailing, leave := context.WithCancel(ctx)
	wait := tailAll(tailing, eng, executions)
	defer wait()
	defer leave()
	if err := listening(ctx, w); err != nil {
		return nil, err
	}
	if err := pause(ctx, span/2); err != nil {
		return nil, err
	}
	before, began := count.n.Load(), time.Now()
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	perSecond := float64(count.n.Load()-before) / time.Since(began).Seconds()
	return []reading{
		{name: "open streams, statements", unit: "statements/s", value: perSecond, less: true},
		{name: "open streams, memory of each", unit: "KB", value: float64(inUse()-empty) / float64(n) / 1000, less: true},
	}, nil
}

// listening waits until a session that listens for streams is idle: its last LISTEN is done.
func listening(ctx context.Context, w *contender.Worker) error {
	for {
		var quiet bool
		err := w.Pool().QueryRow(ctx, `
			select exists (
				select from pg_stat_activity
				where query ilike '%listen "ff_stream_%' and state = 'idle' and state_change < now() - interval '2 seconds')`,
		).Scan(&quiet)
		if err != nil || quiet {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// inUse returns the bytes of the heap and of the stacks after a collection.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// tailing is the library beside tails that wait, in the same process.
type tailing struct {
	*contender.Worker
	n int
}

// Name implements [contender.Contender].
func (t tailing) Name() string { return fmt.Sprintf("%s, %d open streams", t.Worker.Name(), t.n) }

// follow opens the tails, and returns a function that ends them.
func (t tailing) follow(ctx context.Context) (func(), error) {
	executions, err := waitingStreams(ctx, t.Events(), t.n)
	if err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(ctx)
	wait := tailAll(ctx, t.Events(), executions)
	return func() { leave(); wait() }, nil
}
