package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/network"
)

// roundTrip is the distance to the server of scenario x.
const roundTrip = time.Millisecond

// distant measures the contenders on separate databases behind a network of a millisecond, where round trips count.
func distant(ctx context.Context, b *Bench) (err error) {
	var proxy *network.Proxy
	defer func() {
		if proxy != nil {
			err = errors.Join(err, proxy.Close())
		}
	}()
	far, err := contender.Open(ctx, func(ctx context.Context, name string) (string, error) {
		databaseURL, err := b.Create(ctx, "distant_"+name)
		if err == nil && proxy == nil {
			proxy, err = network.Listen(databaseURL, roundTrip)
		}
		if err != nil {
			return "", err
		}
		return proxy.Through(databaseURL)
	}, b.Log, "ours", "river", "raw")
	if err != nil {
		return err
	}
	defer far.Close()

	there := fmt.Sprintf("; server and workers %s apart, there and back", roundTrip)
	all := lineup{far.Worker, far.River, far.Raw}
	some, many := plain(max(10, b.N/100)), plain(b.N)
	size := min(1000, b.N)
	farTurns, turn := turnsOf(b, away("a turn"))
	for _, c := range []struct {
		measured string
		lineup   lineup
		measure  measure
	}{
		{"statements that do nothing, on one connection", all, pings},
		{fmt.Sprintf("%d transactions on one connection", len(some)), all, farInsert("insert one by one", len(some), func(ctx context.Context, c contender.Contender) error {
			return insertBatches(ctx, c, some, 1, 1)
		})},
		{fmt.Sprintf("%d transactions, each with a row of the caller's", len(some)), all, farInsert("insert in the caller's transaction", len(some), func(ctx context.Context, c contender.Contender) error {
			return insertBeside(ctx, c, some)
		})},
		{fmt.Sprintf("%d executions in batches", len(many)), all, farInsert(fmt.Sprintf("insert in batches of %d", size), len(many), func(ctx context.Context, c contender.Contender) error {
			return insertBatches(ctx, c, many, size, 1)
		})},
		{fmt.Sprintf("%d no-op executions; every contender at its own settings", b.N), all, burn(away("burn-down"), b.N, contender.Work{})},
		{
			fmt.Sprintf("%d executions, one at a time in each of eight workers, one per claim; each River client still completes in batches, every 50 to 250 ms", b.N/20),
			lineup{far.Worker, far.River.Tuned(contender.RiverFastest()), far.Raw},
			burn(away("burn-down, one per claim, eight workers"), b.N/20, contender.Work{Workers: 8, Concurrency: 1, Batch: 1}),
		},
		{
			fmt.Sprintf("one execution every %s while nothing else happens; from when the insert returned to the handler's start; the floor polls every millisecond", idleFor),
			lineup{far.Worker, far.River.Tuned(contender.RiverDefaults()), far.Raw},
			func(ctx context.Context, c contender.Contender) ([]reading, error) {
				waits, err := oneByOne(ctx, c, max(5, min(idleTotal, b.N/20)/b.Rounds))
				if err != nil {
					return nil, err
				}
				return latencies(away("commit to start, idle"), waits), nil
			},
		},
		{farTurns, lineup{ours: far.Worker, floor: far.Raw}, turn},
	} {
		if err := b.compare(ctx, c.measured+there, b.Rounds, c.lineup, c.measure); err != nil {
			return err
		}
	}
	return nil
}

// away returns the name of a measurement that also exists for a near server.
func away(name string) string { return fmt.Sprintf("%s away: %s", roundTrip, name) }

// farInsert measures how fast n jobs are inserted.
func farInsert(name string, n int, do func(context.Context, contender.Contender) error) measure {
	return func(ctx context.Context, c contender.Contender) ([]reading, error) {
		began := time.Now()
		err := do(ctx, c)
		return []reading{{name: away(name), unit: "executions/s", value: float64(n) / time.Since(began).Seconds()}}, err
	}
}

// pings measures the distance itself.
func pings(ctx context.Context, c contender.Contender) ([]reading, error) {
	conn, err := c.Pool().Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	took := make([]time.Duration, 200)
	for i := range took {
		began := time.Now()
		if err := conn.Ping(ctx); err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
	}
	return latencies(away("nothing, there and back"), took), nil
}
