package drawing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// graphOf returns a graph with these edges.
func graphOf(nodes int, edges ...[2]int) Graph {
	g := Graph{Name: "flow"}
	for i := range nodes {
		g.Nodes = append(g.Nodes, Node{Label: fmt.Sprint("node ", i), State: "waiting"})
	}
	for _, e := range edges {
		g.Edges = append(g.Edges, Edge{From: e[0], To: e[1]})
	}
	return g
}

// randomGraph returns a graph whose edges lead at most reach nodes further.
func randomGraph(seed uint64, nodes, edges, reach int) Graph {
	r := rand.New(rand.NewPCG(seed, 1))
	g := graphOf(nodes)
	for range edges {
		from := r.IntN(nodes - 1)
		g.Edges = append(g.Edges, Edge{From: from, To: min(from+1+r.IntN(reach), nodes-1)})
	}
	for i := range g.Nodes {
		g.Nodes[i].Label = fmt.Sprintf("%*d", 1+r.IntN(30), i)
		if r.IntN(5) == 0 {
			g.Nodes[i].Members, g.Nodes[i].Counts = []int{1, 2}, []Count{{"waiting", 2}}
		}
	}
	return g
}

func tree(nodes int) Graph {
	g := graphOf(nodes)
	r := rand.New(rand.NewPCG(1, 1))
	for i := 1; i < nodes; i++ {
		g.Edges = append(g.Edges, Edge{From: r.IntN(i), To: i})
	}
	return g
}

// drawable are graphs within the limits of a page.
func drawable() map[string]Graph {
	all := map[string]Graph{
		"none":   {},
		"one":    graphOf(1),
		"tree":   tree(MaxNodes),
		"square": graphOf(4, [2]int{0, 3}, [2]int{1, 2}),
		"double": graphOf(3, [2]int{0, 1}, [2]int{0, 1}, [2]int{0, 2}, [2]int{1, 2}),
		"cycle":  graphOf(4, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 1}, [2]int{3, 3}),
	}
	for seed := range uint64(20) {
		n := 2 + int(seed*seed)%MaxNodes
		all[fmt.Sprintf("random %d, %d nodes", seed, n)] = randomGraph(seed, n, n*(1+int(seed%4)), 2+int(seed)*3).Collapse(MaxNodes)
	}
	return all
}

// No line of a page touches a box but those at its ends, no boxes touch each other, and all are inside the picture.
func TestLinesKeepClearOfBoxes(t *testing.T) {
	for name, g := range drawable() {
		levels, acyclic := g.levels()
		boxes := make([]spot, len(g.Nodes))
		for i, n := range g.Nodes {
			boxes[i] = n.pageSize()
		}
		l := g.placed(boxes, levels)
		inside := func(at spot, i int) bool {
			const slack = 0.01
			return math.Abs(at.x-l.centers[i].x) < boxes[i].x/2-slack && math.Abs(at.y-l.centers[i].y) < boxes[i].y/2-slack
		}
		for i, center := range l.centers {
			for j := range i {
				if math.Abs(center.x-l.centers[j].x) < (boxes[i].x+boxes[j].x)/2 && math.Abs(center.y-l.centers[j].y) < (boxes[i].y+boxes[j].y)/2 {
					t.Errorf("%s: boxes %d and %d touch", name, i, j)
				}
			}
			if center.x-boxes[i].x/2 < -0.01 || center.y-boxes[i].y/2 < -0.01 || center.x+boxes[i].x/2 > l.size.x+0.01 || center.y+boxes[i].y/2 > l.size.y+0.01 {
				t.Errorf("%s: box %d is at %v of %v", name, i, center, l.size)
			}
		}
		for n, line := range l.lines {
			e := g.Edges[n]
			if len(line) < 2 {
				t.Fatalf("%s: edge %d is %v", name, n, line)
			}
			for k := 0; acyclic && k+1 < len(line); k++ {
				for part := range 101 {
					share := float64(part) / 100
					at := spot{line[k].x + share*(line[k+1].x-line[k].x), line[k].y + share*(line[k+1].y-line[k].y)}
					for i := range boxes {
						if i != e.From && i != e.To && inside(at, i) {
							t.Fatalf("%s: edge %d from %d to %d crosses box %d at %v", name, n, e.From, e.To, i, at)
						}
					}
				}
			}
		}
	}
}

// The order of a layer has few crossings: none where none is needed.
func TestOrderHasFewCrossings(t *testing.T) {
	var complete [][2]int
	for from := range 3 {
		for to := range 3 {
			complete = append(complete, [2]int{from, 3 + to})
		}
	}
	for _, test := range []struct {
		name string
		g    Graph
		most int
	}{
		{"tree", tree(MaxNodes), 0},
		{"square", drawable()["square"], 0},
		{"complete", graphOf(6, complete...), 9},
		{"random", randomGraph(3, 60, 90, 20), 60},
	} {
		levels, _ := test.g.levels()
		l := newLayered(test.g, make([]spot, len(test.g.Nodes)), levels)
		l.layers = l.walk()
		l.number()
		before := l.crossings()
		l.order()
		if n := l.crossings(); n > test.most || n > before {
			t.Errorf("%s: %d crossings, before %d, want at most %d", test.name, n, before, test.most)
		}
	}
}

// The count of crossings equals a count over all pairs of edges.
func TestCrossings(t *testing.T) {
	for seed := range uint64(20) {
		g := randomGraph(seed, 40, 80, 12)
		levels, _ := g.levels()
		l := newLayered(g, make([]spot, len(g.Nodes)), levels)
		l.layers = l.walk()
		l.number()
		want := 0
		for a := range l.boxes {
			for b := range l.boxes {
				if l.layer[a] != l.layer[b] || l.place[a] >= l.place[b] {
					continue
				}
				for _, left := range l.below[a] {
					for _, right := range l.below[b] {
						if l.place[right] < l.place[left] {
							want++
						}
					}
				}
			}
		}
		if got := l.crossings(); got != want {
			t.Errorf("%d: %d crossings, want %d", seed, got, want)
		}
	}
}
