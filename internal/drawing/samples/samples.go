// Package samples has graphs for the tests of drawings.
package samples

import (
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

// Chart returns a graph: "a>b" is an edge, "a" a node, "a=failed" a node in a state.
func Chart(parts ...string) drawing.Graph {
	g := drawing.Graph{Name: "flow"}
	places := make(map[string]int)
	node := func(part string) int {
		key, state, _ := strings.Cut(part, "=")
		i, known := places[key]
		if !known {
			i = len(g.Nodes)
			places[key] = i
			g.Nodes = append(g.Nodes, drawing.Node{Label: key, State: "waiting"})
		}
		if state != "" {
			g.Nodes[i].State = state
		}
		return i
	}
	for _, part := range parts {
		from, to, isEdge := strings.Cut(part, ">")
		i := node(from)
		if isEdge {
			g.Edges = append(g.Edges, drawing.Edge{From: i, To: node(to), State: "applied"})
		}
	}
	return g
}

// Merged returns a graph with merged nodes.
func Merged() drawing.Graph {
	g := drawing.Graph{Name: "flow", Nodes: []drawing.Node{{Label: "split", Kind: "split", State: "completed", URL: "/execution/1?a=b&c"}}}
	for i := range 1_240 {
		state := "completed"
		switch {
		case i%400 == 7:
			state = "failed"
		case i%31 == 0:
			state = "active"
		}
		g.Nodes = append(g.Nodes, drawing.Node{Label: fmt.Sprint("part ", i), Kind: "resize", State: state})
		g.Edges = append(g.Edges, drawing.Edge{From: 0, To: i + 1, State: "satisfied"}, drawing.Edge{From: i + 1, To: 1_241, State: "applied"})
	}
	g.Nodes = append(g.Nodes, drawing.Node{Label: "join", Kind: "join", State: "waiting_children", Waits: "1,000 of 1,240"})
	return g.Collapse(drawing.MaxNodes)
}

// All returns graphs by name.
func All() map[string]drawing.Graph {
	hostile := Chart("a>b")
	hostile.Nodes[0].Label = "\"quoted\" <b>&amp; [x](y) {z} `tick` \\n #35; | ; \x1b[31m\n"
	hostile.Nodes[1].Label = "日本語のキー ключ 👩‍💻"
	long := Chart("a>b")
	long.Nodes[0].Label = strings.Repeat("very-", 20) + "long"
	long.Nodes[1].State = "unheard of"
	quorum := Chart("a=completed>d", "b=active>d", "c=failed>d", "d=waiting_children>e", "e=waiting_children")
	quorum.Nodes[3].Waits = "2 of 3"
	quorum.Edges[0].State, quorum.Edges[2].State = "satisfied", "impossible"
	return map[string]drawing.Graph{
		"empty":   {Name: "flow"},
		"alone":   Chart("alone"),
		"chain":   Chart("fetch=completed>parse=active", "parse>store"),
		"diamond": Chart("fetch=completed>left=failed", "fetch>right=completed", "left>join=skipped", "right>join", "fetch>join"),
		"fan":     Chart("split>1", "split>2", "split>3", "split>4", "1>join", "2>join", "3>join", "4>join"),
		"wide":    Chart("s>a1", "s>a2", "s>a3", "s>a4", "s>a5", "s>a6", "s>a7", "s>a8", "s>a9"),
		"cross":   Chart("a>c", "a>d", "b>c", "b>d", "e>c", "e>f"),
		"quorum":  quorum,
		"hostile": hostile,
		"long":    long,
		"merged":  Merged(),
	}
}
