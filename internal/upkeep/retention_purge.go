package upkeep

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// purging is a transaction that deletes finished flows.
type purging struct {
	*retaining
	swept   bool // the sweep will examine the flows again
	careful bool // some of their rows may be locked

	acted   int
	purged  int64     // number of flows
	left    []flowRow // for the next transaction
	dropped int64     // number of members
}

// dueFlow is a flow to delete.
type dueFlow struct {
	db.ReadPurgeableRow
	members core.ExecutionArrays // locked members to delete now
	whole   bool                 // members has all members
}

// run deletes the finished flows among the ones returned by find.
func (p *purging) run(ctx context.Context, tx *core.Txn, find func(*core.Txn, int64) ([]flowRow, error)) error {
	if held, err := p.begin(ctx, tx); err != nil || !held {
		return err
	}
	found, err := find(tx, p.nowMs)
	if err != nil || len(found) == 0 {
		return err
	}
	flows := core.NewFlowSet(p.c.Partitions)
	for _, row := range found {
		if !flows.Admit(&row.flow) {
			p.left = append(p.left, row)
		}
	}
	due, err := p.hold(ctx, tx, flows)
	if err != nil {
		return err
	}
	due, err = p.takeEndedMembers(ctx, tx, due)
	if err != nil {
		return err
	}
	used, err := p.c.Q.GetRetainedTables(ctx, tx)
	if err != nil {
		return err
	}
	if used.StreamFrames {
		if err := p.shortenFlows(ctx, tx, due); err != nil {
			return err
		}
	}
	if err := p.dropDue(ctx, tx, due, used); err != nil {
		return err
	}
	for _, row := range p.left { // in case this process ends before the next transaction
		p.comeBackAt(p.nowMs+comeBackSoon.Milliseconds(), row.partition, row.flow)
	}
	if p.acted = int(p.purged); !p.swept {
		p.acted = len(found)
	}
	steps := p.timers.steps(ctx, p.c.Q, timedFlows)
	for source, n := range map[string]int64{fromFlows: p.purged, countsMembers: p.dropped} {
		steps = append(steps, func(conn db.DBTX) error {
			return p.c.Q.MoveRetentionSource(ctx, conn, db.MoveRetentionSourceParams{Source: source, Deleted: n, NowMs: p.nowMs})
		})
	}
	return pgtx.InOneTrip(ctx, tx, steps...)
}

// comeBackAt sets a timer for the next check of a flow.
func (p *purging) comeBackAt(dueMs int64, partition int16, flow id.FlowID) {
	if !p.swept {
		p.timers.add(p.nowMs, dueMs, partition, core.PgUUID(flow))
	}
}

// hold locks the finished flows, and returns the locked ones in lock order. A check before the locks avoids blocking
// live flows.
func (p *purging) hold(ctx context.Context, tx *core.Txn, flows *core.FlowSet) ([]dueFlow, error) {
	over, err := p.over(ctx, tx, flows)
	if err != nil || over.Empty() {
		return nil, err
	}
	wanted := over.Flows
	if err := p.c.TryFlowsExclusive(ctx, tx, over); err != nil {
		return nil, err
	}
	for flow, partition := range wanted {
		if !over.Has(flow) {
			p.comeBackAt(p.nowMs+comeBackSoon.Milliseconds(), partition, flow)
		}
	}
	var due []dueFlow
	if err := p.judge(ctx, tx, over, func(row db.ReadPurgeableRow) { due = append(due, dueFlow{ReadPurgeableRow: row}) }); err != nil || len(due) == 0 {
		return nil, err
	}
	_, ids := over.Arrays()
	undispatched, err := p.c.Q.ListUndispatchedFlows(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	due = slices.DeleteFunc(due, func(d dueFlow) bool {
		waits := slices.ContainsFunc(undispatched, func(flow pgtype.UUID) bool { return flow.Bytes == d.FlowID })
		if waits {
			p.comeBackAt(p.nowMs+comeBackIn(p.nowMs-d.ChangedAtMs).Milliseconds(), d.PartitionKey, d.FlowID)
		}
		return waits
	})
	slices.SortFunc(due, func(a, b dueFlow) int {
		return cmp.Or(cmp.Compare(a.PartitionKey, b.PartitionKey), bytes.Compare(a.FlowID[:], b.FlowID[:]))
	})
	return due, nil
}

// over returns the seemingly finished flows.
func (p *purging) over(ctx context.Context, tx *core.Txn, flows *core.FlowSet) (*core.FlowSet, error) {
	over := core.NewFlowSet(p.c.Partitions)
	return over, p.judge(ctx, tx, flows, func(row db.ReadPurgeableRow) { over.Add(row.FlowID) })
}

// judge calls yield for each finished flow, and sets timers for the others.
func (p *purging) judge(ctx context.Context, tx *core.Txn, flows *core.FlowSet, yield func(db.ReadPurgeableRow)) error {
	if flows.Empty() {
		return nil
	}
	partitions, ids := flows.Arrays()
	rows, err := p.c.Q.ReadPurgeable(ctx, tx, db.ReadPurgeableParams{
		PartitionKeys: partitions, FlowIDs: ids, DefaultMs: core.RetentionMs(p.c.Retention),
	})
	for _, row := range rows {
		dueMs := row.ChangedAtMs + min(row.RetentionMs, core.Forever-max(row.ChangedAtMs, 0))
		switch {
		case dueMs == core.Forever: // only a sweep of all flows finds the flow again
		case row.InUse, row.Unfinished && dueMs <= p.nowMs:
			p.comeBackAt(p.nowMs+comeBackIn(p.nowMs-row.ChangedAtMs).Milliseconds(), row.PartitionKey, row.FlowID)
		case dueMs > p.nowMs:
			p.comeBackAt(dueMs, row.PartitionKey, row.FlowID)
		default:
			yield(row)
		}
	}
	return err
}

// takeEndedMembers locks members of flows, as many as a transaction deletes, and returns the flows without members
// locked by others. The first flow may have more members than a transaction deletes.
func (p *purging) takeEndedMembers(ctx context.Context, tx *core.Txn, due []dueFlow) ([]dueFlow, error) {
	var params db.TakeEndedMembersParams
	room := int64(maxPurgedMembers)
	var now []dueFlow
	for _, d := range due {
		n := min(d.Members, maxPurgedMembers)
		if n > room {
			p.left = append(p.left, flowRow{d.PartitionKey, d.FlowID})
			continue
		}
		room -= n
		d.whole = n == d.Members
		params.PartitionKeys = append(params.PartitionKeys, d.PartitionKey)
		params.FlowIDs = append(params.FlowIDs, core.PgUUID(d.FlowID))
		params.MaxItems = append(params.MaxItems, int32(n))
		params.Ords = append(params.Ords, int32(len(now)))
		now = append(now, d)
	}
	if len(now) == 0 {
		return nil, nil
	}
	rows, err := p.c.Q.TakeEndedMembers(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		now[row.Ord].members.Add(now[row.Ord].PartitionKey, row.ExecutionID)
	}
	taken := now[:0]
	for i, d := range now {
		if len(d.members.Executions) < int(params.MaxItems[i]) {
			p.comeBackAt(p.nowMs+comeBackSoon.Milliseconds(), d.PartitionKey, d.FlowID)
			continue
		}
		if !d.whole {
			p.left = append(p.left, flowRow{d.PartitionKey, d.FlowID})
		}
		taken = append(taken, d)
	}
	return taken, nil
}

// dropDue deletes flows. If careful, after a lock that no statement can skip, it deletes each half separately, so that
// only locked flows are left.
func (p *purging) dropDue(ctx context.Context, tx *core.Txn, due []dueFlow, used db.GetRetainedTablesRow) error {
	if len(due) == 0 {
		return nil
	}
	if !p.careful {
		return p.dropFlows(ctx, tx, due, used)
	}
	_, err := pgtx.InSavepoint(ctx, tx, func(savepoint pgx.Tx) (struct{}, error) {
		return struct{}{}, p.dropFlows(ctx, savepoint, due, used)
	})
	if pgtx.SQLState(err) != core.SQLLockNotAvailable {
		return err
	}
	if p.waits++; len(due) == 1 || p.waits >= core.LateWaits {
		for _, d := range due {
			p.comeBackAt(p.nowMs+comeBackSoon.Milliseconds(), d.PartitionKey, d.FlowID)
			p.left = slices.DeleteFunc(p.left, func(row flowRow) bool { return row.flow == d.FlowID })
		}
		return nil
	}
	if err := p.dropDue(ctx, tx, due[:len(due)/2], used); err != nil {
		return err
	}
	return p.dropDue(ctx, tx, due[len(due)/2:], used)
}

// dropFlows deletes flows, or closes those with members left.
func (p *purging) dropFlows(ctx context.Context, tx pgx.Tx, due []dueFlow, used db.GetRetainedTablesRow) error {
	var members core.ExecutionArrays
	var partitions []int16
	var ids []pgtype.UUID
	var closing []core.Step
	for _, d := range due {
		members.Partitions = append(members.Partitions, d.members.Partitions...)
		members.Executions = append(members.Executions, d.members.Executions...)
		if d.whole {
			partitions, ids = append(partitions, d.PartitionKey), append(ids, core.PgUUID(d.FlowID))
			continue
		}
		closing = append(closing, func(conn db.DBTX) error {
			return p.c.Q.CloseFlow(ctx, conn, db.CloseFlowParams{PartitionKey: d.PartitionKey, FlowID: d.FlowID})
		})
	}
	var dropped, purged int64
	var steps []core.Step
	if !members.Empty() {
		steps = p.c.DropEnded(ctx, members, used, &dropped)
	}
	steps = append(steps, closing...)
	if len(ids) > 0 {
		if used.BusinessKeys {
			steps = append(steps, func(conn db.DBTX) error {
				return p.c.Q.DropBusinessKeysOfFlows(ctx, conn, db.DropBusinessKeysOfFlowsParams{PartitionKeys: partitions, FlowIDs: ids})
			})
		}
		steps = append(steps, p.flowSteps(ctx, partitions, ids, &purged)...)
	}
	if err := pgtx.InOneTrip(ctx, tx, steps...); err != nil {
		return err
	}
	p.dropped += dropped
	p.purged += purged
	return nil
}

// flowSteps returns the statements for deleting flows without members, with all their data.
func (p *purging) flowSteps(ctx context.Context, partitions []int16, ids []pgtype.UUID, purged *int64) []core.Step {
	return []core.Step{
		func(conn db.DBTX) error {
			return p.c.Q.DropEdgeGroupsOf(ctx, conn, db.DropEdgeGroupsOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return p.c.Q.DropEdgesOf(ctx, conn, db.DropEdgesOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return p.c.Q.DropCancelDispatchesOf(ctx, conn, db.DropCancelDispatchesOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return p.c.Q.DropBacklogMembersOf(ctx, conn, db.DropBacklogMembersOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return p.c.Q.DropFlowSummariesOf(ctx, conn, db.DropFlowSummariesOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) error {
			return p.c.Q.DropPrunedMembersOf(ctx, conn, db.DropPrunedMembersOfParams{PartitionKeys: partitions, FlowIDs: ids})
		},
		func(conn db.DBTX) (err error) {
			*purged, err = p.c.Q.DropFlows(ctx, conn, db.DropFlowsParams{PartitionKeys: partitions, FlowIDs: ids})
			return err
		},
	}
}
