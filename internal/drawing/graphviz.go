package drawing

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-graphviz"

	"github.com/flowfabric/flowfabric-go/internal/drawing/graphvizcache"
)

func init() { graphvizcache.Restore() }

// MaxSVG limits nodes and edges together in an SVG, since larger layouts take minutes.
const MaxSVG = 5_000

// SVG returns the graph as a picture.
func (g Graph) SVG(ctx context.Context) (string, error) {
	if n := len(g.Nodes) + len(g.Edges); n > MaxSVG {
		return "", fmt.Errorf("%d nodes and edges exceed the limit of %d for a picture", n, MaxSVG)
	}
	return render(ctx, g.DOT(), graphviz.SVG)
}

// busy holds a value while Graphviz runs: a program has one instance of it, with one memory.
var busy = make(chan struct{}, 1)

// render lays out and draws a graph with Graphviz, when all drawings begun before have ended. It returns when the context
// ends, and Graphviz stops only once the drawing is done.
func render(ctx context.Context, dot string, format graphviz.Format) (string, error) {
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	type drawn struct {
		text string
		err  error
	}
	done := make(chan drawn, 1)
	go func() {
		defer func() {
			if problem := recover(); problem != nil {
				done <- drawn{err: fmt.Errorf("lay out the graph: %v", problem)}
			}
			<-busy
		}()
		text, err := renderAlone(context.WithoutCancel(ctx), dot, format)
		done <- drawn{text, err}
	}()
	select {
	case d := <-done:
		return d.text, d.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func renderAlone(ctx context.Context, dot string, format graphviz.Format) (string, error) {
	engine, err := graphviz.New(ctx)
	if err != nil {
		return "", fmt.Errorf("start Graphviz: %w", err)
	}
	defer func() { _ = engine.Close() }()
	graph, err := graphviz.ParseBytes([]byte(dot))
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

// spot is a position or a size in inches. Positions count from the upper left corner.
type spot struct{ x, y float64 }

// layout is Graphviz's placement of boxes and edges.
type layout struct {
	size    spot
	centers []spot   // of the boxes
	curves  [][]spot // of the edges: the start, then three points for each Bézier curve
}

// arrange lays out boxes of these sizes. The attributes are Graphviz's, for the whole graph. Graphviz gets no text.
func arrange(ctx context.Context, attributes string, boxes []spot, edges []Edge) (*layout, error) {
	plain, err := render(ctx, dotOf(attributes, boxes, edges), "plain")
	if err != nil {
		return nil, err
	}
	return readLayout(plain, len(boxes), len(edges))
}

// dotOf returns the input for Graphviz. The color of an edge is its index, which no other attribute repeats in the output.
func dotOf(attributes string, boxes []spot, edges []Edge) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph flow {\n%s\nnode [shape=box, fixedsize=true, label=\"\"]\nedge [arrowhead=none]\n", attributes)
	for i, size := range boxes {
		fmt.Fprintf(&b, "n%d [width=%g, height=%g]\n", i, size.x, size.y)
	}
	for i, e := range edges {
		fmt.Fprintf(&b, "n%d -> n%d [color=\"#%06x\"]\n", e.From, e.To, i)
	}
	b.WriteString("}\n")
	return b.String()
}

func readLayout(plain string, boxes, edges int) (*layout, error) {
	l := &layout{centers: make([]spot, boxes), curves: make([][]spot, edges)}
	at := func(x, y string) spot {
		across, _ := strconv.ParseFloat(x, 64)
		up, _ := strconv.ParseFloat(y, 64)
		return spot{across, l.size.y - up}
	}
	for text := range strings.Lines(strings.ReplaceAll(plain, "\\\n", "")) {
		fields := strings.Fields(text)
		switch {
		case len(fields) == 4 && fields[0] == "graph":
			l.size.x, _ = strconv.ParseFloat(fields[2], 64)
			l.size.y, _ = strconv.ParseFloat(fields[3], 64)
		case len(fields) > 5 && fields[0] == "node":
			i, err := strconv.Atoi(strings.TrimPrefix(fields[1], "n"))
			if err != nil || i >= boxes {
				return nil, fmt.Errorf("lay out the graph: there is no node %q", fields[1])
			}
			l.centers[i] = at(fields[2], fields[3])
		case len(fields) > 4 && fields[0] == "edge":
			i, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "#"), 16, 32)
			points, countErr := strconv.Atoi(fields[3])
			if err != nil || countErr != nil || int(i) >= edges || len(fields) < 4+2*points {
				return nil, fmt.Errorf("lay out the graph: an edge reads %q", text)
			}
			for n := range points {
				l.curves[i] = append(l.curves[i], at(fields[4+2*n], fields[5+2*n]))
			}
		}
	}
	return l, nil
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

func boxWidth(n Node) int {
	width := 0
	for _, line := range n.lines() {
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
func place(ctx context.Context, g Graph, s spread) (*placed, error) {
	const columns, rows = 10.0, 5.0
	nodesep, ranksep := s.between/columns, s.ranks/rows
	if s.direction == "LR" {
		nodesep, ranksep = s.between/rows/2, s.ranks/columns*2
	}
	boxes := make([]spot, len(g.Nodes))
	for i, n := range g.Nodes {
		boxes[i] = spot{float64(boxWidth(n)) / columns, boxHeight / rows}
	}
	attributes := fmt.Sprintf("rankdir=%s\nsplines=ortho\nnodesep=%g\nranksep=%g", s.direction, nodesep, ranksep)
	l, err := arrange(ctx, attributes, boxes, g.Edges)
	if err != nil {
		return nil, err
	}
	p := &placed{boxes: make([]point, len(g.Nodes)), lines: make([][]point, len(g.Edges))}
	for i, center := range l.centers {
		width := boxWidth(g.Nodes[i])
		p.boxes[i] = point{cell(center.x*columns - float64(width)/2), cell(center.y*rows - boxHeight/2.0)}
		p.size = point{max(p.size.column, p.boxes[i].column+width), max(p.size.line, p.boxes[i].line+boxHeight)}
	}
	for i, curve := range l.curves {
		// The curves are straight, and every third point is an end.
		for n := 0; n < len(curve); n += 3 {
			p.lines[i] = append(p.lines[i], point{int(curve[n].x * columns), int(curve[n].y * rows)})
		}
	}
	return p, nil
}

// cell returns the grid position of a coordinate.
func cell(x float64) int { return int(x + 0.5) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
