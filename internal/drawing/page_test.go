package drawing_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/internal/drawing/samples"
)

// allowed are the elements and attributes of a picture on a page. A strict content security policy allows them all.
var allowed = map[string][]string{
	"svg":   {"xmlns", "class", "role", "aria-label", "width", "height", "viewBox", "font-family", "font-size", "text-anchor", "fill"},
	"g":     {"class", "fill", "stroke"},
	"a":     {"class", "href"},
	"title": {},
	"rect":  {"class", "fill", "stroke", "x", "y", "width", "height", "rx"},
	"text":  {"class", "x", "y"},
	"path":  {"class", "fill", "d"},
}

// harmless matches the values of all attributes but aria-label and href.
var harmless = regexp.MustCompile(`^[A-Za-z0-9 .,:/_-]*$`)

// texts parses a picture, checks its elements and attributes, and returns its texts and links.
func texts(t *testing.T, svg string) (texts, links []string) {
	t.Helper()
	for decoder := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts, links
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			attributes, known := allowed[token.Name.Local]
			if !known {
				t.Fatalf("the picture has an element %s:\n%s", token.Name.Local, svg)
			}
			for _, a := range token.Attr {
				switch name := a.Name.Local; {
				case !slices.Contains(attributes, name):
					t.Errorf("%s has an attribute %s", token.Name.Local, name)
				case name == "href":
					links = append(links, a.Value)
				case name == "aria-label":
					texts = append(texts, a.Value)
				case !harmless.MatchString(a.Value):
					t.Errorf("%s=%q", name, a.Value)
				}
			}
		case xml.CharData:
			texts = append(texts, string(token))
		case xml.EndElement:
		default:
			t.Errorf("the picture has %#v", token)
		}
	}
}

func page(t *testing.T, g drawing.Graph) string {
	t.Helper()
	svg, err := g.Page()
	if err != nil {
		t.Fatal(err)
	}
	return svg
}

// No text of a graph becomes markup, in any field, and a reader finds the texts as they were.
func TestPageOfHostileTexts(t *testing.T) {
	for _, hostile := range []string{
		`"quoted" 'single' & &amp; &#60; <b>`, `<script>alert(1)</script>`, `"><script>alert(1)</script>`, `]]>`, `<![CDATA[`, `--><!--`,
		`<<table><tr><td port="a">html-like</td></tr></table>>`, `\N \G \l \"; n0 -> n1 [label="x`, `"]; } digraph {`, "nul \x00, tab \t\r\n",
		"invalid \xff\xfe", "\u202eright to left", "\ufeff\ufffe\uffff", strings.Repeat("very-long ", 10_000), "日本語のキー 👩‍💻", "</title></svg>", "",
	} {
		g := samples.Chart("a>b", "c")
		for i := range g.Nodes {
			g.Nodes[i].Label, g.Nodes[i].Kind, g.Nodes[i].URL = hostile, hostile, "/?q="+hostile
		}
		g.Name, g.Nodes[0].State, g.Nodes[1].Waits, g.Edges[0].State = hostile, hostile, hostile, hostile
		g.Nodes[2].Members, g.Nodes[2].Counts = []int{1, 2}, []drawing.Count{{State: hostile, N: 2}}
		svg := page(t, g)
		found, links := texts(t, svg)
		printable := utf8.ValidString(hostile) && !strings.ContainsFunc(hostile, func(r rune) bool { return !unicode.IsPrint(r) })
		if all := strings.Join(found, "\n"); printable && len(hostile) < 300 && strings.Count(all, hostile) < 5 {
			t.Errorf("%q is missing in %q", hostile, all)
		}
		for _, link := range links {
			if link != "/?q="+hostile {
				t.Errorf("a link leads to %q, want %q", link, hostile)
			}
		}
		if len(svg) > 10_000+3*len(hostile) { // the links
			t.Errorf("%d bytes for %d bytes of text", len(svg), len(hostile))
		}
	}
}

func TestPageLinks(t *testing.T) {
	for url, want := range map[string]bool{
		"/executions/1": true, "executions/1?a=b#c": true, "?x": true, "https://example.org/ff/": true, "http://localhost/": true,
		"": false, "javascript:alert(1)": false, "JavaScript:alert(1)": false, " javascript:alert(1)": false, "java\nscript:alert(1)": false,
		"data:text/html,x": false, "vbscript:x": false, "\x01javascript:x": false,
	} {
		g := samples.Chart("a")
		g.Nodes[0].URL = url
		svg := page(t, g)
		if _, links := texts(t, svg); len(links) > 0 != want || want && links[0] != url {
			t.Errorf("%q: links %q", url, links)
		}
		// What is inside an image can't be reached with a screen reader.
		if role := `role="img"`; strings.Contains(svg, role) == want {
			t.Errorf("%q: %s: %t", url, role, !want)
		}
	}
}

// Each execution is a box with its name, state and title, and the label sums them up.
func TestPageShowsEveryNode(t *testing.T) {
	g := samples.All()["diamond"]
	found, _ := texts(t, page(t, g))
	for _, n := range g.Nodes {
		if !slices.Contains(found, n.Label) {
			t.Errorf("%s is missing in %q", n.Label, found)
		}
	}
	if want := "flow: 4 executions, 1 failed, 1 skipped, 2 completed"; !slices.Contains(found, want) {
		t.Errorf("%q is missing in %q", want, found)
	}
	found, _ = texts(t, page(t, samples.Merged()))
	for _, want := range []string{"resize × 1,240", "4 failed, 40 active, …", "resize × 1,240\n4 failed, 40 active, 1,196 completed", "1,240 edges", "· waiting children, 1,000 of 1,240"} {
		if !slices.Contains(found, want) {
			t.Errorf("%q is missing in %q", want, found)
		}
	}
}

// A change of states moves nothing.
func TestPageMovesNothing(t *testing.T) {
	geometry := regexp.MustCompile(` (x|y|width|height|d|viewBox)="[^"]*"`)
	g := samples.All()["fan"]
	before := geometry.FindAllString(page(t, g), -1)
	for _, state := range []string{"completed", "waiting_children", "rate_limited"} {
		for i := range g.Nodes {
			g.Nodes[i].State = state
		}
		for i := range g.Edges {
			g.Edges[i].State = "satisfied"
		}
		if after := geometry.FindAllString(page(t, g), -1); !slices.Equal(before, after) {
			t.Errorf("%s: moved from %q to %q", state, before, after)
		}
	}
}

func TestPageOfTooManyNodes(t *testing.T) {
	for _, g := range []drawing.Graph{nodes(drawing.MaxNodes+1, same), random(drawing.MaxNodes, 5_000, 50)} {
		if svg, err := g.Page(); err == nil || svg != "" {
			t.Errorf("%d nodes and %d edges are drawn", len(g.Nodes), len(g.Edges))
		}
	}
	page(t, nodes(drawing.MaxNodes, same))
}

// The stylesheet has a color for each class of a state, in light and in dark.
func TestStylesheetKnowsEveryClass(t *testing.T) {
	g := drawing.Graph{}
	for _, state := range []string{
		"waiting", "delayed", "rate_limited", "waiting_children", "active", "suspended", "resumable", "completed", "failed",
		"cancelled", "expired", "skipped", "unreadable",
	} {
		g.Nodes = append(g.Nodes, drawing.Node{Label: state, State: state})
	}
	for _, match := range regexp.MustCompile(`class="node (\w+)"`).FindAllStringSubmatch(page(t, g), -1) {
		class := match[1]
		rule := fmt.Sprintf("svg.flow .%s { --state: var(--%s); }", class, class)
		if !strings.Contains(drawing.Stylesheet, rule) || strings.Count(drawing.Stylesheet, " --"+class+": #") != 2 {
			t.Errorf("the stylesheet lacks %s", rule)
		}
	}
}
