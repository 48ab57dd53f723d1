package console

import (
	"html/template"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/drawing"
)

// picture draws a flow, and returns the number of boxes. Boxes of single executions are links.
func (c *console) picture(graph *engine.FlowGraph) (template.HTML, int, error) {
	drawn := drawing.OfFlow(graph)
	for i := range drawn.Nodes {
		drawn.Nodes[i].URL = c.cfg.Path + "executions/" + graph.Nodes[i].ID.Short()
	}
	drawn = drawn.Collapse(drawing.MaxNodes)
	svg, err := drawn.Page()
	return template.HTML(svg), len(drawn.Nodes), err // the package escapes all texts
}
