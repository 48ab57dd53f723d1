package graphviz_test

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

	"github.com/flowfabric/flowfabric-go/cmd/ff/internal/graphviz"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/internal/drawing/samples"
)

var update = flag.Bool("update", false, "write what is drawn to testdata")

// Drawings don't change, and equal graphs have equal drawings.
func TestDrawings(t *testing.T) {
	for name, g := range samples.All() {
		for format, draw := range map[string]func() (string, error){
			"svg": func() (string, error) { return graphviz.SVG(t.Context(), g) },
			"txt": func() (string, error) {
				drawn, fits, err := graphviz.Text(t.Context(), g, 80)
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
