package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
	"github.com/flowfabric/flowfabric-go/bench/internal/network"
)

// counted is the number of calls of each operation. The first call prepares its statements and does not count.
const counted = 5

// roundTrips counts the round trips of each operation, that is how often it waits for the server.
func roundTrips(ctx context.Context, b *Bench) error {
	measured := fmt.Sprintf("round trips as a proxy before the server counts them: how often a connection sends after the server has answered it; median of %d calls with statements prepared, without the notifications, for which no call waits", counted)
	l := lineup{ours: b.Field.Worker, peer: b.Field.River}
	return b.compare(ctx, measured, 1, l, func(ctx context.Context, c contender.Contender) (_ []reading, err error) {
		operator, ok := c.(contender.Operator)
		if !ok {
			return nil, errors.New("has no operations to be counted")
		}
		databaseURL := c.Pool().Config().ConnString()
		proxy, err := network.Listen(databaseURL, 0)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, proxy.Close()) }()
		through, err := proxy.Through(databaseURL)
		if err != nil {
			return nil, err
		}
		config, err := pgxpool.ParseConfig(through)
		if err != nil {
			return nil, err
		}
		config.MaxConns = 1 // statements are prepared once
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		all, err := operator.Operations(pool)
		if err != nil {
			return nil, err
		}
		var got []reading
		for _, operation := range all {
			trips, err := countTrips(ctx, proxy, operation)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", operation.Name, err)
			}
			got = append(got, reading{name: operation.Name, unit: "round trips", value: trips, less: true})
		}
		return got, nil
	})
}

func countTrips(ctx context.Context, proxy *network.Proxy, operation contender.Operation) (float64, error) {
	var trips []float64
	for range 1 + counted {
		call, err := operation.Ready(ctx)
		if err != nil {
			return 0, err
		}
		before := proxy.RoundTrips()
		if err := call.Do(ctx); err != nil {
			return 0, err
		}
		trips = append(trips, float64(proxy.RoundTrips()-before))
		if call.After == nil {
			continue
		}
		if err := call.After(ctx); err != nil {
			return 0, err
		}
	}
	return median(trips[1:]), nil
}
