package engine

import (
	"context"
	"slices"
	"time"
)

// delayAll turns the delays of [After] into instants. Without any the specs are returned as they are.
func (e *Engine) delayAll(ctx context.Context, specs []ExecutionSpec) ([]ExecutionSpec, error) {
	if !slices.ContainsFunc(specs, func(s ExecutionSpec) bool { return s.after > 0 }) {
		return specs, nil
	}
	now, err := e.Now(ctx)
	if err != nil {
		return nil, err
	}
	specs = slices.Clone(specs)
	for i := range specs {
		specs[i].delayFrom(now)
	}
	return specs, nil
}

// delayNodes is delayAll for the nodes of a flow.
func (e *Engine) delayNodes(ctx context.Context, nodes []Node) ([]Node, error) {
	if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Spec.after > 0 }) {
		return nodes, nil
	}
	now, err := e.Now(ctx)
	if err != nil {
		return nil, err
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		nodes[i].Spec.delayFrom(now)
	}
	return nodes, nil
}

// delayFrom sets the instant of a delay, unless one was set since [After].
func (s *ExecutionSpec) delayFrom(now time.Time) {
	if s.after > 0 && s.DelayUntil.IsZero() {
		s.DelayUntil = now.Add(s.after)
	}
	s.after = 0
}
