// Package graphviz draws flows for a terminal and as SVG. Graphviz computes the layout.
//
// Servers use package drawing instead. go-graphviz never frees the texts of a layout, and without a cache compiles for a
// second when a program starts.
package graphviz

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	goccy "github.com/goccy/go-graphviz"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/graphvizcache"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

func init() { graphvizcache.Restore() }

// MaxSVG limits nodes and edges together in an SVG, since larger layouts take minutes.
const MaxSVG = 5_000

// SVG returns a graph as a picture.
func SVG(ctx context.Context, g drawing.Graph) (string, error) {
	if n := len(g.Nodes) + len(g.Edges); n > MaxSVG {
		return "", fmt.Errorf("%d nodes and edges exceed the limit of %d for a picture", n, MaxSVG)
	}
	return render(ctx, g.DOT(), goccy.SVG)
}

// render lays out and draws a graph with Graphviz.
func render(ctx context.Context, dot string, format goccy.Format) (string, error) {
	engine, err := goccy.New(ctx)
	if err != nil {
		return "", fmt.Errorf("start Graphviz: %w", err)
	}
	defer func() { _ = engine.Close() }()
	graph, err := goccy.ParseBytes([]byte(dot))
	if err != nil {
		return "", fmt.Errorf("read the graph: %w", err)
	}
	defer func() { _ = graph.Close() }()
	var b bytes.Buffer
	if err := engine.Render(ctx, graph, format, &b); err != nil {
		return "", fmt.Errorf("lay out the graph: %w", err)
	}
	return b.String(), nil
}

// point is a position on a grid of characters. Line 0 is at the top.
type point struct{ column, line int }

// placed is the layout of a graph on the grid.
type placed struct {
	size  point
	boxes []point   // the upper left corner of each node
	lines [][]point // the corners of each edge, from the first node to the last
}

// boxHeight is the number of lines of a box.
const boxHeight = 4

func boxWidth(n drawing.Node) int {
	width := 0
	for _, line := range n.Lines() {
		width = max(width, textWidth(line))
	}
	return width + 4
}

// spread is the distance between nodes.
type spread struct {
	direction      string  // TB or LR
	between, ranks float64 // in characters, in lines
}

// place lays out a graph on the grid with Graphviz. An inch is ten characters wide and five lines high.
func place(ctx context.Context, g drawing.Graph, s spread) (*placed, error) {
	const columns, rows = 10.0, 5.0
	nodesep, ranksep := s.between/columns, s.ranks/rows
	if s.direction == "LR" {
		nodesep, ranksep = s.between/rows/2, s.ranks/columns*2
	}
	var b strings.Builder
	fmt.Fprintf(&b, "digraph flow {\nrankdir=%s\nsplines=ortho\nnodesep=%g\nranksep=%g\nnode [shape=box, fixedsize=true, label=\"\"]\nedge [arrowhead=none]\n",
		s.direction, nodesep, ranksep)
	for i, n := range g.Nodes {
		fmt.Fprintf(&b, "n%d [width=%g, height=%g]\n", i, float64(boxWidth(n))/columns, boxHeight/rows)
	}
	for i, e := range g.Edges {
		fmt.Fprintf(&b, "n%d -> n%d [color=\"#%06x\"]\n", e.From, e.To, i)
	}
	b.WriteString("}\n")
	plain, err := render(ctx, b.String(), "plain")
	if err != nil {
		return nil, err
	}
	p := &placed{boxes: make([]point, len(g.Nodes)), lines: make([][]point, len(g.Edges))}
	var height float64
	at := func(x, y string) (float64, float64) {
		column, _ := strconv.ParseFloat(x, 64)
		line, _ := strconv.ParseFloat(y, 64)
		return column * columns, (height - line) * rows
	}
	for text := range strings.Lines(strings.ReplaceAll(plain, "\\\n", "")) {
		fields := strings.Fields(text)
		switch {
		case len(fields) == 4 && fields[0] == "graph":
			height, _ = strconv.ParseFloat(fields[3], 64)
		case len(fields) > 5 && fields[0] == "node":
			i, err := strconv.Atoi(strings.TrimPrefix(fields[1], "n"))
			if err != nil || i >= len(g.Nodes) {
				return nil, fmt.Errorf("lay out the graph: there is no node %q", fields[1])
			}
			x, y := at(fields[2], fields[3])
			width := boxWidth(g.Nodes[i])
			p.boxes[i] = point{cell(x - float64(width)/2), cell(y - boxHeight/2.0)}
			p.size = point{max(p.size.column, p.boxes[i].column+width), max(p.size.line, p.boxes[i].line+boxHeight)}
		case len(fields) > 4 && fields[0] == "edge":
			i, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "#"), 16, 32)
			points, countErr := strconv.Atoi(fields[3])
			if err != nil || countErr != nil || int(i) >= len(g.Edges) || len(fields) < 4+2*points {
				return nil, fmt.Errorf("lay out the graph: an edge reads %q", text)
			}
			// The curves are straight, and every third point is an end.
			for n := 0; n < points; n += 3 {
				x, y := at(fields[4+2*n], fields[5+2*n])
				p.lines[i] = append(p.lines[i], point{int(x), int(y)})
			}
		}
	}
	return p, nil
}

// cell returns the grid position of a coordinate.
func cell(x float64) int { return int(x + 0.5) }
