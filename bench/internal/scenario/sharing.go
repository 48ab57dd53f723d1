package scenario

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// sharing measures the cost of sharing a database with FlowFabric: adopting executions from its API, and the indexes that
// its server needs.
func sharing(ctx context.Context, b *Bench) error {
	n := 10 * b.N
	measured := fmt.Sprintf("%d executions as FlowFabric creates them, adopted by one loop: alone, then beside a worker that works them off", n)
	if err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, adopt(n)); err != nil {
		return err
	}
	measured = fmt.Sprintf("burn-down of %d executions with the indexes that FlowFabric needs, and without", b.N)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		without, err := burn("burn-down, not shared", b.N, contender.Work{})(ctx, c)
		if err != nil {
			return nil, err
		}
		if err := c.Reset(ctx); err != nil {
			return nil, err
		}
		s := c.(contender.Sharer)
		if err := s.Share(ctx, false); err != nil {
			return nil, err
		}
		with, err := burn("burn-down, shared", b.N, contender.Work{})(ctx, c)
		if err != nil {
			return nil, err
		}
		return append(without, with...), s.Share(ctx, true)
	})
}

func adopt(n int) measure {
	return func(ctx context.Context, c contender.Contender) ([]reading, error) {
		s := c.(contender.Sharer)
		if err := s.Share(ctx, false); err != nil {
			return nil, err
		}
		if err := s.Foreign(ctx, n); err != nil {
			return nil, err
		}
		alone, err := adoptAll(ctx, s, n)
		if err != nil {
			return nil, err
		}
		if err := c.Reset(ctx); err != nil {
			return nil, err
		}
		if err := s.Foreign(ctx, n); err != nil {
			return nil, err
		}
		working, stop := context.WithCancel(ctx)
		defer stop()
		var worker errgroup.Group
		worker.Go(func() error { return c.Run(working, contender.Work{}) })
		beside, err := adoptAll(ctx, s, n)
		if err != nil {
			return nil, err
		}
		stop()
		return []reading{
			{name: "adopt", unit: "executions/s", value: alone},
			{name: "adopt beside a worker", unit: "executions/s", value: beside},
		}, cmp.Or(worker.Wait(), s.Share(ctx, true))
	}
}

// adoptAll waits until all n executions are adopted, by any process, and returns the executions per second.
func adoptAll(ctx context.Context, s contender.Sharer, n int) (float64, error) {
	began := time.Now()
	for {
		adopted, err := s.Adopt(ctx)
		if err != nil {
			return 0, err
		}
		if adopted > 0 {
			continue
		}
		var left bool
		if err := s.Pool().QueryRow(ctx, "SELECT EXISTS (SELECT FROM ff_exec_core WHERE ffx_retry_count IS NULL)").Scan(&left); err != nil {
			return 0, err
		}
		if !left {
			return float64(n) / time.Since(began).Seconds(), nil
		}
	}
}
