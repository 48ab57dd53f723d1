package engine

import (
	"context"
	"slices"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Middleware may change the spec of an execution before its creation: see [Config.Middleware].
//
//	func traced(ctx context.Context, spec *engine.ExecutionSpec) error {
//		spec.Tags["app.trace"] = traceparent(ctx)
//		return nil
//	}
//
// ctx is the creation's; in a handler, usually the handler's. Defaults are not filled in yet. Tags is a copy and never nil.
// Don't change ID and Flow, and don't keep spec. The values behind Payload and Policy may be shared: replace them, don't
// modify them.
//
// An error refuses the creation with [fferr.ErrInvalidInput], and [errors.Is] finds the error itself. In a flow or a call
// the error refuses all executions, otherwise one.
type Middleware func(ctx context.Context, spec *ExecutionSpec) error

// adaptAll passes specs through the middleware. Without middleware the specs are returned unchanged.
func (e *Engine) adaptAll(ctx context.Context, specs []ExecutionSpec) []ExecutionSpec {
	if len(e.cfg.Middleware) == 0 {
		return specs
	}
	ctx = e.c.BeginCreation(ctx)
	adapted, spare := slices.Clone(specs), core.SpareTags{}
	for i := range adapted {
		e.adapt(ctx, &adapted[i], &spare)
	}
	return adapted
}

// adaptNodes passes the specs of new nodes through the middleware. Without middleware the nodes are returned unchanged.
func (e *Engine) adaptNodes(ctx context.Context, flow id.FlowID, nodes []Node) []Node {
	if len(e.cfg.Middleware) == 0 {
		return nodes
	}
	ctx = e.c.BeginCreation(ctx)
	nodes, member, spare := slices.Clone(nodes), flow, core.SpareTags{} // a copy, since taking the parameter's address would cost every caller
	for i := range nodes {
		node := &nodes[i]
		if !node.Execution.IsZero() || node.Spec.Flow != nil { // an existing execution, or the node is refused
			continue
		}
		own := node.Spec.ID
		if node.Spec.Flow = &member; own.IsZero() {
			node.Spec.ID = e.NodeID(flow, node.Key)
		}
		e.adapt(ctx, &node.Spec, &spare)
		node.Spec.Flow, node.Spec.ID = nil, own
	}
	return nodes
}

// adapt passes a spec through the middleware. A refusal becomes the spec's mistake.
func (e *Engine) adapt(ctx context.Context, spec *ExecutionSpec, spare *core.SpareTags) {
	if spec.mistake != nil {
		return
	}
	x, flow := spec.ID, spec.Flow
	if flow != nil {
		spec.Flow = new(*flow)
	}
	spec.Tags = spare.Copy(spec.Tags)
	for _, middleware := range e.cfg.Middleware {
		if err := middleware(ctx, spec); err != nil {
			spec.mistake = core.InvalidBecause("Config.Middleware", err)
			break
		}
	}
	if spec.mistake == nil && (spec.ID != x || (spec.Flow == nil) != (flow == nil) || flow != nil && *spec.Flow != *flow) {
		spec.mistake = core.Invalid("Config.Middleware", "changed the id or the flow of an execution")
	}
	spec.Flow = flow // the same pointer, so specs stay alike
	spec.Tags = core.TagsOrNil(spec.Tags)
}
