package ffotel

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// creation is an operation that creates executions: the traceparent of each span it has begun, or "".
type creation struct {
	begun  bool
	of     created // the latest
	text   string
	before map[created]string
}

// created are the executions of an operation that share a span.
type created struct {
	kind string
	lane id.LaneID
	flow id.FlowID // zero outside a flow
}

type creationKey struct{}

// create is a middleware. It makes the spans of a creation, and leaves their contexts with the executions.
func (o *engineObserver) create(ctx context.Context, spec *engine.ExecutionSpec) error {
	of := created{kind: spec.Kind, lane: cmp.Or(spec.Lane, engine.DefaultLane)}
	if spec.Flow != nil {
		of.flow = *spec.Flow
	}
	text := o.traceparentFor(ctx, of)
	if text != "" {
		spec.Tags[TraceparentTag] = text
	} else {
		delete(spec.Tags, TraceparentTag) // of another execution, as a copy has it
	}
	return nil
}

// traceparentFor returns the traceparent of the span that the executions share, or "".
func (o *engineObserver) traceparentFor(ctx context.Context, of created) string {
	c, _ := ctx.Value(creationKey{}).(*creation)
	if c == nil {
		return o.beginCreation(ctx, of)
	}
	if c.begun && c.of == of {
		return c.text
	}
	text, known := c.before[of]
	if !known {
		text = o.beginCreation(ctx, of)
	}
	if c.begun && c.before == nil {
		c.before = make(map[created]string)
	}
	if c.begun {
		c.before[c.of] = c.text
	}
	c.begun, c.of, c.text = true, of, text
	return text
}

// beginCreation makes a span, and returns its context.
func (o *engineObserver) beginCreation(ctx context.Context, of created) string {
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
