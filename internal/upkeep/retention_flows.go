package upkeep

import (
	"context"
	"errors"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// retentionMemory is the state of deletion in this process: the positions of sweeps, and noted flows and consumers.
type retentionMemory struct {
	trimmed        trimPositions
	purge          flowPosition
	noted          notedFlows
	staleConsumers staleConsumers
	deleting       chan struct{} // buffered for one; full while a call deletes
}

// flowPosition is where the next sweep of all flows continues: of [Upkeep.PurgeFlows] or
// [Upkeep.SummariseFlows].
type flowPosition struct {
	mu        sync.Mutex
	partition int16
	flow      id.FlowID // zero, with partition 0: at the first flow
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

// maxNotedFlows limits the size of [notedFlows].
const maxNotedFlows = 10_000

// notedFlows are flows for which this process has set a timer. A flow keeps its timer until its deletion, so further
// ends of members need not set another one. Forgetting a flow costs one check.
type notedFlows struct {
	mu    sync.Mutex
	flows map[id.FlowID]struct{}
}

func (n *notedFlows) has(flow id.FlowID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.flows[flow]
	return ok
}

func (n *notedFlows) add(flows *core.FlowSet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flows == nil || len(n.flows)+len(flows.Flows) > maxNotedFlows {
		n.flows = make(map[id.FlowID]struct{})
	}
	for flow := range flows.Flows {
		n.flows[flow] = struct{}{}
	}
}

// maxPurgedMembers is the number of members deleted by a transaction with their flows.
const maxPurgedMembers = 1000

// PurgeFlows deletes flows with all their members, edges, groups and summaries, once every member has ended, the
// retention ([engine.FlowSpec.Retention] or [engine.Config.Retention]) has passed since the last end and the last
// change, no cancellation is under way, and all events are dispatched. Events are deleted by [Upkeep.TrimOutboxes]. A
// flow that never had a member is kept unless cancelled.
//
// It examines up to batch flows, at most 256, with ended members as recorded by [Upkeep.Retain], and up to batch others
// in the order of their rows. It returns how many it deleted or rescheduled.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows or 1,000 members. A flow with more members takes
// several, and from the first one on accepts no members or replays. Locks the flows exclusively, then their members;
// locked flows are checked again after a minute. Emits nothing. Safe to repeat and to run in any number of processes.
func (u *Upkeep) PurgeFlows(ctx context.Context, batch int) (int, error) {
	const op = "purge flows"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	work, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) (db.GetFlowTimersDueRow, error) {
		return u.c.Q.GetFlowTimersDue(ctx, conn, u.c.NowMs())
	})
	if err != nil {
		return 0, err
	}
	if work.Sources < retentionSources {
		if begun, err := u.ensureRetentionSources(ctx, op); err != nil || !begun {
			return 0, err
		}
	}
	purged := 0
	if work.TimersDue {
		purged, err = u.purgeFlows(ctx, op, false, func(tx *core.Txn, nowMs int64) ([]flowRow, error) {
			rows, err := u.c.Q.TakeRetentionTimers(ctx, tx, db.TakeRetentionTimersParams{
				Subject: timedFlows, NowMs: nowMs, MaxItems: int64(min(batch, core.MaxFlowsPerTx)),
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
	swept, err := u.sweepFlows(ctx, op, batch)
	return purged + swept, err
}

// sweepFlows purges the due ones among the next flows in the order of their rows.
func (u *Upkeep) sweepFlows(ctx context.Context, op string, batch int) (int, error) {
	partition, flow := u.purge.get()
	rows, err := core.InStatement(ctx, u.c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.ScanFlowAgesRow, error) {
		return u.c.Q.ScanFlowAges(ctx, conn, db.ScanFlowAgesParams{
			AfterPartitionKey: partition, AfterFlowID: core.PgUUID(flow), PageSize: int32(batch),
			DefaultMs: core.RetentionMs(u.c.Retention), NowMs: u.c.NowMs(),
		})
	})
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		u.purge.move(0, id.FlowID{})
		return 0, nil
	}
	var last flowRow
	var old []flowRow
	for _, row := range rows {
		last = flowRow{row.PartitionKey, row.FlowID}
		if row.Old {
			old = append(old, last)
		}
		if len(old) == core.MaxFlowsPerTx {
			break
		}
	}
	purged := 0
	if len(old) > 0 {
		purged, err = u.purgeFlows(ctx, op, true, func(*core.Txn, int64) ([]flowRow, error) { return old, nil })
	}
	if err == nil && u.c.Tx == nil {
		u.purge.move(last.partition, last.flow)
	}
	return purged, err
}

// flowRow is the key of a flow.
type flowRow struct {
	partition int16
	flow      id.FlowID
}

// purgeFlows deletes the finished flows among the ones returned by find, and sets timers for the others. For swept
// flows it sets none, because the sweep will examine the flows again.
func (u *Upkeep) purgeFlows(
	ctx context.Context, op string, swept bool, find func(tx *core.Txn, nowMs int64) ([]flowRow, error),
) (acted int, err error) {
	done, err := u.deleteAlone(ctx)
	if err != nil {
		return 0, core.Wrap(op, err)
	}
	defer done()
	for careful := false; ; {
		p, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (*purging, error) {
			p := &purging{retaining: &retaining{Upkeep: u, source: fromFlows}, swept: swept, careful: careful}
			return p, p.run(ctx, tx, find)
		})
		switch busy := errors.Is(err, fferr.ErrBusy) || u.c.Tx != nil && pgtx.SQLState(err) == core.SQLLockNotAvailable; {
		case busy && !careful:
			careful = true
			continue
		case err != nil:
			return acted, err
		}
		acted += p.acted
		if len(p.left) == 0 {
			return acted, nil
		}
		find = func(*core.Txn, int64) ([]flowRow, error) { return p.left, nil }
	}
}
