package upkeep

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
)

// Reasons and source of the cancellation of an unneeded upstream.
const (
	reasonSatisfied    = "sibling_quorum_satisfied"
	reasonImpossible   = "sibling_quorum_impossible"
	cancelledByEngine  = "engine"
	maxSiblingsAtATime = 10_000 // per transaction; a single group may have more
)

// CancelSiblings cancels upstreams that decided groups with [policy.CancelRemaining] no longer need. It handles at most
// batch groups, oldest first, and returns how many it finished. In a loop, call CancelSiblings about once per second,
// and at once after [Upkeep.Unneeded], as package reconcile does.
//
// An upstream is spared if another execution still waits for it, or if the group is undecided again after a replay. The
// workers of cancelled upstreams are notified as by [engine.Engine.CancelExecution], and dependents that can no longer
// run are skipped.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one per 256 flows, with a constant number of statements plus one round
// per level of skipped executions. Locks the flows exclusively, groups, the upstreams and their attempts, and
// dependents. Skips locked rows for a later call, but waits 50 ms each for up to 8 locked flows. Emits lease and
// completion events. Safe to repeat and to run in any number of processes.
func (u *Upkeep) CancelSiblings(ctx context.Context, batch int) (int, error) {
	const op = "cancel siblings"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	position := db.ScanSiblingCancelsParams{
		AfterEnqueuedAtMs: math.MinInt64, AfterPartitionKey: math.MinInt16,
		AfterFlowID: pgtype.UUID{Valid: true}, AfterDownstreamEID: pgtype.UUID{Valid: true}, PageSize: core.ScanPage,
	}
	return u.c.NewPass(op, u.cancelSiblings).Through(ctx, batch, func(int) ([]core.Candidate, int, bool, error) {
		rows, err := u.c.Q.ScanSiblingCancels(ctx, u.c.Reader(), position)
		if err != nil || len(rows) == 0 {
			return nil, 0, false, core.Wrap(op, err)
		}
		last := &rows[len(rows)-1]
		position.AfterEnqueuedAtMs, position.AfterPartitionKey = last.EnqueuedAtMs, last.PartitionKey
		position.AfterFlowID, position.AfterDownstreamEID = core.PgUUID(last.FlowID), core.PgUUID(last.DownstreamEID)
		due := make([]core.Candidate, len(rows))
		for i := range rows {
			due[i] = core.Candidate{Partition: rows[i].PartitionKey, Execution: rows[i].DownstreamEID, Flow: &rows[i].FlowID}
		}
		return due, 0, len(rows) == core.ScanPage, nil
	})
}

// Unneeded returns a channel that receives a value after this engine has committed a transaction of its own with work
// for [Upkeep.CancelSiblings]. The channel buffers one value, and each value goes to one receiver. Work from other
// processes or callers' transactions sends no value, so also call CancelSiblings from time to time.
func (u *Upkeep) Unneeded() <-chan struct{} { return u.c.Unneeded }

// siblingGroup is a locked group whose remaining upstreams may be unneeded.
type siblingGroup struct {
	core.Candidate
	decision document.Decision
	done     bool          // nothing is left to do
	left     bool          // beyond the limit of a transaction
	siblings []pgtype.UUID // unfinished upstreams, needed by no other execution
}

// groupsOf converts groups to arrays, by their waiting executions.
func groupsOf(groups []*siblingGroup) (arrays core.FlowMemberArrays) {
	for _, g := range groups {
		addGroup(&arrays, groupKey{g.Partition, *g.Flow, g.Execution})
	}
	return arrays
}

// cancelSiblings handles at most limit due groups, skips locked ones, and returns how many it finished. The flows are
// held exclusively.
func (u *Upkeep) cancelSiblings(ctx context.Context, tx *core.Txn, _ *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	due = slices.Clone(due[:min(len(due), limit)])
	slices.SortFunc(due, func(a, b core.Candidate) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), bytes.Compare(a.Execution[:], b.Execution[:]))
	})
	groups, err := u.takeDecidedGroups(ctx, tx, due)
	if err != nil || len(groups) == 0 {
		return 0, err
	}
	open := slices.DeleteFunc(slices.Clone(groups), func(g *siblingGroup) bool { return g.done })
	if err := u.listSiblings(ctx, tx, open); err != nil {
		return 0, err
	}
	open = slices.DeleteFunc(open, func(g *siblingGroup) bool { return g.left })
	if err := u.cancelUnneeded(ctx, tx, open); err != nil {
		return 0, err
	}
	done := slices.DeleteFunc(groups, func(g *siblingGroup) bool { return !g.done })
	if len(done) == 0 {
		return 0, nil
	}
	clear := groupsOf(done)
	return len(done), u.c.Q.ClearSiblingCancels(ctx, tx, db.ClearSiblingCancelsParams{
		PartitionKeys: clear.Partitions, FlowIDs: clear.Flows, DownstreamEIDs: clear.Executions,
	})
}

// takeDecidedGroups locks and decides the due groups, in lock order, except for locked and unreadable ones.
func (u *Upkeep) takeDecidedGroups(ctx context.Context, tx *core.Txn, due []core.Candidate) (taken []*siblingGroup, err error) {
	groups := make([]*siblingGroup, len(due))
	for i, c := range due {
		groups[i] = &siblingGroup{Candidate: c}
	}
	asked := groupsOf(groups)
	var listed []int32
	var rows []db.TakeGroupsRow
	if err := pgtx.InOneTrip(ctx, tx,
		func(conn db.DBTX) (err error) {
			listed, err = u.c.Q.TakeSiblingCancels(ctx, conn, db.TakeSiblingCancelsParams{
				PartitionKeys: asked.Partitions, FlowIDs: asked.Flows, DownstreamEIDs: asked.Executions, Ords: asked.Ords(),
			})
			return err
		},
		func(conn db.DBTX) (err error) {
			rows, err = u.c.Q.TakeGroups(ctx, conn, db.TakeGroupsParams{
				PartitionKeys: asked.Partitions, FlowIDs: asked.Flows, DownstreamEIDs: asked.Executions, Ords: asked.Ords(),
			})
			return err
		},
	); err != nil {
		return nil, err
	}
	for i := range rows {
		row, g := &rows[i], groups[rows[i].Ord]
		switch {
		case !slices.Contains(listed, row.Ord), row.HasGroup && !row.Taken:
			continue
		case !row.Flagged: // or there is no group
			g.done = true
		default:
			rules, err := document.GroupFromStored(row.Policy)
			if err != nil {
				continue // reading the flow reports it
			}
			g.decision = rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, row.Staged)
			g.done = g.decision == document.Undecided || !rules.CancelsRemaining()
		}
		taken = append(taken, g)
	}
	return taken, nil
}

// listSiblings lists the unfinished upstreams of groups, unless another execution needs the upstream. It marks groups
// beyond the limit of a transaction.
func (u *Upkeep) listSiblings(ctx context.Context, tx *core.Txn, groups []*siblingGroup) error {
	if len(groups) == 0 {
		return nil
	}
	asked := groupsOf(groups)
	rows, err := u.c.Q.ListSiblings(ctx, tx, db.ListSiblingsParams{
		PartitionKeys: asked.Partitions, FlowIDs: asked.Flows, DownstreamEIDs: asked.Executions, Ords: asked.Ords(),
	})
	if err != nil {
		return err
	}
	needing, err := u.listUndecided(ctx, tx, groups, rows)
	if err != nil {
		return err
	}
	listed := 0
	for i := range rows {
		row, g := &rows[i], groups[rows[i].Ord]
		g.left = g.left || len(g.siblings) == 0 && listed >= maxSiblingsAtATime
		if g.left || slices.ContainsFunc(row.Others, func(other pgtype.UUID) bool { return needing[other] }) {
			continue
		}
		g.siblings = append(g.siblings, core.PgUUID(row.ExecutionID))
		listed++
	}
	return nil
}

// listUndecided returns the other executions that still wait for siblings, because their groups are undecided or
// unreadable.
func (u *Upkeep) listUndecided(
	ctx context.Context, tx *core.Txn, groups []*siblingGroup, siblings []db.ListSiblingsRow,
) (map[pgtype.UUID]bool, error) {
	needing := make(map[pgtype.UUID]bool)
	var params db.ReadGroupsOfParams
	for i := range siblings {
		c := groups[siblings[i].Ord]
		for _, other := range siblings[i].Others {
			if _, seen := needing[other]; seen {
				continue
			}
			needing[other] = true
			params.PartitionKeys = append(params.PartitionKeys, c.Partition)
			params.FlowIDs = append(params.FlowIDs, core.PgUUID(*c.Flow))
			params.ExecutionIDs = append(params.ExecutionIDs, other)
			params.Ords = append(params.Ords, int32(len(params.Ords)))
		}
	}
	if len(needing) == 0 {
		return needing, nil
	}
	rows, err := u.c.Q.ReadGroupsOf(ctx, tx, params)
	for i := range rows {
		row := &rows[i]
		if rules, err := document.GroupFromStored(row.Policy); err == nil {
			decision := rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, row.StagedCount)
			needing[params.ExecutionIDs[row.Ord]] = decision == document.Undecided
		}
	}
	return needing, err
}

// cancelUnneeded cancels the siblings of groups, and skips locked ones. Groups without skipped siblings are done.
func (u *Upkeep) cancelUnneeded(ctx context.Context, tx *core.Txn, groups []*siblingGroup) error {
	type target struct {
		partition int16
		execution pgtype.UUID
	}
	var targets []target
	decided := make(map[pgtype.UUID]document.Decision) // the first group of a sibling gives the reason
	for _, g := range groups {
		for _, sibling := range g.siblings {
			if _, seen := decided[sibling]; !seen {
				decided[sibling] = g.decision
				targets = append(targets, target{g.Partition, sibling})
			}
		}
	}
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.execution.Bytes[:], b.execution.Bytes[:]))
	})
	var members core.ExecutionArrays
	for _, t := range targets {
		members.AddUUID(t.partition, t.execution)
	}
	taken, err := u.c.TakeMembers(ctx, tx, members)
	if err != nil {
		return err
	}
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return err
	}
	held := make(map[pgtype.UUID]bool, len(taken.Executions))
	var satisfied, impossible core.ExecutionArrays
	for i, x := range taken.Executions {
		held[x] = true
		if decided[x] == document.Satisfied {
			satisfied.AddUUID(taken.Partitions[i], x)
		} else {
			impossible.AddUUID(taken.Partitions[i], x)
		}
	}
	if _, err := u.c.CancelMembers(ctx, tx, satisfied, core.Cancellation{Reason: reasonSatisfied, Source: cancelledByEngine, RevokedBy: core.RevokedByReconciler}, nowMs); err != nil {
		return err
	}
	if _, err := u.c.CancelMembers(ctx, tx, impossible, core.Cancellation{Reason: reasonImpossible, Source: cancelledByEngine, RevokedBy: core.RevokedByReconciler}, nowMs); err != nil {
		return err
	}
	for _, g := range groups {
		g.done = !slices.ContainsFunc(g.siblings, func(x pgtype.UUID) bool { return !held[x] })
	}
	return nil
}
