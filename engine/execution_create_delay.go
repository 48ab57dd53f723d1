package engine

import (
	"context"
	"slices"
)

// delayAll turns the delays of [After] into instants, unless an instant was set since. Without delays the specs are
// returned unchanged.
func (e *Engine) delayAll(ctx context.Context, specs []ExecutionSpec) ([]ExecutionSpec, error) {
	return delayed(ctx, e, specs, func(s *ExecutionSpec) *ExecutionSpec { return s })
}

// delayNodes is delayAll for the nodes of a flow.
func (e *Engine) delayNodes(ctx context.Context, nodes []Node) ([]Node, error) {
	return delayed(ctx, e, nodes, func(n *Node) *ExecutionSpec { return &n.Spec })
}

func delayed[T any](ctx context.Context, e *Engine, items []T, spec func(*T) *ExecutionSpec) ([]T, error) {
	delays := false
	for i := range items {
		delays = delays || spec(&items[i]).after > 0
	}
	if !delays {
		return items, nil
	}
	now, err := e.Now(ctx)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	for i := range items {
		s := spec(&items[i])
		if s.after > 0 && s.DelayUntil.IsZero() {
			s.DelayUntil = now.Add(s.after)
		}
		s.after = 0
	}
	return items, nil
}
