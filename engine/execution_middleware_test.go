package engine

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
)

func TestUnusedMiddlewareCostsNothing(t *testing.T) {
	e := &Engine{}
	specs, nodes, flow := make([]ExecutionSpec, 3), make([]Node, 3), id.NewFlowID()
	if n := testing.AllocsPerRun(10, func() {
		specs = e.adaptAll(t.Context(), specs)
		nodes = e.adaptNodes(t.Context(), flow, nodes)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
