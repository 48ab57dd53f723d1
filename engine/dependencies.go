package engine

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// maxSkipLevels bounds the levels of executions that one transaction skips. What lies deeper is left to
// the dependency reconciler, by an event that is not marked as dispatched.
const maxSkipLevels = 64

// endedExecution is an execution that the running transaction has ended.
type endedExecution struct {
	id       id.ExecutionID
	flow     *id.FlowID
	outcome  state.CompletionOutcome
	hasQuota bool
}

// resolveAndRecord does what every transition into a terminal state does besides its own writes: it
// resolves the dependents, gives quota slots back, and appends the completion events, last. All of ended
// have one outcome; the caller holds the locks of their flows, shared for success, else exclusive.
func (e *Engine) resolveAndRecord(ctx context.Context, tx *txn, ended []endedExecution, nowMs int64) error {
	if len(ended) == 0 {
		return nil
	}
	tx.rings.completions()
	all, undispatched := ended, len(ended)
	needsResolving := true
	if ended[0].outcome == state.CompletionSuccess {
		groups, err := e.lockGroups(ctx, tx, memberArrays(ended))
		if err != nil {
			return err
		}
		needsResolving = groups > 0
	}
	if needsResolving {
		var err error
		if all, undispatched, err = e.resolveDependents(ctx, tx, ended, nowMs); err != nil {
			return err
		}
	}
	return e.record(ctx, tx, all, undispatched, nowMs)
}

// lockGroups locks the groups that succeeded members count for, and returns for how many downstreams.
func (e *Engine) lockGroups(ctx context.Context, conn db.DBTX, members flowMemberArrays) (int64, error) {
	if members.empty() {
		return 0, nil
	}
	return e.q.LockDownstreamGroups(ctx, conn, db.LockDownstreamGroupsParams{
		PartitionKeys: members.partitions, FlowIds: members.flows, ExecutionIds: members.executions,
	})
}

// resolveDependents resolves what depends on ended executions, and on what is skipped because of it. It
// returns all that has ended then, upstream first; what stands there from undispatched on lies too deep,
// and the dependency reconciler carries on from it. Of a success the caller has locked the groups.
func (e *Engine) resolveDependents(
	ctx context.Context, tx *txn, ended []endedExecution, nowMs int64,
) (all []endedExecution, undispatched int, err error) {
	all = ended
	frontier := ended
	for level := 0; len(frontier) > 0; level++ {
		if level == maxSkipLevels {
			return all, len(all) - len(frontier), nil
		}
		skipped, err := e.resolve(ctx, tx, frontier, nowMs)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, skipped...)
		frontier = skipped
	}
	return all, len(all), nil
}

// record gives the quota slots of ended executions back and appends their completion events.
func (e *Engine) record(ctx context.Context, tx *txn, all []endedExecution, undispatched int, nowMs int64) error {
	var slots db.ReleaseQuotaSlotsParams
	events := db.InsertCompletionEventsParams{NowMs: nowMs}
	for i, x := range all {
		if x.hasQuota {
			slots.PartitionKeys = append(slots.PartitionKeys, x.id.Partition())
			slots.ExecutionIds = append(slots.ExecutionIds, pgUUID(x.id.UUID()))
		}
		events.PartitionKeys = append(events.PartitionKeys, x.id.Partition())
		events.ExecutionIds = append(events.ExecutionIds, pgUUID(x.id.UUID()))
		events.Outcomes = append(events.Outcomes, string(x.outcome))
		events.Dispatched = append(events.Dispatched, i < undispatched)
	}
	if len(slots.ExecutionIds) > 0 {
		if err := e.q.ReleaseQuotaSlots(ctx, tx, slots); err != nil {
			return err
		}
	}
	return e.q.InsertCompletionEvents(ctx, tx, events)
}

// resolve counts the edges of ended members in the groups they lead to, and acts on each group that this
// decides: its downstream is released or skipped. It returns what was skipped.
//
// Each edge counts once: resolving marks it. A group acts once: when its decision changes from undecided.
func (e *Engine) resolve(ctx context.Context, tx *txn, frontier []endedExecution, nowMs int64) ([]endedExecution, error) {
	members := memberArrays(frontier)
	if members.empty() {
		return nil, nil
	}
	outcome := frontier[0].outcome
	groups, err := e.q.ResolveEdges(ctx, tx, db.ResolveEdgesParams{
		PartitionKeys: members.partitions, FlowIds: members.flows, ExecutionIds: members.executions,
		Outcome: string(outcome), NowMs: nowMs,
	})
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	slices.SortFunc(groups, func(a, b db.ResolveEdgesRow) int {
		return cmp.Or(cmp.Compare(a.PartitionKey, b.PartitionKey), compareUUID(a.DownstreamEid, b.DownstreamEid))
	})
	var release, skip, siblings decidedArrays
	passes := false
	for i := range groups {
		g := &groups[i]
		passes = passes || g.PassesData
		rules, decision, staged := decide(g, outcome.Bucket())
		switch decision {
		case policy.Satisfied:
			release.add(g, staged)
		case policy.Impossible:
			skip.add(g, staged)
		default:
			continue
		}
		if rules.CancelsRemaining() && !g.CancelSiblingsPendingFlag {
			siblings.add(g, staged)
		}
	}
	if passes && outcome == state.CompletionSuccess {
		if err := e.q.PassResults(ctx, tx, db.PassResultsParams{
			PartitionKeys: members.partitions, FlowIds: members.flows, ExecutionIds: members.executions, NowMs: nowMs,
		}); err != nil {
			return nil, err
		}
	}
	if err := e.releaseDownstream(ctx, tx, release, nowMs); err != nil {
		return nil, err
	}
	skipped, err := e.skipDownstream(ctx, tx, skip, nowMs)
	if err != nil {
		return nil, err
	}
	if !siblings.empty() {
		if err := e.q.EnqueueSiblingCancels(ctx, tx, db.EnqueueSiblingCancelsParams{
			PartitionKeys: siblings.partitions, FlowIds: siblings.flows, DownstreamEids: siblings.executions,
			StagedFrom: siblings.stagedFrom, StagedBelow: siblings.stagedBelow, NowMs: nowMs,
		}); err != nil {
			return nil, err
		}
	}
	return skipped, nil
}

// stagedRange is the numbers of edges, staged and not applied yet, with which a decision is to be acted
// on: from and more, but fewer than below.
type stagedRange struct {
	from, below int32
}

// decide returns a group's decision if the edges just counted changed it, else Undecided. A policy that
// cannot be read leaves its group undecided: a read of the flow reports it.
//
// An edge that is staged and not applied yet holds a group open too, but the counters do not know of it.
// With as many of them as the range says, the group was undecided before and is decided now: the
// statements that act on the decision count them, and they are rare.
func decide(g *db.ResolveEdgesRow, bucket state.Bucket) (policy.Group, policy.Decision, stagedRange) {
	rules, err := policy.GroupFromStored(g.Policy)
	if err != nil {
		return policy.Group{}, policy.Undecided, stagedRange{}
	}
	success, fail, skip := int64(g.SuccessCount), int64(g.FailCount), int64(g.SkipCount)
	n := success + fail + skip + int64(g.RunningCount)
	opened := func() int32 {
		if m := rules.OpenedBy(n, success, fail, skip); m > 0 {
			return int32(m)
		}
		return math.MaxInt32
	}
	decision := rules.Evaluate(n, success, fail, skip)
	if decision == policy.Undecided {
		return rules, policy.Undecided, stagedRange{}
	}
	staged := stagedRange{below: opened()}
	counted := int64(g.Edges)
	switch bucket {
	case state.BucketSuccess:
		success -= counted
	case state.BucketSkip:
		skip -= counted
	default:
		fail -= counted
	}
	if rules.Evaluate(n, success, fail, skip) != policy.Undecided {
		staged.from = opened()
	}
	if staged.from >= staged.below {
		return rules, policy.Undecided, stagedRange{}
	}
	return rules, decision, staged
}

func (e *Engine) releaseDownstream(ctx context.Context, tx *txn, downstream decidedArrays, nowMs int64) error {
	if downstream.empty() {
		return nil
	}
	rows, err := e.q.ReleaseDownstream(ctx, tx, db.ReleaseDownstreamParams{
		PartitionKeys: downstream.partitions, FlowIds: downstream.flows, ExecutionIds: downstream.executions,
		StagedFrom: downstream.stagedFrom, StagedBelow: downstream.stagedBelow, NowMs: nowMs,
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Claimable {
			tx.rings.lane(row.LaneID)
		}
	}
	return nil
}

func (e *Engine) skipDownstream(ctx context.Context, tx *txn, downstream decidedArrays, nowMs int64) ([]endedExecution, error) {
	if downstream.empty() {
		return nil, nil
	}
	rows, err := e.q.SkipDownstream(ctx, tx, db.SkipDownstreamParams{
		PartitionKeys: downstream.partitions, FlowIds: downstream.flows, ExecutionIds: downstream.executions,
		StagedFrom: downstream.stagedFrom, StagedBelow: downstream.stagedBelow, NowMs: nowMs,
	})
	if err != nil {
		return nil, err
	}
	skipped := make([]endedExecution, len(rows))
	var started executionArrays
	for i, row := range rows {
		skipped[i] = endedExecution{
			id:       id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			flow:     flowOf(row.FlowID),
			outcome:  state.CompletionSkipped,
			hasQuota: row.HasQuota,
		}
		if row.HasStarted {
			started.add(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
		}
	}
	if started.empty() {
		return skipped, nil
	}
	return skipped, e.q.EndSkippedAttempts(ctx, tx, db.EndSkippedAttemptsParams{
		PartitionKeys: started.partitions, ExecutionIds: started.executions, NowMs: nowMs,
	})
}

// executionArrays are executions as the columns of an input table.
type executionArrays struct {
	partitions []int16
	executions []pgtype.UUID
}

func (a *executionArrays) add(partition int16, execution id.ExecutionUUID) {
	a.partitions = append(a.partitions, partition)
	a.executions = append(a.executions, pgUUID(execution))
}

func (a *executionArrays) empty() bool { return len(a.executions) == 0 }

// decidedArrays are the downstream executions of decided groups.
type decidedArrays struct {
	executionArrays
	flows                   []pgtype.UUID
	stagedFrom, stagedBelow []int32
}

func (a *decidedArrays) add(g *db.ResolveEdgesRow, staged stagedRange) {
	a.executionArrays.add(g.PartitionKey, g.DownstreamEid)
	a.flows = append(a.flows, pgUUID(g.FlowID))
	a.stagedFrom = append(a.stagedFrom, staged.from)
	a.stagedBelow = append(a.stagedBelow, staged.below)
}

type flowMemberArrays struct {
	executionArrays
	flows []pgtype.UUID
}

// addMember adds an execution unless it is in no flow.
func (a *flowMemberArrays) addMember(x id.ExecutionID, flow *id.FlowID) {
	if flow != nil {
		a.add(x.Partition(), x.UUID())
		a.flows = append(a.flows, pgUUID(*flow))
	}
}

func memberArrays(ended []endedExecution) flowMemberArrays {
	var members flowMemberArrays
	for _, x := range ended {
		members.addMember(x.id, x.flow)
	}
	return members
}

// sort puts the executions in lock order.
func (a *executionArrays) sort() { sort.Sort(a) }

func (a *executionArrays) Len() int { return len(a.executions) }

func (a *executionArrays) Less(i, j int) bool {
	return cmp.Or(
		cmp.Compare(a.partitions[i], a.partitions[j]),
		bytes.Compare(a.executions[i].Bytes[:], a.executions[j].Bytes[:]),
	) < 0
}

func (a *executionArrays) Swap(i, j int) {
	a.partitions[i], a.partitions[j] = a.partitions[j], a.partitions[i]
	a.executions[i], a.executions[j] = a.executions[j], a.executions[i]
}
