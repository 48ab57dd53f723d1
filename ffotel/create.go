package ffotel

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
)

// create makes the span of a creation, and leaves its context with the execution.
func create(ctx context.Context, tracer trace.Tracer, spec *engine.ExecutionSpec) {
	attrs := append(make([]attribute.KeyValue, 0, 8),
		attribute.String(attrSystem, system),
		attribute.String(attrOperation, spanCreate),
		attribute.String(attrOperationType, "create"),
		attribute.String(attrDestination, string(cmp.Or(spec.Lane, engine.DefaultLane))),
		attribute.String(attrKind, spec.Kind),
	)
	if !spec.ID.IsZero() {
		attrs = append(attrs, attribute.String(attrMessage, spec.ID.String()))
	}
	if spec.Flow != nil {
		attrs = append(attrs, attribute.String(attrConversation, spec.Flow.String()))
	}
	ctx, span := tracer.Start(ctx, spanCreate+" "+spec.Kind, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	span.End()
	if text := traceparentOf(ctx); text != "" {
		spec.Tags[TraceparentTag] = text
	} else {
		delete(spec.Tags, TraceparentTag) // of another execution, as a copy has it
	}
}
