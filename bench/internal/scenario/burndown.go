package scenario

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// burn measures how fast n existing jobs are processed.
func burn(name string, n int, w contender.Work) measure {
	return burnOf(name, plain(n), w)
}

func burnOf(name string, jobs []contender.Job, w contender.Work) measure {
	n := len(jobs)
	return func(ctx context.Context, c contender.Contender) ([]reading, error) {
		if err := enqueue(ctx, c, jobs); err != nil {
			return nil, err
		}
		rate, course, err := drainWatched(ctx, c, w, n)
		if err != nil {
			return nil, err
		}
		return []reading{{name: name, unit: "executions/s", value: rate, series: course}}, c.Check(ctx, n)
	}
}

const equalConcurrency = 1000

func burnDown(ctx context.Context, b *Bench) error {
	f := b.Field
	measured := fmt.Sprintf("%d no-op executions, from when the workers look for them to the last commit; every contender at its own settings", b.N)
	err := b.compare(ctx, measured, b.Rounds, lineup{f.Worker, f.River, f.Raw}, burn("burn-down", b.N, contender.Work{}))
	if err != nil {
		return err
	}
	one := contender.Work{Workers: 8, Concurrency: 1, Batch: 1}
	n := b.N / 10
	if b.Quick {
		n = b.N / 20
	}
	measured = fmt.Sprintf("%d executions, one at a time in each of eight workers, one per claim; each River client still completes in batches, every 50 to 250 ms", n)
	err = b.compare(ctx, measured, b.Rounds, lineup{f.Worker, f.River.Tuned(contender.RiverFastest()), f.Raw}, burn("burn-down, one per claim, eight workers", n, one))
	if err != nil || b.Quick {
		return err
	}
	measured = fmt.Sprintf("%d executions, the library's loop of claim and complete without a worker", b.N)
	err = b.compare(ctx, measured, b.Rounds, lineup{f.Engine, f.River, f.Raw}, burn("burn-down, engine alone", b.N, contender.Work{}))
	if err != nil {
		return err
	}
	measured = fmt.Sprintf("%d executions, the engine alone, one per claim and completion, eight at once", n)
	err = b.compare(ctx, measured, b.Rounds, lineup{ours: f.Engine, floor: f.Raw}, burn("burn-down, engine alone, one per claim, eight loops", n, one))
	if err != nil {
		return err
	}
	equal := contender.Work{Concurrency: equalConcurrency}
	measured = fmt.Sprintf("%d executions, %d handlers at once on both sides", b.N, equalConcurrency)
	err = b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker, peer: f.River.Tuned(contender.RiverFastest())}, burn("burn-down, equal concurrency", b.N, equal))
	if err != nil {
		return err
	}
	measured = fmt.Sprintf("%d executions; River fetches at most its 100 workers' worth every 100 ms, both its defaults", n)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: f.Worker, peer: f.River.Tuned(contender.RiverDefaults())}, burn("burn-down, peer at its client's defaults", n, contender.Work{}))
}
