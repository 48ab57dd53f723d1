package graphviz_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/graphviz"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/internal/drawing/samples"
)

func TestDrawings(t *testing.T) {
	samples.Golden(t, map[string]func(drawing.Graph) (string, error){
		"svg": func(g drawing.Graph) (string, error) { return graphviz.SVG(t.Context(), g) },
		"txt": func(g drawing.Graph) (string, error) {
			drawn, fits, err := graphviz.Text(t.Context(), g, 80)
			if !fits {
				drawn = "does not fit\n"
			}
			return drawn, err
		},
	})
}

// No line is wider than the terminal, and none moves its cursor.
func TestTextFits(t *testing.T) {
	for name, g := range samples.All() {
		for _, width := range []int{1, 20, 40, 80, 200} {
			drawn, _, err := graphviz.Text(t.Context(), g, width)
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
		g := samples.All()[name]
		drawn, fits, err := graphviz.Text(t.Context(), g, 80)
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
	for i := range graphviz.MaxText + 1 {
		parts = append(parts, fmt.Sprint(i))
	}
	if _, fits, err := graphviz.Text(t.Context(), samples.Chart(parts...), 1000); fits || err != nil {
		t.Errorf("fits: %t, %v", fits, err)
	}
}

// The picture is well-formed for any keys.
func TestSVGIsWellFormed(t *testing.T) {
	for name, g := range samples.All() {
		svg, err := graphviz.SVG(t.Context(), g)
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
	if _, err := graphviz.SVG(t.Context(), drawing.Graph{Nodes: make([]drawing.Node, graphviz.MaxSVG+1)}); err == nil {
		t.Error("a picture of too many nodes is no error")
	}
}
