package ffotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// run is a handler's run. It is the handler's context, too, which saves an allocation.
type run struct {
	context.Context // with the span
	span            trace.Span
	work            *engine.Claimed
	kind            *kind
	reportNext      func(worker.Report) // of the next observer; may be nil
}

type runKey struct{}

// Value returns the run itself for its key.
func (r *run) Value(key any) any {
	if _, ok := key.(runKey); ok {
		return r
	}
	return r.Context.Value(key)
}

// currentOf returns the run that a handler's context belongs to, or nil.
func currentOf(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}
