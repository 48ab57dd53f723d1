package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// flowPosition is where the next sweep of all flows goes on: of [Maintenance.PurgeFlows], or [Maintenance.SummariseFlows].
type flowPosition struct {
	mu        sync.Mutex
	partition int16
	flow      id.FlowID // zero, and partition 0: at the first flow
}

func (p *flowPosition) get() (int16, id.FlowID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.partition, p.flow
}

func (p *flowPosition) move(partition int16, flow id.FlowID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.partition, p.flow = partition, flow
}

// PurgeFlows deletes flows that are over: all members they had are deleted ([Maintenance.Retain] does that, and notes
// the flow), no cancellation of theirs is under way, and their last change is longer ago than [Config.Retention]. With
// a flow go its edges, groups and summary; its events go by [Maintenance.TrimOutboxes]. A flow that never had
// a member is kept, unless it was cancelled.
//
// It looks at up to batch flows, 256 at most, whose members were deleted, and at up to batch more in the order of their rows, for what
// nobody noted. It returns how many it deleted or noted for later; the caller repeats it while that is batch or
// more.
//
// Errors: [ErrInvalidInput]; [ErrBusy] where somebody else holds a row of such a flow; nothing was deleted then. Transaction: one for the noted flows,
// and one for the others where there are any; locks the flows exclusively, and passes over what others hold. Emits nothing. Safe to
// repeat and to run in any number of processes.
func (m Maintenance) PurgeFlows(ctx context.Context, batch int) (int, error) {
	const op = "purge flows"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	e := m.e.impatient()
	if retentionMs(e.cfg.Retention) == forever {
		return 0, nil
	}
	work, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) (db.GetFlowTimersDueRow, error) {
		return e.q.GetFlowTimersDue(ctx, conn, e.nowMs())
	})
	if err != nil {
		return 0, err
	}
	if work.Sources < retentionSources {
		if begun, err := e.ensureRetentionSources(ctx, op); err != nil || !begun {
			return 0, err
		}
	}
	purged := 0
	if work.TimersDue {
		purged, err = e.purgeFlows(ctx, op, func(tx *txn, p *purging) ([]flowRow, error) {
			rows, err := e.q.TakeRetentionTimers(ctx, tx, db.TakeRetentionTimersParams{
				Subject: timedFlows, NowMs: p.nowMs, MaxItems: int64(min(batch, maxFlowsPerTx)),
			})
			var flows []flowRow
			for _, row := range rows {
				flows = append(flows, flowRow{row.PartitionKey, row.ID.Bytes})
			}
			return flows, err
		})
		if err != nil {
			return purged, err
		}
	}
	swept, err := e.sweepFlows(ctx, op, batch)
	return purged + swept, err
}

// sweepFlows purges what is due of the next flows in the order of their rows.
func (e *Engine) sweepFlows(ctx context.Context, op string, batch int) (int, error) {
	partition, flow := e.purge.get()
	rows, err := inStatement(ctx, e, op, func(conn db.DBTX, _ *notifications) ([]db.ScanEmptyFlowsRow, error) {
		return e.q.ScanEmptyFlows(ctx, conn, db.ScanEmptyFlowsParams{
			AfterPartitionKey: partition, AfterFlowID: pgUUID(flow), PageSize: int32(batch),
		})
	})
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		e.purge.move(0, id.FlowID{})
		return 0, nil
	}
	var last flowRow
	var empty []flowRow
	for _, row := range rows {
		last = flowRow{row.PartitionKey, row.FlowID.Bytes}
		if row.Empty {
			empty = append(empty, last)
		}
		if len(empty) == maxFlowsPerTx {
			break
		}
	}
	purged := 0
	if len(empty) > 0 {
		purged, err = e.purgeFlows(ctx, op, func(_ *txn, p *purging) ([]flowRow, error) {
			p.swept = true
			return empty, nil
		})
	}
	if err == nil && e.tx == nil {
		e.purge.move(last.partition, last.flow)
	}
	return purged, err
}

// flowRow is the key of a flow.
type flowRow struct {
	partition int16
	flow      id.FlowID
}

// purging is one batch of flows that may be over.
type purging struct {
	nowMs  int64
	swept  bool // the sweep comes past them again
	timers retentionTimers
}

// comeBack sets a timer for a flow that is not to be deleted yet.
func (p *purging) comeBack(dueMs int64, partition int16, flow id.FlowID) {
	if !p.swept {
		p.timers.add(p.nowMs, dueMs, partition, pgUUID(flow))
	}
}

// purgeFlows deletes what is over of the flows that find returns, more than one transaction may lock included, which it
// notes.
func (e *Engine) purgeFlows(
	ctx context.Context, op string, find func(*txn, *purging) ([]flowRow, error),
) (int, error) {
	done, err := e.deleteAlone(ctx)
	if err != nil {
		return 0, wrap(op, err)
	}
	defer done()
	return inTx(ctx, e, op, func(tx *txn) (int, error) {
		r := &retaining{Engine: e, source: fromFlows}
		if held, err := r.begin(ctx, tx); err != nil || !held {
			return 0, err
		}
		p := &purging{nowMs: r.nowMs}
		found, err := find(tx, p)
		if err != nil || len(found) == 0 {
			return 0, err
		}
		flows := newFlowSet(e.cfg.Partitions)
		for _, row := range found {
			if !flows.admit(&row.flow) {
				p.comeBack(p.nowMs, row.partition, row.flow)
			}
		}
		wanted := flows.flows
		if err := e.tryFlowsExclusive(ctx, tx, flows); err != nil {
			return 0, err
		}
		for flow, partition := range wanted {
			if !flows.has(flow) {
				p.comeBack(p.nowMs+comeBackSoon.Milliseconds(), partition, flow)
			}
		}
		deleted, err := e.dropOver(ctx, tx, p, flows)
		if err != nil {
			return 0, err
		}
		steps := p.timers.steps(ctx, e.q, timedFlows)
		acted := int(deleted)
		if !p.swept {
			acted = len(found)
		}
		return acted, pgtx.InOneTrip(ctx, tx, append(steps, func(conn db.DBTX) error {
			return e.q.MoveRetentionSource(ctx, conn, db.MoveRetentionSourceParams{Source: fromFlows, Deleted: deleted, NowMs: p.nowMs})
		})...)
	})
}

// dropOver deletes those of the flows, which are locked, that are over.
func (e *Engine) dropOver(ctx context.Context, tx *txn, p *purging, flows *flowSet) (deleted int64, err error) {
	if flows.empty() {
		return 0, nil
	}
	partitions, ids := flows.arrays()
	rows, err := e.q.ReadPurgeable(ctx, tx, db.ReadPurgeableParams{PartitionKeys: partitions, FlowIDs: ids})
	if err != nil {
		return 0, err
	}
	slices.SortFunc(rows, func(a, b db.ReadPurgeableRow) int {
		return cmp.Or(cmp.Compare(a.PartitionKey, b.PartitionKey), bytes.Compare(a.FlowID[:], b.FlowID[:]))
	})
	keepMs := retentionMs(e.cfg.Retention)
	partitions, ids = nil, []pgtype.UUID(nil)
	for _, row := range rows {
		dueMs := row.ChangedAtMs + min(keepMs, forever-max(row.ChangedAtMs, 0))
		switch {
		case row.InUse: // noted again when its last member goes
		case dueMs > p.nowMs:
			p.comeBack(dueMs, row.PartitionKey, row.FlowID)
		case row.Unfinished:
			p.comeBack(p.nowMs+comeBackIn(p.nowMs-row.ChangedAtMs).Milliseconds(), row.PartitionKey, row.FlowID)
		default:
			partitions, ids = append(partitions, row.PartitionKey), append(ids, pgUUID(row.FlowID))
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	err = pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) error {
			return e.q.DropEdgeGroupsOf(ctx, conn, db.DropEdgeGroupsOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return e.q.DropEdgesOf(ctx, conn, db.DropEdgesOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return e.q.DropCancelDispatchesOf(ctx, conn, db.DropCancelDispatchesOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return e.q.DropBacklogMembersOf(ctx, conn, db.DropBacklogMembersOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return e.q.DropFlowSummariesOf(ctx, conn, db.DropFlowSummariesOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) (err error) {
			deleted, err = e.q.DropFlows(ctx, conn, db.DropFlowsParams{PartitionKeys: partitions, FlowIDs: ids})
			return err
		},
	)
	return deleted, err
}
