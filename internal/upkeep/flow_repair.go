package upkeep

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
)

const (
	// repairEdges is the approximate number of open edges examined by one call of RepairGroups. The group that exceeds
	// the number is the last one.
	repairEdges = 50_000

	// repairTake is the number of groups per transaction.
	repairTake = 100
)

// groupPosition is where the next [Upkeep.RepairGroups] continues.
type groupPosition struct {
	mu    sync.Mutex
	after groupKey // zero: at the first group
}

func (p *groupPosition) get() groupKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.after
}

// move moves the position from the start of a call to the end, unless another call has moved the position.
func (p *groupPosition) move(from, to groupKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after == from {
		p.after = to
	}
}

// RepairGroups counts ends of upstreams that no program has counted or will count, in up to batch groups, at most
// [core.MaxSweep]. FlowFabric leaves uncounted ends if a server crashes between recording and counting, or if retention
// deletes executions with dependents. RepairGroups also repairs edges counted as running by both programs. The groups
// then release or skip their executions. An end is recounted only after 30 seconds, when no other program will count
// it.
//
// It returns how many groups it repaired. Each call continues after the previous one of the same engine, ends early
// after about 50,000 open edges, and restarts after the last group.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: two statements without locks and, for repairs, one transaction per 100
// groups, which locks their flows exclusively, the groups, and dependents, and skips locked ones until the next round.
// Emits completion events of skipped executions. Safe to repeat and to run in any number of processes.
func (u *Upkeep) RepairGroups(ctx context.Context, batch int) (int, error) {
	const op = "repair groups"
	if batch < 1 || batch > core.MaxSweep {
		return 0, core.Invalid("batch", fmt.Sprintf("must be between 1 and %d", core.MaxSweep))
	}
	after := u.groups.get()
	found, next, err := u.scanGroups(ctx, op, after, batch)
	if err != nil {
		return 0, err
	}
	repaired := 0
	p := u.c.NewPass(op, u.repairFound)
	for due := range slices.Chunk(found, repairTake) {
		n, err := p.Work(ctx, due, len(due))
		repaired += n
		if err != nil {
			return repaired, err
		}
	}
	u.groups.move(after, next)
	return repaired, nil
}

// scanGroups returns the groups after a position that seem to need repair, and the next position: the zero key
// restarts.
func (u *Upkeep) scanGroups(ctx context.Context, op string, after groupKey, n int) (found []core.Candidate, next groupKey, err error) {
	params := db.ScanGroupsParams{AfterPartitionKey: -1, PageSize: int32(n), AfterFlowID: core.PgUUID(after.flow), AfterDownstreamEID: core.PgUUID(after.downstream)}
	if after != (groupKey{}) {
		params.AfterPartitionKey = after.partition
	}
	rows, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) ([]db.ScanGroupsRow, error) {
		return u.c.Q.ScanGroups(ctx, conn, params)
	})
	if err != nil {
		return nil, after, err
	}
	type openGroup struct {
		groupKey
		running int64
	}
	var open []openGroup
	edges, whole := int64(0), true
	for i := range rows {
		row := &rows[i]
		next = groupKey{row.PartitionKey, row.FlowID.Bytes, row.DownstreamEID.Bytes}
		if !row.Waits {
			continue
		}
		rules, err := document.GroupFromStored(row.Policy)
		if err != nil {
			continue // reported when the flow is read
		}
		running := rules.Running(int64(row.RunningCount))
		if rules.Decide(row.SuccessCount, row.FailCount, row.SkipCount, row.RunningCount, 0) != document.Undecided {
			if row.Held {
				found = append(found, candidateOf(next))
			}
			continue
		}
		open = append(open, openGroup{next, running})
		if edges += running; edges > repairEdges {
			whole = i == len(rows)-1
			break
		}
	}
	if whole && (len(rows) == 0 || int(rows[0].PageRows) < n) {
		next = groupKey{}
	}
	if len(open) == 0 {
		return found, next, nil
	}
	var asked core.FlowMemberArrays
	var runnings []int64
	for _, g := range open {
		addGroup(&asked, g.groupKey)
		runnings = append(runnings, g.running)
	}
	lost, err := core.InStatement(ctx, u.shortWait().c, op, func(conn db.DBTX, _ *core.Notifications) ([]int32, error) {
		return u.c.Q.ListLostEnds(ctx, conn, db.ListLostEndsParams{
			PartitionKeys: asked.Partitions, FlowIDs: asked.Flows, DownstreamEIDs: asked.Executions, Ords: asked.Ords(),
			RunningCounts: runnings, SettleMs: settleTime.Milliseconds(), NowMs: u.c.NowMs(),
		})
	})
	for _, ord := range lost {
		found = append(found, candidateOf(open[ord].groupKey))
	}
	return found, next, err
}

func candidateOf(key groupKey) core.Candidate {
	return core.Candidate{Partition: key.partition, Execution: key.downstream, Flow: &key.flow}
}

// repairFound repairs due groups, and skips locked ones. The flows are held exclusively.
func (u *Upkeep) repairFound(ctx context.Context, tx *core.Txn, _ *core.FlowSet, due []core.Candidate, limit int) (int, error) {
	keys := make([]groupKey, 0, len(due))
	for _, c := range due[:min(len(due), limit)] {
		keys = append(keys, groupKey{c.Partition, *c.Flow, c.Execution})
	}
	nowMs, err := u.c.Q.GetNow(ctx, tx, u.c.NowMs())
	if err != nil {
		return 0, err
	}
	repaired, skipped, err := u.recountGroups(ctx, tx, keys, nil, nowMs)
	if err != nil {
		return 0, err
	}
	return repaired, u.c.ResolveAndRecord(ctx, tx, skipped, nowMs)
}

// recountUnsound recounts ends in groups where adding is not enough: the group's row is missing and is created, or
// another program has replayed an execution and may have counted an earlier end. It returns all executions skipped as a
// result, down to the given number of levels. The flow is held exclusively.
func (u *Upkeep) recountUnsound(
	ctx context.Context, tx *core.Txn, ended []core.EndedExecution, levels int, nowMs int64,
) (skipped []core.EndedExecution, err error) {
	members := core.MemberArrays(ended)
	if members.Empty() {
		return nil, nil
	}
	rows, err := u.c.Q.ListUnsoundGroups(ctx, tx, db.ListUnsoundGroupsParams{
		PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions,
	})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	keys := make([]groupKey, len(rows))
	for i, row := range rows {
		keys[i] = groupKey{row.PartitionKey, row.FlowID, row.DownstreamEID}
	}
	if err := u.ensureGroups(ctx, tx, keys); err != nil {
		return nil, err
	}
	ending := make(endings, len(ended))
	for _, x := range ended {
		ending[x.ID.UUID()] = x.Outcome
	}
	if _, skipped, err = u.recountGroups(ctx, tx, keys, ending, nowMs); err != nil || len(skipped) == 0 {
		return nil, err
	}
	return u.c.ResolveAll(ctx, tx, skipped, levels, nowMs)
}

// ensureGroups creates the missing rows of groups. keys are in lock order, and their flows are held exclusively.
func (u *Upkeep) ensureGroups(ctx context.Context, tx *core.Txn, keys []groupKey) error {
	var groups core.FlowMemberArrays
	for _, key := range keys {
		addGroup(&groups, key)
	}
	return u.c.Q.EnsureGroups(ctx, tx, db.EnsureGroupsParams{
		PartitionKeys: groups.Partitions, FlowIDs: groups.Flows, DownstreamEIDs: groups.Executions,
	})
}
