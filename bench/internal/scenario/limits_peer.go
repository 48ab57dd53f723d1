package scenario

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/engine"
)

const (
	limitPartitions = 16
	ratePeriod      = 100 * time.Millisecond
)

// limitPair has the same limit on both sides.
type limitPair struct {
	name    string
	loose   bool
	rate    bool
	work    contender.Work
	limits  []engine.Limit[contender.Args]
	parts   int // partitions of the peer's queue
	options []dbos.QueueOption
}

// limitPairs returns the kinds of limits both sides have, each so it doesn't bind and so it does.
func limitPairs() (pairs []limitPair) {
	partition := func(a contender.Args) string { return strconv.Itoa(a.Num % limitPartitions) }
	for _, n := range []int{looseLimit, places} {
		pair := func(p limitPair) {
			p.loose = n == looseLimit
			p.name += map[bool]string{true: " that does not bind", false: fmt.Sprint(" of ", places)}[p.loose]
			pairs = append(pairs, p)
		}
		one := engine.Concurrency[contender.Args](n)
		pair(limitPair{
			name: "global concurrency", limits: []engine.Limit[contender.Args]{one},
			options: []dbos.QueueOption{dbos.WithGlobalConcurrency(n)},
		})
		pair(limitPair{
			// Ours limits a worker's handlers; the largest number of handlers never binds with no-op work.
			name: "worker concurrency", work: contender.Work{Concurrency: min(n, 10_000)},
			options: []dbos.QueueOption{dbos.WithWorkerConcurrency(n)},
		})
		pair(limitPair{
			name: "concurrency of each partition", limits: []engine.Limit[contender.Args]{one.Per("partition", partition)},
			parts: limitPartitions, options: []dbos.QueueOption{dbos.WithPartitionConcurrency(n)},
		})
		pair(limitPair{
			name: fmt.Sprintf("rate in %s", ratePeriod), rate: true, limits: []engine.Limit[contender.Args]{engine.Rate[contender.Args](n, ratePeriod)},
			options: []dbos.QueueOption{dbos.WithRateLimiter(&dbos.RateLimiter{Limit: n, Period: ratePeriod})},
		})
	}
	return pairs
}

// limitsBesideDBOS measures no-op work with the same limits on both sides.
func limitsBesideDBOS(ctx context.Context, b *Bench) error {
	for i, p := range limitPairs() {
		n := max(50, b.N/20)
		switch {
		case p.loose:
		case p.rate: // it sets the pace of both
			n = max(2*places, min(b.N/50, int(b.Span/ratePeriod)*places/2))
		default:
			n = max(50, b.N/50)
		}
		kind := contender.Kind{Name: fmt.Sprint("limited-", i), Limits: p.limits}
		l := lineup{ours: b.Field.Worker.As(p.name, kind), peer: b.Field.DBOS.Limited(p.name, p.parts, p.options...)}
		measured := fmt.Sprintf("%d no-op executions by one process on each side, %s; the peer's are workflows of a queue that is polled every 5 ms, counted every 20 ms", n, p.name)
		if err := b.compare(ctx, measured, b.Rounds, l, burn(p.name, n, p.work)); err != nil {
			return err
		}
	}
	return nil
}
