package engine

import (
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// graph is the shape of a FlowSpec: edges by node index.
type graph struct {
	from, to []int // by edge
	inbound  []int // number of edges into each node
}

// newGraph checks the shape of a flow: keys are unique and known, no edge is repeated or leads to its own node, and no
// node waits for itself through others.
func newGraph(spec FlowSpec) (*graph, error) {
	index := make(map[string]int, len(spec.Nodes))
	for i := range spec.Nodes {
		key := spec.Nodes[i].Key
		if key == "" {
			return nil, core.Invalid(fmt.Sprintf("node %d", i), "has no key")
		}
		if err := core.CheckText("node key", key, core.MaxFreeText); err != nil {
			return nil, err
		}
		if _, twice := index[key]; twice {
			return nil, core.Invalid(fmt.Sprintf("node %q", key), "key is used twice")
		}
		index[key] = i
	}
	g := &graph{from: make([]int, len(spec.Edges)), to: make([]int, len(spec.Edges)), inbound: make([]int, len(spec.Nodes))}
	type pair struct{ from, to int }
	seen := make(map[pair]struct{}, len(spec.Edges))
	for i, edge := range spec.Edges {
		field := fmt.Sprintf("edge %q to %q", edge.From, edge.To)
		from, ok := index[edge.From]
		if !ok {
			return nil, core.Invalid(field, "leads from a node that does not exist")
		}
		to, ok := index[edge.To]
		if !ok {
			return nil, core.Invalid(field, "leads to a node that does not exist")
		}
		if from == to {
			return nil, fmt.Errorf("%w: %s", fferr.ErrCycle, field)
		}
		if _, twice := seen[pair{from, to}]; twice {
			return nil, core.Invalid(field, "is given twice")
		}
		seen[pair{from, to}] = struct{}{}
		g.from[i], g.to[i] = from, to
		g.inbound[to]++
	}
	if cycle := g.cycle(); cycle != nil {
		keys := make([]string, 0, len(cycle))
		for _, n := range cycle {
			keys = append(keys, fmt.Sprintf("%q", spec.Nodes[n].Key))
		}
		return nil, fmt.Errorf("%w: %s", fferr.ErrCycle, strings.Join(keys, " to "))
	}
	return g, nil
}

// cycle returns the nodes of one cycle, ending with the first node again, or nil. It repeatedly removes nodes without
// remaining upstreams (Kahn). Each remaining node waits for another remaining one, so a walk upstream must return to a
// visited node.
func (g *graph) cycle() []int {
	downstream := make([][]int, len(g.inbound))
	upstream := make([][]int, len(g.inbound))
	for i := range g.from {
		downstream[g.from[i]] = append(downstream[g.from[i]], g.to[i])
		upstream[g.to[i]] = append(upstream[g.to[i]], g.from[i])
	}
	open := append([]int(nil), g.inbound...)
	var free []int
	for n, inbound := range open {
		if inbound == 0 {
			free = append(free, n)
		}
	}
	removed := 0
	for len(free) > 0 {
		n := free[len(free)-1]
		free = free[:len(free)-1]
		removed++
		for _, d := range downstream[n] {
			if open[d]--; open[d] == 0 {
				free = append(free, d)
			}
		}
	}
	if removed == len(open) {
		return nil
	}
	at := 0
	for open[at] == 0 {
		at++
	}
	position := make(map[int]int)
	var path []int
	for {
		if from, seen := position[at]; seen {
			cycle := append(path[from:], at)
			for i, j := 0, len(cycle)-1; i < j; i, j = i+1, j-1 {
				cycle[i], cycle[j] = cycle[j], cycle[i]
			}
			return cycle
		}
		position[at] = len(path)
		path = append(path, at)
		for _, u := range upstream[at] {
			if open[u] > 0 {
				at = u
				break
			}
		}
	}
}
