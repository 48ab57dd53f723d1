package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	uniqueKeys  = 200_000
	uniquePairs = 60
)

var errNoUnique = errors.New("creates no unique work")

// uniqueWork compares the creation of unique and of plain executions, in pairs.
func uniqueWork(ctx context.Context, b *Bench) error {
	measured := fmt.Sprintf("%d pairs of a batch of unique executions, each with a key of its own, and one of plain ones, in turns, beside %d keys; then the same one by one", uniquePairs, uniqueKeys)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Engine}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		creator, ok := c.(contender.UniqueCreator)
		if !ok {
			return nil, errNoUnique
		}
		if err := creator.FillKeys(ctx, uniqueKeys); err != nil {
			return nil, err
		}
		batches, err := pairs(ctx, creator, 1000, false)
		if err != nil {
			return nil, err
		}
		single, err := pairs(ctx, creator, 50, true)
		return []reading{
			{name: "unique creations in batches of 1000, time to plain ones", unit: "times", value: batches, less: true},
			{name: "unique creations one by one, time to plain ones", unit: "times", value: single, less: true},
		}, err
	})
}

// pairs returns the median ratio of the times of n unique creations and of as many plain ones.
func pairs(ctx context.Context, c contender.UniqueCreator, n int, oneByOne bool) (float64, error) {
	ratios := make([]float64, 0, uniquePairs)
	for round := range uniquePairs + 1 {
		plain, unique, err := c.PairOfBatches(ctx, n, oneByOne, round%2 == 0)
		if err != nil {
			return 0, err
		}
		if round > 0 { // the first prepares the statements
			ratios = append(ratios, unique.Seconds()/plain.Seconds())
		}
	}
	return median(ratios), nil
}
