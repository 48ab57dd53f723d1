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
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// adoptAfter is how long an execution of another program waits that may yet become a member of a flow: its creator adds
// it to the flow, and stages its edges, in calls of their own.
const adoptAfter = 30 * time.Second

// Adopt brings executions that another program has created on the database, as a FlowFabric server does, into the
// form of this library, oldest first, at most batch of them: then they are claimable here, or blocked as their policy,
// their flow, their budgets and quotas want it. Nothing of FlowFabric on Postgres does that by itself. It returns how
// many it adopted; the caller repeats it while that equals batch.
//
// An execution in the partition of its lane is adopted at once. One in another partition is, or may become, a member of a
// flow, and is adopted half a minute after its creation: blocked where its dependencies are open, and skipped where they
// are impossible. What somebody has a lease or a grant of gets the facts that this library keeps in columns, and stays as
// it is otherwise.
//
// What another program leaves half-done of executions that are known, [Maintenance.RepairQueue] finds.
//
// It waits for nobody. An execution that another transaction holds, or whose flow it holds, is passed over, however
// many there are, and found again by the next call.
//
// Errors: [ErrInvalidInput]. Transaction: one for a batch of executions without a flow, one for 256 flows and less; locks
// the flows of members, exclusively, executions, then their groups. Emits completion events for what it skips. Safe to
// repeat and to run in any number of processes.
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

// quotaPartition is where the slots of a quota policy are; 0 if text names none.
func (e *Engine) quotaPartition(text string) int16 {
	quota, err := id.ParseQuotaPolicyID(text)
	if err != nil {
		return 0
	}
	return e.cfg.Partitions.QuotaPartition(quota)
}

// ListenForeign calls wake when another program has created executions that are to be adopted, until ctx ends, and now
// and then without that: after every (re)connection. It waits as [Engine.Listen] does, on the same connection. wake must
// not block.
//
// It returns ctx's error; a lost connection is no error: it reconnects.
func (m Maintenance) ListenForeign(ctx context.Context, wake func()) error {
	if err := pgtx.Refusal(m.e.tx); err != nil {
		return wrap("listen for foreign executions", err)
	}
	return m.e.listener.Listen(ctx, foreignChannel, func(string) { wake() })
}

// adoptFound adopts what of due it can lock, at most limit. It holds the flows of members exclusively.
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
	params := db.AdoptExecutionsParams{NowMs: nowMs}
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
	adopted, err := e.q.AdoptExecutions(ctx, tx, params)
	if err != nil {
		return 0, err
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

// makeGroups makes groups that have no row, counts what their edges come to, and acts on it. It returns what was skipped.
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

// judgeMembers locks the members among due that have not started, and their groups, and returns which of them their
// dependencies hold, those included whose dependencies are impossible, and those whose group has no row to be judged by.
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
			// What cannot be read holds its execution: a read of the flow reports it.
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
