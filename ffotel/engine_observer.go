package ffotel

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/observe"
)

// engineObserver reports an engine's events.
type engineObserver struct {
	*instruments
	tracer trace.Tracer
	next   observe.Observer // nil: none
}

// create makes the span of a creation, and leaves its context with the execution.
func (o *engineObserver) create(ctx context.Context, spec *engine.ExecutionSpec) error {
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
	ctx, span := o.tracer.Start(ctx, spanCreate+" "+spec.Kind, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attrs...))
	span.End()
	if text := traceparentOf(ctx); text != "" {
		spec.Tags[TraceparentTag] = text
	} else {
		delete(spec.Tags, TraceparentTag) // of another execution, as a copy has it
	}
	return nil
}

func (o *engineObserver) TraceContext(ctx context.Context) string {
	if text := traceparentOf(ctx); text != "" || o.next == nil {
		return text
	}
	return o.next.TraceContext(ctx)
}

func (o *engineObserver) Observe(ctx context.Context, event observe.Event) {
	if o.next != nil {
		o.next.Observe(ctx, event)
	}
	switch e := event.(type) {
	case observe.Created:
		o.created.add(ctx, e.Count, string(e.Lane), e.Kind)
	case observe.Signalled:
		outcome := "accepted"
		if e.Duplicate {
			outcome = "duplicate"
		}
		o.signals.add(ctx, 1, outcome)
	case observe.Claimed:
		o.claim.record(ctx, e.Took, string(e.Lane), errorType(e.Err))
	case observe.Renewed:
		o.leasesLost.add(ctx, e.Lost)
	case observe.JobRan:
		if e.Err != nil {
			o.jobsFailed.add(ctx, 1, e.Job)
		}
	}
}

// errorType returns the value of error.type for the failure of an operation, "" without one.
func errorType(err error) string {
	if err == nil {
		return ""
	}
	return errorTypeOther
}
