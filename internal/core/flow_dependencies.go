package core

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

// MaxSkipLevels limits the levels of executions skipped by one transaction. Deeper levels are left to the job
// dispatch_completions, by events not marked as dispatched.
const MaxSkipLevels = 64

// EndedExecution is an execution ended by the current transaction.
type EndedExecution struct {
	ID      id.ExecutionID
	Flow    *id.FlowID
	Outcome state.CompletionOutcome

	// Exclusive means that it succeeded while the flow is held exclusively, so executions waiting for a failure may be
	// skipped.
	Exclusive bool

	// Once means that no other program has replayed the execution, so no earlier end was counted.
	Once bool

	// Left means that some dependents are unresolved, so the event stays undispatched.
	Left bool
}

// ResolveAndRecord applies the consequences of every transition into a terminal state: it resolves the dependents, and
// finally appends the completion events. All of ended have the same outcome. The caller holds the locks of their flows,
// shared for success, otherwise exclusive.
func (c *Core) ResolveAndRecord(ctx context.Context, tx *Txn, ended []EndedExecution, nowMs int64) error {
	if len(ended) == 0 {
		return nil
	}
	tx.Due.Completions()
	all, err := c.ResolveAll(ctx, tx, ended, MaxSkipLevels, nowMs)
	if err != nil {
		return err
	}
	return c.Record(ctx, tx, all, nowMs)
}

// ResolveAll is ResolveDependents, but first locks the groups of a success.
func (c *Core) ResolveAll(
	ctx context.Context, tx *Txn, ended []EndedExecution, levels int, nowMs int64,
) ([]EndedExecution, error) {
	var groups int64
	if ended[0].Outcome == state.CompletionSuccess {
		var err error
		if groups, err = c.LockGroups(ctx, tx, MemberArrays(ended)); err != nil || groups == 0 {
			return ended, err
		}
	}
	return c.ResolveDependents(ctx, tx, ended, groups, levels, nowMs)
}

// LockGroups locks the downstream groups of successful members, and returns the number of downstreams.
func (c *Core) LockGroups(ctx context.Context, conn db.DBTX, members FlowMemberArrays) (int64, error) {
	if members.Empty() {
		return 0, nil
	}
	return c.Q.LockDownstreamGroups(ctx, conn, db.LockDownstreamGroupsParams{
		PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions,
	})
}

// ResolveDependents resolves the dependents of ended executions, and of executions skipped as a result, for at most the
// given number of levels. It returns all ended executions, upstream first, with Left set on executions with unresolved
// dependents, which are too deep or can't be decided now. For a success the caller has locked the groups and gives
// their number.
func (c *Core) ResolveDependents(
	ctx context.Context, tx *Txn, ended []EndedExecution, groups int64, levels int, nowMs int64,
) (all []EndedExecution, err error) {
	all = ended
	resolved := int64(0)
	var unsure []EndedExecution // some of their edges may have been marked but not counted
	for frontier := ended; len(frontier) > 0; levels-- {
		if levels == 0 {
			for i := range frontier {
				frontier[i].Left = true
			}
			tx.Due.undispatched()
			break
		}
		skipped, n, whole, err := c.resolve(ctx, tx, frontier, nowMs)
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
	if len(all) == len(ended) && ended[0].Once && ended[0].Outcome == state.CompletionSuccess && resolved == groups {
		return all, nil
	}
	return all, c.leaveUncounted(ctx, tx, unsure, all)
}

// Record appends the completion events of ended executions.
func (c *Core) Record(ctx context.Context, tx *Txn, all []EndedExecution, nowMs int64) error {
	if len(all) == 0 {
		return nil
	}
	events := db.InsertCompletionEventsParams{NowMs: &nowMs}
	for _, x := range all {
		events.PartitionKeys = append(events.PartitionKeys, x.ID.Partition())
		events.ExecutionIDs = append(events.ExecutionIDs, PgUUID(x.ID.UUID()))
		events.Outcomes = append(events.Outcomes, string(x.Outcome))
		events.Dispatched = append(events.Dispatched, !x.Left)
	}
	return c.Q.InsertCompletionEvents(ctx, tx, events)
}

// resolve counts the edges of ended members in their downstream groups, and releases or skips the downstream of each
// group decided now. It returns the skipped executions, the number of groups found, and whether these are certainly
// all. Executions of frontier are marked if edges stay open: because a group or downstream is in an unknown state, or
// because of a success after which a downstream waiting for a failure must be skipped, which requires the flow's
// exclusive lock.
//
// Each edge counts once, because resolving marks the edge. A group acts once, when the decision changes from undecided.
func (c *Core) resolve(
	ctx context.Context, tx *Txn, frontier []EndedExecution, nowMs int64,
) (skipped []EndedExecution, found int, whole bool, err error) {
	members := MemberArrays(frontier)
	if members.Empty() {
		return nil, 0, true, nil
	}
	outcome := frontier[0].Outcome
	groups, err := c.Q.ResolveEdges(ctx, tx, db.ResolveEdgesParams{
		PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions,
		Outcome: string(outcome), LooksForReplays: !frontier[0].Once, NowMs: nowMs,
	})
	if err != nil || len(groups) == 0 {
		return nil, 0, false, err
	}
	slices.SortFunc(groups, func(a, b db.ResolveEdgesRow) int {
		return cmp.Or(cmp.Compare(a.PartitionKey, b.PartitionKey), CompareUUID(a.DownstreamEID, b.DownstreamEID))
	})
	passes, counted := false, 0
	over := endedAmong(frontier)
	var decided []DecidedGroup
	var left LeftEdges
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
			left.add(g.PartitionKey, g.FlowID, g.DownstreamEID, g.EdgeIDs) // reported when the flow is read
			continue
		}
		if decision, staged := decide(g, rules, outcome.Bucket()); decision != document.Undecided {
			if outcome == state.CompletionSuccess && decision == document.Impossible && !frontier[0].Exclusive {
				left.add(g.PartitionKey, g.FlowID, g.DownstreamEID, g.EdgeIDs)
				tx.Due.undispatched()
				continue
			}
			cancels := rules.CancelsRemaining() && !g.CancelSiblingsPendingFlag
			decided = append(decided, DecidedGroup{g, decision, staged, over[g.DownstreamEID], cancels})
		}
	}
	if passes && outcome == state.CompletionSuccess {
		if err := c.Q.PassResults(ctx, tx, db.PassResultsParams{
			PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions, NowMs: nowMs,
		}); err != nil {
			return nil, 0, false, err
		}
	}
	skipped, err = c.MoveDownstream(ctx, tx, decided, &left, nowMs)
	if err != nil {
		return nil, 0, false, err
	}
	if err := c.leaveEdges(ctx, tx, &left, frontier); err != nil {
		return nil, 0, false, err
	}
	whole = int64(counted) == groups[0].Marked
	return skipped, len(groups), whole, c.EnqueueSiblingCancels(ctx, tx, CancelRemaining(decided), nowMs)
}

// endedAmong returns the set of ended executions if there are several, because some may wait for others.
func endedAmong(frontier []EndedExecution) map[id.ExecutionUUID]bool {
	if len(frontier) == 1 {
		return nil
	}
	over := make(map[id.ExecutionUUID]bool, len(frontier))
	for _, x := range frontier {
		over[x.ID.UUID()] = true
	}
	return over
}

// DecidedGroup is a group decided just now.
type DecidedGroup struct {
	*db.ResolveEdgesRow
	Decision document.Decision
	Staged   StagedRange
	over     bool // the downstream ended together with the upstreams
	Cancels  bool // cancels the remaining upstreams
}

// StagedRange is the range of counts of staged, unapplied edges for which a decision applies: at least from, and less
// than below.
type StagedRange struct {
	from, Below int32
}

// decide returns a group's decision if the edges just counted changed it, and Undecided otherwise.
//
// A staged, unapplied edge also holds a group open, but the counters don't include it. If the number of these edges is
// in the range, the group was undecided before and is decided now. The statements that act on the decision count staged
// edges, which are rare.
func decide(g *db.ResolveEdgesRow, rules document.Group, bucket state.Bucket) (document.Decision, StagedRange) {
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
		return document.Undecided, StagedRange{}
	}
	staged := StagedRange{Below: opened()}
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
	if staged.from >= staged.Below {
		return document.Undecided, StagedRange{}
	}
	return decision, staged
}

// MoveDownstream releases and skips the downstreams of decided groups, and returns the skipped ones. If the decision
// can't change the state of a downstream, the downstream's edges are added to left.
func (c *Core) MoveDownstream(
	ctx context.Context, tx *Txn, decided []DecidedGroup, left *LeftEdges, nowMs int64,
) ([]EndedExecution, error) {
	var release, skip DecidedArrays
	for i := range decided {
		switch d := &decided[i]; {
		case d.over:
		case d.Decision == document.Satisfied:
			release.add(d)
		default:
			skip.add(d)
		}
	}
	released, err := c.ReleaseDownstream(ctx, tx, release, nowMs)
	if err != nil {
		return nil, err
	}
	skipped, err := c.SkipDownstream(ctx, tx, skip, nowMs)
	if err != nil || len(released)+len(skipped) == len(release.Executions)+len(skip.Executions) {
		return skipped, err
	}
	moved := make(map[id.ExecutionUUID]struct{}, len(decided))
	for _, row := range released {
		moved[row.ExecutionID] = struct{}{}
	}
	for _, x := range skipped {
		moved[x.ID.UUID()] = struct{}{}
	}
	return skipped, c.leavePassedOver(ctx, tx, decided, moved, left)
}

// ReleaseDownstream makes the executions of satisfied groups eligible, and returns the changed ones.
func (c *Core) ReleaseDownstream(
	ctx context.Context, tx *Txn, downstream DecidedArrays, nowMs int64,
) ([]db.ReleaseDownstreamRow, error) {
	if downstream.Empty() {
		return nil, nil
	}
	rows, err := c.Q.ReleaseDownstream(ctx, tx, db.ReleaseDownstreamParams{
		PartitionKeys: downstream.Partitions, FlowIDs: downstream.flows, ExecutionIDs: downstream.Executions,
		StagedFrom: downstream.stagedFrom, StagedBelow: downstream.stagedBelow, NowMs: nowMs,
	})
	for _, row := range rows {
		switch {
		case row.Claimable:
			tx.Due.Lane(row.LaneID)
		case row.Gated:
			tx.Due.Gated()
		}
	}
	return rows, err
}

// SkipDownstream ends the executions of groups that can no longer be satisfied, and returns the ended ones.
func (c *Core) SkipDownstream(ctx context.Context, tx *Txn, downstream DecidedArrays, nowMs int64) ([]EndedExecution, error) {
	if downstream.Empty() {
		return nil, nil
	}
	rows, err := c.Q.SkipDownstream(ctx, tx, db.SkipDownstreamParams{
		PartitionKeys: downstream.Partitions, FlowIDs: downstream.flows, ExecutionIDs: downstream.Executions,
		StagedFrom: downstream.stagedFrom, StagedBelow: downstream.stagedBelow, NowMs: nowMs,
	})
	if err != nil {
		return nil, err
	}
	skipped := make([]EndedExecution, len(rows))
	var started ExecutionArrays
	for i, row := range rows {
		skipped[i] = EndedExecution{
			ID:      id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			Flow:    FlowOf(row.FlowID),
			Outcome: state.CompletionSkipped,
		}
		if row.HasStarted {
			started.Add(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes))
		}
	}
	if started.Empty() {
		return skipped, nil
	}
	return skipped, c.Q.EndSkippedAttempts(ctx, tx, db.EndSkippedAttemptsParams{
		PartitionKeys: started.Partitions, ExecutionIDs: started.Executions, NowMs: nowMs,
	})
}

// DecidedArrays are the downstream executions of decided groups.
type DecidedArrays struct {
	ExecutionArrays
	flows                   []pgtype.UUID
	stagedFrom, stagedBelow []int32
}

func (a *DecidedArrays) add(d *DecidedGroup) {
	a.ExecutionArrays.Add(d.PartitionKey, d.DownstreamEID)
	a.flows = append(a.flows, PgUUID(d.FlowID))
	a.stagedFrom = append(a.stagedFrom, d.Staged.from)
	a.stagedBelow = append(a.stagedBelow, d.Staged.Below)
}

// MemberArrays returns the members of flows among ended executions.
func MemberArrays(ended []EndedExecution) FlowMemberArrays {
	var members FlowMemberArrays
	for _, x := range ended {
		members.AddMember(x.ID, x.Flow)
	}
	return members
}

// AddGroup adds the downstream of a group whose decision includes staged edges.
func (a *DecidedArrays) AddGroup(flow id.FlowID, downstream id.ExecutionID) {
	a.ExecutionArrays.Add(downstream.Partition(), downstream.UUID())
	a.flows = append(a.flows, PgUUID(flow))
	a.stagedFrom = append(a.stagedFrom, 0)
	a.stagedBelow = append(a.stagedBelow, math.MaxInt32)
}

// LeftEdges are edges left open although their upstreams have ended, with their downstream groups.
type LeftEdges struct {
	FlowMemberArrays
	edges []pgtype.UUID
}

func (l *LeftEdges) add(partition int16, flow id.FlowID, downstream id.ExecutionUUID, edges []pgtype.UUID) {
	l.ExecutionArrays.Add(partition, downstream)
	l.Flows = append(l.Flows, PgUUID(flow))
	l.edges = append(l.edges, edges...)
}

// CancelRemaining returns the decided groups whose remaining upstreams are to be cancelled.
func CancelRemaining(decided []DecidedGroup) (groups DecidedArrays) {
	for i := range decided {
		if d := &decided[i]; d.Cancels {
			groups.add(d)
		}
	}
	return groups
}

// EnqueueSiblingCancels records newly decided groups whose remaining upstreams may be unneeded, for
// the job cancel_siblings.
func (c *Core) EnqueueSiblingCancels(ctx context.Context, tx *Txn, decided DecidedArrays, nowMs int64) error {
	if decided.Empty() {
		return nil
	}
	tx.Due.unneeded = true
	return c.Q.EnqueueSiblingCancels(ctx, tx, db.EnqueueSiblingCancelsParams{
		PartitionKeys: decided.Partitions, FlowIDs: decided.flows, DownstreamEIDs: decided.Executions,
		StagedFrom: decided.stagedFrom, StagedBelow: decided.stagedBelow, NowMs: nowMs,
	})
}

// BlockDownstream makes members that were never claimed wait for their dependencies again.
func (c *Core) BlockDownstream(ctx context.Context, tx *Txn, partition int16, members []pgtype.UUID, nowMs int64) error {
	if len(members) == 0 {
		return nil
	}
	holders, err := c.Q.BlockDownstream(ctx, tx, db.BlockDownstreamParams{
		PartitionKey: partition, ExecutionIDs: members, NowMs: nowMs,
	})
	if err != nil || len(holders) == 0 {
		return err
	}
	tx.Due.Gated()
	return nil
}
