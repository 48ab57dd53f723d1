package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// payloads measures inserts and a burn-down of jobs with large payloads.
func payloads(ctx context.Context, b *Bench) error {
	l := lineup{b.Field.Worker, b.Field.River, b.Field.Raw}
	for _, p := range []struct {
		name       string
		size, jobs int
	}{
		{"1 KiB", 1 << 10, b.N / 2},
		{"16 KiB", 16 << 10, b.N / 10},
	} {
		many := sized(p.jobs, p.size)
		some := many[:max(1, p.jobs/20)]
		batch := min(sizedBatch, len(many))
		measured := fmt.Sprintf("payloads of %s that do not compress, the same bytes on all sides; one by one: %d transactions on one connection; in batches: %d executions. Nothing works them off", p.name, len(some), len(many))
		err := b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			began := time.Now()
			if err := insertBatches(ctx, c, some, 1, 1); err != nil {
				return nil, err
			}
			oneByOne := float64(len(some)) / time.Since(began).Seconds()
			began = time.Now()
			if err := insertBatches(ctx, c, many, batch, 1); err != nil {
				return nil, err
			}
			inBatches := float64(len(many)) / time.Since(began).Seconds()
			return []reading{
				{name: "insert one by one, " + p.name, unit: "executions/s", value: oneByOne},
				{name: fmt.Sprintf("insert in batches of %d, %s", batch, p.name), unit: "executions/s", value: inBatches},
			}, nil
		})
		if err != nil {
			return err
		}
		measured = fmt.Sprintf("%d no-op executions with payloads of %s that do not compress, which all sides decode from JSON", len(many), p.name)
		if err := b.compare(ctx, measured, b.Rounds, l, burnOf("burn-down, "+p.name, many, contender.Work{})); err != nil {
			return err
		}
	}
	return nil
}
