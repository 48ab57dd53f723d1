package ffotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
)

// current is the run that a handler's context belongs to.
type current struct {
	work *engine.Claimed
	span trace.Span
}

type currentKey struct{}

func currentOf(ctx context.Context) (current, bool) {
	c, ok := ctx.Value(currentKey{}).(current)
	return c, ok
}
