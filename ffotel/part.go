package ffotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/flowfabric/flowfabric-go/worker"
)

// BeginPart makes a span of each part of a run but sleeps, whose span would end at once.
func (o *workerObserver) BeginPart(ctx context.Context, part worker.Part) (context.Context, func(worker.PartReport)) {
	var reportNext func(worker.PartReport)
	if o.next != nil {
		ctx, reportNext = o.next.BeginPart(ctx, part)
	}
	run := currentOf(ctx)
	if run == nil || part.Form == worker.PartSleep {
		return ctx, reportNext
	}
	started := time.Now()
	ctx, span := o.tracer.Start(ctx, string(part.Form)+" "+part.Name, run.kind.part...)
	return ctx, func(report worker.PartReport) {
		if reportNext != nil {
			defer reportNext(report)
		}
		switch part.Form {
		case worker.PartStep, worker.PartTurn:
			o.step.record(ctx, time.Since(started), string(run.work.Lease.Lane), run.work.Kind, string(part.Form))
		}
		defer span.End()
		for i := range report.Signals {
			if sender, ok := linkTo(report.Signals[i].Trace, linkSender); ok {
				span.AddLink(sender)
			}
		}
		if report.Continues && span.IsRecording() {
			span.SetAttributes(attribute.Bool(attrContinues, true))
		}
		if report.Err != nil {
			fail(span, report.Err, "")
		}
	}
}
