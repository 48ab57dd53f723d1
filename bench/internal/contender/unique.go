package contender

import (
	"context"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// UniqueCreator creates unique executions beside plain ones.
type UniqueCreator interface {
	// FillKeys inserts n keys of other unique work.
	FillKeys(ctx context.Context, n int) error

	// PairOfBatches creates n plain executions and n unique ones with new keys, in one batch each or one by one, and
	// returns the time of each. uniqueFirst is the order.
	PairOfBatches(ctx context.Context, n int, oneByOne, uniqueFirst bool) (plain, unique time.Duration, err error)
}

func (o *ours) FillKeys(ctx context.Context, n int) error {
	_, err := o.pool.Exec(ctx, `
		INSERT INTO ffx_unique (key, lasts, taken, holder_partition_key, execution_id)
		SELECT k.key, 'unfinished', 0, 0, gen_random_uuid()
		FROM (SELECT gen_random_uuid() AS key FROM generate_series(1, $1)) AS k`, n)
	if err == nil {
		_, err = o.pool.Exec(ctx, "VACUUM ANALYZE ffx_unique")
	}
	return err
}

// uniqueNumber makes the payloads of unique jobs differ.
var uniqueNumber int

func (o *ours) PairOfBatches(ctx context.Context, n int, oneByOne, uniqueFirst bool) (plain, unique time.Duration, err error) {
	specs := func(u *engine.Unique) []engine.ExecutionSpec {
		specs := make([]engine.ExecutionSpec, n)
		for i := range specs {
			uniqueNumber++
			specs[i] = engine.ExecutionSpec{Kind: kind, Unique: u, Payload: fmt.Appendf(nil, `{"order":%d,"by":"ada"}`, uniqueNumber)}
		}
		return specs
	}
	create := func(u *engine.Unique) (time.Duration, error) {
		specs := specs(u)
		size := n
		if oneByOne {
			size = 1
		}
		began := time.Now()
		for i := 0; i < n; i += size {
			created, err := o.eng.CreateExecutions(ctx, specs[i:i+size])
			if err != nil {
				return 0, err
			}
			for _, c := range created {
				if c.Err != nil || c.Value.Duplicate {
					return 0, fmt.Errorf("created %+v: %w", c.Value, c.Err)
				}
			}
		}
		return time.Since(began), nil
	}
	byArgs := &engine.Unique{ByArgs: true}
	if uniqueFirst {
		if unique, err = create(byArgs); err == nil {
			plain, err = create(nil)
		}
		return plain, unique, err
	}
	if plain, err = create(nil); err == nil {
		unique, err = create(byArgs)
	}
	return plain, unique, err
}
