package drawing_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/internal/drawing/samples"
)

// nodes returns a graph of nodes without edges.
func nodes(n int, kind func(i int) string) drawing.Graph {
	g := drawing.Graph{Name: "flow"}
	for i := range n {
		g.Nodes = append(g.Nodes, drawing.Node{Label: fmt.Sprint("node ", i), Kind: kind(i), State: []string{"completed", "active", "failed"}[i%3]})
	}
	return g
}

func same(int) string { return "resize" }

func edge(from, to int) drawing.Edge { return drawing.Edge{From: from, To: to, State: "applied"} }

// random returns a graph whose edges lead to later nodes, at most reach later.
func random(n, edges, reach int) drawing.Graph {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	g := nodes(n, func(i int) string { return fmt.Sprint("kind ", i%7) })
	for range edges {
		from := r.IntN(n - 1)
		g.Edges = append(g.Edges, edge(from, min(from+1+r.IntN(reach), n-1)))
	}
	return g
}

// layers returns a graph of 12 levels with edges from each to the next three, as large flows mostly are.
func layers(n, edges int) drawing.Graph {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	g := nodes(n, func(i int) string { return fmt.Sprint("kind ", (i*12/n+i%2)%6) })
	for level := n / 12; len(g.Edges) < edges; {
		from := r.IntN(n - level)
		g.Edges = append(g.Edges, edge(from, min((from/level+1)*level+r.IntN(3*level), n-1)))
	}
	return g
}

func chain(n int) drawing.Graph {
	g := nodes(n, same)
	for i := range n - 1 {
		g.Edges = append(g.Edges, edge(i, i+1))
	}
	return g
}

func large() map[string]drawing.Graph {
	cycle := chain(1_000)
	cycle.Edges = append(cycle.Edges, edge(999, 500), edge(3, 3))
	fan := nodes(5_000, same)
	for i := range 4_999 {
		fan.Edges = append(fan.Edges, edge(0, i+1))
	}
	return map[string]drawing.Graph{
		"no edges":   nodes(301, same),
		"kinds":      nodes(5_000, func(i int) string { return fmt.Sprint(i) }),
		"chain":      chain(5_000),
		"fan":        fan,
		"cycle":      cycle,
		"dense":      random(300, 20_000, 300),
		"random":     random(5_000, 20_000, 5_000),
		"near":       random(5_000, 20_000, 20),
		"layers":     layers(5_000, 20_000),
		"just above": random(301, 300, 301),
	}
}

// A collapsed graph is within the limit, has each execution once, counts its edges, and can be drawn.
func TestCollapse(t *testing.T) {
	for name, g := range large() {
		for _, limit := range []int{drawing.MaxNodes, 40, 1, 0, -1} {
			c := g.Collapse(limit)
			if len(c.Nodes) > max(limit, 1) {
				t.Errorf("%s: %d nodes with a limit of %d", name, len(c.Nodes), limit)
			}
			executions, edges := 0, c.Implied
			seen := make(map[int]bool)
			for _, n := range c.Nodes {
				if n.Members == nil {
					executions++
					continue
				}
				total := 0
				for _, count := range n.Counts {
					total += count.N
				}
				for _, i := range n.Members {
					if seen[i] || n.Kind != "" && g.Nodes[i].Kind != n.Kind {
						t.Fatalf("%s: node %d is in %q", name, i, n.Label)
					}
					seen[i] = true
				}
				if executions += total; total != len(n.Members) {
					t.Errorf("%s: %q has %d members and counts %d", name, n.Label, len(n.Members), total)
				}
			}
			for _, e := range c.Edges {
				edges += max(1, e.Count)
				if e.From >= e.To && name != "cycle" || e.From == e.To {
					t.Errorf("%s: an edge leads from %q to %q", name, c.Nodes[e.From].Label, c.Nodes[e.To].Label)
				}
			}
			if executions != len(g.Nodes) || edges > len(g.Edges) {
				t.Errorf("%s: %d executions and %d edges, want %d and at most %d", name, executions, edges, len(g.Nodes), len(g.Edges))
			}
			if again := g.Collapse(limit); !reflect.DeepEqual(again, c) {
				t.Errorf("%s: collapsed in another way the second time", name)
			}
			if _, err := c.Page(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestCollapseLeavesSmallGraphsAlone(t *testing.T) {
	for name, g := range samples.All() {
		if c := g.Collapse(len(g.Nodes) + 10); !reflect.DeepEqual(c, g) {
			t.Errorf("%s: collapsed to %+v", name, c)
		}
	}
}

// Executions of one kind and level become one node, which counts their states and looks like the worst one.
func TestCollapseByKindAndLevel(t *testing.T) {
	g := samples.Merged()
	if len(g.Nodes) != 3 || len(g.Edges) != 2 {
		t.Fatalf("%d nodes, %d edges", len(g.Nodes), len(g.Edges))
	}
	parts := g.Nodes[1]
	want := []drawing.Count{{State: "failed", N: 4}, {State: "active", N: 40}, {State: "completed", N: 1_196}}
	if parts.Label != "resize × 1,240" || parts.State != "failed" || !reflect.DeepEqual(parts.Counts, want) {
		t.Errorf("merged to %q, %s, %v", parts.Label, parts.State, parts.Counts)
	}
	if single := g.Nodes[0]; single.Label != "split" || single.URL == "" || single.Members != nil {
		t.Errorf("the only node of its kind and level is %+v", single)
	}
	if e := g.Edges[0]; e.Count != 1_240 || e.State != "satisfied" {
		t.Errorf("the merged edge is %+v", e)
	}
}

// A merged edge is as pending as the most pending one.
func TestCollapseOfPendingEdges(t *testing.T) {
	g := nodes(4, same)
	g.Edges = []drawing.Edge{{From: 0, To: 2, State: "satisfied"}, {From: 1, To: 2, State: "pending"}, {From: 1, To: 3, State: "applied"}}
	if c := g.Collapse(2); len(c.Edges) != 1 || c.Edges[0].State != "pending" || c.Edges[0].Count != 3 {
		t.Errorf("merged to %+v", c.Edges)
	}
}

// A graph with many long edges keeps its nodes, and loses only edges that paths imply.
func TestCollapseLeavesOutImpliedEdges(t *testing.T) {
	g := chain(100)
	for i := range 98 {
		for to := i + 2; to < 100; to++ {
			g.Edges = append(g.Edges, edge(i, to))
		}
	}
	want := chain(100)
	want.Implied = len(g.Edges) - len(want.Edges)
	if c := g.Collapse(100); !reflect.DeepEqual(c, want) {
		t.Errorf("%d nodes, %d edges, %d implied", len(c.Nodes), len(c.Edges), c.Implied)
	}
}

// Collapsing twice as many nodes and edges allocates about twice as often: levels and merging are linear.
func TestCollapseIsLinear(t *testing.T) {
	for name, shape := range map[string]func(n int) drawing.Graph{
		"chain":  chain,
		"layers": func(n int) drawing.Graph { return layers(n, 4*n) },
	} {
		allocations := func(n int) float64 {
			g := shape(n)
			return testing.AllocsPerRun(1, func() { g.Collapse(drawing.MaxNodes) })
		}
		if one, two := allocations(10_000), allocations(20_000); two > 2.5*one {
			t.Errorf("%s: %.0f allocations, and %.0f for twice the size", name, one, two)
		}
	}
}

func BenchmarkCollapse(b *testing.B) {
	for _, name := range []string{"layers", "random", "chain"} {
		g := large()[name]
		b.Run(fmt.Sprintf("%s, %d nodes, %d edges", name, len(g.Nodes), len(g.Edges)), func(b *testing.B) {
			for b.Loop() {
				g.Collapse(drawing.MaxNodes)
			}
		})
	}
}

func BenchmarkPage(b *testing.B) {
	for name, g := range map[string]drawing.Graph{
		"5000 collapsed": layers(5_000, 20_000),
		"300":            layers(300, 400),
		"300 dense":      random(300, 20_000, 300),
		"300 at limit":   random(300, 1_200, 30),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := g.Collapse(drawing.MaxNodes).Page(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
