package upkeep

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// CancelFlows continues requested cancellations of flows ([engine.Engine.RequestFlowCancel], or FlowFabric's). It
// cancels members whose grace has ended, removes ended members from their requests, and deletes empty requests. It
// returns the number of removed members and of requests found empty.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: several, of up to 256 flows each; locks the flows exclusively, the
// requests, then members and their attempts. Skips locked rows for a later call, but waits 50 ms for locks that can't
// be skipped, at most a hundred times per call, and as long for up to eight busy flows. Emits lease events and
// completion events as [engine.Engine.CancelFlow]. Safe to repeat and to run in any number of processes.
func (u *Upkeep) CancelFlows(ctx context.Context, batch int) (int, error) {
	const op = "cancel flows"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	s := &backlogScan{}
	s.Pass = u.c.NewPass(op, s.act)
	return s.Through(ctx, batch, func(room int) ([]core.Candidate, int, bool, error) { return s.scan(ctx, room) })
}

// backlogScan is one call of [Upkeep.CancelFlows].
type backlogScan struct {
	*core.Pass
	after db.ScanCancelBacklogRow
}

// scan returns the next due members, and deletes requests without members, and members with unreadable ids.
func (s *backlogScan) scan(ctx context.Context, room int) (due []core.Candidate, done int, more bool, err error) {
	rows, err := core.InStatement(ctx, s.Core, s.Op, func(conn db.DBTX, _ *core.Notifications) ([]db.ScanCancelBacklogRow, error) {
		return s.Q.ScanCancelBacklog(ctx, conn, db.ScanCancelBacklogParams{
			AfterDueAtMs: s.after.DueAtMs, AfterPartitionKey: s.after.PartitionKey, AfterFlowID: s.after.FlowID,
			AfterExecutionID: s.after.ExecutionID, PageSize: int32(max(room, core.SmallestTake)), NowMs: s.NowMs(),
		})
	})
	if err != nil || len(rows) == 0 {
		return nil, 0, false, err
	}
	s.after = rows[len(rows)-1]
	var dead []backlogMember
	for _, row := range rows {
		flow := id.FlowID(row.FlowID.Bytes)
		x, err := id.ParseExecutionID(row.ExecutionID)
		if err == nil && x.Partition() == row.PartitionKey {
			due = append(due, core.Candidate{Partition: row.PartitionKey, Execution: x.UUID(), Flow: &flow})
			continue
		}
		dead = append(dead, backlogMember{row.PartitionKey, flow, row.ExecutionID})
		if row.ExecutionID != "" {
			s.Log.Warn("skipping a member of a cancelled flow because its id can't be read: inspect ff_cancel_backlog_member",
				"flow", flow)
		}
	}
	if len(dead) > 0 {
		done, err = s.drop(ctx, dead)
	}
	return due, done, true, err
}

// drop deletes members without changing executions, and requests left empty.
func (s *backlogScan) drop(ctx context.Context, dead []backlogMember) (int, error) {
	return core.InTx(ctx, s.Core, s.Op, func(tx *core.Txn) (int, error) {
		flows := core.NewFlowSet(s.Partitions)
		for _, m := range dead {
			flows.Admit(&m.flow)
		}
		taken, err := s.takeRequests(ctx, tx, flows)
		if err != nil {
			return 0, err
		}
		dead := slices.DeleteFunc(slices.Clone(dead), func(m backlogMember) bool { _, ok := taken[m.flow]; return !ok })
		_, err = s.takeOff(ctx, tx, dead, taken)
		return len(dead), err
	})
}

// takeRequests locks the requests of flows, skipping locked ones, and returns their reasons.
func (s *backlogScan) takeRequests(ctx context.Context, tx *core.Txn, flows *core.FlowSet) (map[id.FlowID]string, error) {
	partitions, ids := flows.Arrays()
	rows, err := s.Q.TakeCancelBacklogs(ctx, tx, db.TakeCancelBacklogsParams{PartitionKeys: partitions, FlowIDs: ids})
	reasons := make(map[id.FlowID]string, len(rows))
	for _, row := range rows {
		reasons[row.FlowID.Bytes] = row.Reason
	}
	return reasons, err
}

// takeOff removes members from their locked requests, and returns how many.
func (s *backlogScan) takeOff(ctx context.Context, tx *core.Txn, members []backlogMember, taken map[id.FlowID]string) (int, error) {
	var params db.DropBacklogMembersParams
	for _, m := range members {
		params.PartitionKeys = append(params.PartitionKeys, m.partition)
		params.FlowIDs = append(params.FlowIDs, core.PgUUID(m.flow))
		params.ExecutionIDs = append(params.ExecutionIDs, m.text)
	}
	n, err := s.Q.DropBacklogMembers(ctx, tx, params)
	if err != nil {
		return 0, err
	}
	flows := core.NewFlowSet(s.Partitions)
	for flow := range taken {
		flows.Add(flow)
	}
	partitions, ids := flows.Arrays()
	_, err = s.Q.DropEmptyBacklogs(ctx, tx, db.DropEmptyBacklogsParams{PartitionKeys: partitions, FlowIDs: ids})
	return int(n), err
}

// act cancels members, and removes ended ones from their requests. The flows are held exclusively.
func (s *backlogScan) act(ctx context.Context, tx *core.Txn, flows *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	due = slices.Clone(due[:min(len(due), limit)])
	slices.SortFunc(due, func(a, b core.Candidate) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), bytes.Compare(a.Execution[:], b.Execution[:]))
	})
	concerned := core.NewFlowSet(s.Partitions)
	for _, c := range due {
		concerned.Add(*c.Flow)
	}
	taken, err := s.takeRequests(ctx, tx, concerned)
	if err != nil || len(taken) == 0 {
		return 0, err
	}
	due = slices.DeleteFunc(due, func(c core.Candidate) bool { _, ok := taken[*c.Flow]; return !ok })
	live, flowsOf, err := s.liveAmong(ctx, tx, due)
	if err != nil {
		return 0, err
	}
	locked, err := s.TakeMembers(ctx, tx, live)
	if err != nil {
		return 0, err
	}
	if err := s.end(ctx, tx, locked, flowsOf, taken); err != nil {
		return 0, err
	}
	held := make(map[pgtype.UUID]bool)
	for _, x := range live.Executions {
		held[x] = true
	}
	for _, x := range locked.Executions {
		delete(held, x)
	}
	var over []backlogMember
	for _, c := range due {
		if !held[core.PgUUID(c.Execution)] {
			over = append(over, backlogMember{c.Partition, *c.Flow, id.ExecutionIDFromRow(c.Partition, c.Execution).String()})
		}
	}
	return s.takeOff(ctx, tx, over, taken)
}

// liveAmong returns the due members of their requests' flows which have not ended, with the flows. A request may also
// name a member of another flow.
func (s *backlogScan) liveAmong(
	ctx context.Context, tx *core.Txn, due []core.Candidate,
) (live core.ExecutionArrays, flows map[id.ExecutionUUID]id.FlowID, err error) {
	var asked core.ExecutionArrays
	for _, c := range due {
		asked.Add(c.Partition, c.Execution)
	}
	rows, err := s.Q.ReadExecutionForecasts(ctx, tx, db.ReadExecutionForecastsParams{
		PartitionKeys: asked.Partitions, ExecutionIDs: asked.Executions, Ords: asked.Ords(),
	})
	flows = make(map[id.ExecutionUUID]id.FlowID, len(rows))
	for _, row := range rows {
		if c := due[row.Ord]; row.FlowID != nil && *row.FlowID == *c.Flow && !core.IsTerminalPhase(row.LifecyclePhase) {
			live.Add(c.Partition, c.Execution)
			flows[c.Execution] = *c.Flow
		}
	}
	return live, flows, err
}

// end cancels locked members, for the reasons of their flows' requests.
func (s *backlogScan) end(
	ctx context.Context, tx *core.Txn, locked core.ExecutionArrays, flows map[id.ExecutionUUID]id.FlowID, reasons map[id.FlowID]string,
) error {
	if locked.Empty() {
		return nil
	}
	nowMs, err := s.Q.GetNow(ctx, tx, s.NowMs())
	if err != nil {
		return err
	}
	ends := core.NewCancelling(nowMs)
	for _, x := range locked.IDs() {
		ends.Add(x, core.Cancellation{
			Reason: cmp.Or(reasons[flows[x.UUID()]], core.DefaultFlowCancelReason), Source: core.CancelledByFlowRequested, RevokedBy: core.RevokedByOperator,
		})
	}
	_, err = s.EndCancelled(ctx, tx, ends)
	return err
}

// backlogMember is a row of ff_cancel_backlog_member.
type backlogMember struct {
	partition int16
	flow      id.FlowID
	text      string // the stored execution id
}
