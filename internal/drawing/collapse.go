package drawing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxNodes is the largest number of nodes for a page to show one by one.
const MaxNodes = 300

// spanPerNode bounds how many levels the edges of a graph may cross, in proportion to the limit of nodes. More edges
// are hard to follow, and slow to lay out.
const spanPerNode = 8

// levelShare is the part of the limit for nodes by level alone. Such nodes are mostly a chain, and few people would read a
// longer one.
const levelShare = 5

// Collapse returns a graph to draw for limit nodes. A graph with at most limit nodes and few enough edges is returned
// unchanged. For a larger one, Collapse tries these steps until the result is small enough:
//
//  1. without edges implied by a longer path: a > c beside a > b > c
//  2. with one node for each kind and level
//  3. with one node for each level, and at most a fifth of the limit
//  4. with one node for 2, 4, 8, … levels, and at most a fifth of the limit
//
// The level of a node is the length of the longest path there. Steps 2 to 4 also leave out implied edges, and edges inside
// a merged node. A merged node counts members by state, and a merged edge counts edges.
func (g Graph) Collapse(limit int) Graph {
	limit = max(limit, 1)
	levels, acyclic := g.levels()
	if g.fits(limit, levels) {
		return g
	}
	if len(g.Nodes) <= limit && acyclic {
		if reduced := g.reduce(levels); reduced.fits(limit, levels) {
			return reduced
		}
	}
	for width := 0; ; width = max(1, 2*width) {
		if width == 1 {
			limit = max(limit/levelShare, 1)
		}
		merged := g.merge(levels, width)
		if len(merged.Nodes) > limit {
			continue
		}
		levels, acyclic := merged.levels()
		if acyclic {
			merged = merged.reduce(levels)
		}
		// A single node always fits.
		if merged.fits(limit, levels) {
			return merged
		}
	}
}

// fits reports whether the graph can be drawn with this limit of nodes.
func (g Graph) fits(limit int, levels []int) bool {
	if len(g.Nodes) > limit {
		return false
	}
	span := 0
	for _, e := range g.Edges {
		span += max(1, levels[e.To]-levels[e.From])
	}
	return span <= spanPerNode*limit
}

// levels returns the length of the longest path to each node, and whether the graph has no cycle. A node in or below a
// cycle has the length of the longest path before the cycle.
func (g Graph) levels() (levels []int, acyclic bool) {
	levels, open := make([]int, len(g.Nodes)), make([]int, len(g.Nodes))
	below := g.below()
	for _, e := range g.Edges {
		open[e.To]++
	}
	var free []int
	for i, n := range open {
		if n == 0 {
			free = append(free, i)
		}
	}
	for n := 0; n < len(free); n++ {
		for _, e := range below[free[n]] {
			to := g.Edges[e].To
			levels[to] = max(levels[to], levels[free[n]]+1)
			if open[to]--; open[to] == 0 {
				free = append(free, to)
			}
		}
	}
	return levels, len(free) == len(g.Nodes)
}

// below returns the indexes of the edges from each node.
func (g Graph) below() [][]int {
	below := make([][]int, len(g.Nodes))
	for i, e := range g.Edges {
		below[e.From] = append(below[e.From], i)
	}
	return below
}

// reduce returns the graph without the edges implied by other paths. The graph has no cycle.
func (g Graph) reduce(levels []int) Graph {
	below := g.below()
	order := byKey(len(g.Nodes), func(i int) int { return -levels[i] })
	reached := make([]bits, len(g.Nodes)) // the nodes below each node, and the node
	implied := make([]bool, len(g.Edges))
	for _, from := range order {
		reached[from] = make(bits, (len(g.Nodes)+63)/64)
		// A path to a node at some level leads over nodes at lower levels.
		slices.SortStableFunc(below[from], func(a, b int) int { return cmp.Compare(levels[g.Edges[a].To], levels[g.Edges[b].To]) })
		for _, e := range below[from] {
			to := g.Edges[e].To
			implied[e] = reached[from].has(to)
			reached[from].add(reached[to])
		}
		reached[from].set(from)
	}
	reduced := g
	reduced.Edges = nil
	for i, e := range g.Edges {
		if implied[i] {
			reduced.Implied += max(1, e.Count)
		} else {
			reduced.Edges = append(reduced.Edges, e)
		}
	}
	return reduced
}

// bits is a set of small numbers.
type bits []uint64

func (b bits) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bits) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bits) add(other bits) {
	for i := range b {
		b[i] |= other[i]
	}
}

// merge merges nodes of the same level, or of the same band of width levels. With a width of 0, merged nodes have the same
// kind too. The result is in the order of levels.
func (g Graph) merge(levels []int, width int) Graph {
	type group struct {
		band int
		kind string
	}
	place := make(map[group]int)
	var members [][]int
	of := make([]int, len(g.Nodes))
	for _, i := range byKey(len(g.Nodes), func(i int) int { return levels[i] }) {
		key := group{levels[i] / max(1, width), ""}
		if width == 0 {
			key.kind = g.Nodes[i].Kind
		}
		at, known := place[key]
		if !known {
			at = len(members)
			place[key] = at
			members = append(members, nil)
		}
		members[at] = append(members[at], i)
		of[i] = at
	}
	merged := Graph{Name: g.Name, Implied: g.Implied, Nodes: make([]Node, len(members))}
	for i, of := range members {
		if len(of) == 1 {
			merged.Nodes[i] = g.Nodes[of[0]]
		} else {
			merged.Nodes[i] = g.mergeNodes(of, levels)
		}
	}
	places := make(map[[2]int]int)
	for _, e := range g.Edges {
		ends := [2]int{of[e.From], of[e.To]}
		if ends[0] == ends[1] {
			continue
		}
		at, known := places[ends]
		if !known {
			at = len(merged.Edges)
			places[ends] = at
			merged.Edges = append(merged.Edges, Edge{From: ends[0], To: ends[1], State: e.State})
		}
		one := &merged.Edges[at]
		one.Count += max(1, e.Count)
		if slices.Index(edgeStates, e.State) < slices.Index(edgeStates, one.State) {
			one.State = e.State
		}
	}
	return merged
}

// edgeStates are the states of edges, the most pending one first.
var edgeStates = []string{"pending", "applied", "impossible", "satisfied"}

// mergeNodes returns one node for members of the graph.
func (g Graph) mergeNodes(members, levels []int) Node {
	n := Node{Kind: g.Nodes[members[0]].Kind, Members: members}
	kinds, counts := make(map[string]bool), make(map[string]int)
	for _, i := range members {
		kinds[g.Nodes[i].Kind] = true
		counts[g.Nodes[i].State]++
	}
	n.Counts = sortedCounts(counts)
	n.State = n.Counts[0].State
	name := cmp.Or(n.Kind, "no kind")
	if len(kinds) > 1 {
		n.Kind, name = "", number(len(kinds))+" kinds"
	}
	if first, last := levels[members[0]], levels[members[len(members)-1]]; first != last {
		name = fmt.Sprintf("levels %d–%d: %s", first+1, last+1, name)
	}
	n.Label = name + " × " + number(len(members))
	return n
}

// attention orders states: a merged node looks like its first member. Other states come first.
var attention = []string{
	"failed", "expired", "active", "resumable", "suspended", "rate_limited", "delayed", "waiting", "waiting_children",
	"cancelled", "skipped", "completed",
}

// sortedCounts returns counts by state, in the order of attention.
func sortedCounts(counts map[string]int) []Count {
	var sorted []Count
	for _, state := range sortedKeys(counts) {
		sorted = append(sorted, Count{state, counts[state]})
	}
	slices.SortStableFunc(sorted, func(a, b Count) int {
		return cmp.Compare(slices.Index(attention, a.State), slices.Index(attention, b.State))
	})
	return sorted
}

// countsText returns the text of counts.
func countsText(counts []Count) string {
	parts := make([]string, len(counts))
	for i, c := range counts {
		parts[i] = number(c.N) + " " + stateText(c.State)
	}
	return strings.Join(parts, ", ")
}

// number writes a number with commas: 1,240.
func number(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
