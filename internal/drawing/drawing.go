// Package drawing draws flows: as SVG for a web page, and as Mermaid and DOT for documents.
package drawing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Graph is a graph to draw. Equal graphs have equal drawings.
type Graph struct {
	Name  string
	Nodes []Node
	Edges []Edge

	Implied int // edges left out by [Graph.Collapse] because other paths imply the order
}

// Node is a box.
type Node struct {
	Label string // the key
	Kind  string
	State string // the public state, such as "completed"
	Waits string // when the node may run, such as "2 of 3"; "" for the usual rule
	URL   string // where the box on a page leads, "" for nowhere

	// Members are the indexes of merged nodes in the graph before [Graph.Collapse], and Counts are the states, failures
	// first. Both are nil for a single execution. Kind is "" for members of several kinds.
	Members []int
	Counts  []Count
}

// Count is the number of members in a state.
type Count struct {
	State string
	N     int
}

// Edge leads from a node to a waiting one. The ends are indexes of [Graph.Nodes].
type Edge struct {
	From, To int
	State    string // of the edge: applied, pending, satisfied or impossible
	Count    int    // merged edges, 0 for a single one
}

// look is the appearance of a state.
type look struct {
	sign          string
	class         string
	fill, outline string
}

// looks maps public states to their looks. Other states are drawn plain.
var looks = map[string]look{
	"waiting":          {"·", "waiting", "#f6f8fa", "#57606a"},
	"delayed":          {"◷", "waiting", "#f6f8fa", "#57606a"},
	"rate_limited":     {"◷", "waiting", "#f6f8fa", "#57606a"},
	"waiting_children": {"·", "waiting", "#f6f8fa", "#57606a"},
	"active":           {"▶", "active", "#ddf4ff", "#0969da"},
	"suspended":        {"‖", "suspended", "#fff8c5", "#9a6700"},
	"resumable":        {"‖", "suspended", "#fff8c5", "#9a6700"},
	"completed":        {"✓", "completed", "#dafbe1", "#1a7f37"},
	"failed":           {"✗", "failed", "#ffebe9", "#cf222e"},
	"cancelled":        {"⊘", "cancelled", "#eaeef2", "#6e7781"},
	"expired":          {"✗", "failed", "#ffebe9", "#cf222e"},
	"skipped":          {"↷", "cancelled", "#eaeef2", "#6e7781"},
}

func (n Node) look() look {
	if l, ok := looks[n.State]; ok {
		return l
	}
	return look{"?", "unknown", "#ffffff", "#24292f"}
}

// Lines returns the lines of text in the box.
func (n Node) Lines() []string {
	second := n.look().sign + " " + stateText(n.State)
	switch {
	case n.Counts != nil:
		second = countsText(n.Counts)
	case n.Waits != "":
		second += ", " + n.Waits
	}
	return []string{shorten(clean(n.Label), maxLabel), second}
}

// stateText returns the text for a state.
func stateText(state string) string { return clean(strings.ReplaceAll(state, "_", " ")) }

// maxLabel is the longest label for a box.
const maxLabel = 32

func textWidth(line string) int { return text.StringWidth(line) }

// shorten cuts text in the middle, since keys often differ at their ends.
func shorten(text string, limit int) string {
	if n := utf8.RuneCountInString(text); n > limit {
		runes := []rune(text)
		head := limit / 2
		return string(runes[:head]) + "…" + string(runes[n-(limit-head-1):])
	}
	return text
}

// clean returns text without meaning for a terminal or a document.
func clean(text string) string {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		quoted := strconv.QuoteToGraphic(text)
		return quoted[1 : len(quoted)-1]
	}
	return text
}

// Mermaid returns the graph as a Mermaid flowchart, which GitHub and others draw in documents.
func (g Graph) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	classes := make(map[string]look)
	for i, n := range g.Nodes {
		lines := n.Lines()
		fmt.Fprintf(&b, "    n%d[\"%s<br/>%s\"]:::%s\n", i, mermaidText(clean(n.Label)), mermaidText(lines[1]), n.look().class)
		classes[n.look().class] = n.look()
	}
	for _, e := range g.Edges {
		arrow := "-->"
		if e.State == "pending" || e.State == "impossible" {
			arrow = "-.->"
		}
		fmt.Fprintf(&b, "    n%d %s n%d\n", e.From, arrow, e.To)
	}
	for _, class := range sortedKeys(classes) {
		fmt.Fprintf(&b, "    classDef %s fill:%s,stroke:%s,color:#24292f\n", class, classes[class].fill, classes[class].outline)
	}
	return b.String()
}

// mermaidText escapes characters Mermaid would interpret.
func mermaidText(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch r {
		case '"', '&', '<', '>', '#', ';', '`', '\\', '[', ']', '(', ')', '{', '}', '|':
			fmt.Fprintf(&b, "#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// DOT returns the graph in Graphviz's language.
func (g Graph) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %s {\n", dotText(g.Name))
	b.WriteString("    rankdir=TB\n    node [shape=box, style=\"rounded,filled\", fontname=\"Helvetica\", fontsize=11]\n    edge [color=\"#57606a\"]\n")
	for i, n := range g.Nodes {
		l := n.look()
		label := dotText(clean(n.Label) + "\n" + n.Lines()[1])
		fmt.Fprintf(&b, "    n%d [label=%s, fillcolor=\"%s\", color=\"%s\"]\n", i, label, l.fill, l.outline)
	}
	for _, e := range g.Edges {
		style := ""
		if e.State == "pending" || e.State == "impossible" {
			style = " [style=dashed]"
		}
		fmt.Fprintf(&b, "    n%d -> n%d%s\n", e.From, e.To, style)
	}
	b.WriteString("}\n")
	return b.String()
}

// dotText returns a quoted string. Line breaks stay line breaks.
func dotText(text string) string {
	text = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "&", "&amp;").Replace(text)
	return `"` + text + `"`
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
