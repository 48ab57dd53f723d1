package ffotel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const traceparent = "traceparent"

// carrier carries a W3C traceparent and nothing else.
type carrier struct{ text string }

func (c *carrier) Get(key string) string {
	if key == traceparent {
		return c.text
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	if key == traceparent {
		c.text = value
	}
}

func (*carrier) Keys() []string { return []string{traceparent} }

// traceparentOf returns the trace context in ctx as a W3C traceparent, or "", also if its span is not sampled, unless
// unsampled.
func traceparentOf(ctx context.Context, unsampled bool) string {
	if of := trace.SpanContextFromContext(ctx); !of.IsValid() || !unsampled && !of.IsSampled() {
		return ""
	}
	var to carrier
	propagation.TraceContext{}.Inject(ctx, &to)
	return to.text
}

// spanContextOf returns the trace context of a W3C traceparent. An invalid one results in an invalid context.
func spanContextOf(text string) trace.SpanContext {
	if text == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), &carrier{text})
	return trace.SpanContextFromContext(ctx)
}

// linkAttributes has the attributes of each link. Spans keep them, and don't modify them.
var linkAttributes = map[string][]attribute.KeyValue{
	linkCreator:  {attribute.String(attrLink, linkCreator)},
	linkPrevious: {attribute.String(attrLink, linkPrevious)},
	linkSender:   {attribute.String(attrLink, linkSender)},
	linkUpstream: {attribute.String(attrLink, linkUpstream)},
}

// linkTo returns a link to the span of a traceparent, and whether there is one.
func linkTo(text, what string) (trace.Link, bool) {
	to := spanContextOf(text)
	return trace.Link{SpanContext: to, Attributes: linkAttributes[what]}, to.IsValid()
}
