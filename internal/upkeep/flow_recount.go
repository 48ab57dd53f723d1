package upkeep

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
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/state"
)

// settleTime is how long another program may take to count a reported end. After this time we assume that it never
// will.
const settleTime = 30 * time.Second

// groupKey is the key of a group: the waiting execution and its flow.
type groupKey struct {
	partition  int16
	flow       id.FlowID
	downstream id.ExecutionUUID
}

func addGroup(a *core.FlowMemberArrays, key groupKey) {
	a.ExecutionArrays.Add(key.partition, key.downstream)
	a.Flows = append(a.Flows, core.PgUUID(key.flow))
}

// endings maps the executions whose ends are being counted now to their outcomes.
type endings map[id.ExecutionUUID]state.CompletionOutcome

// recountGroups recomputes the counters of groups from their edges, marks the edges, and releases or skips the waiting
// downstreams of decided groups. It returns how many groups it changed and the skipped executions, whose own dependents
// the caller must resolve. Locked groups and undecidable ones are left alone.
//
// An end is counted once, however often recountGroups runs and whichever program counted before. The caller holds the
// flows exclusively.
func (u *Upkeep) recountGroups(
	ctx context.Context, tx *core.Txn, keys []groupKey, ending endings, nowMs int64,
) (changed int, skipped []core.EndedExecution, err error) {
	slices.SortFunc(keys, func(a, b groupKey) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), bytes.Compare(a.downstream[:], b.downstream[:]))
	})
	groups, err := u.readGroups(ctx, tx, keys)
	if err != nil {
		return 0, nil, err
	}
	undispatched, err := u.undispatchedAmong(ctx, tx, groups)
	if err != nil {
		return 0, nil, err
	}
	var decided []core.DecidedGroup
	recounted := make([]*recounting, 0, len(groups))
	for _, g := range groups {
		g.recount(ending, undispatched, nowMs)
		decision, acts := g.decide()
		if !g.changed() && !acts {
			continue
		}
		recounted = append(recounted, g)
		if acts {
			decided = append(decided, core.DecidedGroup{
				ResolveEdgesRow: &db.ResolveEdgesRow{
					PartitionKey: g.key.partition, FlowID: g.key.flow, DownstreamEID: g.key.downstream, Policy: g.Policy,
					CancelSiblingsPendingFlag: g.CancelSiblingsPendingFlag,
				},
				Decision: decision, Staged: core.StagedRange{Below: math.MaxInt32},
				Cancels: g.rules.CancelsRemaining() && !g.CancelSiblingsPendingFlag,
			})
		}
	}
	var left core.LeftEdges
	if skipped, err = u.c.MoveDownstream(ctx, tx, decided, &left, nowMs); err != nil {
		return 0, nil, err
	}
	// If a downstream is in an unknown state, its group is counted later, together with the change of the downstream.
	recounted = slices.DeleteFunc(recounted, func(g *recounting) bool { return slices.Contains(left.Executions, core.PgUUID(g.key.downstream)) })
	if err := u.writeRecounted(ctx, tx, recounted, nowMs); err != nil {
		return 0, nil, err
	}
	return len(recounted), skipped, u.c.EnqueueSiblingCancels(ctx, tx, core.CancelRemaining(decided), nowMs)
}

// readGroups locks groups and reads their edges, except for unreadable and locked groups.
func (u *Upkeep) readGroups(ctx context.Context, tx *core.Txn, keys []groupKey) ([]*recounting, error) {
	var asked core.FlowMemberArrays
	for _, key := range keys {
		addGroup(&asked, key)
	}
	rows, err := u.c.Q.TakeUnsoundGroups(ctx, tx, db.TakeUnsoundGroupsParams{
		PartitionKeys: asked.Partitions, FlowIDs: asked.Flows, DownstreamEIDs: asked.Executions, Ords: asked.Ords(),
	})
	if err != nil {
		return nil, err
	}
	var taken core.FlowMemberArrays
	var groups []*recounting
	for i := range rows {
		rules, err := document.GroupFromStored(rows[i].Policy)
		if err != nil {
			continue // reported when the flow is read
		}
		g := &recounting{TakeUnsoundGroupsRow: &rows[i], key: keys[rows[i].Ord], rules: rules}
		addGroup(&taken, g.key)
		groups = append(groups, g)
	}
	if len(groups) == 0 {
		return nil, nil
	}
	edges, err := u.c.Q.ReadGroupEdges(ctx, tx, db.ReadGroupEdgesParams{
		PartitionKeys: taken.Partitions, FlowIDs: taken.Flows, DownstreamEIDs: taken.Executions, Ords: taken.Ords(),
	})
	for i := range edges {
		g := groups[edges[i].Ord]
		g.edges = append(g.edges, groupEdge{&edges[i]})
	}
	return groups, err
}

// undispatchedAmong returns the upstreams of groups whose ends a dispatcher will still count.
func (u *Upkeep) undispatchedAmong(ctx context.Context, tx *core.Txn, groups []*recounting) (map[id.ExecutionUUID]bool, error) {
	var ended []pgtype.UUID
	for _, g := range groups {
		for _, edge := range g.edges {
			if edge.Applied && edge.CountedAs == "" && edge.ended() {
				ended = append(ended, core.PgUUID(edge.UpstreamEID))
			}
		}
	}
	if len(ended) == 0 {
		return nil, nil
	}
	rows, err := u.c.Q.ListUndispatched(ctx, tx, ended)
	undispatched := make(map[id.ExecutionUUID]bool, len(rows))
	for _, x := range rows {
		undispatched[x] = true
	}
	return undispatched, err
}

func (u *Upkeep) writeRecounted(ctx context.Context, tx *core.Txn, groups []*recounting, nowMs int64) error {
	if len(groups) == 0 {
		return nil
	}
	params := db.RecountGroupsParams{NowMs: nowMs}
	var passing core.FlowMemberArrays
	for _, g := range groups {
		params.PartitionKeys = append(params.PartitionKeys, g.key.partition)
		params.FlowIDs = append(params.FlowIDs, core.PgUUID(g.key.flow))
		params.DownstreamEIDs = append(params.DownstreamEIDs, core.PgUUID(g.key.downstream))
		params.SuccessCounts = append(params.SuccessCounts, int32(g.now.success))
		params.FailCounts = append(params.FailCounts, int32(g.now.fail))
		params.SkipCounts = append(params.SkipCounts, int32(g.now.skip))
		params.RunningCounts = append(params.RunningCounts, g.rules.StoredRunning(g.now.running))
		params.KTargets = append(params.KTargets, g.kTarget())
		for _, mark := range g.marks {
			params.EdgePartitionKeys = append(params.EdgePartitionKeys, g.key.partition)
			params.EdgeFlowIDs = append(params.EdgeFlowIDs, core.PgUUID(g.key.flow))
			params.EdgeUpstreamEIDs = append(params.EdgeUpstreamEIDs, core.PgUUID(mark.edge.UpstreamEID))
			params.EdgeIDs = append(params.EdgeIDs, core.PgUUID(mark.edge.EdgeID))
			params.EdgeOutcomes = append(params.EdgeOutcomes, string(mark.outcome))
			if mark.edge.PassesData && mark.outcome == state.CompletionSuccess {
				passing.Add(g.key.partition, mark.edge.UpstreamEID)
				passing.Flows = append(passing.Flows, core.PgUUID(g.key.flow))
			}
		}
	}
	if err := u.c.Q.RecountGroups(ctx, tx, params); err != nil || passing.Empty() {
		return err
	}
	return u.c.Q.PassResults(ctx, tx, db.PassResultsParams{
		PartitionKeys: passing.Partitions, FlowIDs: passing.Flows, ExecutionIDs: passing.Executions, NowMs: nowMs,
	})
}

// recounting is a locked group with its edges, and the derived counts.
type recounting struct {
	*db.TakeUnsoundGroupsRow
	key   groupKey
	rules document.Group
	edges []groupEdge
	now   edgeCounts
	marks []edgeMark
}

// groupEdge is an edge with the state of the upstream.
type groupEdge struct{ *db.ReadGroupEdgesRow }

type edgeMark struct {
	edge    groupEdge
	outcome state.CompletionOutcome
}

// edgeCounts are the numbers of a group's edges by outcome. Staged edges are not counted as running.
type edgeCounts struct {
	success, fail, skip, running, staged int64
}

func (c *edgeCounts) of(bucket state.Bucket) *int64 {
	switch bucket {
	case state.BucketSuccess:
		return &c.success
	case state.BucketSkip:
		return &c.skip
	}
	return &c.fail
}

func (c *edgeCounts) all() int64 { return c.success + c.fail + c.skip + c.running + c.staged }
