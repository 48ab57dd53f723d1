package contender

import (
	"context"
	"log/slog"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schema"
)

// Sharer is a contender whose database FlowFabric can use as well.
type Sharer interface {
	Contender
	// Foreign creates n executions as FlowFabric does.
	Foreign(ctx context.Context, n int) error
	// Adopt adopts some of them and returns their number.
	Adopt(ctx context.Context) (int, error)
	// Share creates the triggers and indexes that FlowFabric needs, or drops them.
	Share(ctx context.Context, undo bool) error
}

// Foreign implements [Sharer].
func (o *ours) Foreign(ctx context.Context, n int) error {
	_, err := o.pool.Exec(ctx, `
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
			created_at_ms, payload, raw_fields
		)
		SELECT
			$1::smallint, gen_random_uuid(), $2::text, 'submitted', 'unowned', 'eligible_now', 'waiting', 'pending',
			1800000000000 + i, $3::bytea,
			jsonb_build_object(
				'namespace', 'default', 'execution_kind', $4::text, 'creator_identity', '', 'tags', '{}'::jsonb,
				'last_mutation_at', '1800000000000', 'total_attempt_count', '0'
			)
		FROM generate_series(1, $5::integer) AS i`,
		id.Partitions{}.LanePartition(engine.DefaultLane), string(engine.DefaultLane), args{Num: 1}.encode(), kind, n)
	return err
}

// Adopt implements [Sharer].
func (o *ours) Adopt(ctx context.Context) (int, error) {
	return o.eng.Maintenance().Adopt(ctx, engine.MaxBatch)
}

// Share implements [Sharer].
func (o *ours) Share(ctx context.Context, undo bool) error {
	change := schema.Share[string]
	if undo {
		change = schema.Unshare[string]
	}
	_, err := change(ctx, o.pool.Config().ConnString(), schema.Options{Log: slog.New(slog.DiscardHandler)})
	return err
}
