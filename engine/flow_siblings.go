package engine

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Why and on whose behalf an upstream is cancelled that is no longer needed.
const (
	reasonSatisfied    = "sibling_quorum_satisfied"
	reasonImpossible   = "sibling_quorum_impossible"
	cancelledByEngine  = "engine"
	maxSiblingsAtATime = 10_000 // in one transaction, but for those of a single group
)

// CancelSiblings cancels the upstreams that groups with [policy.CancelRemaining] no longer need: of groups that have been
// decided, either way, oldest first, at most batch of them. It returns how many it has done with; the caller repeats it
// while that is batch or more. An upstream that another execution still waits for is spared, and so is one whose group
// is undecided again, because an upstream was replayed. Their workers are told, as by [Engine.CancelExecution], and what
// can no longer run is skipped.
//
// Whoever runs it in a loop calls it every second or so, and at once when [Maintenance.Unneeded] says so, as package
// reconcile does.
//
// Transaction: one for the groups of at most 256 flows, of a constant number of statements whatever the number of groups
// and upstreams, plus one round for each level of executions skipped. Locks the flows, exclusively, groups, the upstreams
// and their attempts, and what depends on these. It waits for nobody: what others hold is left for a later call, but for
// up to 8 flows that it stands in line for, 50 ms each. Emits lease and completion events. Safe to repeat and to run in
// any number of processes.
func (m Maintenance) CancelSiblings(ctx context.Context, batch int) (int, error) {
	e := m.e
	const op = "cancel siblings"
	if err := checkBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanSiblingCancelsParams{
		AfterEnqueuedAtMs: math.MinInt64, AfterPartitionKey: math.MinInt16,
		AfterFlowID: pgtype.UUID{Valid: true}, AfterDownstreamEID: pgtype.UUID{Valid: true}, PageSize: scanPage,
	}
	return e.newPass(op, e.cancelSiblings).through(ctx, batch, func(int) ([]candidate, int, bool, error) {
		rows, err := e.q.ScanSiblingCancels(ctx, e.reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, wrap(op, err)
		}
		last := &rows[len(rows)-1]
		position.AfterEnqueuedAtMs, position.AfterPartitionKey = last.EnqueuedAtMs, last.PartitionKey
		position.AfterFlowID, position.AfterDownstreamEID = pgUUID(last.FlowID), pgUUID(last.DownstreamEID)
		due := make([]candidate, len(rows))
		for i := range rows {
			due[i] = candidate{partition: rows[i].PartitionKey, execution: rows[i].DownstreamEID, flow: &rows[i].FlowID}
		}
		return due, 0, len(rows) == scanPage, nil
	})
}

// Unneeded returns a channel that holds a value once this engine has committed a transaction of its own that left
// something to [Maintenance.CancelSiblings]. It holds one at most, and each goes to one receiver. What other processes
// and transactions of callers leave wakes nobody: it is found by calling now and then.
func (m Maintenance) Unneeded() <-chan struct{} { return m.e.unneeded }

// enqueueSiblingCancels lists what newly decided groups no longer need, for [Maintenance.CancelSiblings].
func (e *Engine) enqueueSiblingCancels(ctx context.Context, tx *txn, decided decidedArrays, nowMs int64) error {
	if decided.empty() {
		return nil
	}
	tx.due.unneeded = true
	return e.q.EnqueueSiblingCancels(ctx, tx, db.EnqueueSiblingCancelsParams{
		PartitionKeys: decided.partitions, FlowIDs: decided.flows, DownstreamEIDs: decided.executions,
		StagedFrom: decided.stagedFrom, StagedBelow: decided.stagedBelow, NowMs: nowMs,
	})
}

// cancelRemaining are those of decided groups that cancel what remains of their upstreams.
func cancelRemaining(decided []decidedGroup) (groups decidedArrays) {
	for i := range decided {
		if d := &decided[i]; d.cancels {
			groups.add(d)
		}
	}
	return groups
}

// groupArrays are groups, by the executions that wait, as the columns of an input table.
type groupArrays struct {
	flowMemberArrays
	ords []int32
}

func (a *groupArrays) addGroup(c candidate, ord int) {
	a.addMember(id.ExecutionIDFromRow(c.partition, c.execution), c.flow)
	a.ords = append(a.ords, int32(ord))
}

// cancelSiblings does it for those of due that it can lock, at most limit, and returns how many groups it has done with.
// It holds the flows exclusively.
func (e *Engine) cancelSiblings(ctx context.Context, tx *txn, _ *flowSet, due []candidate, limit int) (int, error) {
	due = slices.Clone(due[:min(len(due), limit)])
	slices.SortFunc(due, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.execution[:], b.execution[:]))
	})
	decisions, done, err := e.takeDecidedGroups(ctx, tx, due)
	if err != nil || len(done)+len(decisions) == 0 {
		return 0, err
	}
	siblings, err := e.listSiblings(ctx, tx, due, decisions)
	if err != nil {
		return 0, err
	}
	finished, err := e.cancelUnneeded(ctx, tx, due, decisions, siblings)
	if err != nil {
		return 0, err
	}
	done = append(done, finished...)
	if len(done) == 0 {
		return 0, nil
	}
	var clear groupArrays
	for _, n := range done {
		clear.addGroup(due[n], n)
	}
	return len(done), e.q.ClearSiblingCancels(ctx, tx, db.ClearSiblingCancelsParams{
		PartitionKeys: clear.partitions, FlowIDs: clear.flows, DownstreamEIDs: clear.executions,
	})
}

// takeDecidedGroups locks the groups of due, in lock order, and returns how those are decided of whose upstreams some may
// be left, and which need nothing any more. One that others hold, or that cannot be read, is neither.
func (e *Engine) takeDecidedGroups(
	ctx context.Context, tx *txn, due []candidate,
) (decisions map[int]document.Decision, done []int, err error) {
	var groups groupArrays
	for n, c := range due {
		groups.addGroup(c, n)
	}
	var listed []int32
	var rows []db.TakeGroupsRow
	if err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) (err error) {
			listed, err = e.q.TakeSiblingCancels(ctx, conn, db.TakeSiblingCancelsParams{
				PartitionKeys: groups.partitions, FlowIDs: groups.flows, DownstreamEIDs: groups.executions, Ords: groups.ords,
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			rows, err = e.q.TakeGroups(ctx, conn, db.TakeGroupsParams{
				PartitionKeys: groups.partitions, FlowIDs: groups.flows, DownstreamEIDs: groups.executions, Ords: groups.ords,
			})
			return err
		},
	); err != nil {
		return nil, nil, err
	}
	isListed := make(map[int32]bool, len(listed))
	for _, ord := range listed {
		isListed[ord] = true
	}
	decisions = make(map[int]document.Decision)
	for i := range rows {
		switch g := &rows[i]; {
		case !isListed[g.Ord], g.HasGroup && !g.Taken:
		case !g.Flagged: // or there is no group
			done = append(done, int(g.Ord))
		default:
			rules, err := document.GroupFromStored(g.Policy)
			if err != nil {
				continue // a read of the flow reports it
			}
			decision := rules.Decide(g.SuccessCount, g.FailCount, g.SkipCount, g.RunningCount, g.Staged)
			if decision == document.Undecided || !rules.CancelsRemaining() {
				done = append(done, int(g.Ord))
			} else {
				decisions[int(g.Ord)] = decision
			}
		}
	}
	return decisions, done, nil
}

// listSiblings returns the unfinished upstreams of decided groups that nothing else needs, by group. What more than one
// transaction should cancel it leaves out, with the group.
func (e *Engine) listSiblings(
	ctx context.Context, tx *txn, due []candidate, decisions map[int]document.Decision,
) (map[int][]pgtype.UUID, error) {
	if len(decisions) == 0 {
		return nil, nil
	}
	var groups groupArrays
	for n, c := range due {
		if _, ok := decisions[n]; ok {
			groups.addGroup(c, n)
		}
	}
	rows, err := e.q.ListSiblings(ctx, tx, db.ListSiblingsParams{
		PartitionKeys: groups.partitions, FlowIDs: groups.flows, DownstreamEIDs: groups.executions, Ords: groups.ords,
	})
	if err != nil {
		return nil, err
	}
	needing, err := e.listUndecided(ctx, tx, due, rows)
	if err != nil {
		return nil, err
	}
	siblings := make(map[int][]pgtype.UUID)
	listed := 0
	for i := range rows {
		row := &rows[i]
		n := int(row.Ord)
		if _, ok := decisions[n]; !ok {
			continue
		}
		if len(siblings[n]) == 0 && listed >= maxSiblingsAtATime {
			delete(decisions, n)
			continue
		}
		needed := slices.ContainsFunc(row.Others, func(other pgtype.UUID) bool { return needing[other] })
		if !needed {
			siblings[n] = append(siblings[n], pgUUID(row.ExecutionID))
			listed++
		}
	}
	return siblings, nil
}

// listUndecided returns which of the other executions that wait for siblings do so still, because nothing is decided
// about them or nobody can say.
func (e *Engine) listUndecided(
	ctx context.Context, tx *txn, due []candidate, siblings []db.ListSiblingsRow,
) (map[pgtype.UUID]bool, error) {
	needing := make(map[pgtype.UUID]bool)
	var params db.ReadGroupsOfParams
	for i := range siblings {
		c := due[siblings[i].Ord]
		for _, other := range siblings[i].Others {
			if _, seen := needing[other]; seen {
				continue
			}
			needing[other] = true
			params.PartitionKeys = append(params.PartitionKeys, c.partition)
			params.FlowIDs = append(params.FlowIDs, pgUUID(*c.flow))
			params.ExecutionIDs = append(params.ExecutionIDs, other)
			params.Ords = append(params.Ords, int32(len(params.Ords)))
		}
	}
	if len(needing) == 0 {
		return needing, nil
	}
	rows, err := e.q.ReadGroupsOf(ctx, tx, params)
	for i := range rows {
		row := &rows[i]
		if rules, err := document.GroupFromStored(row.Policy); err == nil {
			decision := rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, row.StagedCount)
			needing[params.ExecutionIDs[row.Ord]] = decision == document.Undecided
		}
	}
	return needing, err
}

// cancelUnneeded cancels those siblings that nobody else holds, and returns the groups of which it left none.
func (e *Engine) cancelUnneeded(
	ctx context.Context, tx *txn, due []candidate, decisions map[int]document.Decision, siblings map[int][]pgtype.UUID,
) (finished []int, err error) {
	type target struct {
		partition int16
		execution pgtype.UUID
	}
	var targets []target
	decided := make(map[pgtype.UUID]document.Decision) // the first group that does not need it says why
	for n := range due {
		for _, sibling := range siblings[n] {
			if _, seen := decided[sibling]; !seen {
				decided[sibling] = decisions[n]
				targets = append(targets, target{due[n].partition, sibling})
			}
		}
	}
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.execution.Bytes[:], b.execution.Bytes[:]))
	})
	var members executionArrays
	for _, t := range targets {
		members.addUUID(t.partition, t.execution)
	}
	taken, err := e.takeMembers(ctx, tx, members)
	if err != nil {
		return nil, err
	}
	nowMs, err := e.q.GetNow(ctx, tx, e.nowMs())
	if err != nil {
		return nil, err
	}
	held := make(map[pgtype.UUID]bool, len(taken.executions))
	var satisfied, impossible executionArrays
	for i, x := range taken.executions {
		held[x] = true
		if decided[x] == document.Satisfied {
			satisfied.addUUID(taken.partitions[i], x)
		} else {
			impossible.addUUID(taken.partitions[i], x)
		}
	}
	if _, err := e.cancelMembers(ctx, tx, satisfied, cancellation{reasonSatisfied, cancelledByEngine, revokedByReconciler}, nowMs); err != nil {
		return nil, err
	}
	if _, err := e.cancelMembers(ctx, tx, impossible, cancellation{reasonImpossible, cancelledByEngine, revokedByReconciler}, nowMs); err != nil {
		return nil, err
	}
	for n := range due {
		if _, ok := decisions[n]; ok && !slices.ContainsFunc(siblings[n], func(x pgtype.UUID) bool { return !held[x] }) {
			finished = append(finished, n)
		}
	}
	return finished, nil
}
