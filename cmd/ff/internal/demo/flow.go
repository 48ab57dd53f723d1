package demo

import (
	"encoding/json"
	"fmt"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// kind is the kind of the demo's executions.
const kind = "hash-package"

// flow describes the graph as a flow: a package is an execution, an import an edge, and a package waits for all that
// it imports.
func (g Graph) flow(flow id.FlowID, lane id.LaneID) (engine.FlowSpec, error) {
	spec := engine.FlowSpec{ID: flow, Kind: "merkle-hash"}
	for _, p := range g {
		payload, err := json.Marshal(p)
		if err != nil {
			return engine.FlowSpec{}, fmt.Errorf("encode %s: %w", p.Path, err)
		}
		spec.Nodes = append(spec.Nodes, engine.Node{
			Key:  p.Path,
			Spec: engine.ExecutionSpec{Lane: lane, Kind: kind, Payload: payload, Creator: "ff demo"},
		})
		for _, path := range p.imports {
			spec.Edges = append(spec.Edges, engine.Edge{From: path, To: p.Path})
		}
	}
	return spec, nil
}
