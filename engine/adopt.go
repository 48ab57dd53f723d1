package engine

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/adopt"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// adoptAfter is how long Adopt leaves an execution of another program alone if it may still become a member of a flow.
// Its creator adds it to the flow, and stages its edges, in separate calls.
const adoptAfter = 30 * time.Second

// Adopt converts executions that another program created, such as a FlowFabric server, to the form of this library.
// Afterwards they are claimable, or blocked by their policy, flow, budgets or quotas. It handles at most batch
// executions, oldest first, and returns how many it adopted; call it again while that equals batch.
//
// It does nothing, and reads no execution, unless the database is shared: `ff migrate share`, or schema.Share.
//
// An execution in its lane's partition is adopted at once. One in another partition may belong to a flow, and is
// adopted 30 seconds after its creation. Leased or granted executions keep their state. [Maintenance.RepairQueue] finds
// changes that another program left half-done.
//
// Errors: [ErrInvalidInput]. Transaction: one per batch of executions without a flow, and one per 256 flows; locks the
// flows of members exclusively, then executions, then their groups, and skips locked ones for the next call. Emits
// completion events for skipped executions. Safe to repeat and to run in any number of processes.
func (m Maintenance) Adopt(ctx context.Context, batch int) (int, error) {
	e := m.e
	const op = "adopt"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanForeignParams{
		AfterCreatedAtMs: math.MinInt64, AfterPartitionKey: math.MinInt16, AfterExecutionID: pgtype.UUID{Valid: true},
		NowMs: e.nowMs(), PageSize: scanPage,
	}
	return e.newPass(op, e.adoptFound).through(ctx, batch, func(int) ([]candidate, int, bool, error) {
		rows, err := e.q.ScanForeign(ctx, e.reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, wrap(op, err)
		}
		last := rows[len(rows)-1]
		position.AfterCreatedAtMs, position.AfterPartitionKey = last.CreatedAtMs, last.PartitionKey
		position.AfterExecutionID = pgUUID(last.ExecutionID)
		var due []candidate
		for i := range rows {
			row := &rows[i]
			alone := row.FlowID == nil && row.PartitionKey == e.cfg.Partitions.LanePartition(id.LaneID(row.LaneID))
			if alone || row.CreatedAtMs <= row.NowMs-adoptAfter.Milliseconds() {
				due = append(due, candidate{
					partition: row.PartitionKey, execution: row.ExecutionID, flow: row.FlowID, quota: e.quotaPartition(row.QuotaPolicyID),
				})
			}
		}
		return due, 0, len(rows) == scanPage, nil
	})
}

// quotaPartition returns the partition that holds the slots of a quota policy, or 0 if text names none.
func (e *Engine) quotaPartition(text string) int16 {
	quota, err := id.ParseQuotaPolicyID(text)
	if err != nil {
		return 0
	}
	return e.cfg.Partitions.QuotaPartition(quota)
}

// ListenForeign calls wake when another program has created executions to adopt, and after every (re)connection, until
// ctx ends. It shares the connection of [Engine.Listen]. wake must not block. Only a shared database sends such
// notifications: see [JobsTaken].Shared.
//
// Errors: ctx's error. ListenForeign reconnects after a lost connection instead of returning.
func (m Maintenance) ListenForeign(ctx context.Context, wake func()) error {
	if err := pgtx.Refusal(m.e.tx); err != nil {
		return wrap("listen for foreign executions", err)
	}
	return m.e.listener.Listen(ctx, foreignChannel, func(string) { wake() })
}

// adoptFound adopts those due executions that it can lock, at most limit. It holds the flows of members exclusively.
func (e *Engine) adoptFound(ctx context.Context, tx *txn, flows *flowSet, due []candidate, limit int) (int, error) {
	due = slices.Clone(due[:min(len(due), limit)])
	slices.SortFunc(due, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.execution[:], b.execution[:]))
	})
	held, impossible, rowless, err := e.judgeMembers(ctx, tx, due)
	if err != nil {
		return 0, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return 0, err
	}
	params := db.TakeForeignParams{}
	for _, c := range due {
		params.PartitionKeys = append(params.PartitionKeys, c.partition)
		params.ExecutionIDs = append(params.ExecutionIDs, pgUUID(c.execution))
		flow := pgtype.UUID{}
		if c.flow != nil {
			flow = pgUUID(*c.flow)
		}
		params.FlowIDs = append(params.FlowIDs, flow)
		params.Held = append(params.Held, held[c.execution])
		params.QuotaPartitions = append(params.QuotaPartitions, c.quota)
	}
	taken, err := e.q.TakeForeign(ctx, tx, params)
	if err != nil {
		return 0, err
	}
	var adopted []db.AdoptExecutionsRow
	if len(taken) > 0 {
		if adopted, err = e.q.AdoptExecutions(ctx, tx, adopt.Changes(taken, nowMs)); err != nil {
			return 0, err
		}
	}
	for _, row := range adopted {
		if row.Claimable {
			tx.due.lane(row.LaneID)
		}
	}
	skipped, err := e.skipDownstream(ctx, tx, impossible, nowMs)
	if err != nil {
		return 0, err
	}
	unfit, err := e.makeGroups(ctx, tx, rowless, nowMs)
	if err != nil {
		return 0, err
	}
	return len(adopted), e.resolveAndRecord(ctx, tx, append(skipped, unfit...), nowMs)
}

// makeGroups creates the missing rows of groups, counts their edges and applies the decisions. It returns the skipped
// executions.
func (e *Engine) makeGroups(ctx context.Context, tx *txn, keys []groupKey, nowMs int64) ([]endedExecution, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	if err := e.ensureGroups(ctx, tx, keys); err != nil {
		return nil, err
	}
	_, skipped, err := e.recountGroups(ctx, tx, keys, nil, nowMs)
	return skipped, err
}

// judgeMembers locks the members among due that have not started, and their groups. It returns the members that their
// dependencies hold back, those with impossible dependencies (also in held), and the groups that have no row yet.
func (e *Engine) judgeMembers(ctx context.Context, tx *txn, due []candidate) (
	held map[id.ExecutionUUID]bool, impossible decidedArrays, rowless []groupKey, err error,
) {
	var members executionArrays
	for _, c := range due {
		if c.flow != nil {
			members.add(c.partition, c.execution)
		}
	}
	if members.empty() {
		return nil, impossible, nil, nil
	}
	taken, err := e.q.TakeForeignMembers(ctx, tx, db.TakeForeignMembersParams{
		PartitionKeys: members.partitions, ExecutionIDs: members.executions,
	})
	if err != nil || len(taken) == 0 {
		return nil, impossible, nil, err
	}
	var waiting flowMemberArrays
	for _, row := range taken {
		waiting.addMember(id.ExecutionIDFromRow(row.PartitionKey, row.ExecutionID), row.FlowID)
	}
	groups, err := e.q.ReadInboundGroups(ctx, tx, db.ReadInboundGroupsParams{
		PartitionKeys: waiting.partitions, FlowIDs: waiting.flows, ExecutionIDs: waiting.executions,
	})
	held = make(map[id.ExecutionUUID]bool, len(groups))
	for _, g := range groups {
		decision := document.Undecided
		if !g.HasGroup {
			rowless = append(rowless, groupKey{g.PartitionKey, g.FlowID.Bytes, g.ExecutionID.Bytes})
		} else {
			// An unreadable policy holds its execution. Reading the flow reports it.
			if rules, err := document.GroupFromStored(g.Policy); err == nil {
				decision = rules.Decide(g.SuccessCount, g.FailCount, g.SkipCount, g.RunningCount, g.Staged)
			}
		}
		if decision == document.Satisfied {
			continue
		}
		held[g.ExecutionID.Bytes] = true
		if decision == document.Impossible {
			impossible.executionArrays.add(g.PartitionKey, g.ExecutionID.Bytes)
			impossible.flows = append(impossible.flows, g.FlowID)
			impossible.stagedFrom = append(impossible.stagedFrom, 0)
			impossible.stagedBelow = append(impossible.stagedBelow, math.MaxInt32)
		}
	}
	return held, impossible, rowless, err
}
