package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// growing is a growth in progress: one transaction, holding the flow exclusively.
type growing struct {
	*growth
	e  *Engine
	tx *core.Txn

	revision  int64 // of the flow, before the growth
	nodeCount int64
	edgeCount int64
	nowMs     int64

	held  map[id.ExecutionID]*core.HeldExecution // the named executions that exist, locked
	fresh map[id.ExecutionID]bool                // executions to create
	joins map[id.ExecutionID]string              // existing executions to add, with their node keys

	prunes bool                    // ended members are deleted before the flow
	pruned map[id.ExecutionID]bool // deleted members

	creates []creation                     // the fresh ones
	named   map[id.EdgeID]*keptEdge        // by ids given by the caller
	into    map[id.ExecutionID][]*keptEdge // by downstream
	between map[ends]*keptEdge

	ids     []id.EdgeID    // of the edges, by position
	added   []*growingEdge // new edges
	applied []*keptEdge    // formerly staged edges, counting now
	linked  *linking       // effects of the edges; nil without effects
}

type ends struct{ upstream, downstream id.ExecutionID }

// keptEdge is an existing edge.
type keptEdge struct {
	id id.EdgeID
	ends
	kind, passResult string
	applied          bool   // false if only staged
	outcome          string // counted outcome; "" if not counted
	allowStarted     bool
}

func (s *keptEdge) exists() error {
	return &fferr.EdgeExistsError{Edge: s.id, Upstream: s.upstream, Downstream: s.downstream}
}

func (e *Engine) newGrowing(tx *core.Txn, g *growth) *growing {
	return &growing{
		growth: g, e: e, tx: tx,
		held: make(map[id.ExecutionID]*core.HeldExecution), fresh: make(map[id.ExecutionID]bool), joins: make(map[id.ExecutionID]string),
	}
}

// grow adds the missing parts of a growth to a flow.
func (e *Engine) grow(ctx context.Context, tx *core.Txn, g *growth) (*growing, error) {
	w := e.newGrowing(tx, g)
	for _, do := range []func(context.Context) error{
		w.lockFlow, w.lockMembers, w.judgeNodes, w.judgeEdges, w.checkStoredCycles, w.addMembers, w.addEdges,
	} {
		if err := do(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// lockFlow locks the flow, and refuses a cancelled one.
func (w *growing) lockFlow(ctx context.Context) error {
	var row db.LockGrowingFlowRow
	err := pgtx.InOneTrip(ctx, w.tx,
		func(conn db.DBTX) error {
			return w.e.c.Q.LockFlowsExclusive(ctx, conn, []pgtype.UUID{core.PgUUID(w.flow)})
		},
		func(conn db.DBTX) (err error) {
			row, err = w.e.c.Q.LockGrowingFlow(ctx, conn, db.LockGrowingFlowParams{PartitionKey: w.partition, FlowID: w.flow})
			return err
		},
	)
	switch {
	case core.IsNoRow(err):
		return &fferr.NotFoundError{Entity: "flow", ID: w.flow.String()}
	case err != nil:
		return err
	case state.FlowState(row.PublicFlowState).Terminal():
		return fmt.Errorf("flow %s: %w", w.flow, fferr.ErrFlowTerminal)
	case row.GraphRevision < 0:
		return core.Corrupt("ff_flow_core.graph_revision", errNegative)
	}
	w.revision = row.GraphRevision
	var raw struct {
		Namespace id.Namespace    `json:"namespace"`
		Nodes     json.RawMessage `json:"node_count"`
		Edges     json.RawMessage `json:"edge_count"`
		Prunes    json.RawMessage `json:"ffx_prune_members_after_ms"`
	}
	if err := json.Unmarshal(row.RawFields, &raw); err != nil {
		return core.Corrupt("ff_flow_core.raw_fields", err)
	}
	w.prunes = raw.Prunes != nil
	for key, count := range map[string]struct {
		stored json.RawMessage
		into   *int64
	}{"node_count": {raw.Nodes, &w.nodeCount}, "edge_count": {raw.Edges, &w.edgeCount}} {
		if count.stored == nil {
			continue
		}
		if *count.into = core.Number(count.stored); *count.into < 0 {
			return core.Corrupt("ff_flow_core.raw_fields."+key, errNoCount)
		}
	}
	return w.setNamespace(raw.Namespace)
}

// setNamespace gives the flow's namespace to nodes without one. They were prepared with the engine's.
func (w *growing) setNamespace(namespace id.Namespace) error {
	if namespace == "" {
		namespace = DefaultNamespace
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.creation == nil || n.node.Spec.Namespace != "" || n.creation.namespace == string(namespace) {
			continue
		}
		c, err := w.e.prepareMember(w.flow, n.node, namespace)
		if err != nil {
			return core.InvalidBecause(n.field, err)
		}
		n.creation = &c
	}
	return nil
}

// lockMembers locks the named executions that exist, and holds the idempotency keys of the others.
func (w *growing) lockMembers(ctx context.Context) error {
	existing := make(map[id.ExecutionID]bool)
	if creations := w.creations(); len(creations) > 0 {
		if err := w.e.readExisting(ctx, w.tx, creations, existing); err != nil {
			return err
		}
	}
	if err := w.listPruned(ctx, existing); err != nil {
		return err
	}
	lock := make(map[id.ExecutionID]bool)
	for i := range w.nodes {
		n := &w.nodes[i]
		if w.pruned[n.execution] {
			continue
		}
		if n.creation != nil && !existing[n.execution] {
			w.fresh[n.execution] = true
			w.creates = append(w.creates, *n.creation)
		} else {
			lock[n.execution] = true
		}
	}
	downstream := make(map[id.ExecutionID]bool)
	var named []pgtype.UUID
	for i := range w.edges {
		d := &w.edges[i]
		if d.given {
			named = append(named, core.PgUUID(d.id))
		}
		for _, x := range []id.ExecutionID{d.upstream, d.downstream} {
			if !w.fresh[x] && !w.pruned[x] {
				lock[x] = true
			}
		}
		if !w.fresh[d.downstream] {
			downstream[d.downstream] = true
		}
	}
	if err := w.e.holdFlowKeys(ctx, w.tx, w.creates, w.newFlow); err != nil {
		return err
	}
	return w.lock(ctx, lock, downstream, named)
}

// listPruned determines the pruned executions among the named ones that do not exist. It must run after existing was
// read: a member pruned in between is then in one of the two sets.
func (w *growing) listPruned(ctx context.Context, existing map[id.ExecutionID]bool) error {
	if !w.prunes {
		return nil
	}
	named := make(map[id.ExecutionID]bool)
	for i := range w.nodes {
		named[w.nodes[i].execution] = true
	}
	for i := range w.edges {
		named[w.edges[i].upstream], named[w.edges[i].downstream] = true, true
	}
	params := db.ListPrunedMembersParams{PartitionKey: w.partition, FlowID: core.PgUUID(w.flow)}
	for x := range named {
		if !existing[x] {
			params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
		}
	}
	rows, err := w.e.c.Q.ListPrunedMembers(ctx, w.tx, params)
	w.pruned = make(map[id.ExecutionID]bool, len(rows))
	for _, x := range rows {
		w.pruned[id.ExecutionIDFromRow(w.partition, x.Bytes)] = true
	}
	return err
}

// lock locks executions. In the same round trip it reads their states, the inbound edges of downstream, and the named
// edges.
func (w *growing) lock(ctx context.Context, executions, downstream map[id.ExecutionID]bool, named []pgtype.UUID) error {
	ids := slices.SortedFunc(maps.Keys(executions), id.ExecutionID.Compare)
	arrays := core.ExecutionsOf(ids)
	var inbound []db.ListInboundEdgesRow
	var edges []db.ListEdgesNamedRow
	var rows []db.ReadHeldExecutionsRow
	var steps []core.Step
	if len(ids) > 0 {
		steps = append(steps,
			func(conn db.DBTX) error {
				_, err := w.e.c.Q.LockExecutions(ctx, conn, db.LockExecutionsParams{
					PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions,
				})
				return err
			},
			func(conn db.DBTX) (err error) {
				rows, err = w.e.c.Q.ReadHeldExecutions(ctx, conn, db.ReadHeldExecutionsParams{
					PartitionKeys: arrays.Partitions, ExecutionIDs: arrays.Executions, Ords: arrays.Ords(),
					DefaultCap: policy.ReclaimLimit, NowMs: w.e.c.NowMs(),
				})
				return err
			},
		)
	}
	if len(downstream) > 0 {
		params := db.ListInboundEdgesParams{PartitionKey: w.partition, FlowID: core.PgUUID(w.flow)}
		for _, x := range slices.SortedFunc(maps.Keys(downstream), id.ExecutionID.Compare) {
			params.DownstreamEIDs = append(params.DownstreamEIDs, core.PgUUID(x.UUID()))
		}
		steps = append(steps, func(conn db.DBTX) (err error) {
			inbound, err = w.e.c.Q.ListInboundEdges(ctx, conn, params)
			return err
		})
	}
	if len(named) > 0 {
		steps = append(steps, func(conn db.DBTX) (err error) {
			edges, err = w.e.c.Q.ListEdgesNamed(ctx, conn, db.ListEdgesNamedParams{
				PartitionKey: w.partition, FlowID: core.PgUUID(w.flow), EdgeIDs: named,
			})
			return err
		})
	}
	steps = append(steps, func(conn db.DBTX) (err error) {
		w.nowMs, err = w.e.c.Q.GetNow(ctx, conn, w.e.c.NowMs())
		return err
	})
	if err := pgtx.InOneTrip(ctx, w.tx, steps...); err != nil {
		return err
	}
	for i := range rows {
		x := ids[rows[i].Ord]
		w.held[x] = &core.HeldExecution{LockedExecution: core.LockedExecution{ID: x}, ReadHeldExecutionsRow: &rows[i]}
	}
	w.into = make(map[id.ExecutionID][]*keptEdge, len(downstream))
	w.between = make(map[ends]*keptEdge, len(inbound))
	for i := range inbound {
		s := w.storedEdgeOf(db.ListEdgesNamedRow{
			EdgeID: core.PgUUID(inbound[i].EdgeID), UpstreamEID: inbound[i].UpstreamEID, DownstreamEID: inbound[i].DownstreamEID.Bytes,
			DependencyKind: inbound[i].DependencyKind, DataPassingRef: inbound[i].DataPassingRef, Applied: inbound[i].Applied,
			ResolvedOutcome: inbound[i].ResolvedOutcome, AllowStarted: inbound[i].AllowStarted,
		})
		w.into[s.downstream] = append(w.into[s.downstream], s)
		w.between[s.ends] = s
	}
	w.named = make(map[id.EdgeID]*keptEdge, len(edges))
	for i := range edges {
		s := w.storedEdgeOf(edges[i])
		w.named[s.id] = s
	}
	return nil
}

func (w *growing) storedEdgeOf(row db.ListEdgesNamedRow) *keptEdge {
	return &keptEdge{
		id: row.EdgeID.Bytes,
		ends: ends{
			id.ExecutionIDFromRow(w.partition, row.UpstreamEID), id.ExecutionIDFromRow(w.partition, row.DownstreamEID),
		},
		kind: row.DependencyKind, passResult: row.DataPassingRef, applied: row.Applied, outcome: row.ResolvedOutcome,
		allowStarted: row.AllowStarted,
	}
}

// judgeNodes decides which executions become members.
func (w *growing) judgeNodes(context.Context) error {
	for i := range w.nodes {
		n := &w.nodes[i]
		if w.fresh[n.execution] || w.pruned[n.execution] {
			continue
		}
		x, exists := w.held[n.execution]
		switch {
		case !exists && n.creation != nil: // deleted in the meantime
			return fferr.ErrContention
		case !exists:
			return fmt.Errorf("%s: %w", n.field, &fferr.NotFoundError{Entity: "execution", ID: n.execution.String()})
		case x.FlowID != nil && *x.FlowID == w.flow:
		case n.creation != nil:
			return fmt.Errorf("%s: execution %s: %w", n.field, n.execution, fferr.ErrExists)
		case x.FlowID != nil:
			return fmt.Errorf("%s: %w", n.field, &fferr.MemberError{Execution: n.execution, Flow: x.FlowID, Err: fferr.ErrOtherFlow})
		case x.FfxSequence.Valid:
			return fmt.Errorf("%s: %w", n.field, core.Invalid("sequence", "has the execution "+n.execution.String()+", so it can't become a member of a flow"))
		default:
			w.joins[n.execution] = w.keys[n.execution]
		}
	}
	if members := w.nodeCount + w.newMembers(); w.newMembers() > 0 && members > MaxMembers {
		return core.Invalid("flow", fmt.Sprintf("%d members, limit %d", members, MaxMembers))
	}
	return nil
}

func (w *growing) newMembers() int64 { return int64(len(w.fresh) + len(w.joins)) }

// judgeEdges decides which edges are new, and refuses invalid ones.
func (w *growing) judgeEdges(context.Context) error {
	w.ids = make([]id.EdgeID, len(w.edges))
	for i := range w.edges {
		d := &w.edges[i]
		stored, err := w.storedAs(d)
		if err != nil {
			return d.in(err)
		}
		switch {
		case stored == nil:
			w.ids[i] = d.id
			w.added = append(w.added, d)
			continue
		case !stored.applied && !w.staging:
			w.applied = append(w.applied, stored)
		}
		w.ids[i] = stored.id
	}
	if expected := w.growth.revision; expected != nil && *expected != w.revision && (len(w.added) > 0 || w.newMembers() > 0) {
		return &fferr.RevisionError{Flow: w.flow, Expected: *expected, Revision: w.revision}
	}
	fanIn := make(map[id.ExecutionID]int)
	for _, d := range w.added {
		if err := w.judgeEdge(d); err != nil {
			return d.in(err)
		}
		if fanIn[d.downstream]++; fanIn[d.downstream]+len(w.into[d.downstream]) > MaxInbound {
			return core.Invalid(d.field(), fmt.Sprintf("more than %d edges lead to its end", MaxInbound))
		}
	}
	return w.judgeApplied()
}

func (w *growing) judgeApplied() error {
	for _, s := range w.applied {
		if err := w.judgeDownstream(s.downstream, s.allowStarted); err != nil {
			return fmt.Errorf("edge %s: %w", s.id, err)
		}
	}
	return nil
}

// storedAs returns the existing edge that d repeats, or nil if d is new.
func (w *growing) storedAs(d *growingEdge) (*keptEdge, error) {
	stored := w.between[ends{d.upstream, d.downstream}]
	if d.given {
		stored = w.named[d.id]
	}
	switch {
	case stored == nil:
		return nil, nil
	case stored.upstream != d.upstream, stored.downstream != d.downstream, stored.kind != d.kind, stored.passResult != d.passResult:
		return nil, stored.exists()
	}
	return stored, nil
}

// judgeEdge checks whether a new edge is allowed.
func (w *growing) judgeEdge(d *growingEdge) error {
	for _, x := range []id.ExecutionID{d.upstream, d.downstream} {
		if err := w.checkIsMember(x); err != nil {
			return err
		}
	}
	if stored := w.between[ends{d.upstream, d.downstream}]; stored != nil {
		return stored.exists()
	}
	return w.judgeDownstream(d.downstream, d.allowStarted)
}

func (w *growing) checkIsMember(x id.ExecutionID) error {
	_, joins := w.joins[x]
	held, exists := w.held[x]
	switch {
	case w.fresh[x], joins:
		return nil
	case w.pruned[x]:
		return fmt.Errorf("execution %s: %w", x, fferr.ErrPruned)
	case !exists:
		return &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	case held.FlowID == nil, *held.FlowID != w.flow:
		return &fferr.MemberError{Execution: x, Flow: held.FlowID, Err: fferr.ErrNotMember}
	}
	return nil
}

// judgeDownstream checks whether an execution may get a dependency.
func (w *growing) judgeDownstream(x id.ExecutionID, allowStarted bool) error {
	held, exists := w.held[x]
	switch {
	case w.fresh[x]:
		return nil
	case !exists:
		return &fferr.NotFoundError{Entity: "execution", ID: x.String()}
	case held.Terminal():
		return held.Ended()
	}
	vector, err := held.Vector()
	if err != nil {
		return err
	}
	if !allowStarted && !held.Unstarted() {
		return &fferr.StateError{Execution: x, State: vector, Err: fferr.ErrStarted}
	}
	return nil
}

// checkStoredCycles refuses new edges forming a cycle with stored ones.
func (w *growing) checkStoredCycles(ctx context.Context) error {
	begins := make(map[id.ExecutionID]bool)
	leaves := false
	for _, d := range w.added {
		leaves = leaves || !w.fresh[d.upstream]
		if !w.fresh[d.downstream] {
			begins[d.downstream] = true
		}
	}
	if !leaves || len(begins) == 0 {
		return nil
	}
	params := db.ListEdgesBelowParams{PartitionKey: w.partition, FlowID: w.flow}
	for _, x := range slices.SortedFunc(maps.Keys(begins), id.ExecutionID.Compare) {
		params.ExecutionIDs = append(params.ExecutionIDs, core.PgUUID(x.UUID()))
	}
	below, err := w.e.c.Q.ListEdgesBelow(ctx, w.tx, params)
	if err != nil {
		return err
	}
	return w.checkCycle(below)
}

// grown returns the result of the growth.
func (w *growing) grown() Grown {
	g := Grown{
		Revision: w.revision, Nodes: int(w.nodeCount), Edges: int(w.edgeCount),
	}
	for i := range w.nodes {
		x := w.nodes[i].execution
		if w.fresh[x] {
			g.Created = append(g.Created, x)
		} else if _, joins := w.joins[x]; joins {
			g.Joined = append(g.Joined, x)
		}
	}
	for _, d := range w.added {
		g.Linked = append(g.Linked, d.id)
	}
	return g
}
