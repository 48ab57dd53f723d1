package drawing

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"html"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Stylesheet colors the pictures of [Layouts.Page], on light and on dark pages.
//
//go:embed page.css
var Stylesheet string

// keptLayouts is the number of layouts that [Layouts] remembers. One of 300 nodes takes some 100 KB.
const keptLayouts = 32

// Layouts draws graphs for pages. It remembers the last layouts, so Graphviz doesn't run again if only states changed, and
// boxes stay where they were. The zero value is ready. Layouts may be used concurrently.
type Layouts struct {
	mu    sync.Mutex
	kept  map[[sha256.Size]byte]*layout
	order [][sha256.Size]byte // the latest used one last
}

// Page returns the graph as an svg element for an HTML page. The graph is a result of [Graph.Collapse] with at most
// [MaxNodes].
//
// Classes name states: [Stylesheet] has the colors. The element has no style, script, id or markup of the graph's texts, so
// a strict content security policy allows it. Its width and height are those at which the text is 12 pixels high. A box
// with a [Node.URL] is a link, if the URL is relative or begins with http: or https:.
//
// Errors: for a graph above the limits; the error of ctx if it ends before Graphviz does.
func (l *Layouts) Page(ctx context.Context, g Graph) (string, error) {
	levels, _ := g.levels()
	if !g.fits(MaxNodes, levels) {
		return "", fmt.Errorf("%d nodes and %d edges exceed the limits of a page: collapse the graph", len(g.Nodes), len(g.Edges))
	}
	boxes := make([]spot, len(g.Nodes))
	for i, n := range g.Nodes {
		boxes[i] = n.pageSize()
	}
	placed, err := l.arrange(ctx, pageAttributes(boxes, levels), boxes, g.Edges)
	if err != nil {
		return "", err
	}
	return g.svg(boxes, placed), nil
}

func (l *Layouts) arrange(ctx context.Context, attributes string, boxes []spot, edges []Edge) (*layout, error) {
	key := sha256.Sum256([]byte(dotOf(attributes, boxes, edges)))
	if placed := l.keep(key, nil); placed != nil {
		return placed, nil
	}
	placed, err := arrange(ctx, attributes, boxes, edges)
	if err != nil {
		return nil, err
	}
	return l.keep(key, placed), nil
}

// keep returns the layout with a key, after adding it unless it is nil.
func (l *Layouts) keep(key [sha256.Size]byte, placed *layout) *layout {
	l.mu.Lock()
	defer l.mu.Unlock()
	if placed == nil {
		placed = l.kept[key]
	}
	if placed == nil {
		return nil
	}
	if l.kept == nil {
		l.kept = make(map[[sha256.Size]byte]*layout)
	}
	l.kept[key] = placed
	l.order = append(slices.DeleteFunc(l.order, func(other [sha256.Size]byte) bool { return other == key }), key)
	if len(l.order) > keptLayouts {
		delete(l.kept, l.order[0])
		l.order = l.order[1:]
	}
	return placed
}

// Sizes in pixels. An inch has 72.
const (
	pixels    = 72.0
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

// pageSize returns the size of a box in inches. It doesn't depend on the state, and of a merged node on no counts.
func (n Node) pageSize() spot {
	columns := max(minColumns, textWidth(shorten(clean(n.Label), maxLabel)))
	height := rowHeight
	if n.Counts != nil {
		columns, height = max(columns, maxCounts), rowHeight+barHeight
	} else if n.Waits != "" {
		columns = max(columns, minColumns+2+min(textWidth(n.Waits), maxLabel))
	}
	return spot{math.Ceil(float64(columns)*column+20) / pixels, height / pixels}
}

// pageAttributes returns the attributes for Graphviz. Levels are rows if they fit into a page's width. Otherwise the
// direction with the narrower picture is chosen, since a page scrolls down more easily. Straight edges from side to side
// are the clearest between many boxes, and the quickest. The limits make Graphviz try less often to improve a layout.
func pageAttributes(boxes []spot, levels []int) string {
	rows, columns := make(map[int]float64), make(map[int]float64)
	for i, box := range boxes {
		rows[levels[i]] += box.x + 0.25
		columns[levels[i]] = max(columns[levels[i]], box.x+0.6)
	}
	down, across := 0.0, 0.0
	for level, width := range rows {
		down = max(down, width)
		across += columns[level]
	}
	direction := "TB\nnodesep=0.25\nranksep=0.5\nedge [tailport=s, headport=n]"
	if down*pixels > pageWidth && across < down {
		direction = "LR\nnodesep=0.15\nranksep=1\nedge [tailport=e, headport=w]"
	}
	return "rankdir=" + direction + "\nsplines=polyline\nmclimit=0.3\nnslimit=1\nnslimit1=1\nsearchsize=10"
}

// margin is the space around a picture.
const margin = 4.0

// svg paints a layout.
func (g Graph) svg(boxes []spot, placed *layout) string {
	var b strings.Builder
	// A picture is one thing for a screen reader; links in it would be out of reach.
	role := "img"
	if slices.ContainsFunc(g.Nodes, func(n Node) bool { return n.link() != "" }) {
		role = "group"
	}
	width, height := math.Ceil(placed.size.x*pixels+2*margin), math.Ceil(placed.size.y*pixels+2*margin)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="flow" role="%s" aria-label="%s" width="%g" height="%g" viewBox="0 0 %g %g"`,
		role, escape(g.summary()), width, height, width, height)
	b.WriteString(` font-family="ui-monospace, monospace" font-size="12" text-anchor="middle" fill="currentColor">` + "\n")
	b.WriteString(`<g class="edges" fill="none" stroke="currentColor">` + "\n")
	for i, e := range g.Edges {
		e.svg(&b, placed.curves[i])
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

func (e Edge) svg(b *strings.Builder, curve []spot) {
	class := "applied"
	if slices.Contains(edgeStates, e.State) {
		class = e.State
	}
	fmt.Fprintf(b, `<g class="edge %s">`, class)
	if e.Count > 1 {
		fmt.Fprintf(b, "<title>%s edges</title>", number(e.Count))
	}
	b.WriteString(`<path d="`)
	// The curves are straight, and every third point is an end.
	var tip, before spot
	for i := 0; i < len(curve); i += 3 {
		if i > 0 && curve[i] == tip {
			continue
		}
		before, tip = tip, curve[i]
		b.WriteByte("ML"[min(i, 1)])
		b.WriteString(pixel(tip))
	}
	b.WriteString(`"/>`)
	if length := math.Hypot(tip.x-before.x, tip.y-before.y); length > 0 {
		const long, half = 8 / pixels, 3 / pixels
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
	lines := n.lines()
	title := shorten(clean(n.Label), maxTitle) + "\n" + shorten(clean(lines[1]), maxTitle)
	if n.Counts == nil && n.Kind != "" && n.Kind != n.Label {
		title += "\n" + shorten(clean(n.Kind), maxTitle)
	}
	width, height := size.x*pixels, size.y*pixels
	x, y := center.x*pixels+margin, center.y*pixels+margin
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

// stateLine returns the second line in a box: of counts those that fit.
func (n Node) stateLine(columns int) string {
	shown := len(n.Counts)
	line := clean(n.lines()[1])
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

// link returns the node's URL, or "" for one that a browser would run, or with characters that need escaping.
func (n Node) link() string {
	parsed, err := url.Parse(n.URL)
	if err != nil || !slices.Contains([]string{"", "http", "https"}, parsed.Scheme) || clean(n.URL) != n.URL {
		return ""
	}
	return n.URL
}

func escape(text string) string { return html.EscapeString(text) }

// pixel writes a position in pixels.
func pixel(at spot) string { return short(at.x*pixels+margin) + "," + short(at.y*pixels+margin) }

// short writes a number with at most one decimal.
func short(x float64) string { return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) }
