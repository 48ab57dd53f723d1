package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Growth is what is added to a flow that exists.
type Growth struct {
	Flow id.FlowID // required

	// Nodes are executions that become members, at most [MaxNodes]. A node whose execution is a member already adds
	// nothing; by its Execution it gives a key to a member that was not created as a node.
	Nodes []Node

	// Edges count at once, at most [MaxEdges]. Their ends are keys of Nodes, or of nodes that the flow was created with or
	// has grown by. One that the flow has already, with the same Kind and PassResult, adds nothing.
	Edges []Edge

	// Revision is what the flow's revision must be, unless there is nothing left to be added. Default nil: any.
	Revision *int64
}

// Grown is what a growth has added, and the flow after it.
type Grown struct {
	Revision     int64
	Nodes, Edges int              // of the flow
	Created      []id.ExecutionID // executions that are new
	Joined       []id.ExecutionID // executions that existed outside flows
	Linked       []id.EdgeID      // edges that are new
}

// Added is what became of executions that were to become members of a flow, and the flow after it.
type Added struct {
	Revision int64
	Nodes    int              // of the flow
	Joined   []id.ExecutionID // became members
	Members  []id.ExecutionID // were members already
}

// GrowFlow adds executions and dependencies to a flow, at any time before it is cancelled: while its members run, and
// from inside the handler of one of them. What waits for nothing is claimable when the call returns. An edge that leads
// from a member which has ended is counted at once: it may release or skip what it leads to. A member that nobody has
// claimed yet waits again if it is given something to wait for that has not ended.
//
// Who has started waits for nothing more, unless the edge has AllowStarted; then it waits once it calls
// [Engine.WaitForChildren], as a handler does for executions that it has made.
//
// Node.When of a member is refused once edges lead to it, unless it is what it was. Left at its zero value it leaves the
// policy of a member as it is, and that of [Engine.SetGroupPolicy].
//
// Errors: [ErrInvalidInput] naming the node or edge, its field and the limit; [ErrNotFound] for the flow, an execution
// of a node, or an end of an edge; [ErrFlowTerminal]; [ErrStaleRevision]; [ErrCycle]; [ErrExists] when the execution of
// a new node exists outside the flow; [ErrIdempotencyKeyTaken]; [ErrOtherFlow]; [ErrNotMember] for an end of an edge;
// [ErrEdgeExists]; [ErrEnded] and [ErrStarted] for what an edge leads to; [ErrPruned] for a new edge from or to a member that
// was pruned; [ErrCorruption]. In every case nothing is written.
//
// Transaction: one, of a number of statements that does not depend on the size of the growth, plus one round for each
// level of executions that are skipped. Locks the flow exclusively, the existing executions named, then groups, and waits
// for each up to two seconds, three times; then [ErrContention]. Emits completion events of what is skipped.
// Repeating it is safe.
func (e *Engine) GrowFlow(ctx context.Context, growth Growth) (Grown, error) {
	const op = "grow flow"
	g, err := e.planGrowth(growth)
	if err == nil {
		err = g.checkPolicies()
	}
	if err != nil {
		return Grown{}, wrap(op, err)
	}
	return e.growIn(ctx, op, g)
}

// AddMembers makes executions that exist members of a flow, without dependencies; all of them or none. They have been
// created with ids of the flow's partition: [id.NewMemberExecutionID] makes such. One that has started or ended may be
// added too: others can wait for it.
//
// Errors: [ErrInvalidInput] for more than [MaxNodes], an id that stands twice or is of another partition than the flow,
// or a flow that would have more than [MaxMembers]; [ErrNotFound] for the flow or an execution; [ErrFlowTerminal];
// [ErrOtherFlow]; [ErrContention], as of [Engine.GrowFlow]. Nothing is written then.
//
// Transaction: one, of a constant number of statements. Locks the flow exclusively, then the executions. No events.
// Repeating it is safe: they are members then.
func (e *Engine) AddMembers(ctx context.Context, flow id.FlowID, executions []id.ExecutionID) (Added, error) {
	const op = "add members"
	g, err := e.newGrowth(flow, len(executions), 0, nil)
	if err != nil {
		return Added{}, wrap(op, err)
	}
	for _, x := range executions {
		if err := g.addNode(e, growingNode{execution: x, field: "execution " + x.String()}); err != nil {
			return Added{}, wrap(op, err)
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

// growth is a checked change of the structure of a flow.
type growth struct {
	flow      id.FlowID
	partition int16
	revision  *int64
	nodes     []growingNode
	edges     []growingEdge
	staging   bool // the edges are staged only

	keys map[id.ExecutionID]string // of nodes that the call names, for errors
}

// growingNode is a node of a growth.
type growingNode struct {
	field     string
	execution id.ExecutionID
	node      *Node     // nil where only the execution was given
	creation  *creation // nil: the execution exists
}

// growingEdge is an edge of a growth.
type growingEdge struct {
	id                   id.EdgeID
	given                bool // by the caller
	upstream, downstream id.ExecutionID
	kind, passResult     string
	allowStarted         bool
	from, to             string // as the caller named them
}

func (d *growingEdge) field() string { return fmt.Sprintf("edge %q to %q", d.from, d.to) }

// in names the edge in an error.
func (d *growingEdge) in(err error) error { return fmt.Errorf("%s: %w", d.field(), err) }

func (e *Engine) newGrowth(flow id.FlowID, nodes, edges int, revision *int64) (*growth, error) {
	switch {
	case flow.IsZero():
		return nil, invalid("Flow", "is empty")
	case nodes > MaxNodes:
		return nil, invalid("nodes", fmt.Sprintf("%d, limit %d", nodes, MaxNodes))
	case edges > MaxEdges:
		return nil, invalid("edges", fmt.Sprintf("%d, limit %d", edges, MaxEdges))
	case revision != nil && *revision < 0:
		return nil, invalid("Revision", "is negative")
	}
	return &growth{
		flow: flow, partition: e.cfg.Partitions.FlowPartition(flow), revision: revision,
		nodes: make([]growingNode, 0, nodes), edges: make([]growingEdge, 0, edges),
		keys: make(map[id.ExecutionID]string, nodes),
	}, nil
}

// planGrowth checks what can be checked of a growth without the database.
func (e *Engine) planGrowth(growth Growth) (*growth, error) {
	g, err := e.newGrowth(growth.Flow, len(growth.Nodes), len(growth.Edges), growth.Revision)
	if err != nil {
		return nil, err
	}
	byKey, err := g.addNodes(e, growth.Nodes)
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
		return invalid(field, "has no key")
	}
	return checkText("node key", key, maxFreeText)
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
			return nil, invalid(added.field, "key stands twice")
		}
		switch {
		case node.Execution.IsZero():
			c, err := e.prepareMember(g.flow, node, "")
			if err != nil {
				return nil, invalidBecause(added.field, err)
			}
			added.creation, added.execution = &c, c.id
		case !reflect.ValueOf(node.Spec).IsZero():
			return nil, invalid(added.field, "has both an Execution and a Spec")
		}
		if err := g.addNode(e, added); err != nil {
			return nil, err
		}
		byKey[node.Key] = added.execution
	}
	return byKey, nil
}

// addNode adds a node whose execution is that of no other one.
func (g *growth) addNode(e *Engine, node growingNode) error {
	if err := g.checkMember(e, node.field, node.execution); err != nil {
		return err
	}
	if _, twice := g.keys[node.execution]; twice {
		return invalid(node.field, "has the execution id of another one")
	}
	g.keys[node.execution] = ""
	if node.node != nil {
		g.keys[node.execution] = node.node.Key
	}
	g.nodes = append(g.nodes, node)
	return nil
}

// checkMember refuses the id of an execution that cannot be a member of the flow.
func (g *growth) checkMember(e *Engine, field string, x id.ExecutionID) error {
	if err := e.checkExecution(x); err != nil {
		return invalidBecause(field, err)
	}
	if x.Partition() != g.partition {
		return invalid(field, "partition_mismatch: a member carries the partition of its flow")
	}
	return nil
}

// prepareMember prepares the execution of a node. Where it names no namespace, it is of the given one, "" for the
// engine's.
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
			return fmt.Errorf("%w: %s", ErrCycle, d.field())
		}
		if pairs[pair{d.upstream, d.downstream}] {
			return invalid(d.field(), "stands twice")
		}
		pairs[pair{d.upstream, d.downstream}] = true
		if d.given = !d.id.IsZero(); !d.given {
			d.id = minted[i]
		}
		if seen[d.id] {
			return invalid(d.field(), "has the id of another edge")
		}
		seen[d.id] = true
		if d.kind == "" {
			d.kind = "success_only"
		}
		if len(d.kind) > maxKind || len(d.passResult) > maxFreeText || id.CheckText("", d.kind) != nil || id.CheckText("", d.passResult) != nil {
			if err := checkText(d.field()+": kind", d.kind, maxKind); err != nil {
				return err
			}
			return checkText(d.field()+": pass result", d.passResult, maxFreeText)
		}
	}
	return g.checkCycle(nil)
}

// checkPolicies refuses a policy of a node to which no edge of the growth leads.
func (g *growth) checkPolicies() error {
	waits := make(map[id.ExecutionID]bool)
	for i := range g.edges {
		waits[g.edges[i].downstream] = true
	}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.node.When != policy.AllOf() && !waits[n.execution] {
			return invalid(n.field+": When", "no edge leads to it: SetGroupPolicy sets a policy for later ones")
		}
	}
	return nil
}

// creations are the executions that the growth may have to create.
func (g *growth) creations() []creation {
	var creations []creation
	for i := range g.nodes {
		if c := g.nodes[i].creation; c != nil {
			creations = append(creations, *c)
		}
	}
	return creations
}

// growIn does a growth in a transaction.
func (e *Engine) growIn(ctx context.Context, op string, g *growth) (Grown, error) {
	return e.creating(ctx, op, g.creations(), func(tx *txn) (Grown, error) {
		w, err := e.grow(ctx, tx, g)
		if err != nil {
			return Grown{}, err
		}
		return w.grown(), nil
	})
}

// creating runs what may create some executions, and registers what they need.
func (e *Engine) creating(ctx context.Context, op string, creations []creation, fn func(tx *txn) (Grown, error)) (Grown, error) {
	lanes, period := e.unknownLanes(creations), e.periods.missing(creations)
	grown, err := inTx(ctx, e, op, func(tx *txn) (Grown, error) {
		grown, err := fn(tx)
		if err != nil || len(grown.Created) == 0 {
			return grown, err
		}
		return grown, e.register(ctx, tx, lanes, period)
	})
	if err == nil && e.tx == nil && len(grown.Created) > 0 {
		e.rememberLanes(lanes)
		e.periods.remember(period)
	}
	return grown, err
}
