package ffotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const traceparent = "traceparent"

// traceparentOf returns the trace context in ctx as a W3C traceparent, or "", also if its span is not sampled, unless
// unsampled.
func traceparentOf(ctx context.Context, unsampled bool) string {
	if of := trace.SpanContextFromContext(ctx); !of.IsValid() || !unsampled && !of.IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// spanContextOf returns the trace context of a W3C traceparent. An invalid one results in an invalid context.
func spanContextOf(text string) trace.SpanContext {
	if text == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: text})
	return trace.SpanContextFromContext(ctx)
}

// linkTo returns a link to the span of a traceparent, and whether there is one.
func linkTo(text, what string) (trace.Link, bool) {
	to := spanContextOf(text)
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attribute.String(attrLink, what)}}, to.IsValid()
}
