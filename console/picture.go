package console

import (
	"html/template"
	"net/url"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

// picture draws a flow, and returns the number of boxes. Boxes are links to their execution, or to
// the executions of their kind.
func (c *console) picture(graph *engine.FlowGraph) (template.HTML, int, error) {
	drawn := drawing.OfFlow(graph)
	for i := range drawn.Nodes {
		drawn.Nodes[i].URL = c.cfg.Path + "executions/" + graph.Nodes[i].ID.Short()
	}
	drawn = drawn.Collapse(drawing.MaxNodes)
	for i := range drawn.Nodes {
		if n := &drawn.Nodes[i]; len(n.Members) > 1 && n.Kind != "" {
			n.URL = c.cfg.Path + "executions?kind=" + url.QueryEscape(n.Kind)
		}
	}
	svg, err := drawn.Page()
	return template.HTML(svg), len(drawn.Nodes), err // the package escapes all texts
}
