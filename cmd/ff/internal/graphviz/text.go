package graphviz

import (
	"context"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

// MaxText is the largest number of nodes in a drawing for a terminal.
const MaxText = 60

func textWidth(line string) int { return text.StringWidth(line) }

// Text draws a graph with boxes and lines, at most width characters wide. It returns false if the graph does not fit, or
// if lines of edges without a common end would merge into one.
func Text(ctx context.Context, g drawing.Graph, width int) (string, bool, error) {
	if len(g.Nodes) == 0 || len(g.Nodes) > MaxText {
		return "", false, nil
	}
	for _, s := range []spread{
		{"TB", 3, 3}, {"TB", 5, 5}, {"LR", 2, 6}, {"LR", 4, 10}, {"TB", 8, 8}, {"LR", 6, 16}, {"TB", 4, 14},
	} {
		p, err := place(ctx, g, s)
		if err != nil {
			return "", false, err
		}
		if p.size.column > width {
			continue
		}
		if drawing, ok := paint(g, p); ok && drawing.width() <= width {
			return drawing.String(), true, nil
		}
	}
	return "", false, nil
}

// Sides of a cell.
const (
	north = 1 << iota
	east
	south
	west
)

// strokes maps the sides a line connects to a character.
var strokes = map[int]rune{
	north: '│', south: '│', north | south: '│', east: '─', west: '─', east | west: '─',
	north | east: '└', north | west: '┘', south | east: '┌', south | west: '┐',
	north | south | east: '├', north | south | west: '┤', east | west | south: '┬', east | west | north: '┴',
	north | east | south | west: '┼',
}

// canvas is a grid of characters.
type canvas struct {
	cells [][]rune
	lines map[point][]stroke
}

// stroke is the part of an edge in one cell.
type stroke struct{ edge, sides int }

func (c *canvas) set(at point, sign rune) {
	for len(c.cells) <= at.line {
		c.cells = append(c.cells, nil)
	}
	for len(c.cells[at.line]) <= at.column {
		c.cells[at.line] = append(c.cells[at.line], ' ')
	}
	c.cells[at.line][at.column] = sign
}

func (c *canvas) write(at point, line string) {
	column := at.column
	for _, r := range line {
		c.set(point{column, at.line}, r)
		for range max(textWidth(string(r)), 1) - 1 {
			column++
			c.set(point{column, at.line}, 0) // the second half of a wide character
		}
		column++
	}
}

func (c *canvas) String() string {
	var b strings.Builder
	for _, line := range c.cells {
		b.WriteString(strings.TrimRight(strings.ReplaceAll(string(line), "\x00", ""), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

func (c *canvas) width() int {
	width := 0
	for line := range strings.Lines(c.String()) {
		width = max(width, textWidth(strings.TrimSuffix(line, "\n")))
	}
	return width
}

// paint paints a layout. It returns false if lines merge, or cross a box.
func paint(g drawing.Graph, p *placed) (*canvas, bool) {
	c := &canvas{lines: make(map[point][]stroke)}
	inside := make(map[point]int)
	for i, n := range g.Nodes {
		for line := range boxHeight {
			for column := range boxWidth(n) {
				at := point{p.boxes[i].column + column, p.boxes[i].line + line}
				if at.column < 0 || at.line < 0 {
					return nil, false
				}
				if _, taken := inside[at]; taken {
					return nil, false
				}
				inside[at] = i
			}
		}
	}
	arrows := make(map[point]rune)
	for i, e := range g.Edges {
		if len(p.lines[i]) < 2 || !c.draw(i, e, p.lines[i], inside, arrows) {
			return nil, false
		}
	}
	for at, drawn := range c.lines {
		if !readable(g, drawn) {
			return nil, false
		}
		sides := 0
		for _, s := range drawn {
			sides |= s.sides
		}
		c.set(at, strokes[sides])
	}
	for at, sign := range arrows {
		c.set(at, sign)
	}
	for i, n := range g.Nodes {
		c.box(p.boxes[i], boxWidth(n), n.Lines())
	}
	return c, true
}

func (c *canvas) box(at point, width int, lines []string) {
	c.write(at, "╭"+strings.Repeat("─", width-2)+"╮")
	for i, line := range lines {
		c.write(point{at.column, at.line + 1 + i}, "│ "+line+strings.Repeat(" ", width-4-textWidth(line))+" │")
	}
	c.write(point{at.column, at.line + boxHeight - 1}, "╰"+strings.Repeat("─", width-2)+"╯")
}

// draw draws an edge with an arrow. It returns false if the edge crosses a box, or ends outside one.
func (c *canvas) draw(edge int, e drawing.Edge, corners []point, inside map[point]int, arrows map[point]rune) bool {
	path := cellsOf(corners)
	from, to := -1, -1
	for i, at := range path {
		if at.column < 0 || at.line < 0 {
			return false
		}
		switch node, in := inside[at]; {
		case !in:
		case node == e.From && to < 0:
			from = i
		case node == e.To && to < 0:
			to = i
		case node != e.To:
			return false
		}
	}
	if to < 0 {
		// The line ends before the box: the next cell belongs to the box.
		to = len(path)
		node, in := inside[ahead(path)]
		if !in || node != e.To {
			return false
		}
		path = append(path, ahead(path))
	}
	if to-from < 2 {
		return false
	}
	for i := from + 1; i < to; i++ {
		sides := 0
		if i > from+1 || from >= 0 {
			sides |= side(path[i], path[i-1])
		}
		sides |= side(path[i], path[i+1])
		c.lines[path[i]] = append(c.lines[path[i]], stroke{edge, sides})
	}
	arrows[path[to-1]] = map[int]rune{north: '▲', east: '▶', south: '▼', west: '◀'}[side(path[to-1], path[to])]
	return true
}

// ahead returns the cell after the last one, straight on.
func ahead(path []point) point {
	last := path[len(path)-1]
	if len(path) < 2 {
		return last
	}
	before := path[len(path)-2]
	return point{2*last.column - before.column, 2*last.line - before.line}
}

// cellsOf returns all cells along the corners, in order.
func cellsOf(corners []point) []point {
	path := []point{corners[0]}
	for _, corner := range corners[1:] {
		for at := path[len(path)-1]; at != corner; path = append(path, at) {
			switch {
			case at.column < corner.column:
				at.column++
			case at.column > corner.column:
				at.column--
			case at.line < corner.line:
				at.line++
			default:
				at.line--
			}
		}
	}
	return path
}

// side returns the side of a cell on which a neighbour lies.
func side(of, other point) int {
	switch {
	case other.column > of.column:
		return east
	case other.column < of.column:
		return west
	case other.line > of.line:
		return south
	}
	return north
}

// readable reports whether the edges in one cell can be distinguished: the edges have a common end, or cross.
func readable(g drawing.Graph, drawn []stroke) bool {
	straight := func(sides int) bool { return sides == north|south || sides == east|west }
	for i, a := range drawn {
		for _, b := range drawn[:i] {
			one, other := g.Edges[a.edge], g.Edges[b.edge]
			if one.From == other.From || one.To == other.To {
				continue
			}
			if !straight(a.sides) || !straight(b.sides) || a.sides == b.sides {
				return false
			}
		}
	}
	return true
}
