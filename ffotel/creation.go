package ffotel

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// creation is an operation that creates executions. It has a span for each kind.
type creation struct {
	kind        string
	lane        id.LaneID
	flow        id.FlowID
	begun       bool
	traceparent string // of the last kind's span
}

type creationKey struct{}

// create is a middleware. It makes the spans of a creation, and leaves their contexts with the executions.
func (o *engineObserver) create(ctx context.Context, spec *engine.ExecutionSpec) error {
	c, ok := ctx.Value(creationKey{}).(*creation)
	if !ok {
		c = new(creation)
	}
	of := creation{kind: spec.Kind, lane: cmp.Or(spec.Lane, engine.DefaultLane), begun: true, traceparent: c.traceparent}
	if spec.Flow != nil {
		of.flow = *spec.Flow
	}
	if of != *c {
		of.traceparent = o.beginCreation(ctx, &of)
		*c = of
	}
	if c.traceparent != "" {
		spec.Tags[TraceparentTag] = c.traceparent
	} else {
		delete(spec.Tags, TraceparentTag) // of another execution, as a copy has it
	}
	return nil
}

// beginCreation makes the span of a kind, and returns its context.
func (o *engineObserver) beginCreation(ctx context.Context, of *creation) string {
	attrs := append(make([]attribute.KeyValue, 0, 6),
		attribute.String(attrSystem, system),
		attribute.String(attrOperation, spanCreate),
		attribute.String(attrOperationType, "create"),
		attribute.String(attrDestination, string(of.lane)),
		attribute.String(attrKind, of.kind),
	)
	if !of.flow.IsZero() {
		attrs = append(attrs, attribute.String(attrConversation, of.flow.String()))
	}
	ctx, span := o.tracer.Start(ctx, spanCreate+" "+of.kind, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	span.End()
	return traceparentOf(ctx, o.parent)
}
