package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

func renewals(ctx context.Context, b *Bench) error {
	n := max(1, b.N/10)
	measured := fmt.Sprintf("%d live leases renewed over and over for %s by one caller, 1,000 in a statement; the peer has no leases", n, b.Span)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker, floor: b.Field.Raw}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		holder, ok := c.(contender.Renewer)
		if !ok {
			return nil, errors.New("has no leases")
		}
		if err := enqueue(ctx, c, plain(n)); err != nil {
			return nil, err
		}
		renew, err := holder.Hold(ctx, n)
		if err != nil {
			return nil, err
		}
		began, renewed := time.Now(), 0
		for time.Since(began) < b.Span {
			if err := renew(ctx); err != nil {
				return nil, err
			}
			renewed += n
		}
		return []reading{{name: "renewals", unit: "renewals/s", value: float64(renewed) / time.Since(began).Seconds()}}, nil
	})
}
