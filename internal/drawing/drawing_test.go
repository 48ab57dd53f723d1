package drawing_test

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/drawing"
	"github.com/flowfabric/flowfabric-go/internal/drawing/samples"
)

func TestDrawings(t *testing.T) {
	samples.Golden(t, map[string]func(drawing.Graph) (string, error){
		"mmd":      func(g drawing.Graph) (string, error) { return g.Mermaid(), nil },
		"dot":      func(g drawing.Graph) (string, error) { return g.DOT(), nil },
		"page.svg": drawing.Graph.Page,
	})
}
