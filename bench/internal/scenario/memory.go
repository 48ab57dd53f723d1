package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

func memory(ctx context.Context, b *Bench) error {
	measured := fmt.Sprintf("burn-down of %d executions: what the process, which does nothing else, allocates from the workers' start to the last commit, and its largest heap", b.N)
	return b.compare(ctx, measured, b.Rounds, lineup{b.Field.Worker, b.Field.River, b.Field.Raw}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		if err := enqueue(ctx, c, plain(b.N)); err != nil {
			return nil, err
		}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		k := hire(ctx, c, contender.Work{}, b.N)
		watching, stop := context.WithCancel(ctx)
		peak := make(chan uint64, 1)
		go func() { peak <- peakHeap(watching) }()
		err := k.wait(ctx)
		runtime.ReadMemStats(&after)
		stop()
		largest := <-peak
		if err = errors.Join(err, k.dismiss()); err != nil {
			return nil, err
		}
		each := func(total uint64) float64 { return float64(total) / float64(b.N) }
		return []reading{
			{name: "allocated in a burn-down", unit: "bytes/execution", value: each(after.TotalAlloc - before.TotalAlloc), less: true},
			{name: "allocations in a burn-down", unit: "allocations/execution", value: each(after.Mallocs - before.Mallocs), less: true},
			{name: "largest heap in a burn-down", unit: "MB", value: float64(largest) / 1e6, less: true},
		}, nil
	})
}

// peakHeap samples the size of all objects on the heap until ctx ends, including those not yet collected, and returns the
// largest.
func peakHeap(ctx context.Context) uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	var peak uint64
	for {
		metrics.Read(sample)
		peak = max(peak, sample[0].Value.Uint64())
		select {
		case <-ctx.Done():
			return peak
		case <-look.C:
		}
	}
}
