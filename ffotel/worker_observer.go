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
	*instruments
	tracer trace.Tracer
	parent bool
	next   worker.Observer // nil: none
	spans  runSpans
}

func (o *workerObserver) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	var reportNext func(worker.Report)
	if o.next != nil {
		ctx, reportNext = o.next.BeginRun(ctx, work)
	}
	started := time.Now()
	lane := string(work.Lease.Lane)
	if !work.ReadyAt.IsZero() {
		o.wait.record(ctx, started.Sub(work.ReadyAt), lane, work.Kind)
	}
	ctx, span := o.startRun(ctx, work)
	ctx = context.WithValue(ctx, currentKey{}, current{work, span})
	return ctx, func(report worker.Report) {
		if reportNext != nil {
			defer reportNext(report)
		}
		settlement := string(report.Settlement)
		o.run.record(ctx, report.Ran, lane, work.Kind, settlement)
		o.settled.add(ctx, 1, lane, work.Kind, settlement, string(report.Class))
		endRun(span, &report)
	}
}

// startRun starts the span of a handler's run. A span that is not sampled costs little.
func (o *workerObserver) startRun(ctx context.Context, work *engine.Claimed) (context.Context, trace.Span) {
	creator := work.Tags[TraceparentTag]
	parent := trace.SpanContext{}
	if o.parent {
		parent = spanContextOf(creator)
	}
	of := o.spans.of(work.Lease.Lane, work.Kind)
	options := of.root
	if parent.IsValid() {
		ctx, options = trace.ContextWithRemoteSpanContext(ctx, parent), of.child
	}
	ctx, span := o.tracer.Start(ctx, of.name, options...)
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
	if link, ok := linkTo(creator, linkCreator); ok && !o.parent {
		span.AddLink(link)
	}
	if link, ok := linkTo(work.PreviousTrace, linkPrevious); ok {
		span.AddLink(link)
	}
	return ctx, span
}

// endRun ends the span of a run with its outcome.
func endRun(span trace.Span, report *worker.Report) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String(attrSettlement, string(report.Settlement)))
	if report.Class != "" {
		span.SetAttributes(attribute.String(attrClass, string(report.Class)))
	}
	if report.Category != "" {
		span.SetAttributes(attribute.String(attrCategory, report.Category))
	}
	if !report.RetryAt.IsZero() {
		span.SetAttributes(attribute.String(attrRetryAt, report.RetryAt.UTC().Format(time.RFC3339Nano)))
	}
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
