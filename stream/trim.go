package stream

import (
	"context"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// keptSummaries is how many summary frames a stream keeps. The document has the contents of the others.
const keptSummaries = 64

// insertFrames inserts the frames of a batch, with ids ending with at, and deletes frames beyond the limits of the stream.
// kept is the number of summary frames.
func insertFrames(ctx context.Context, c *core.Core, tx *core.Txn, f *frameColumns, at *db.MoveStreamRow, meta *db.GetStreamMetaRow, kept int) error {
	steps := []core.Step{func(conn db.DBTX) error { return c.Q.InsertFrames(ctx, conn, f.params(at)) }}
	partition, execution, attempt := f.Lease.Execution.Partition(), f.Lease.Execution.UUID(), int32(f.Lease.Attempt)
	if f.bestEffort > 0 {
		put := rated(c, f, at, meta)
		put.PartitionKey, put.ExecutionID, put.AttemptIndex = partition, execution, attempt
		steps = append(steps, func(conn db.DBTX) error { return c.Q.PutStreamMeta(ctx, conn, put) })
	}
	if excess := kept - keptSummaries; len(f.patches) > 0 && excess >= trimLag(keptSummaries) {
		steps = append(steps, func(conn db.DBTX) error {
			return c.Q.TrimSummaryFrames(ctx, conn, db.TrimSummaryFramesParams{
				PartitionKey: partition, ExecutionID: execution, AttemptIndex: attempt, Excess: int32(excess),
			})
		})
	}
	var trim durableTrim
	if trim.add(c.Streams.DurableMaxlen, f.Lease.Fence, at.Durable, int(f.durable)); !trim.empty() {
		steps = append(steps, func(conn db.DBTX) error { return c.Q.TrimDurableFrames(ctx, conn, trim.params()) })
	}
	return pgtx.InOneTrip(ctx, tx, steps...)
}

// rated returns the rate of a stream's best-effort frames after the frames of a batch, and the frames to delete.
func rated(c *core.Core, f *frameColumns, at *db.MoveStreamRow, meta *db.GetStreamMetaRow) db.PutStreamMetaParams {
	cfg := &c.Streams.BestEffort
	rate := frameRate{known: meta.Known, hz: meta.RateHz, lastMs: meta.LastMs}.after(cfg, at.TsMs, f.bestEffort)
	put := db.PutStreamMetaParams{
		RateHz: rate.hz, TsMs: at.TsMs, Keep: int32(rate.keep),
		Kept: meta.Kept + int32(f.bestEffort), Untrimmed: meta.Untrimmed + int32(f.bestEffort),
	}
	if int(put.Untrimmed) >= trimLag(min(rate.keep, int(put.Kept))) {
		put.Untrimmed = 0
		put.Excess = max(0, put.Kept-put.Keep)
		put.BeforeMs = max(0, at.TsMs-2*cfg.TTL.Milliseconds())
	}
	return put
}

// durableTrim is the durable frames to delete: in each stream those up to a number.
type durableTrim struct {
	leases  core.LeaseArrays
	numbers []int64
	most    int
}

// add adds a stream after n new durable frames, now durable in all, if they pass a multiple of the lag.
func (t *durableTrim) add(maxlen int, stream id.Fence, durable int64, n int) {
	lag := int64(trimLag(maxlen))
	if maxlen == 0 || durable <= int64(maxlen) || durable/lag == (durable-int64(n))/lag {
		return
	}
	t.leases.Add(stream)
	t.numbers = append(t.numbers, durable-int64(maxlen))
	// Twice the most new frames, so that earlier frames go too, if there are any.
	t.most = 2 * (int(lag) + MaxFrames)
}

func (t *durableTrim) empty() bool { return len(t.numbers) == 0 }

func (t *durableTrim) params() db.TrimDurableFramesParams {
	return db.TrimDurableFramesParams{
		PartitionKeys: t.leases.Partitions, ExecutionIDs: t.leases.Executions, AttemptIndexes: t.leases.Attempts,
		Numbers: t.numbers, PageSize: int32(t.most),
	}
}
