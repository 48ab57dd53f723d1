package drawing

import (
	_ "embed"
	"fmt"
	"html"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Stylesheet colors the pictures of [Layouts.Page], on light and on dark pages.
//
//go:embed page.css
var Stylesheet string

// Page returns the graph as an svg element for an HTML page. The graph is a result of [Graph.Collapse] with at most
// [MaxNodes].
//
// Classes name states: [Stylesheet] has the colors. The element has no style, script, id or markup from the graph's texts,
// so a strict content security policy allows the element. At its width and height, text is 12 pixels high. A box with a
// [Node.URL] is a link, if the URL is relative or begins with http: or https:. Nothing moves if only states change.
//
// Errors: for a graph above the limits.
func (g Graph) Page() (string, error) {
	levels, _ := g.levels()
	if !g.fits(MaxNodes, levels) {
		return "", fmt.Errorf("%d nodes and %d edges exceed the limits of a page: collapse the graph", len(g.Nodes), len(g.Edges))
	}
	boxes := make([]spot, len(g.Nodes))
	for i, n := range g.Nodes {
		boxes[i] = n.pageSize()
	}
	return g.svg(boxes, g.placed(boxes, levels)), nil
}

// Sizes in pixels.
const (
	column    = 7.25 // of text of 12 pixels in a font of one width
	rowHeight = 44.0
	barHeight = 8.0
	pageWidth = 1_200.0
)

// Columns for a line of text.
const (
	minColumns = 18
	maxCounts  = 28 // of a merged node
)

// pageSize returns the size of a box. The size depends neither on the state nor on counts.
func (n Node) pageSize() spot {
	columns := max(minColumns, textWidth(shorten(clean(n.Label), maxLabel)))
	height := rowHeight
	if n.Counts != nil {
		columns, height = max(columns, maxCounts), rowHeight+barHeight
	} else if n.Waits != "" {
		columns = max(columns, minColumns+2+min(textWidth(n.Waits), maxLabel))
	}
	return spot{math.Ceil(float64(columns)*column + 20), height}
}

// placed places boxes. Levels are rows if they fit into a page's width. Otherwise the direction with the narrower picture is
// chosen, since a page scrolls down more easily.
func (g Graph) placed(boxes []spot, levels []int) *layout {
	down, across := gaps{within: 18, between: 36}, gaps{within: 10, between: 64}
	rows, columns := make([]float64, len(boxes)), make([]float64, len(boxes)) // by level
	for i, box := range boxes {
		rows[levels[i]] += box.x + down.within
		columns[levels[i]] = max(columns[levels[i]], box.x+across.between)
	}
	widest, wide := 0.0, 0.0
	for level, row := range rows {
		widest, wide = max(widest, row), wide+columns[level]
	}
	if widest <= pageWidth || wide >= widest {
		return arrange(g, boxes, levels, down)
	}
	turned := make([]spot, len(boxes))
	for i, box := range boxes {
		turned[i] = box.turn()
	}
	l := arrange(g, turned, levels, across)
	l.size = l.size.turn()
	for i := range l.centers {
		l.centers[i] = l.centers[i].turn()
	}
	for _, line := range l.lines {
		for i := range line {
			line[i] = line[i].turn()
		}
	}
	return l
}

// turn exchanges right and down.
func (s spot) turn() spot { return spot{s.y, s.x} }

// margin is the space around a picture.
const margin = 4.0

// svg paints a layout.
func (g Graph) svg(boxes []spot, placed *layout) string {
	var b strings.Builder
	// A screen reader doesn't enter an image, so its links would be out of reach.
	role := "img"
	if slices.ContainsFunc(g.Nodes, func(n Node) bool { return n.link() != "" }) {
		role = "group"
	}
	width, height := math.Ceil(placed.size.x+2*margin), math.Ceil(placed.size.y+2*margin)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="flow" role="%s" aria-label="%s" width="%g" height="%g" viewBox="0 0 %g %g"`,
		role, escape(g.summary()), width, height, width, height)
	b.WriteString(` font-family="ui-monospace, monospace" font-size="12" text-anchor="middle" fill="currentColor">` + "\n")
	b.WriteString(`<g class="edges" fill="none" stroke="currentColor">` + "\n")
	for i, e := range g.Edges {
		e.svg(&b, placed.lines[i])
	}
	b.WriteString("</g>\n" + `<g class="nodes">` + "\n")
	for i, n := range g.Nodes {
		n.svg(&b, placed.centers[i], boxes[i])
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}

// summary describes the graph in a sentence.
func (g Graph) summary() string {
	counts := make(map[string]int)
	total := 0
	for _, n := range g.Nodes {
		for _, c := range n.counts() {
			counts[c.State] += c.N
			total += c.N
		}
	}
	text := shorten(clean(g.Name), maxTitle) + ": " + number(total) + " execution"
	if total != 1 {
		text += "s"
	}
	if total > 0 {
		text += ", " + shorten(countsText(sortedCounts(counts)), maxTitle)
	}
	return text
}

// counts returns the states of the node's members.
func (n Node) counts() []Count {
	if n.Counts != nil {
		return n.Counts
	}
	return []Count{{n.State, 1}}
}

func (e Edge) svg(b *strings.Builder, line []spot) {
	class := "applied"
	if slices.Contains(edgeStates, e.State) {
		class = e.State
	}
	fmt.Fprintf(b, `<g class="edge %s">`, class)
	if e.Count > 1 {
		fmt.Fprintf(b, "<title>%s edges</title>", number(e.Count))
	}
	b.WriteString(`<path d="`)
	for i, at := range line {
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(pixel(at))
	}
	tip, before := line[len(line)-1], line[len(line)-2]
	b.WriteString(`"/>`)
	if length := math.Hypot(tip.x-before.x, tip.y-before.y); length > 0 {
		const long, half = 8, 3
		x, y := (tip.x-before.x)/length, (tip.y-before.y)/length
		base := spot{tip.x - long*x, tip.y - long*y}
		fmt.Fprintf(b, `<path class="arrow" fill="currentColor" d="M%sL%sL%sZ"/>`, pixel(tip),
			pixel(spot{base.x - half*y, base.y + half*x}), pixel(spot{base.x + half*y, base.y - half*x}))
	}
	b.WriteString("</g>\n")
}

func (n Node) svg(b *strings.Builder, center, size spot) {
	element := "g"
	if link := n.link(); link != "" {
		element = "a"
		fmt.Fprintf(b, `<a href="%s"`, escape(link))
	} else {
		b.WriteString("<g")
	}
	class := "node " + n.look().class
	if n.Counts != nil {
		class += " merged"
	}
	lines := n.Lines()
	title := shorten(clean(n.Label), maxTitle) + "\n" + shorten(clean(lines[1]), maxTitle)
	if n.Counts == nil && n.Kind != "" && n.Kind != n.Label {
		title += "\n" + shorten(clean(n.Kind), maxTitle)
	}
	width, height := size.x, size.y
	x, y := center.x+margin, center.y+margin
	left, top := x-width/2, y-height/2
	fmt.Fprintf(b, ` class="%s"><title>%s</title><rect class="box" fill="none" stroke="currentColor" x="%s" y="%s" width="%s" height="%s" rx="6"/>`,
		class, escape(title), short(left), short(top), short(width), short(height))
	fmt.Fprintf(b, `<text x="%s" y="%s">%s</text>`, short(x), short(top+18), escape(lines[0]))
	fmt.Fprintf(b, `<text class="state" x="%s" y="%s">%s</text>`, short(x), short(top+35), escape(n.stateLine(int((width-20)/column))))
	if n.Counts != nil {
		bar(b, n.Counts, spot{left + 10, top + height - barHeight - 2}, width-20)
	}
	b.WriteString("</" + element + ">\n")
}

// stateLine returns the second line in a box, with as many counts as fit.
func (n Node) stateLine(columns int) string {
	shown := len(n.Counts)
	line := clean(n.Lines()[1])
	for shown > 1 && textWidth(line) > columns {
		shown--
		line = countsText(n.Counts[:shown]) + ", …"
	}
	return shorten(line, columns)
}

// bar paints the shares of the states, as long as a box is wide.
func bar(b *strings.Builder, counts []Count, at spot, width float64) {
	total, before := 0, 0
	for _, c := range counts {
		total += c.N
	}
	b.WriteString(`<g class="bar">`)
	for _, c := range counts {
		from, to := width*float64(before)/float64(total), width*float64(before+c.N)/float64(total)
		fmt.Fprintf(b, `<rect class="%s" x="%s" y="%s" width="%s" height="5"/>`, Node{State: c.State}.look().class,
			short(at.x+from), short(at.y), short(max(to-from, 1)))
		before += c.N
	}
	b.WriteString("</g>")
}

// maxTitle is the longest label in a title.
const maxTitle = 300

// link returns the node's URL, or "" for a URL with another scheme, such as javascript, or with unprintable characters.
func (n Node) link() string {
	parsed, err := url.Parse(n.URL)
	if err != nil || !slices.Contains([]string{"", "http", "https"}, parsed.Scheme) || clean(n.URL) != n.URL {
		return ""
	}
	return n.URL
}

func escape(text string) string { return html.EscapeString(text) }

// pixel writes a position in pixels.
func pixel(at spot) string { return short(at.x+margin) + "," + short(at.y+margin) }

// short writes a number with at most one decimal.
func short(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
