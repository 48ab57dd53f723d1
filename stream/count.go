package stream

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Count returns the number of frames in the stream of each lease's attempt, trimmed frames included, in input order. An
// attempt that does not exist has none. Count does not check the lease: only the holder appends.
//
// Errors: [fferr.ErrInvalidInput] for more than [engine.MaxBatch] leases. One statement; takes no locks.
func Count(ctx context.Context, eng *engine.Engine, leases []engine.Lease) ([]int64, error) {
	c := core.Of(eng)
	const op = "count frames"
	if err := core.CheckBatch(len(leases)); err != nil {
		return nil, core.Wrap(op, err)
	}
	for _, l := range leases {
		if err := c.CheckLease(l.Fence); err != nil {
			return nil, core.Wrap(op, err)
		}
	}
	var counts []int64
	err := c.Read(ctx, func(conn db.DBTX) (err error) {
		counts, err = countFrames(ctx, c, conn, leases)
		return err
	})
	return counts, core.Wrap(op, err)
}

func countFrames(ctx context.Context, c *core.Core, conn db.DBTX, leases []engine.Lease) ([]int64, error) {
	keys := core.NewLeaseArrays(len(leases))
	ords := make([]int32, len(leases))
	for i, l := range leases {
		keys.Add(l.Fence)
		ords[i] = int32(i)
	}
	rows, err := c.Q.ReadStreams(ctx, conn, db.ReadStreamsParams{
		PartitionKeys: keys.Partitions, ExecutionIDs: keys.Executions, AttemptIndexes: keys.Attempts, Ords: ords,
	})
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(leases))
	for _, row := range rows {
		counts[row.Ord] = row.Frames
	}
	return counts, nil
}

// movedStream returns the error for a stream with another number of frames than the batch expects. The caller holds the lock.
func movedStream(ctx context.Context, c *core.Core, tx *core.Txn, b *Batch) error {
	counts, err := countFrames(ctx, c, tx, []engine.Lease{b.Lease})
	if err != nil {
		return err
	}
	return &fferr.StreamMovedError{Frames: counts[0]}
}
