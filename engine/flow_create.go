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
	"github.com/flowfabric/flowfabric-go/policy"
)

// CreatedFlow is the result of a flow's creation.
type CreatedFlow struct {
	ID      id.FlowID
	Existed bool // the flow already existed; nothing was compared or changed
}

// CreateFlow creates a flow with its executions and dependencies. Nodes without inbound edges are claimable when it
// returns. If a flow with spec.ID exists, CreateFlow changes nothing and sets Existed.
//
// Errors: [fferr.ErrInvalidInput] naming the node or edge, its field and the limit; [fferr.ErrCycle]; [fferr.ErrExists]
// for the id of an existing execution; [fferr.ErrIdempotencyKeyTaken]; [fferr.ErrKeyConflict] naming the holder of the
// business key. Nothing was written then. Transaction: one. Emits completion events of nodes skipped at once. Safe to
// repeat with an ID.
func (e *Engine) CreateFlow(ctx context.Context, spec FlowSpec) (CreatedFlow, error) {
	const op = "create flow"
	if joins(spec) {
		return e.createJoined(ctx, op, spec)
	}
	plan, err := e.planFlow(ctx, spec)
	if err == nil {
		err = e.findAllLimits(ctx, plan.creations)
	}
	if err != nil {
		return CreatedFlow{}, core.Wrap(op, err)
	}
	plan.new.limits = undeclaredOf(plan.creations)
	created, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) (CreatedFlow, error) {
		return e.writeFlow(ctx, tx, plan)
	})
	if err == nil && e.c.Tx == nil {
		if created.Existed {
			plan.new = registration{lanes: plan.new.lanes}
		}
		e.remember(plan.new)
	}
	return created, err
}

// joins reports whether a flow includes existing executions, or edges to possibly started ones.
func joins(spec FlowSpec) bool {
	return slices.ContainsFunc(spec.Nodes, func(n Node) bool { return !n.Execution.IsZero() }) ||
		slices.ContainsFunc(spec.Edges, func(edge Edge) bool { return edge.AllowStarted })
}

// createJoined creates a flow with existing executions: an empty flow, which then grows.
func (e *Engine) createJoined(ctx context.Context, op string, spec FlowSpec) (CreatedFlow, error) {
	plan := &flowPlan{id: spec.ID}
	if plan.id.IsZero() {
		plan.id = e.newFlowAround(spec.Nodes)
	}
	if err := e.planHeader(plan, spec); err != nil {
		return CreatedFlow{}, core.Wrap(op, err)
	}
	plan.new.period = e.periods.missingBelow(plan.shortest)
	plan.raw["node_count"], plan.raw["edge_count"] = 0, 0
	g, err := e.planGrowth(ctx, Growth{Flow: plan.id, Nodes: spec.Nodes, Edges: spec.Edges})
	if err == nil {
		g.newFlow = keyedFlow{plan.id, plan.business}
		err = checkBusinessKeys(plan.business, g.creations())
	}
	if err == nil {
		_, err = newGraph(spec)
	}
	if err != nil {
		return CreatedFlow{}, core.Wrap(op, err)
	}
	created := CreatedFlow{ID: plan.id}
	_, err = e.creating(ctx, op, g.creations(), func(tx *core.Txn) (Grown, error) {
		inserted, _, err := e.writeHeader(ctx, tx, plan)
		if created.Existed = !inserted; err != nil || !inserted {
			return Grown{}, err
		}
		w, err := e.grow(ctx, tx, g)
		if err != nil {
			return Grown{}, err
		}
		return w.grown(), e.register(ctx, tx, plan.new)
	})
	if err != nil {
		return CreatedFlow{}, err
	}
	return created, nil
}

// newFlowAround returns a new flow id in the partition of the first existing node, because a flow and its members share
// a partition.
func (e *Engine) newFlowAround(nodes []Node) id.FlowID {
	flow := id.NewFlowID()
	for i := range nodes {
		if x := nodes[i].Execution; !x.IsZero() && e.c.CheckExecution(x) == nil {
			for e.cfg.Partitions.FlowPartition(flow) != x.Partition() {
				flow = id.NewFlowID()
			}
			break
		}
	}
	return flow
}

// flowPlan is a checked FlowSpec in the form of rows' columns.
type flowPlan struct {
	id          id.FlowID
	createdAtMs int64
	raw         map[string]any
	business    id.BusinessKey
	creations   []creation
	shortest    int64        // retention of the flow or its members
	new         registration // with the shortest retention, policies included
	edges       db.InsertAppliedEdgesParams
	groups      db.InsertEdgeGroupsParams
}

func (e *Engine) planFlow(ctx context.Context, spec FlowSpec) (*flowPlan, error) {
	plan := &flowPlan{id: spec.ID}
	if plan.id.IsZero() {
		plan.id = id.NewFlowID()
	}
	switch {
	case len(spec.Nodes) > MaxNodes:
		return nil, core.Invalid("nodes", fmt.Sprintf("%d, limit %d", len(spec.Nodes), MaxNodes))
	case len(spec.Edges) > MaxEdges:
		return nil, core.Invalid("edges", fmt.Sprintf("%d, limit %d", len(spec.Edges), MaxEdges))
	}
	if err := e.planHeader(plan, spec); err != nil {
		return nil, err
	}
	graph, err := newGraph(spec)
	if err != nil {
		return nil, err
	}
	if spec.Nodes, err = e.delayNodes(ctx, e.adaptNodes(ctx, plan.id, spec.Nodes)); err != nil {
		return nil, err
	}
	if err := e.planNodes(plan, spec, graph); err != nil {
		return nil, err
	}
	return plan, e.planEdges(plan, spec, graph)
}

func (e *Engine) planHeader(plan *flowPlan, spec FlowSpec) error {
	if err := core.CheckText("flow kind", spec.Kind, maxFlowKind); err != nil {
		return err
	}
	namespace, err := e.c.NamespaceOr(spec.Namespace)
	if err != nil {
		return err
	}
	if plan.createdAtMs, err = core.Instant("created at", spec.CreatedAt); err != nil {
		return err
	}
	plan.raw = map[string]any{
		"flow_kind":  spec.Kind,
		"namespace":  namespace,
		"node_count": len(spec.Nodes),
		"edge_count": len(spec.Edges),
	}
	for key, value := range spec.Tags {
		if err := id.CheckTagKey(key); err != nil {
			return core.InvalidBecause("flow tag key", err)
		}
		if err := checkTagValue("flow tag", key, value); err != nil {
			return err
		}
		plan.raw[key] = value
	}
	if plan.business = spec.BusinessKey; !plan.business.IsZero() {
		if err := checkBusinessKey(plan.business); err != nil {
			return err
		}
		plan.raw["ffx_business_key"] = plan.business
	}
	return plan.keep(spec)
}

// keep stores how long a flow and its members are kept.
func (p *flowPlan) keep(spec FlowSpec) error {
	p.shortest = core.Forever
	if spec.Retention != 0 {
		if err := core.CheckRetention("flow retention", spec.Retention); err != nil {
			return err
		}
		ms := core.RetentionMs(spec.Retention)
		p.raw["ffx_retention_ms"] = ms
		if p.shortest = ms; ms == core.Forever {
			p.raw["ffx_retention_ms"] = -1
		}
	}
	if spec.PruneMembersAfter != 0 {
		if spec.PruneMembersAfter == policy.KeepForever {
			return core.Invalid("prune members after", "is forever, which is the default: use 0")
		}
		if err := core.CheckRetention("prune members after", spec.PruneMembersAfter); err != nil {
			return err
		}
		ms := core.RetentionMs(spec.PruneMembersAfter)
		p.raw["ffx_prune_members_after_ms"] = ms
		p.shortest = min(p.shortest, ms)
	}
	return nil
}

func (e *Engine) planNodes(plan *flowPlan, spec FlowSpec, graph *graph) error {
	plan.creations = make([]creation, len(spec.Nodes))
	taken := make(map[id.ExecutionID]string, len(spec.Nodes))
	for i := range spec.Nodes {
		node := &spec.Nodes[i]
		field := fmt.Sprintf("node %q", node.Key)
		if node.Spec.Flow != nil {
			return core.Invalid(field, "names a flow of its own")
		}
		execution := node.Spec
		execution.Flow = &plan.id
		if execution.ID.IsZero() {
			execution.ID = e.NodeID(plan.id, node.Key)
		}
		if execution.Namespace == "" {
			execution.Namespace = spec.Namespace
		}
		c, err := e.prepareNode(execution, node.Key)
		if err != nil {
			return core.InvalidBecause(field, err)
		}
		if other, twice := taken[c.id]; twice {
			return core.Invalid(field, fmt.Sprintf("has the execution id of node %q", other))
		}
		taken[c.id] = node.Key
		c.held = graph.inbound[i] > 0
		plan.creations[i] = c
	}
	plan.new.lanes = e.unknownLanes(plan.creations)
	plan.new.period = e.periods.missingBelow(min(plan.shortest, shortestOf(plan.creations)))
	return checkBusinessKeys(plan.business, plan.creations)
}

func (e *Engine) planEdges(plan *flowPlan, spec FlowSpec, graph *graph) error {
	partition := e.cfg.Partitions.FlowPartition(plan.id)
	uuidOf := func(node int) pgtype.UUID { return core.PgUUID(plan.creations[node].id.UUID()) }
	plan.edges = db.InsertAppliedEdgesParams{PartitionKey: partition, FlowID: plan.id}
	minted := id.NewEdgeIDs(len(spec.Edges))
	seen := make(map[id.EdgeID]struct{}, len(spec.Edges))
	for i, edge := range spec.Edges {
		field := fmt.Sprintf("edge %q to %q", edge.From, edge.To)
		if edge.ID.IsZero() {
			edge.ID = minted[i]
		}
		if _, twice := seen[edge.ID]; twice {
			return core.Invalid(field, "has the id of another edge")
		}
		seen[edge.ID] = struct{}{}
		if edge.Kind == "" {
			edge.Kind = defaultEdgeKind
		}
		if err := core.CheckText(field+": kind", edge.Kind, core.MaxKind); err != nil {
			return err
		}
		if err := core.CheckText(field+": pass result", edge.PassResult, core.MaxFreeText); err != nil {
			return err
		}
		plan.edges.EdgeIDs = append(plan.edges.EdgeIDs, core.PgUUID(edge.ID))
		plan.edges.UpstreamEIDs = append(plan.edges.UpstreamEIDs, uuidOf(graph.from[i]))
		plan.edges.DownstreamEIDs = append(plan.edges.DownstreamEIDs, uuidOf(graph.to[i]))
		plan.edges.DependencyKinds = append(plan.edges.DependencyKinds, edge.Kind)
		plan.edges.DataPassingRefs = append(plan.edges.DataPassingRefs, edge.PassResult)
	}
	plan.groups = db.InsertEdgeGroupsParams{PartitionKey: partition, FlowID: plan.id}
	for i := range spec.Nodes {
		node, fanIn := &spec.Nodes[i], graph.inbound[i]
		if fanIn == 0 {
			continue
		}
		group, err := groupOf(node, fanIn)
		if err != nil {
			return err
		}
		stored, err := json.Marshal(group)
		if err != nil {
			return core.InvalidBecause(fmt.Sprintf("node %q", node.Key), err)
		}
		plan.groups.DownstreamEIDs = append(plan.groups.DownstreamEIDs, uuidOf(i))
		plan.groups.Policies = append(plan.groups.Policies, string(stored))
		plan.groups.KTargets = append(plan.groups.KTargets, group.KTarget(int64(fanIn)))
		plan.groups.RunningCounts = append(plan.groups.RunningCounts, group.StoredRunning(int64(fanIn)))
	}
	return nil
}

// writeFlow inserts a plan without locking the flow: the rows of a new flow are invisible until the commit.
func (e *Engine) writeFlow(ctx context.Context, tx *core.Txn, plan *flowPlan) (CreatedFlow, error) {
	inserted, nowMs, err := e.writeHeader(ctx, tx, plan)
	if err != nil || !inserted {
		return CreatedFlow{ID: plan.id, Existed: !inserted}, err
	}
	if err := e.holdFlowKeys(ctx, tx, plan.creations, keyedFlow{plan.id, plan.business}); err != nil {
		return CreatedFlow{}, err
	}
	created, err := e.insertNodes(ctx, tx, plan, nowMs)
	if err != nil {
		return CreatedFlow{}, err
	}
	if err := wantCreated(plan.creations, created); err != nil {
		return CreatedFlow{}, err
	}
	if len(plan.edges.EdgeIDs) > 0 {
		plan.edges.NowMs = nowMs
		if err := e.c.Q.InsertAppliedEdges(ctx, tx, plan.edges); err != nil {
			return CreatedFlow{}, err
		}
		if err := e.c.Q.InsertEdgeGroups(ctx, tx, plan.groups); err != nil {
			return CreatedFlow{}, err
		}
	}
	return CreatedFlow{ID: plan.id}, e.register(ctx, tx, plan.new)
}

// holdFlowKeys holds the keys of a flow's new executions, and the business key of a new flow. The call fails unless all
// keys are free.
func (e *Engine) holdFlowKeys(ctx context.Context, tx *core.Txn, creations []creation, of keyedFlow) error {
	r := creationRun{creations: creations, newFlow: of}
	if err := e.holdKeys(ctx, tx, &r); err != nil {
		return err
	}
	if err := e.holdBusinessKeys(ctx, tx, &r); err != nil {
		return err
	}
	if holder, taken := r.keys.business.taken[of.key]; taken {
		return holder.conflict(of.key)
	}
	e.deal(&r)
	if err := r.wantAll(); err != nil {
		return err
	}
	if err := e.settleKeys(ctx, tx, &r); err != nil {
		return err
	}
	return e.settleBusinessKeys(ctx, tx, &r)
}

// checkBusinessKeys refuses a business key used more than once by a flow and its nodes.
func checkBusinessKeys(ofFlow id.BusinessKey, creations []creation) error {
	seen := make(map[id.BusinessKey]string)
	if !ofFlow.IsZero() {
		seen[ofFlow] = "the flow"
	}
	for i := range creations {
		c := &creations[i]
		if c.business.IsZero() {
			continue
		}
		if other, twice := seen[c.business]; twice {
			return core.Invalid(fmt.Sprintf("node %q", c.node), "has the business key of "+other)
		}
		seen[c.business] = fmt.Sprintf("node %q", c.node)
	}
	return nil
}

// writeHeader inserts the row of a flow unless the flow exists.
func (e *Engine) writeHeader(ctx context.Context, tx *core.Txn, plan *flowPlan) (inserted bool, nowMs int64, err error) {
	if nowMs, err = e.c.Q.GetNow(ctx, tx, e.c.NowMs()); err != nil {
		return false, 0, err
	}
	createdAtMs := plan.createdAtMs
	if createdAtMs == 0 {
		createdAtMs = nowMs
	}
	raw := maps.Clone(plan.raw)
	raw["last_mutation_at_ms"] = createdAtMs
	document, err := json.Marshal(raw)
	if err != nil {
		return false, 0, err
	}
	n, err := e.c.Q.InsertFlow(ctx, tx, db.InsertFlowParams{
		PartitionKey:  e.cfg.Partitions.FlowPartition(plan.id),
		FlowID:        plan.id,
		GraphRevision: int64(len(plan.creations) + len(plan.edges.EdgeIDs)),
		CreatedAtMs:   createdAtMs,
		RawFields:     string(document),
	})
	return n > 0, nowMs, err
}

// wantCreated returns an error if one of the creations was not inserted because the id exists.
func wantCreated(creations []creation, created map[id.ExecutionID]Created) error {
	for i := range creations {
		if _, ok := created[creations[i].id]; !ok {
			return fmt.Errorf("execution %s: %w", creations[i].id, fferr.ErrExists)
		}
	}
	return nil
}

// insertNodes inserts the executions of a plan, in as few statements as the sizes allow.
func (e *Engine) insertNodes(ctx context.Context, tx *core.Txn, plan *flowPlan, nowMs int64) (map[id.ExecutionID]Created, error) {
	if err := e.placeFair(ctx, tx, plan.creations); err != nil {
		return nil, err
	}
	created := make(map[id.ExecutionID]Created, len(plan.creations))
	for _, run := range core.BySize(plan.creations, MaxNodes, creation.size) {
		inserted, err := e.insert(ctx, tx, run, &plan.id, &nowMs, &tx.Due)
		if err != nil {
			return nil, err
		}
		maps.Copy(created, inserted)
	}
	return created, nil
}
