package ffotel

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// maxDescription is the largest description of a failed span, in bytes.
const maxDescription = 1024

// workerObserver reports the runs of a worker's handlers.
type workerObserver struct {
	kinds
	tracer trace.Tracer
	parent bool
	next   worker.Observer // nil: none
}

func (o *workerObserver) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	r := &run{work: work, kind: o.of(work.Lease.Lane, work.Kind)}
	if o.next != nil {
		ctx, r.reportNext = o.next.BeginRun(ctx, work)
	}
	if !work.ReadyAt.IsZero() {
		o.wait.Record(ctx, seconds(time.Since(work.ReadyAt)), r.kind.wait...)
	}
	r.Context, r.span = o.startRun(ctx, work, r.kind)
	return r, r.end
}

// startRun starts the span of a handler's run. A span that is not sampled costs little.
func (o *workerObserver) startRun(ctx context.Context, work *engine.Claimed, of *kind) (context.Context, trace.Span) {
	creator := work.Tags[TraceparentTag]
	options := of.root
	if o.parent {
		if parent := spanContextOf(creator); parent.IsValid() {
			ctx, options = trace.ContextWithRemoteSpanContext(ctx, parent), of.child
		}
	} else if !trace.SpanContextFromContext(ctx).IsValid() {
		options = of.child // there is no span above: the same without copies of the context
	}
	ctx, span := o.tracer.Start(ctx, of.span, options...)
	if !span.IsRecording() {
		return ctx, span
	}
	attrs := append(make([]attribute.KeyValue, 0, 5),
		attribute.String(attrMessage, work.ID.String()),
		attribute.String(attrClient, string(work.Lease.Instance)),
		attribute.Int(attrAttempt, work.Lease.Attempt),
	)
	if work.Flow != nil {
		attrs = append(attrs, attribute.String(attrConversation, work.Flow.String()))
	}
	if work.Resumed {
		attrs = append(attrs, attribute.Bool(attrResumed, true))
	}
	span.SetAttributes(attrs...)
	if !o.parent {
		if link, ok := linkTo(creator, linkCreator); ok {
			span.AddLink(link)
		}
	}
	if link, ok := linkTo(work.PreviousTrace, linkPrevious); ok {
		span.AddLink(link)
	}
	return ctx, span
}

// end reports the end of a run.
func (r *run) end(report worker.Report) {
	if r.reportNext != nil {
		defer r.reportNext(report)
	}
	labels := r.kind.labels(outcome{report.Settlement, string(report.Class)})
	r.kind.run.Record(r.Context, seconds(report.Ran), labels.run...)
	r.kind.settled.Add(r.Context, 1, labels.settled...)
	endRun(r.span, &report)
}

// endRun ends the span of a run with its outcome.
func endRun(span trace.Span, report *worker.Report) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	attrs := append(make([]attribute.KeyValue, 0, 4), attribute.String(attrSettlement, string(report.Settlement)))
	if report.Class != "" {
		attrs = append(attrs, attribute.String(attrClass, string(report.Class)))
	}
	if report.Category != "" {
		attrs = append(attrs, attribute.String(attrCategory, report.Category))
	}
	if !report.RetryAt.IsZero() {
		attrs = append(attrs, attribute.String(attrRetryAt, report.RetryAt.UTC().Format(time.RFC3339Nano)))
	}
	span.SetAttributes(attrs...)
	switch report.Settlement {
	case worker.Retrying, worker.Failed, worker.Abandoned:
		if !errors.Is(report.Err, worker.ErrCancelled) {
			fail(span, report.Err, cmp.Or(report.Category, string(report.Class)))
		}
	}
}

// fail marks a span as failed.
func fail(span trace.Span, err error, errorType string) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if len(text) > maxDescription {
		text = text[:maxDescription]
	}
	span.SetStatus(codes.Error, toValid(text))
	span.SetAttributes(attribute.String(attrErrorType, cmp.Or(errorType, errorTypeOther)))
}
