package engine

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// CountFrames returns how many frames the stream of each lease's attempt has, trimmed ones included, in input order. An
// attempt that does not exist has none. It does not compare the lease: only its holder appends.
//
// Errors: [fferr.ErrInvalidInput] for more than [MaxBatch] leases. One statement; takes no locks.
func (e *Engine) CountFrames(ctx context.Context, leases []Lease) ([]int64, error) {
	const op = "count frames"
	if err := core.CheckBatch(len(leases)); err != nil {
		return nil, core.Wrap(op, err)
	}
	for _, l := range leases {
		if err := e.c.CheckLease(l.Fence); err != nil {
			return nil, core.Wrap(op, err)
		}
	}
	var counts []int64
	err := e.c.Read(ctx, func(conn db.DBTX) (err error) {
		counts, err = e.countFrames(ctx, conn, leases)
		return err
	})
	return counts, core.Wrap(op, err)
}

func (e *Engine) countFrames(ctx context.Context, conn db.DBTX, leases []Lease) ([]int64, error) {
	keys := core.NewLeaseArrays(len(leases))
	ords := make([]int32, len(leases))
	for i, l := range leases {
		keys.Add(l.Fence)
		ords[i] = int32(i)
	}
	rows, err := e.c.Q.ReadStreams(ctx, conn, db.ReadStreamsParams{
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

// movedStream returns the error for a stream, locked by the caller, that has another number of frames than its batch asks
// for.
func (e *Engine) movedStream(ctx context.Context, tx *core.Txn, b *FrameBatch) error {
	counts, err := e.countFrames(ctx, tx, []Lease{b.Lease})
	if err != nil {
		return err
	}
	return &fferr.StreamMovedError{Frames: counts[0]}
}
