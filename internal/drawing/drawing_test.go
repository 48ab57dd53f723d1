package drawing_test

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

var update = flag.Bool("update", false, "write what is drawn to testdata")

// chart draws a graph: "a>b" is an edge, "a" a node, "a=failed" a node in a state.
func chart(parts ...string) drawing.Graph {
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

// merged returns a graph with merged nodes.
func merged() drawing.Graph {
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

func graphs() map[string]drawing.Graph {
	hostile := chart("a>b")
	hostile.Nodes[0].Label = "\"quoted\" <b>&amp; [x](y) {z} `tick` \\n #35; | ; \x1b[31m\n"
	hostile.Nodes[1].Label = "日本語のキー ключ 👩‍💻"
	long := chart("a>b")
	long.Nodes[0].Label = strings.Repeat("very-", 20) + "long"
	long.Nodes[1].State = "unheard of"
	quorum := chart("a=completed>d", "b=active>d", "c=failed>d", "d=waiting_children>e", "e=waiting_children")
	quorum.Nodes[3].Waits = "2 of 3"
	quorum.Edges[0].State, quorum.Edges[2].State = "satisfied", "impossible"
	return map[string]drawing.Graph{
		"empty":   {Name: "flow"},
		"alone":   chart("alone"),
		"chain":   chart("fetch=completed>parse=active", "parse>store"),
		"diamond": chart("fetch=completed>left=failed", "fetch>right=completed", "left>join=skipped", "right>join", "fetch>join"),
		"fan":     chart("split>1", "split>2", "split>3", "split>4", "1>join", "2>join", "3>join", "4>join"),
		"wide":    chart("s>a1", "s>a2", "s>a3", "s>a4", "s>a5", "s>a6", "s>a7", "s>a8", "s>a9"),
		"cross":   chart("a>c", "a>d", "b>c", "b>d", "e>c", "e>f"),
		"quorum":  quorum,
		"hostile": hostile,
		"long":    long,
		"merged":  merged(),
	}
}

// Drawings don't change, and equal graphs have equal drawings.
func TestDrawings(t *testing.T) {
	for name, g := range graphs() {
		for format, draw := range map[string]func() (string, error){
			"mmd": func() (string, error) { return g.Mermaid(), nil },
			"dot": func() (string, error) { return g.DOT(), nil },
			"svg": func() (string, error) { return g.SVG(t.Context()) },
			"page.svg": func() (string, error) {
				return new(drawing.Layouts).Page(t.Context(), g)
			},
			"txt": func() (string, error) {
				drawn, fits, err := g.Text(t.Context(), 80)
				if !fits {
					drawn = "does not fit\n"
				}
				return drawn, err
			},
		} {
			got, err := draw()
			if err != nil {
				t.Errorf("%s.%s: %v", name, format, err)
				continue
			}
			if again, err := draw(); again != got || err != nil {
				t.Errorf("%s.%s is drawn in another way the second time, %v", name, format, err)
			}
			path := filepath.Join("testdata", name+"."+format)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s is now\n%s", path, got)
			}
		}
	}
}

// No line is wider than the terminal, and none moves its cursor.
func TestTextFits(t *testing.T) {
	for name, g := range graphs() {
		for _, width := range []int{1, 20, 40, 80, 200} {
			drawn, _, err := g.Text(t.Context(), width)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(drawn) {
				if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > width {
					t.Errorf("%s: a line of %d for %d: %s", name, n, width, line)
				}
			}
			if strings.Contains(drawn, "\x1b") {
				t.Errorf("%s: an escape is drawn", name)
			}
		}
	}
}

// Every node is drawn, and every waiting node has an arrow.
func TestTextShowsEveryNode(t *testing.T) {
	for _, name := range []string{"chain", "diamond", "fan", "quorum", "wide"} {
		g := graphs()[name]
		drawn, fits, err := g.Text(t.Context(), 80)
		if err != nil || !fits {
			t.Errorf("%s does not fit, %v", name, err)
		}
		for _, n := range g.Nodes {
			if !strings.Contains(drawn, "│ "+n.Label+" ") {
				t.Errorf("%s: %s is not drawn:\n%s", name, n.Label, drawn)
			}
		}
		if strings.Count(drawn, "▼")+strings.Count(drawn, "▶ ")+strings.Count(drawn, "▶│") == 0 {
			t.Errorf("%s has no arrow:\n%s", name, drawn)
		}
	}
}

func TestTextOfTooManyNodes(t *testing.T) {
	var parts []string
	for i := range drawing.MaxText + 1 {
		parts = append(parts, fmt.Sprint(i))
	}
	if _, fits, err := chart(parts...).Text(t.Context(), 1000); fits || err != nil {
		t.Errorf("fits: %t, %v", fits, err)
	}
}

// The picture is well-formed for any keys.
func TestSVGIsWellFormed(t *testing.T) {
	for name, g := range graphs() {
		svg, err := g.SVG(t.Context())
		if err != nil {
			t.Fatal(name, err)
		}
		decoder := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, svg)
			}
		}
	}
	if _, err := (drawing.Graph{Nodes: make([]drawing.Node, drawing.MaxSVG+1)}).SVG(t.Context()); err == nil {
		t.Error("a picture of too many nodes is no error")
	}
}
