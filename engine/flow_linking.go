package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// addMembers creates and adds the executions outside the flow. New executions with inbound edges wait.
func (w *growing) addMembers(ctx context.Context) error {
	if !w.staging {
		waits := make(map[id.ExecutionID]bool)
		for _, d := range w.added {
			waits[d.downstream] = true
		}
		for i := range w.creates {
			w.creates[i].held = waits[w.creates[i].id]
		}
	}
	if err := w.e.placeFair(ctx, w.tx, w.creates); err != nil {
		return err
	}
	created := make(map[id.ExecutionID]Created, len(w.creates))
	for _, run := range core.BySize(w.creates, MaxNodes, creation.size) {
		inserted, err := w.e.insert(ctx, w.tx, run, &w.flow, &w.nowMs, &w.tx.Due)
		if err != nil {
			return err
		}
		maps.Copy(created, inserted)
	}
	if err := wantCreated(w.creates, created); err != nil {
		return err
	}
	if len(w.joins) == 0 {
		return nil
	}
	params := db.JoinFlowParams{FlowID: core.PgUUID(w.flow), NowMs: w.nowMs, PartitionKey: w.partition}
	for _, x := range slices.SortedFunc(maps.Keys(w.joins), id.ExecutionID.Compare) {
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
		params.NodeKeys = append(params.NodeKeys, w.joins[x])
	}
	return w.e.c.Q.JoinFlow(ctx, w.tx, params)
}

// linking has the effects of a growth's edges on their downstream groups.
type linking struct {
	groups map[id.ExecutionID]*linkedGroup
	insert db.InsertEdgesParams
	apply  db.ApplyEdgesParams
	passes db.PassResultsAlongParams
}

// linkedGroup is the group of one execution, before and after the growth.
type linkedGroup struct {
	downstream    id.ExecutionID
	exists        bool // has a row
	policy        []byte
	rules         document.Group
	newPolicy     bool
	before, after counts
	keptRunning   int64 // running count in the row
}

// counts are numbers of edges. No row stores the number of staged edges.
type counts struct{ success, fail, skip, running, staged int64 }

func (c *counts) add(bucket state.Bucket, n int64) {
	switch bucket {
	case state.BucketSuccess:
		c.success += n
	case state.BucketSkip:
		c.skip += n
	default:
		c.fail += n
	}
}

func (c counts) counted() int64 { return c.success + c.fail + c.skip + c.running }

func (g *linkedGroup) decide(c counts) document.Decision {
	return g.rules.Evaluate(c.counted()+c.staged, c.success, c.fail, c.skip)
}

// addEdges adds the new edges, applies the staged ones, and moves their downstreams.
func (w *growing) addEdges(ctx context.Context) error {
	if w.newMembers() == 0 && len(w.added) == 0 && len(w.applied) == 0 && !w.setsPolicy() {
		return nil
	}
	left, err := w.leftToDispatch(ctx)
	if err != nil {
		return err
	}
	l, err := w.lockGroups(ctx, w.changing())
	if err != nil {
		return err
	}
	if err := w.setPolicies(l); err != nil {
		return err
	}
	w.link(l, left)
	if w.newMembers() == 0 && len(w.added) == 0 && !l.changes() {
		return nil
	}
	if err := w.writeEdges(ctx, l); err != nil {
		return err
	}
	w.linked = l
	return w.move(ctx, l)
}

// setsPolicy reports whether a node names a policy, perhaps a new one for its group.
func (w *growing) setsPolicy() bool {
	return slices.ContainsFunc(w.nodes, func(n growingNode) bool { return n.node != nil && n.node.When != policy.AllOf() })
}

// leftToDispatch returns the ended upstreams with undispatched events. The dispatcher will count their new edges.
func (w *growing) leftToDispatch(ctx context.Context) (map[id.ExecutionUUID]bool, error) {
	ended := make(map[id.ExecutionID]bool)
	note := func(x id.ExecutionID) {
		if held := w.held[x]; held != nil && held.Terminal() {
			ended[x] = true
		}
	}
	if !w.staging {
		for _, d := range w.added {
			note(d.upstream)
		}
	}
	for _, s := range w.applied {
		note(s.upstream)
	}
	if len(ended) == 0 {
		return nil, nil
	}
	params := db.LockUndispatchedOfParams{PartitionKey: w.partition, FlowID: core.PgUUID(w.flow)}
	for x := range ended {
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
	}
	rows, err := w.e.c.Q.LockUndispatchedOf(ctx, w.tx, params)
	left := make(map[id.ExecutionUUID]bool, len(rows))
	for _, x := range rows {
		left[x] = true
	}
	return left, err
}

// changing returns the executions whose groups may change.
func (w *growing) changing() map[id.ExecutionID]bool {
	changing := make(map[id.ExecutionID]bool)
	if !w.staging {
		for _, d := range w.added {
			changing[d.downstream] = true
		}
	}
	for _, s := range w.applied {
		changing[s.downstream] = true
	}
	for i := range w.nodes {
		if n := &w.nodes[i]; n.node != nil && n.node.When != policy.AllOf() {
			changing[n.execution] = true
		}
	}
	return changing
}

// lockGroups locks the groups of executions and reads them.
func (w *growing) lockGroups(ctx context.Context, downstream map[id.ExecutionID]bool) (*linking, error) {
	l := &linking{groups: make(map[id.ExecutionID]*linkedGroup, len(downstream))}
	if len(downstream) == 0 {
		return l, nil
	}
	var members core.FlowMemberArrays
	var ids []id.ExecutionID
	var ords []int32
	for i, x := range slices.SortedFunc(maps.Keys(downstream), id.ExecutionID.Compare) {
		members.AddMember(x, &w.flow)
		ids, ords = append(ids, x), append(ords, int32(i))
		l.groups[x] = w.groupWithoutRow(x)
	}
	var rows []db.ReadGroupsOfRow
	err := pgtx.InOneTrip(ctx, w.tx,
		func(conn db.DBTX) error {
			return w.e.c.Q.LockGroupsOf(ctx, conn, db.LockGroupsOfParams{
				PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions,
			})
		},
		func(conn db.DBTX) (err error) {
			rows, err = w.e.c.Q.ReadGroupsOf(ctx, conn, db.ReadGroupsOfParams{
				PartitionKeys: members.Partitions, FlowIDs: members.Flows, ExecutionIDs: members.Executions, Ords: ords,
			})
			return err
		},
	)
	for _, row := range rows {
		g := l.groups[ids[row.Ord]]
		g.exists, g.policy = true, row.Policy
		var unreadable error
		if g.rules, unreadable = document.GroupFromStored(row.Policy); unreadable != nil {
			return l, fmt.Errorf("execution %s: %w", g.downstream, core.Corrupt("ff_edge_group.policy", unreadable))
		}
		g.before.success, g.before.fail, g.before.skip = int64(row.SuccessCount), int64(row.FailCount), int64(row.SkipCount)
		g.before.running = g.rules.Running(int64(row.RunningCount))
		g.keptRunning = int64(row.RunningCount)
	}
	for _, g := range l.groups {
		g.after = g.before
	}
	return l, err
}

// groupWithoutRow returns the group of an execution as its edges define it.
func (w *growing) groupWithoutRow(x id.ExecutionID) *linkedGroup {
	g := &linkedGroup{downstream: x, policy: []byte(`{"kind":"all_of"}`)}
	for _, s := range w.into[x] {
		switch {
		case !s.applied:
			g.before.staged++
		case s.outcome == "":
			g.before.running++
		default:
			g.before.add(state.CompletionOutcome(s.outcome).Bucket(), 1)
		}
	}
	return g
}

// setPolicies sets the policies named by nodes in the nodes' groups.
func (w *growing) setPolicies(l *linking) error {
	fanIn := make(map[id.ExecutionID]int)
	for _, d := range w.added {
		fanIn[d.downstream]++
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.node == nil || n.node.When == policy.AllOf() {
			continue
		}
		before := len(w.into[n.execution])
		if fanIn[n.execution]+before == 0 {
			continue // allowed, as in a flow's creation
		}
		rules, err := groupOf(n.node, fanIn[n.execution]+before)
		if err != nil {
			return err
		}
		g := l.groups[n.execution]
		switch {
		case before > 0 && rules != g.rules:
			return core.Invalid(n.field+": When", policyIsFixed)
		case before == 0 && (!g.exists || rules != g.rules):
			if err := g.setPolicy(rules); err != nil {
				return core.InvalidBecause(n.field, err)
			}
		}
	}
	return nil
}

// policyIsFixed starts like FlowFabric's answer.
const policyIsFixed = "edge_group_policy_already_fixed: edges lead to the execution"

func (g *linkedGroup) setPolicy(rules document.Group) (err error) {
	g.rules, g.newPolicy = rules, true
	g.policy, err = json.Marshal(rules)
	return err
}

func (g *linkedGroup) changes() bool { return g.newPolicy || g.before != g.after }

func (l *linking) changes() bool {
	for _, g := range l.groups {
		if g.changes() {
			return true
		}
	}
	return false
}

// link counts the edges in the groups of their downstreams.
func (w *growing) link(l *linking, left map[id.ExecutionUUID]bool) {
	outcome := func(e ends) string {
		if x := w.held[e.upstream]; x != nil && x.Terminal() && !left[e.upstream.UUID()] {
			return string(x.Outcome().Completion())
		}
		return ""
	}
	count := func(edge id.EdgeID, e ends, passes bool) string {
		g, o := l.groups[e.downstream], outcome(e)
		if o == "" {
			g.after.running++
			return o
		}
		g.after.add(state.CompletionOutcome(o).Bucket(), 1)
		if passes && o == string(state.CompletionSuccess) {
			l.passes.EdgeIDs = append(l.passes.EdgeIDs, core.PgUUID(edge))
			l.passes.UpstreamEIDs = append(l.passes.UpstreamEIDs, core.PgUUID(e.upstream.UUID()))
			l.passes.DownstreamEIDs = append(l.passes.DownstreamEIDs, core.PgUUID(e.downstream.UUID()))
		}
		return o
	}
	p := &l.insert
	for _, d := range w.added {
		o := ""
		if !w.staging {
			o = count(d.id, ends{d.upstream, d.downstream}, d.passResult != "")
		}
		p.EdgeIDs = append(p.EdgeIDs, core.PgUUID(d.id))
		p.UpstreamEIDs = append(p.UpstreamEIDs, core.PgUUID(d.upstream.UUID()))
		p.DownstreamEIDs = append(p.DownstreamEIDs, core.PgUUID(d.downstream.UUID()))
		p.DependencyKinds = append(p.DependencyKinds, d.kind)
		p.DataPassingRefs = append(p.DataPassingRefs, d.passResult)
		p.AllowStarted = append(p.AllowStarted, d.allowStarted)
		p.Outcomes = append(p.Outcomes, o)
	}
	for _, s := range w.applied {
		g := l.groups[s.downstream]
		g.after.staged--
		l.apply.EdgeIDs = append(l.apply.EdgeIDs, core.PgUUID(s.id))
		l.apply.Outcomes = append(l.apply.Outcomes, count(s.id, s.ends, s.passResult != ""))
	}
}

// writeEdges writes edges, groups and the flow's counters, and copies the results of ended upstreams downstream.
func (w *growing) writeEdges(ctx context.Context, l *linking) error {
	var steps []core.Step
	if len(l.insert.EdgeIDs) > 0 {
		l.insert.PartitionKey, l.insert.FlowID, l.insert.Applied, l.insert.NowMs = w.partition, w.flow, !w.staging, w.nowMs
		steps = append(steps, func(conn db.DBTX) error { return w.e.c.Q.InsertEdges(ctx, conn, l.insert) })
	}
	if len(l.apply.EdgeIDs) > 0 {
		l.apply.PartitionKey, l.apply.FlowID, l.apply.NowMs = w.partition, core.PgUUID(w.flow), w.nowMs
		steps = append(steps, func(conn db.DBTX) error { return w.e.c.Q.ApplyEdges(ctx, conn, l.apply) })
	}
	if groups := w.groupParams(l); len(groups.DownstreamEIDs) > 0 {
		steps = append(steps, func(conn db.DBTX) error { return w.e.c.Q.AddToGroups(ctx, conn, groups) })
	}
	members, edges := w.newMembers(), int64(len(w.added))
	steps = append(steps, func(conn db.DBTX) (err error) {
		w.revision, err = w.e.c.Q.CountGrowth(ctx, conn, db.CountGrowthParams{
			PartitionKey: w.partition, FlowID: w.flow, NowMs: w.nowMs,
			Members: members, Edges: edges, NodeCount: w.nodeCount, EdgeCount: w.edgeCount,
		})
		return err
	})
	if len(l.passes.EdgeIDs) > 0 {
		l.passes.PartitionKey, l.passes.NowMs = w.partition, w.nowMs
		steps = append(steps, func(conn db.DBTX) error { return w.e.c.Q.PassResultsAlong(ctx, conn, l.passes) })
	}
	if err := pgtx.InOneTrip(ctx, w.tx, steps...); err != nil {
		return err
	}
	w.nodeCount, w.edgeCount = w.nodeCount+members, w.edgeCount+edges
	return nil
}

// groupParams returns the groups that change.
func (w *growing) groupParams(l *linking) db.AddToGroupsParams {
	params := db.AddToGroupsParams{PartitionKey: w.partition, FlowID: w.flow}
	for _, x := range slices.SortedFunc(maps.Keys(l.groups), id.ExecutionID.Compare) {
		g := l.groups[x]
		if !g.changes() {
			continue
		}
		var before counts // a group without a row is created with all counts
		if g.exists {
			before = g.before
			before.running = g.keptRunning
		}
		params.DownstreamEIDs = append(params.DownstreamEIDs, core.PgUUID(x.UUID()))
		params.Policies = append(params.Policies, string(g.policy))
		params.KTargets = append(params.KTargets, g.rules.KTarget(g.after.counted()))
		params.SuccessCounts = append(params.SuccessCounts, int32(g.after.success-before.success))
		params.FailCounts = append(params.FailCounts, int32(g.after.fail-before.fail))
		params.SkipCounts = append(params.SkipCounts, int32(g.after.skip-before.skip))
		params.RunningCounts = append(params.RunningCounts, int32(int64(g.rules.StoredRunning(g.after.running))-before.running))
	}
	return params
}

// move releases, skips and blocks the downstreams of the edges, as their groups decide now.
func (w *growing) move(ctx context.Context, l *linking) error {
	var release, skip, cancels core.DecidedArrays
	var block []pgtype.UUID
	for _, x := range slices.SortedFunc(maps.Keys(l.groups), id.ExecutionID.Compare) {
		g := l.groups[x]
		before, after := g.decide(g.before), g.decide(g.after)
		switch {
		case after == document.Satisfied:
			release.AddGroup(w.flow, x)
		case after == document.Impossible:
			skip.AddGroup(w.flow, x)
		case w.held[x] != nil && w.held[x].Unstarted() && w.held[x].Free():
			block = append(block, core.PgUUID(x.UUID()))
		}
		if before == document.Undecided && after != document.Undecided && g.rules.CancelsRemaining() {
			cancels.AddGroup(w.flow, x)
		}
	}
	if _, err := w.e.c.ReleaseDownstream(ctx, w.tx, release, w.nowMs); err != nil {
		return err
	}
	skipped, err := w.e.c.SkipDownstream(ctx, w.tx, skip, w.nowMs)
	if err != nil {
		return err
	}
	if err := w.e.c.BlockDownstream(ctx, w.tx, w.partition, block, w.nowMs); err != nil {
		return err
	}
	if err := w.e.c.EnqueueSiblingCancels(ctx, w.tx, cancels, w.nowMs); err != nil {
		return err
	}
	return w.e.c.ResolveAndRecord(ctx, w.tx, skipped, w.nowMs)
}
