package drawing

import (
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// Unreadable is the state shown for a member whose stored state cannot be read.
const Unreadable state.PublicState = "unreadable"

// NodeName returns a node's key or, without one, its kind and the end of its id.
func NodeName(n *engine.GraphNode) string {
	if n.Key != "" {
		return n.Key
	}
	uuid := n.ID.UUID().String()
	return strings.TrimPrefix(n.Kind+" …"+uuid[len(uuid)-6:], " ")
}

// NodeState returns the state to show for a node.
func NodeState(n *engine.GraphNode) state.PublicState {
	if n.Err != nil {
		return Unreadable
	}
	return n.State
}

// OfFlow returns the drawing of a flow. Nodes and edges keep their indexes.
func OfFlow(flow *engine.FlowGraph) Graph {
	g := Graph{Name: "flow " + flow.ID.String(), Nodes: make([]Node, len(flow.Nodes)), Edges: make([]Edge, len(flow.Edges))}
	inbound := make([]int, len(flow.Nodes))
	for i, e := range flow.Edges {
		g.Edges[i] = Edge{From: e.From, To: e.To, State: string(e.State)}
		inbound[e.To]++
	}
	for i := range flow.Nodes {
		n := &flow.Nodes[i]
		g.Nodes[i] = Node{Label: NodeName(n), Kind: n.Kind, State: string(NodeState(n))}
		if n.When != nil {
			g.Nodes[i].Waits = waits(*n.When, inbound[i])
		}
	}
	return g
}

// waits describes when a node runs, or returns "" if all its upstreams must succeed.
func waits(when policy.Group, upstreams int) string {
	switch when {
	case policy.AllOf():
		return ""
	case policy.OnFailure(), policy.Always():
		return when.String()
	}
	if needed := when.Needs(upstreams); needed < upstreams {
		return fmt.Sprintf("%d of %d", needed, upstreams)
	}
	return ""
}
