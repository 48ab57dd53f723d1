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
	"github.com/flowfabric/flowfabric-go/state"
)

// maxSkipLevels limits the levels of executions that one transaction skips. Deeper levels are left to
// [Maintenance.DispatchCompletions], by events that are not marked as dispatched.
const maxSkipLevels = 64

// endedExecution is an execution that the current transaction has ended.
type endedExecution struct {
	id      id.ExecutionID
	flow    *id.FlowID
	outcome state.CompletionOutcome

	// exclusive means that it succeeded, but its flow is held exclusively, so executions that waited for a failure may
	// be skipped.
	exclusive bool

	// once means that no other program has replayed it, so no earlier end of it was counted.
	once bool

	// left means that some of its dependents are unresolved, so its event stays undispatched.
	left bool
}

// resolveAndRecord applies the consequences of every transition into a terminal state: it resolves the dependents,
// and finally appends the completion events. All of ended have the same outcome. The caller holds
// the locks of their flows, shared for success, otherwise exclusive.
func (e *Engine) resolveAndRecord(ctx context.Context, tx *txn, ended []endedExecution, nowMs int64) error {
	if len(ended) == 0 {
		return nil
	}
	tx.due.completions()
	all, err := e.resolveAll(ctx, tx, ended, maxSkipLevels, nowMs)
	if err != nil {
		return err
	}
	return e.record(ctx, tx, all, nowMs)
}

// resolveAll is resolveDependents, but first locks the groups of a success.
func (e *Engine) resolveAll(
	ctx context.Context, tx *txn, ended []endedExecution, levels int, nowMs int64,
) ([]endedExecution, error) {
	var groups int64
	if ended[0].outcome == state.CompletionSuccess {
		var err error
		if groups, err = e.lockGroups(ctx, tx, memberArrays(ended)); err != nil || groups == 0 {
			return ended, err
		}
	}
	return e.resolveDependents(ctx, tx, ended, groups, levels, nowMs)
}

// lockGroups locks the groups that successful members count for, and returns the number of downstreams.
func (e *Engine) lockGroups(ctx context.Context, conn db.DBTX, members flowMemberArrays) (int64, error) {
	if members.empty() {
		return 0, nil
	}
	return e.q.LockDownstreamGroups(ctx, conn, db.LockDownstreamGroupsParams{
		PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions,
	})
}

// resolveDependents resolves the dependents of ended executions, and of executions skipped as a result, for at most the
// given number of levels. It returns all ended executions, upstream first. It sets left on those with unresolved
// dependents, which are too deep or can't be decided now. For a success the caller has locked the groups and passes
// their number.
func (e *Engine) resolveDependents(
	ctx context.Context, tx *txn, ended []endedExecution, groups int64, levels int, nowMs int64,
) (all []endedExecution, err error) {
	all = ended
	resolved := int64(0)
	var unsure []endedExecution // some of their edges may have been marked but not counted
	for frontier := ended; len(frontier) > 0; levels-- {
		if levels == 0 {
			for i := range frontier {
				frontier[i].left = true
			}
			tx.due.undispatched()
			break
		}
		skipped, n, whole, err := e.resolve(ctx, tx, frontier, nowMs)
		if err != nil {
			return nil, err
		}
		resolved += int64(n)
		if !whole {
			unsure = append(unsure, frontier...)
		}
		all = append(all, skipped...)
		frontier = all[len(all)-len(skipped):]
	}
	if len(all) == len(ended) && ended[0].once && ended[0].outcome == state.CompletionSuccess && resolved == groups {
		return all, nil
	}
	return all, e.leaveUncounted(ctx, tx, unsure, all)
}

// record appends the completion events of ended executions.
func (e *Engine) record(ctx context.Context, tx *txn, all []endedExecution, nowMs int64) error {
	if len(all) == 0 {
		return nil
	}
	events := db.InsertCompletionEventsParams{NowMs: nowMs}
	for _, x := range all {
		events.PartitionKeys = append(events.PartitionKeys, x.id.Partition())
		events.ExecutionIDs = append(events.ExecutionIDs, pgUUID(x.id.UUID()))
		events.Outcomes = append(events.Outcomes, string(x.outcome))
		events.Dispatched = append(events.Dispatched, !x.left)
	}
	return e.q.InsertCompletionEvents(ctx, tx, events)
}

// resolve counts the edges of ended members in their downstream groups, and acts on each group that this decides: it
// releases or skips the downstream. It returns the skipped executions, the number of groups found, and whether these
// are certainly all. It marks the executions of frontier whose edges it left, because a group or downstream is in an
// unknown state, or because they succeeded and a downstream that waits for a failure must be skipped, which requires
// the flow's exclusive lock.
//
// Each edge counts once, because resolving marks it. A group acts once, when its decision changes from undecided.
func (e *Engine) resolve(
	ctx context.Context, tx *txn, frontier []endedExecution, nowMs int64,
) (skipped []endedExecution, found int, whole bool, err error) {
	members := memberArrays(frontier)
	if members.empty() {
		return nil, 0, true, nil
	}
	outcome := frontier[0].outcome
	groups, err := e.q.ResolveEdges(ctx, tx, db.ResolveEdgesParams{
		PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions,
		Outcome: string(outcome), LooksForReplays: !frontier[0].once, NowMs: nowMs,
	})
	if err != nil || len(groups) == 0 {
		return nil, 0, false, err
	}
	slices.SortFunc(groups, func(a, b db.ResolveEdgesRow) int {
		return cmp.Or(cmp.Compare(a.PartitionKey, b.PartitionKey), compareUUID(a.DownstreamEID, b.DownstreamEID))
	})
	passes, counted := false, 0
	over := endedAmong(frontier)
	var decided []decidedGroup
	var left leftEdges
	var rules document.Group
	for i := range groups {
		g := &groups[i]
		passes = passes || g.PassesData
		counted += len(g.EdgeIDs)
		// Most groups of a flow have the same policy.
		if i == 0 || err != nil || !bytes.Equal(g.Policy, groups[i-1].Policy) {
			rules, err = document.GroupFromStored(g.Policy)
		}
		if err != nil {
			left.add(g.PartitionKey, g.FlowID, g.DownstreamEID, g.EdgeIDs) // reading the flow reports it
			continue
		}
		if decision, staged := decide(g, rules, outcome.Bucket()); decision != document.Undecided {
			if outcome == state.CompletionSuccess && decision == document.Impossible && !frontier[0].exclusive {
				left.add(g.PartitionKey, g.FlowID, g.DownstreamEID, g.EdgeIDs)
				tx.due.undispatched()
				continue
			}
			cancels := rules.CancelsRemaining() && !g.CancelSiblingsPendingFlag
			decided = append(decided, decidedGroup{g, decision, staged, over[g.DownstreamEID], cancels})
		}
	}
	if passes && outcome == state.CompletionSuccess {
		if err := e.q.PassResults(ctx, tx, db.PassResultsParams{
			PartitionKeys: members.partitions, FlowIDs: members.flows, ExecutionIDs: members.executions, NowMs: nowMs,
		}); err != nil {
			return nil, 0, false, err
		}
	}
	skipped, err = e.moveDownstream(ctx, tx, decided, &left, nowMs)
	if err != nil {
		return nil, 0, false, err
	}
	if err := e.leaveEdges(ctx, tx, &left, frontier); err != nil {
		return nil, 0, false, err
	}
	whole = int64(counted) == groups[0].Marked
	return skipped, len(groups), whole, e.enqueueSiblingCancels(ctx, tx, cancelRemaining(decided), nowMs)
}

// endedAmong returns the set of ended executions if there are several, because some may wait for others.
func endedAmong(frontier []endedExecution) map[id.ExecutionUUID]bool {
	if len(frontier) == 1 {
		return nil
	}
	over := make(map[id.ExecutionUUID]bool, len(frontier))
	for _, x := range frontier {
		over[x.id.UUID()] = true
	}
	return over
}

// decidedGroup is a group that was just decided.
type decidedGroup struct {
	*db.ResolveEdgesRow
	decision document.Decision
	staged   stagedRange
	over     bool // its downstream ended together with its upstreams
	cancels  bool // the rest of its upstreams
}

// stagedRange is the range of counts of staged, unapplied edges for which a decision applies: at least from, and less
// than below.
type stagedRange struct {
	from, below int32
}

// decide returns a group's decision if the edges just counted changed it, and Undecided otherwise.
//
// A staged, unapplied edge also holds a group open, but the counters don't include it. If their number is in the range,
// the group was undecided before and is decided now. The statements that act on the decision count them; they are rare.
func decide(g *db.ResolveEdgesRow, rules document.Group, bucket state.Bucket) (document.Decision, stagedRange) {
	success, fail, skip := int64(g.SuccessCount), int64(g.FailCount), int64(g.SkipCount)
	n := success + fail + skip + rules.Running(int64(g.RunningCount))
	opened := func() int32 {
		if m := rules.OpenedBy(n, success, fail, skip); m > 0 {
			return int32(m)
		}
		return math.MaxInt32
	}
	decision := rules.Evaluate(n, success, fail, skip)
	if decision == document.Undecided {
		return document.Undecided, stagedRange{}
	}
	staged := stagedRange{below: opened()}
	counted := int64(len(g.EdgeIDs))
	switch bucket {
	case state.BucketSuccess:
		success -= counted
	case state.BucketSkip:
		skip -= counted
	default:
		fail -= counted
	}
	if rules.Evaluate(n, success, fail, skip) != document.Undecided {
		staged.from = opened()
	}
	if staged.from >= staged.below {
		return document.Undecided, stagedRange{}
	}
	return decision, staged
}

// moveDownstream releases and skips the downstreams of decided groups, and returns the skipped ones. If a decided
// downstream is in a state that the decision can't change, its edges are added to left.
func (e *Engine) moveDownstream(
	ctx context.Context, tx *txn, decided []decidedGroup, left *leftEdges, nowMs int64,
) ([]endedExecution, error) {
	var release, skip decidedArrays
	for i := range decided {
		switch d := &decided[i]; {
		case d.over:
		case d.decision == document.Satisfied:
			release.add(d)
		default:
			skip.add(d)
		}
	}
	released, err := e.releaseDownstream(ctx, tx, release, nowMs)
	if err != nil {
		return nil, err
	}
	skipped, err := e.skipDownstream(ctx, tx, skip, nowMs)
	if err != nil || len(released)+len(skipped) == len(release.executions)+len(skip.executions) {
		return skipped, err
	}
	moved := make(map[id.ExecutionUUID]struct{}, len(decided))
	for _, row := range released {
		moved[row.ExecutionID] = struct{}{}
	}
	for _, x := range skipped {
		moved[x.id.UUID()] = struct{}{}
	}
	return skipped, e.leavePassedOver(ctx, tx, decided, moved, left)
}

func (e *Engine) releaseDownstream(
	ctx context.Context, tx *txn, downstream decidedArrays, nowMs int64,
) ([]db.ReleaseDownstreamRow, error) {
	if downstream.empty() {
		return nil, nil
	}
	rows, err := e.q.ReleaseDownstream(ctx, tx, db.ReleaseDownstreamParams{
		PartitionKeys: downstream.partitions, FlowIDs: downstream.flows, ExecutionIDs: downstream.executions,
		StagedFrom: downstream.stagedFrom, StagedBelow: downstream.stagedBelow, NowMs: nowMs,
	})
	for _, row := range rows {
		switch {
		case row.Claimable:
			tx.due.lane(row.LaneID)
		case row.Gated:
			tx.due.gated()
		}
	}
	return rows, err
}

func (e *Engine) skipDownstream(ctx context.Context, tx *txn, downstream decidedArrays, nowMs int64) ([]endedExecution, error) {
	if downstream.empty() {
		return nil, nil
	}
	rows, err := e.q.SkipDownstream(ctx, tx, db.SkipDownstreamParams{
		PartitionKeys: downstream.partitions, FlowIDs: downstream.flows, ExecutionIDs: downstream.executions,
		StagedFrom: downstream.stagedFrom, StagedBelow: downstream.stagedBelow, NowMs: nowMs,
	})
	if err != nil {
		return nil, err
	}
	skipped := make([]endedExecution, len(rows))
	var started executionArrays
	for i, row := range rows {
		skipped[i] = endedExecution{
			id:      id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			flow:    flowOf(row.FlowID),
			outcome: state.CompletionSkipped,
		}
		if row.HasStarted {
			started.add(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
		}
	}
	if started.empty() {
		return skipped, nil
	}
	return skipped, e.q.EndSkippedAttempts(ctx, tx, db.EndSkippedAttemptsParams{
		PartitionKeys: started.partitions, ExecutionIDs: started.executions, NowMs: nowMs,
	})
}

// decidedArrays are the downstream executions of decided groups.
type decidedArrays struct {
	executionArrays
	flows                   []pgtype.UUID
	stagedFrom, stagedBelow []int32
}

func (a *decidedArrays) add(d *decidedGroup) {
	a.executionArrays.add(d.PartitionKey, d.DownstreamEID)
	a.flows = append(a.flows, pgUUID(d.FlowID))
	a.stagedFrom = append(a.stagedFrom, d.staged.from)
	a.stagedBelow = append(a.stagedBelow, d.staged.below)
}

func memberArrays(ended []endedExecution) flowMemberArrays {
	var members flowMemberArrays
	for _, x := range ended {
		members.addMember(x.id, x.flow)
	}
	return members
}

// addGroup adds the downstream of a group whose decision includes its staged edges.
func (a *decidedArrays) addGroup(flow id.FlowID, downstream id.ExecutionID) {
	a.executionArrays.add(downstream.Partition(), downstream.UUID())
	a.flows = append(a.flows, pgUUID(flow))
	a.stagedFrom = append(a.stagedFrom, 0)
	a.stagedBelow = append(a.stagedBelow, math.MaxInt32)
}

// leftEdges are edges that stay open although their upstreams have ended, with their downstream groups.
type leftEdges struct {
	flowMemberArrays
	edges []pgtype.UUID
}

func (l *leftEdges) add(partition int16, flow id.FlowID, downstream id.ExecutionUUID, edges []pgtype.UUID) {
	l.executionArrays.add(partition, downstream)
	l.flows = append(l.flows, pgUUID(flow))
	l.edges = append(l.edges, edges...)
}

// cancelRemaining returns the decided groups that cancel the rest of their upstreams.
func cancelRemaining(decided []decidedGroup) (groups decidedArrays) {
	for i := range decided {
		if d := &decided[i]; d.cancels {
			groups.add(d)
		}
	}
	return groups
}

// enqueueSiblingCancels records newly decided groups whose remaining upstreams may be unneeded, for
// [Maintenance.CancelSiblings].
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
