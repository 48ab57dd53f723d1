package stream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

const opAppendFrames = "append frames"

// Append appends frames to the output stream of an attempt, for the holder of the lease: all frames, with consecutive ids, or
// none. The order of ids is the order of commits. Handlers use the Stream of their job, which collects frames and calls
// Append.
//
// Errors: [*fferr.LeaseError] with [fferr.ErrStaleLease], [fferr.ErrLeaseExpired], [fferr.ErrLeaseRevoked] or
// [fferr.ErrNotActive], and [fferr.ErrNotFound]: nothing was appended; stop work. [fferr.ErrInvalidInput] for more than
// [MaxFrames], for a payload or a summary above its limit, and for a summary frame without a JSON object.
//
// Transaction: locks the attempt, and for frames that are not durable, or after contention, the execution first. Waits for
// each lock up to two seconds, three times, then fails with [fferr.ErrContention]. In the caller's transaction the attempt
// stays locked until the end, and renewals of the lease skip it: append late. A repetition appends again.
func Append(ctx context.Context, eng *engine.Engine, l engine.Lease, frames []FrameSpec) (Appended, error) {
	return AppendBatch(ctx, eng, Batch{Lease: l, Frames: frames})
}

// AppendBatch is [Append] with the options of a batch.
//
// Errors: also [*fferr.StreamMovedError] ([fferr.ErrStreamMoved]): the stream has another number of frames than Behind.
func AppendBatch(ctx context.Context, eng *engine.Engine, b Batch) (Appended, error) {
	c := core.Of(eng)
	if b.Ends && c.Tx == nil {
		return Appended{}, core.Wrap(opAppendFrames, core.Invalid("ends", "has no effect outside a caller's transaction"))
	}
	outcomes, err := appendFrames(ctx, c, []Batch{b})
	if err != nil {
		return Appended{}, err
	}
	return outcomes[0].Value, outcomes[0].Err
}

// AppendEach is [Append] for the streams of many leases. At most [MaxFrames] frames and [MaxBytes] bytes share a transaction.
// Outcomes are in input order and independent: a lost lease affects only its own frames. Each lease may occur once. A
// returned error means that nothing was appended, or that the outcome is unknown: see [Batch.Behind]. An item fails with
// [*fferr.StreamMovedError] if its stream has another number of frames.
//
// AppendEach never waits for locks. An item whose row is locked fails with [fferr.ErrBusy]; repeat the item.
func AppendEach(ctx context.Context, eng *engine.Engine, batches []Batch) ([]fferr.Outcome[Appended], error) {
	c := core.Of(eng)
	for i := range batches {
		if batches[i].Ends {
			return nil, core.Wrap(opAppendFrames, core.Invalid("ends", "has no effect in a call for many"))
		}
	}
	return appendFrames(ctx, c.ShortWait(), batches)
}

func appendFrames(ctx context.Context, c *core.Core, batches []Batch) ([]fferr.Outcome[Appended], error) {
	const op = opAppendFrames
	outcomes := make([]fferr.Outcome[Appended], len(batches))
	seen := make(map[id.Fence]bool, len(batches))
	valid := core.ValidItems(outcomes, func(n int) error {
		err := checkBatchOfFrames(c, &batches[n])
		if err == nil && seen[batches[n].Lease.Fence] {
			err = core.Invalid("lease", "occurs twice: append its frames in one batch")
		}
		seen[batches[n].Lease.Fence] = true
		return core.Wrap(op, err)
	})
	appended := make([]bool, len(batches))
	for i, chunk := range frameChunks(batches, valid) {
		err := appendDurable(ctx, c, op, batches, chunk, outcomes, appended)
		if err != nil {
			if i == 0 {
				return nil, err
			}
			for _, n := range chunk {
				outcomes[n].Err = err
			}
			continue
		}
		for _, n := range chunk {
			if !appended[n] {
				outcomes[n].Value, outcomes[n].Err = appendHeld(ctx, c, op, &batches[n])
			}
		}
	}
	return outcomes, nil
}

// frameChunks splits items into chunks whose frames fit into one statement, in lock order.
func frameChunks(batches []Batch, items []int) (chunks [][]int) {
	items = slices.SortedFunc(slices.Values(items), func(a, b int) int {
		return batches[a].Lease.Fence.Compare(batches[b].Lease.Fence)
	})
	frames, bytes := 0, 0
	for _, n := range items {
		size := 0
		for _, f := range batches[n].Frames {
			size += len(f.Payload)
		}
		frames, bytes = frames+len(batches[n].Frames), bytes+size
		if len(chunks) == 0 || frames > MaxFrames || bytes > MaxBytes {
			chunks = append(chunks, nil)
			frames, bytes = len(batches[n].Frames), size
		}
		last := len(chunks) - 1
		chunks[last] = append(chunks[last], n)
	}
	return chunks
}

// appendDurable appends the items that have only durable frames and whose attempts are not locked, in one statement. It marks
// the appended items.
func appendDurable(
	ctx context.Context, c *core.Core, op string, batches []Batch, items []int, outcomes []fferr.Outcome[Appended], appended []bool,
) error {
	leases := core.NewLeaseArrays(len(items))
	var frames storedFrames
	params := db.AppendFramesParams{NowMs: c.NowMs()}
	for _, n := range items {
		b := &batches[n]
		if b.Ends || slices.ContainsFunc(b.Frames, func(f FrameSpec) bool { return !f.isDurable() }) {
			continue
		}
		leases.Add(b.Lease.Fence)
		params.FirstFrames = append(params.FirstFrames, int32(len(frames.types)+1))
		for i := range b.Frames {
			frames.add(&b.Frames[i])
		}
		params.LastFrames = append(params.LastFrames, int32(len(frames.types)))
		params.Behind = append(params.Behind, b.behind())
		params.Ords = append(params.Ords, int32(n))
	}
	if len(params.Ords) == 0 {
		return nil
	}
	params.PartitionKeys, params.ExecutionIDs = leases.Partitions, leases.Executions
	params.AttemptIndexes, params.LeaseEpochs = leases.Attempts, leases.Epochs
	params.FrameTypes, params.Payloads = frames.types, frames.payloads
	params.Encodings, params.CorrelationIDs = frames.encodings, frames.correlations
	var rows []db.AppendFramesRow
	err := core.InStatements(ctx, c, op, func(due *core.Notifications) []core.Step {
		return []core.Step{func(conn db.DBTX) (err error) {
			rows, err = c.Q.AppendFrames(ctx, conn, params)
			for _, row := range rows {
				due.Stream(core.StreamOf(batches[row.Ord].Lease.Fence))
				c.Written.Note(batches[row.Ord].Lease.Fence, batches[row.Ord].Lease.TTL)
			}
			return err
		}}
	})
	var trim durableTrim
	for _, row := range rows {
		b := &batches[row.Ord]
		appended[row.Ord] = true
		outcomes[row.Ord].Value = appendedAt(row.TsMs, row.Seq, row.Frames, len(b.Frames))
		trim.add(c.Streams.DurableMaxlen, b.Lease.Fence, row.Durable, len(b.Frames))
	}
	if err != nil || trim.empty() {
		return err
	}
	// The frames are appended. If the trim fails, a later trim deletes more.
	_, _ = core.InStatement(ctx, c, op, func(conn db.DBTX, _ *core.Notifications) (struct{}, error) {
		return struct{}{}, c.Q.TrimDurableFrames(ctx, conn, trim.params())
	})
	return nil
}

// appendedAt returns the answer for n frames ending at a position.
func appendedAt(tsMs int64, seq int32, frames int64, n int) Appended {
	return Appended{
		First:  wire.FramePosition{TsMs: tsMs, Seq: seq - int32(n) + 1},
		Last:   wire.FramePosition{TsMs: tsMs, Seq: seq},
		Frames: frames,
	}
}

// appendHeld appends frames under the locks of the execution and the attempt, or returns the reason of a refusal.
func appendHeld(ctx context.Context, c *core.Core, op string, b *Batch) (Appended, error) {
	lock := core.NoFlow
	if b.Ends {
		lock = core.SharedFlow
	}
	return core.UnderLocks(ctx, c, op, b.Lease.Fence, lock, func(ctx context.Context, tx *core.Txn, x *core.HeldLease) (Appended, error) {
		tx.Due.Stream(core.StreamOf(b.Lease.Fence))
		c.Written.Note(b.Lease.Fence, b.Lease.TTL)
		return appendUnder(ctx, c, tx, b)
	})
}

func appendUnder(ctx context.Context, c *core.Core, tx *core.Txn, b *Batch) (Appended, error) {
	f := frameColumns{Batch: b}
	f.collect(&c.Streams)
	partition, execution, attempt := b.Lease.Execution.Partition(), b.Lease.Execution.UUID(), int32(b.Lease.Attempt)
	var at db.MoveStreamRow
	var meta db.GetStreamMetaRow
	steps := []core.Step{func(conn db.DBTX) (err error) {
		at, err = c.Q.MoveStream(ctx, conn, db.MoveStreamParams{
			NowMs: c.NowMs(), Frames: int32(len(b.Frames)), Durable: f.durable,
			PartitionKey: partition, ExecutionID: execution, AttemptIndex: attempt, Behind: b.behind(),
		})
		return err
	}}
	if f.bestEffort > 0 {
		steps = append(steps, func(conn db.DBTX) (err error) {
			meta, err = c.Q.GetStreamMeta(ctx, conn, db.GetStreamMetaParams{
				PartitionKey: partition, ExecutionID: execution, AttemptIndex: attempt,
			})
			return err
		})
	}
	err := pgtx.InOneTrip(ctx, tx, steps...)
	if errors.Is(err, pgx.ErrNoRows) {
		return Appended{}, movedStream(ctx, c, tx, b)
	}
	if err != nil {
		return Appended{}, err
	}
	appended := appendedAt(at.TsMs, at.Seq, at.Frames, len(b.Frames))
	summary, err := mergeSummary(ctx, c, tx, &f, at.TsMs)
	if err != nil {
		return Appended{}, err
	}
	appended.SummaryVersion = int(summary.Version)
	return appended, insertFrames(ctx, c, tx, &f, &at, &meta, int(summary.Kept))
}

// frameColumns are the frames of a batch as columns.
type frameColumns struct {
	*Batch
	storedFrames
	modes, versions, ttls []string
	durablePlaces         []int32
	durable               int32 // number of durable frames
	bestEffort            int   // number of best-effort frames
	patches               []string
}

func (c *frameColumns) collect(cfg *core.StreamLimits) {
	for i := range c.Frames {
		f := &c.Frames[i]
		c.add(f)
		mode, ttl := cmp.Or(f.Mode, Durable), ""
		switch mode {
		case Durable:
			c.durable++
		case Summary:
			c.patches = append(c.patches, string(f.Payload))
		case BestEffort:
			c.bestEffort++
			ttl = strconv.FormatInt(cfg.BestEffort.TTL.Milliseconds(), 10)
		}
		c.modes = append(c.modes, string(mode))
		c.ttls = append(c.ttls, ttl)
		c.versions = append(c.versions, "")
		c.durablePlaces = append(c.durablePlaces, c.durable)
	}
	for i := range c.durablePlaces {
		c.durablePlaces[i] -= c.durable
	}
}

// number sets the versions of the summary frames, up to last.
func (c *frameColumns) number(last int32) {
	version := int(last) - len(c.patches)
	for i, mode := range c.modes {
		if Mode(mode) == Summary {
			version++
			c.versions[i] = strconv.Itoa(version)
		}
	}
}

func (c *frameColumns) params(at *db.MoveStreamRow) db.InsertFramesParams {
	return db.InsertFramesParams{
		PartitionKey: c.Lease.Execution.Partition(), ExecutionID: c.Lease.Execution.UUID(), AttemptIndex: int32(c.Lease.Attempt),
		TsMs: at.TsMs, Seq: at.Seq, LeaseEpoch: &c.Lease.Epoch, Number: at.Frames, Durable: at.Durable,
		FrameTypes: c.types, Payloads: c.payloads, Encodings: c.encodings, CorrelationIDs: c.correlations,
		Modes: c.modes, SummaryVersions: c.versions, TtlsMs: c.ttls, DurablePlaces: c.durablePlaces,
	}
}
