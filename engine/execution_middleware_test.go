package engine

import (
	"context"
	"testing"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
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

// A middleware that tags nothing costs a copy of the specs, and one map for all.
func TestMiddlewareWithoutTagsSharesAMap(t *testing.T) {
	e := &Engine{c: new(core.Core)}
	e.cfg.Middleware = []Middleware{func(_ context.Context, spec *ExecutionSpec) error {
		if spec.Tags == nil || len(spec.Tags) > 0 {
			t.Error("the tags are nil or another execution's")
		}
		return nil
	}}
	specs := make([]ExecutionSpec, 100)
	if n := testing.AllocsPerRun(10, func() { e.adaptAll(t.Context(), specs) }); n > 2 {
		t.Errorf("%v allocations, want 2", n)
	}
}

// A map that a middleware has used is not the next execution's.
func TestMiddlewareTagsEachExecution(t *testing.T) {
	e := &Engine{c: new(core.Core)}
	e.cfg.Middleware = []Middleware{func(_ context.Context, spec *ExecutionSpec) error {
		if spec.Kind == "tagged" {
			spec.Tags["a"] = "b"
		}
		return nil
	}}
	for i, spec := range e.adaptAll(t.Context(), []ExecutionSpec{{}, {Kind: "tagged"}, {}, {Kind: "tagged"}, {Tags: map[string]string{}}}) {
		if tagged := spec.Kind == "tagged"; tagged != (spec.Tags["a"] == "b") {
			t.Errorf("spec %d has the tags %v", i, spec.Tags)
		}
	}
}
