package ffotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/observe"
)

// engineObserver reports an engine's events, and creations.
type engineObserver struct {
	*instruments
	tracer trace.Tracer
	parent bool
	next   observe.Observer // nil: none
}

// TraceContext implements [observe.Observer]. The context of a span that is not sampled leads nowhere.
func (o *engineObserver) TraceContext(ctx context.Context) string {
	if text := traceparentOf(ctx, false); text != "" || o.next == nil {
		return text
	}
	return o.next.TraceContext(ctx)
}

// BeginCreation implements [observe.Observer].
func (o *engineObserver) BeginCreation(ctx context.Context) context.Context {
	if o.next != nil {
		ctx = o.next.BeginCreation(ctx)
	}
	return context.WithValue(ctx, creationKey{}, new(creation))
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
