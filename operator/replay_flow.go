package operator

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/state"
)

// replayIn updates the flow of a replayed member, under the flow's exclusive lock. It takes back the counts of the member's
// last end. Where that is impossible, it prevents the next end from counting again. Completions therefore need not know of
// replays.
func replayIn(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, flow id.FlowID) error {
	partition := x.ID.Partition()
	rows, err := c.Q.LockFlowRows(ctx, tx, db.LockFlowRowsParams{
		PartitionKeys: []int16{partition}, FlowIDs: []pgtype.UUID{core.PgUUID(flow)},
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if state.FlowState(row.PublicFlowState).Terminal() {
			return fmt.Errorf("flow %s: %w", flow, fferr.ErrFlowTerminal)
		}
	}
	if err := checkUpstreamsKept(ctx, c, tx, x, flow); err != nil {
		return err
	}
	if err := c.Q.TouchFlow(ctx, tx, db.TouchFlowParams{PartitionKey: partition, FlowID: flow, NowMs: x.NowMs}); err != nil {
		return err
	}
	dismissed, err := c.Q.DismissCompletions(ctx, tx, db.DismissCompletionsParams{
		PartitionKey: partition, ExecutionID: x.ID.UUID(), NowMs: x.NowMs,
	})
	if err != nil {
		return err
	}
	var member core.FlowMemberArrays
	member.AddMember(x.ID, &flow)
	if groups, err := c.LockGroups(ctx, tx, member); err != nil || groups == 0 {
		return err
	}
	if err := c.Q.LockUnstartedDownstream(ctx, tx, db.LockUnstartedDownstreamParams{
		PartitionKey: partition, FlowID: core.PgUUID(flow), UpstreamEID: core.PgUUID(x.ID.UUID()),
	}); err != nil {
		return err
	}
	edges, err := c.Q.ListDownstreamGroups(ctx, tx, db.ListDownstreamGroupsParams{
		PartitionKey: partition, FlowID: core.PgUUID(flow), UpstreamEID: core.PgUUID(x.ID.UUID()),
	})
	if err != nil {
		return err
	}
	return writeReopening(ctx, c, tx, x, flow, reopen(edges, x.Outcome().Completion(), dismissed > 0))
}

// checkUpstreamsKept refuses to run a member again if results it may have read are gone.
func checkUpstreamsKept(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, flow id.FlowID) error {
	const most = 5
	rows, err := c.Q.ListPrunedUpstreams(ctx, tx, db.ListPrunedUpstreamsParams{
		PartitionKey: x.ID.Partition(), FlowID: core.PgUUID(flow), ExecutionID: core.PgUUID(x.ID.UUID()), PageSize: most,
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = cmp.Or(row.NodeKey, row.ExecutionID.String())
	}
	return fmt.Errorf("execution %s: %w: it waited for %s", x.ID, fferr.ErrPruned, strings.Join(names, ", "))
}

// reopening has the changes to the edges from a replayed execution, and to their downstreams.
type reopening struct {
	opened, counted []pgtype.UUID // edges to reopen, and edges to mark because their count can't be taken back
	groups          db.ReopenEdgesParams
	blocked         []pgtype.UUID
}

// reopen decides from edges in order of their downstreams. outcome is the former end of their upstream. If the event of this
// end was undispatched, no program has counted the unmarked edges.
func reopen(edges []db.ListDownstreamGroupsRow, outcome state.CompletionOutcome, undispatched bool) *reopening {
	r := new(reopening)
	for len(edges) > 0 {
		n := 1
		for n < len(edges) && edges[n].DownstreamEID == edges[0].DownstreamEID {
			n++
		}
		r.add(edges[:n], outcome, undispatched)
		edges = edges[n:]
	}
	return r
}

// add decides about one downstream.
func (r *reopening) add(edges []db.ListDownstreamGroupsRow, outcome state.CompletionOutcome, undispatched bool) {
	d := downstream{&edges[0]}
	rules, err := document.GroupFromStored(d.Policy)
	known := d.HasGroup && err == nil
	count := map[state.Bucket]int64{
		state.BucketSuccess: int64(d.SuccessCount), state.BucketFail: int64(d.FailCount), state.BucketSkip: int64(d.SkipCount),
	}
	running := rules.Running(int64(d.RunningCount))
	decide := func() document.Decision {
		if !known {
			return document.Undecided
		}
		s, f, k := count[state.BucketSuccess], count[state.BucketFail], count[state.BucketSkip]
		return rules.Evaluate(s+f+k+running+int64(d.Staged), s, f, k)
	}
	reopens := d.unstarted() || d.skipped() || d.exists() && decide() == document.Undecided
	unmarked := count[outcome.Bucket()] - d.marked(outcome.Bucket())
	for _, edge := range edges {
		bucket, counts := outcome.Bucket(), true
		switch {
		case edge.CountedAs != "":
			bucket = state.TerminalOutcome(edge.CountedAs).Bucket()
		case undispatched || unmarked <= 0:
			counts = false
		default:
			unmarked--
		}
		switch {
		case reopens:
			r.opened = append(r.opened, core.PgUUID(edge.EdgeID))
			if counts && count[bucket] > 0 {
				count[bucket]--
				running++
			}
		case counts && edge.CountedAs == "":
			r.counted = append(r.counted, core.PgUUID(edge.EdgeID))
		}
	}
	if !reopens || !d.HasGroup {
		return
	}
	r.groups.DownstreamEIDs = append(r.groups.DownstreamEIDs, core.PgUUID(d.DownstreamEID))
	r.groups.SuccessCounts = append(r.groups.SuccessCounts, int32(count[state.BucketSuccess]))
	r.groups.FailCounts = append(r.groups.FailCounts, int32(count[state.BucketFail]))
	r.groups.SkipCounts = append(r.groups.SkipCounts, int32(count[state.BucketSkip]))
	r.groups.RunningCounts = append(r.groups.RunningCounts, rules.StoredRunning(running))
	if d.unstarted() && decide() == document.Undecided {
		r.blocked = append(r.blocked, core.PgUUID(d.DownstreamEID))
	}
}

// downstream is a dependent of a replayed execution.
type downstream struct{ *db.ListDownstreamGroupsRow }

func (d downstream) exists() bool { return d.LifecyclePhase != "" }

// unstarted reports whether the dependent was never claimed. It may have ended without a claim.
func (d downstream) unstarted() bool {
	return d.exists() && !d.HasStarted && d.LifecyclePhase != "active" && d.LifecyclePhase != "suspended" && d.PublicState != "resumable"
}

func (d downstream) skipped() bool {
	return core.IsTerminalPhase(d.LifecyclePhase) && d.PublicState == "skipped"
}

// marked returns how many inbound edges are marked as counted in a bucket.
func (d downstream) marked(bucket state.Bucket) int64 {
	switch bucket {
	case state.BucketSuccess:
		return int64(d.MarkedSuccess)
	case state.BucketSkip:
		return int64(d.MarkedSkip)
	}
	return int64(d.MarkedFail)
}

func writeReopening(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, flow id.FlowID, r *reopening) error {
	partition := x.ID.Partition()
	if len(r.opened) > 0 {
		r.groups.PartitionKey, r.groups.FlowID, r.groups.UpstreamEID, r.groups.EdgeIDs = partition, core.PgUUID(flow), core.PgUUID(x.ID.UUID()), r.opened
		if err := c.Q.ReopenEdges(ctx, tx, r.groups); err != nil {
			return err
		}
	}
	if len(r.counted) > 0 {
		if err := c.Q.MarkCountedEdges(ctx, tx, db.MarkCountedEdgesParams{
			PartitionKey: partition, FlowID: core.PgUUID(flow), UpstreamEID: core.PgUUID(x.ID.UUID()), EdgeIDs: r.counted,
			Outcome: string(x.Outcome().Completion()), NowMs: x.NowMs,
		}); err != nil {
			return err
		}
	}
	return c.BlockDownstream(ctx, tx, partition, r.blocked, x.NowMs)
}

// reopenInbound reports whether a replayed execution that never ran, or was skipped after it had run, waits for its
// dependencies. It resets a group that had become impossible or whose execution was skipped, and returns the number of reset
// groups.
func reopenInbound(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, skipped bool) (waits bool, reset int, err error) {
	partition, flow := x.ID.Partition(), *x.FlowID
	group, err := c.Q.LockInboundGroup(ctx, tx, db.LockInboundGroupParams{
		PartitionKey: partition, FlowID: flow, DownstreamEID: x.ID.UUID(),
	})
	if core.IsNoRow(err) || err == nil && group.Applied+group.Staged == 0 {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	rules, unknown := document.GroupFromStored(group.Policy)
	decide := func(success, fail, skip, running int64) document.Decision {
		if unknown != nil {
			return document.Undecided
		}
		return rules.Evaluate(success+fail+skip+running+group.Staged, success, fail, skip)
	}
	success := int64(group.SuccessCount)
	if !skipped {
		switch decide(success, int64(group.FailCount), int64(group.SkipCount), rules.Running(int64(group.RunningCount))) {
		case document.Satisfied:
			return false, 0, nil
		case document.Undecided:
			return true, 0, nil
		}
	}
	running := max(group.Applied-success, 0)
	err = c.Q.ReopenInboundEdges(ctx, tx, db.ReopenInboundEdgesParams{
		PartitionKey: partition, FlowID: flow, DownstreamEID: x.ID.UUID(), RunningCount: rules.StoredRunning(running), NowMs: x.NowMs,
	})
	return decide(success, 0, 0, running) != document.Satisfied, 1, err
}
