package engine

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/document"
	"github.com/flowfabric/flowfabric-go/policy"
)

// EdgeStaging describes new edges between members of a flow.
type EdgeStaging struct {
	Flow id.FlowID // required

	// Edges are at most [MaxEdges].
	Edges []StagedEdge

	// Revision is the expected revision of the flow, ignored if all edges exist. Default nil: any.
	Revision *int64

	// Apply makes the edges count at once, including edges staged before.
	Apply bool
}

// StagedEdge makes the execution Downstream wait for Upstream once the edge is applied.
type StagedEdge struct {
	ID                   id.EdgeID // default: a new one, greater than earlier edges' ids
	Upstream, Downstream id.ExecutionID

	// Kind, PassResult and AllowStarted are as in [Edge].
	Kind         string
	PassResult   string
	AllowStarted bool
}

// StagedEdges is the result of staging edges, and the flow afterwards.
type StagedEdges struct {
	Revision int64
	Edges    []id.EdgeID // in input order; an existing edge has its own id
	New      []id.EdgeID
}

// AppliedEdges is the result of applying edges.
type AppliedEdges struct {
	Applied []id.EdgeID // newly applied edges

	// Open has the number of unended upstreams, by downstream of the applied edges.
	Open map[id.ExecutionID]int
}

// StageEdges adds dependencies between members of a flow: all or none. A staged edge does not count yet, but keeps its
// downstream from being released by other edges, so edges can be staged one by one, then applied by
// [Engine.ApplyEdges]. With Apply the edges count at once, as in [Engine.GrowFlow].
//
// Errors: [fferr.ErrInvalidInput] naming the edge, its field and the limit; [fferr.ErrCycle]; [fferr.ErrNotFound];
// [fferr.ErrFlowTerminal]; [fferr.ErrEdgeExists] for another edge's id or pair of executions; [fferr.ErrStaleRevision];
// [fferr.ErrNotMember]; [fferr.ErrEnded] and [fferr.ErrStarted] for an edge's downstream; [fferr.ErrContention].
// Nothing was written then. Transaction: one; locks and events as [Engine.GrowFlow]. Safe to repeat.
func (e *Engine) StageEdges(ctx context.Context, staging EdgeStaging) (StagedEdges, error) {
	const op = "stage edges"
	g, err := e.newGrowth(staging.Flow, 0, len(staging.Edges), staging.Revision)
	if err != nil {
		return StagedEdges{}, core.Wrap(op, err)
	}
	g.staging = !staging.Apply
	for _, s := range staging.Edges {
		d := growingEdge{
			id: s.ID, upstream: s.Upstream, downstream: s.Downstream, kind: s.Kind, passResult: s.PassResult,
			allowStarted: s.AllowStarted, from: s.Upstream.String(), to: s.Downstream.String(),
		}
		g.edges = append(g.edges, d)
		if d.upstream == d.downstream {
			break // refused below in any case
		}
		for _, x := range []id.ExecutionID{d.upstream, d.downstream} {
			if err := g.checkMember(e, d.field(), x); err != nil {
				return StagedEdges{}, core.Wrap(op, err)
			}
		}
	}
	if err := g.checkEdges(); err != nil {
		return StagedEdges{}, core.Wrap(op, err)
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (StagedEdges, error) {
		w, err := e.grow(ctx, tx, g)
		if err != nil {
			return StagedEdges{}, err
		}
		return StagedEdges{Revision: w.revision, Edges: w.ids, New: w.grown().Linked}, nil
	})
}

// ApplyEdges makes staged edges count: all or none. An edge from an ended upstream is counted at once. The downstreams
// then wait, are released or are skipped, as their groups decide. The flow keeps its revision.
//
// Errors: [fferr.ErrInvalidInput] for more than [MaxEdges] or a repeated id; [fferr.ErrNotFound] for the flow or an
// edge; [fferr.ErrFlowTerminal]; [fferr.ErrEnded] and [fferr.ErrStarted] for an edge's downstream;
// [fferr.ErrContention]. Nothing was written then. Transaction: one; locks and events as [Engine.GrowFlow]. Safe to
// repeat: edges already counting are ignored.
func (e *Engine) ApplyEdges(ctx context.Context, flow id.FlowID, edges []id.EdgeID) (AppliedEdges, error) {
	const op = "apply edges"
	g, err := e.newGrowth(flow, 0, len(edges), nil)
	if err != nil {
		return AppliedEdges{}, core.Wrap(op, err)
	}
	seen := make(map[id.EdgeID]bool, len(edges))
	for _, edge := range edges {
		if seen[edge] {
			return AppliedEdges{}, core.Wrap(op, core.Invalid("edge "+edge.String(), "is given twice"))
		}
		seen[edge] = true
	}
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (AppliedEdges, error) {
		w := e.newGrowing(tx, g)
		if err := w.lockFlow(ctx); err != nil {
			return AppliedEdges{}, err
		}
		if err := w.lockEdges(ctx, edges); err != nil {
			return AppliedEdges{}, err
		}
		if err := w.addEdges(ctx); err != nil {
			return AppliedEdges{}, err
		}
		result := AppliedEdges{Open: make(map[id.ExecutionID]int)}
		for _, s := range w.applied {
			result.Applied = append(result.Applied, s.id)
			result.Open[s.downstream] = int(w.linked.groups[s.downstream].after.running)
		}
		return result, nil
	})
}

// lockEdges locks the executions at both ends of edges, and determines which edges to apply.
func (w *growing) lockEdges(ctx context.Context, edges []id.EdgeID) error {
	if len(edges) == 0 {
		return nil
	}
	rows, err := w.e.c.Q.ListEdgesNamed(ctx, w.tx, db.ListEdgesNamedParams{
		PartitionKey: w.partition, FlowID: core.PgUUID(w.flow), EdgeIDs: core.PgUUIDs(edges),
	})
	if err != nil {
		return err
	}
	found := make(map[id.EdgeID]bool, len(rows))
	executions, downstream := make(map[id.ExecutionID]bool), make(map[id.ExecutionID]bool)
	for _, row := range rows {
		s := w.storedEdgeOf(row)
		if found[s.id] = true; s.applied {
			continue
		}
		w.applied = append(w.applied, s)
		executions[s.upstream], executions[s.downstream], downstream[s.downstream] = true, true, true
	}
	for _, edge := range edges {
		if !found[edge] {
			return &fferr.NotFoundError{Entity: "edge", ID: edge.String()}
		}
	}
	if len(w.applied) == 0 {
		return nil
	}
	if err := w.lock(ctx, executions, downstream, nil); err != nil {
		return err
	}
	return w.judgeApplied()
}

// SetGroupPolicy sets the condition on the ends of an execution's upstreams, before any edge leads to the execution,
// even before it is a member. It reports whether the policy changed.
//
// Errors: [fferr.ErrInvalidInput] for an invalid policy, an execution in another partition than the flow, or an
// execution with an inbound edge (the text then starts with edge_group_policy_already_fixed); [fferr.ErrNotFound] and
// [fferr.ErrFlowTerminal] for the flow; [fferr.ErrOtherFlow]; [fferr.ErrContention]. Transaction: one; locks as
// [Engine.GrowFlow]. Emits no events. Safe to repeat.
func (e *Engine) SetGroupPolicy(ctx context.Context, flow id.FlowID, downstream id.ExecutionID, when policy.Group) (changed bool, err error) {
	const op = "set group policy"
	g, err := e.newGrowth(flow, 0, 0, nil)
	if err == nil {
		err = g.checkMember(e, "execution", downstream)
	}
	if err != nil {
		return false, core.Wrap(op, err)
	}
	if err := when.Validate(); err != nil {
		return false, core.Wrap(op, invalidPolicy("policy", err))
	}
	rules := document.GroupOf(when)
	return core.InTx(ctx, e.c, op, func(tx *core.Txn) (bool, error) {
		w := e.newGrowing(tx, g)
		if err := w.lockFlow(ctx); err != nil {
			return false, err
		}
		this := map[id.ExecutionID]bool{downstream: true}
		if err := w.lock(ctx, this, this, nil); err != nil {
			return false, err
		}
		x := w.held[downstream]
		switch {
		case x != nil && x.FlowID != nil && *x.FlowID != flow:
			return false, &fferr.MemberError{Execution: downstream, Flow: x.FlowID, Err: fferr.ErrOtherFlow}
		case len(w.into[downstream]) > 0:
			return false, core.Invalid("policy", policyIsFixed)
		}
		l, err := w.lockGroups(ctx, this)
		if err != nil {
			return false, err
		}
		group := l.groups[downstream]
		if group.exists && group.rules == rules {
			return false, nil
		}
		if err := group.setPolicy(rules); err != nil {
			return false, core.InvalidBecause("policy", err)
		}
		return true, w.writeEdges(ctx, l)
	})
}

// LockFlows locks flows, also missing ones, for the rest of the caller's transaction. Call it before the transaction
// uses the flows or their members. Otherwise two transactions can deadlock if each completes a member, which shares the
// flow, and then grows the flow, or if both change the same two flows in turn.
//
// Errors: [fferr.ErrInvalidInput] outside a caller's transaction, or for more than 256 flows. Locks the flows
// exclusively, in order; waits as long as the transaction's lock_timeout allows. Safe to repeat.
func (e *Engine) LockFlows(ctx context.Context, flows ...id.FlowID) error {
	const op = "lock flows"
	set := core.NewFlowSet(e.cfg.Partitions)
	for _, flow := range flows {
		set.Add(flow)
	}
	switch {
	case e.c.Tx == nil:
		return core.Wrap(op, core.Invalid("LockFlows", "needs an engine from WithTx: outside a transaction the locks would end at once"))
	case len(set.Flows) > core.MaxFlowsPerTx:
		return core.Wrap(op, core.Invalid("flows", fmt.Sprintf("%d, limit %d", len(set.Flows), core.MaxFlowsPerTx)))
	}
	_, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) (struct{}, error) {
		return struct{}{}, e.c.LockFlowsExclusive(ctx, tx, set)
	})
	return err
}
