package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Growth describes additions to an existing flow.
type Growth struct {
	Flow id.FlowID // required

	// Nodes are new members, at most [MaxNodes]. The node of an existing member adds nothing.
	Nodes []Node

	// Edges are new dependencies, at most [MaxEdges], between nodes of the call or earlier ones. An existing edge with
	// the same Kind and PassResult adds nothing.
	Edges []Edge

	// Revision is the expected revision of the flow, ignored if there is nothing to add. Default nil: any.
	Revision *int64
}

// Grown has the additions of a growth, and the flow afterwards.
type Grown struct {
	Revision     int64
	Nodes, Edges int              // of the flow
	Created      []id.ExecutionID // new executions
	Joined       []id.ExecutionID // executions that existed outside flows
	Linked       []id.EdgeID      // new edges
}

// Added is the result of adding members to a flow, and the flow afterwards.
type Added struct {
	Revision int64
	Nodes    int              // of the flow
	Joined   []id.ExecutionID // new members
	Members  []id.ExecutionID // existing members
}

// GrowFlow adds executions and dependencies to an uncancelled flow, also from a member's handler. Nodes without
// dependencies are claimable when it returns. An edge from an ended member counts at once, and may release or skip its
// downstream. A new dependency blocks a member that was never claimed. A started member requires AllowStarted, and
// waits once it calls [Engine.WaitForChildren]. A member with edges keeps its policy: another nonzero Node.When is
// refused.
//
// Errors: [fferr.ErrInvalidInput] naming the node or edge, its field and the limit; [fferr.ErrNotFound];
// [fferr.ErrExists] if an execution outside the flow has a new node's id; [fferr.ErrOtherFlow], [fferr.ErrNotMember],
// [fferr.ErrEdgeExists], [fferr.ErrPruned], [fferr.ErrIdempotencyKeyTaken], [fferr.ErrKeyConflict], [fferr.ErrCycle],
// [fferr.ErrStaleRevision], [fferr.ErrFlowTerminal], [fferr.ErrCorruption]; [fferr.ErrEnded] and [fferr.ErrStarted] for
// an edge's downstream; [fferr.ErrContention]. Nothing was written then. Transaction: one. Locks the flow exclusively,
// the named executions, then groups; waits for each up to two seconds, three times. Emits completion events of skipped
// executions. Safe to repeat.
func (e *Engine) GrowFlow(ctx context.Context, growth Growth) (Grown, error) {
	const op = "grow flow"
	g, err := e.planGrowth(ctx, growth)
	if err == nil {
		err = g.checkPolicies()
	}
	if err == nil {
		err = checkBusinessKeys(id.BusinessKey{}, g.creations())
	}
	if err != nil {
		return Grown{}, core.Wrap(op, err)
	}
	return e.growIn(ctx, op, g)
}

// AddMembers adds existing executions, started, ended or not, to a flow without dependencies: all or none. Their ids
// must be in the flow's partition, as made by [id.NewMemberExecutionID].
//
// Errors: [fferr.ErrInvalidInput] for more than [MaxNodes] executions, a repeated id, another partition, or more than
// [MaxMembers] members; [fferr.ErrNotFound]; [fferr.ErrFlowTerminal]; [fferr.ErrOtherFlow]; [fferr.ErrContention].
// Nothing was written then. Transaction: one; locks as [Engine.GrowFlow]. Emits no events. Safe to repeat.
func (e *Engine) AddMembers(ctx context.Context, flow id.FlowID, executions []id.ExecutionID) (Added, error) {
	const op = "add members"
	g, err := e.newGrowth(flow, len(executions), 0, nil)
	if err != nil {
		return Added{}, core.Wrap(op, err)
	}
	for _, x := range executions {
		if err := g.addNode(e, growingNode{execution: x, field: "execution " + x.String()}); err != nil {
			return Added{}, core.Wrap(op, err)
		}
	}
	grown, err := e.growIn(ctx, op, g)
	if err != nil {
		return Added{}, err
	}
	added := Added{Revision: grown.Revision, Nodes: grown.Nodes, Joined: grown.Joined}
	joined := make(map[id.ExecutionID]bool, len(grown.Joined))
	for _, x := range grown.Joined {
		joined[x] = true
	}
	for _, x := range executions {
		if !joined[x] {
			added.Members = append(added.Members, x)
		}
	}
	return added, nil
}

// growth is a checked change of a flow's structure.
type growth struct {
	flow      id.FlowID
	partition int16
	revision  *int64
	nodes     []growingNode
	edges     []growingEdge
	staging   bool      // the edges are only staged
	newFlow   keyedFlow // a new flow with its business key

	keys map[id.ExecutionID]string // keys of the call's nodes, for errors
}

// growingNode is a node of a growth.
type growingNode struct {
	field     string
	execution id.ExecutionID
	node      *Node     // nil if only the execution was given
	creation  *creation // nil if the execution exists
}

// growingEdge is an edge of a growth.
type growingEdge struct {
	id                   id.EdgeID
	given                bool // the caller chose the id
	upstream, downstream id.ExecutionID
	kind, passResult     string
	allowStarted         bool
	from, to             string // as named by the caller
}

func (d *growingEdge) field() string { return fmt.Sprintf("edge %q to %q", d.from, d.to) }

// in adds the edge to an error.
func (d *growingEdge) in(err error) error { return fmt.Errorf("%s: %w", d.field(), err) }

func (e *Engine) newGrowth(flow id.FlowID, nodes, edges int, revision *int64) (*growth, error) {
	switch {
	case flow.IsZero():
		return nil, core.Invalid("Flow", "is empty")
	case nodes > MaxNodes:
		return nil, core.Invalid("nodes", fmt.Sprintf("%d, limit %d", nodes, MaxNodes))
	case edges > MaxEdges:
		return nil, core.Invalid("edges", fmt.Sprintf("%d, limit %d", edges, MaxEdges))
	case revision != nil && *revision < 0:
		return nil, core.Invalid("Revision", "is negative")
	}
	return &growth{
		flow: flow, partition: e.cfg.Partitions.FlowPartition(flow), revision: revision,
		nodes: make([]growingNode, 0, nodes), edges: make([]growingEdge, 0, edges),
		keys: make(map[id.ExecutionID]string, nodes),
	}, nil
}

// planGrowth checks a growth as far as possible without the database.
func (e *Engine) planGrowth(ctx context.Context, growth Growth) (*growth, error) {
	g, err := e.newGrowth(growth.Flow, len(growth.Nodes), len(growth.Edges), growth.Revision)
	if err != nil {
		return nil, err
	}
	nodes, err := e.delayNodes(ctx, e.adaptNodes(ctx, growth.Flow, growth.Nodes))
	if err != nil {
		return nil, err
	}
	byKey, err := g.addNodes(e, nodes)
	if err != nil {
		return nil, err
	}
	for i := range growth.Edges {
		edge := &growth.Edges[i]
		end := func(key string) (id.ExecutionID, error) {
			if x, ok := byKey[key]; ok {
				return x, nil
			}
			return e.NodeID(g.flow, key), checkNodeKey(fmt.Sprintf("edge %q to %q", edge.From, edge.To), key)
		}
		upstream, err := end(edge.From)
		if err != nil {
			return nil, err
		}
		downstream, err := end(edge.To)
		if err != nil {
			return nil, err
		}
		g.edges = append(g.edges, growingEdge{
			id: edge.ID, upstream: upstream, downstream: downstream, kind: edge.Kind, passResult: edge.PassResult,
			allowStarted: edge.AllowStarted, from: edge.From, to: edge.To,
		})
	}
	return g, g.checkEdges()
}

func checkNodeKey(field, key string) error {
	if key == "" {
		return core.Invalid(field, "has no key")
	}
	return core.CheckText("node key", key, core.MaxFreeText)
}

// addNodes adds nodes with keys, and returns their executions by key.
func (g *growth) addNodes(e *Engine, nodes []Node) (map[string]id.ExecutionID, error) {
	byKey := make(map[string]id.ExecutionID, len(nodes))
	for i := range nodes {
		node := &nodes[i]
		if err := checkNodeKey(fmt.Sprintf("node %d", i), node.Key); err != nil {
			return nil, err
		}
		added := growingNode{field: fmt.Sprintf("node %q", node.Key), execution: node.Execution, node: node}
		if _, twice := byKey[node.Key]; twice {
			return nil, core.Invalid(added.field, "key is used twice")
		}
		switch {
		case node.Execution.IsZero():
			c, err := e.prepareMember(g.flow, node, "")
			if err != nil {
				return nil, core.InvalidBecause(added.field, err)
			}
			added.creation, added.execution = &c, c.id
		case !reflect.ValueOf(node.Spec).IsZero():
			return nil, core.Invalid(added.field, "has both an Execution and a Spec")
		}
		if err := g.addNode(e, added); err != nil {
			return nil, err
		}
		byKey[node.Key] = added.execution
	}
	return byKey, nil
}

// addNode adds a node with an execution that no other node has.
func (g *growth) addNode(e *Engine, node growingNode) error {
	if err := g.checkMember(e, node.field, node.execution); err != nil {
		return err
	}
	if _, twice := g.keys[node.execution]; twice {
		return core.Invalid(node.field, "has the execution id of another one")
	}
	g.keys[node.execution] = ""
	if node.node != nil {
		g.keys[node.execution] = node.node.Key
	}
	g.nodes = append(g.nodes, node)
	return nil
}

// checkMember refuses the id of an execution outside the flow's partition.
func (g *growth) checkMember(e *Engine, field string, x id.ExecutionID) error {
	if err := e.c.CheckExecution(x); err != nil {
		return core.InvalidBecause(field, err)
	}
	if x.Partition() != g.partition {
		return core.Invalid(field, "partition_mismatch: a member must be in the partition of its flow")
	}
	return nil
}

// prepareMember prepares the execution of a node. A node without a namespace gets the given one, or the engine's for
// "".
func (e *Engine) prepareMember(flow id.FlowID, node *Node, namespace id.Namespace) (creation, error) {
	spec := node.Spec
	if spec.Flow != nil {
		return creation{}, errors.New("names a flow of its own")
	}
	spec.Flow = &flow
	if spec.ID.IsZero() {
		spec.ID = e.NodeID(flow, node.Key)
	}
	if spec.Namespace == "" {
		spec.Namespace = namespace
	}
	return e.prepareNode(spec, node.Key)
}

// checkEdges checks the edges against each other, and fills in their defaults.
func (g *growth) checkEdges() error {
	minted := id.NewEdgeIDs(len(g.edges))
	seen := make(map[id.EdgeID]bool, len(g.edges))
	type pair struct{ upstream, downstream id.ExecutionID }
	pairs := make(map[pair]bool, len(g.edges))
	for i := range g.edges {
		d := &g.edges[i]
		if d.upstream == d.downstream {
			return fmt.Errorf("%w: %s", fferr.ErrCycle, d.field())
		}
		if pairs[pair{d.upstream, d.downstream}] {
			return core.Invalid(d.field(), "is given twice")
		}
		pairs[pair{d.upstream, d.downstream}] = true
		if d.given = !d.id.IsZero(); !d.given {
			d.id = minted[i]
		}
		if seen[d.id] {
			return core.Invalid(d.field(), "has the id of another edge")
		}
		seen[d.id] = true
		if d.kind == "" {
			d.kind = "success_only"
		}
		if len(d.kind) > core.MaxKind || len(d.passResult) > core.MaxFreeText || id.CheckText("", d.kind) != nil || id.CheckText("", d.passResult) != nil {
			if err := core.CheckText(d.field()+": kind", d.kind, core.MaxKind); err != nil {
				return err
			}
			return core.CheckText(d.field()+": pass result", d.passResult, core.MaxFreeText)
		}
	}
	return g.checkCycle(nil)
}

// checkPolicies refuses a policy of a node that no edge of the growth leads to.
func (g *growth) checkPolicies() error {
	waits := make(map[id.ExecutionID]bool)
	for i := range g.edges {
		waits[g.edges[i].downstream] = true
	}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.node.When != policy.AllOf() && !waits[n.execution] {
			return core.Invalid(n.field+": When", "no edge leads to it: SetGroupPolicy sets a policy for later ones")
		}
	}
	return nil
}

// creations returns the executions that the growth may have to create.
func (g *growth) creations() []creation {
	var creations []creation
	for i := range g.nodes {
		if c := g.nodes[i].creation; c != nil {
			creations = append(creations, *c)
		}
	}
	return creations
}

// growIn runs a growth in a transaction.
func (e *Engine) growIn(ctx context.Context, op string, g *growth) (Grown, error) {
	return e.creating(ctx, op, g.creations(), func(tx *core.Txn) (Grown, error) {
		w, err := e.grow(ctx, tx, g)
		if err != nil {
			return Grown{}, err
		}
		return w.grown(), nil
	})
}

// creating runs fn, which may create some executions, and registers their lanes and retention period.
func (e *Engine) creating(ctx context.Context, op string, creations []creation, fn func(tx *core.Txn) (Grown, error)) (Grown, error) {
	if err := e.findAllLimits(ctx, creations); err != nil {
		return Grown{}, core.Wrap(op, err)
	}
	new := e.unregistered(creations)
	grown, err := core.InTx(ctx, e.c, op, func(tx *core.Txn) (Grown, error) {
		grown, err := fn(tx)
		if err != nil || len(grown.Created) == 0 {
			return grown, err
		}
		return grown, e.register(ctx, tx, new)
	})
	if err == nil && e.c.Tx == nil && len(grown.Created) > 0 {
		e.remember(new)
	}
	return grown, err
}

// checkCycle refuses a growth whose edges form a cycle with some stored ones.
func (g *growth) checkCycle(stored []db.ListEdgesBelowRow) error {
	index := make(map[id.ExecutionUUID]int)
	var members []id.ExecutionUUID
	at := func(x id.ExecutionUUID) int {
		n, ok := index[x]
		if !ok {
			n = len(members)
			index[x] = n
			members = append(members, x)
		}
		return n
	}
	shape := new(graph)
	for i := range g.edges {
		shape.from = append(shape.from, at(g.edges[i].upstream.UUID()))
		shape.to = append(shape.to, at(g.edges[i].downstream.UUID()))
	}
	for i := range stored {
		shape.from = append(shape.from, at(stored[i].UpstreamEID.Bytes))
		shape.to = append(shape.to, at(stored[i].DownstreamEID))
	}
	shape.inbound = make([]int, len(members))
	for _, to := range shape.to {
		shape.inbound[to]++
	}
	cycle := shape.cycle()
	if cycle == nil {
		return nil
	}
	names := make(map[id.ExecutionUUID]string)
	for i := range g.edges {
		d := &g.edges[i]
		names[d.upstream.UUID()], names[d.downstream.UUID()] = strconv.Quote(d.from), strconv.Quote(d.to)
	}
	path := make([]string, len(cycle))
	for i, n := range cycle {
		if path[i] = names[members[n]]; path[i] == "" {
			path[i] = members[n].String()
		}
	}
	return fmt.Errorf("%w: %s", fferr.ErrCycle, strings.Join(path, " to "))
}
