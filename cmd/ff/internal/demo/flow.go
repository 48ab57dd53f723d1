package demo

import (
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
)

// hashing is the kind of the demo's executions. Retries come at once, since a person is waiting.
var hashing = engine.Kind[Package, Hashed]{Name: "hash-package", Policy: &policy.Execution{Retry: policy.ImmediateRetries(3)}}

// flow describes the graph as a flow. A package is an execution, an import is an edge, and a package waits for all
// imports.
func (g Graph) flow(flow id.FlowID, lane id.LaneID) engine.FlowSpec {
	spec := engine.FlowSpec{ID: flow, Kind: "merkle-hash"}
	for _, p := range g {
		node := engine.Node{Key: p.Path, Spec: hashing.Spec(p)}
		node.Spec.Lane, node.Spec.Creator = lane, "ff demo"
		spec.Nodes = append(spec.Nodes, node)
		for _, path := range p.imports {
			spec.Edges = append(spec.Edges, engine.Edge{From: path, To: p.Path})
		}
	}
	return spec
}
