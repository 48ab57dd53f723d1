package ffotel

import (
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Options configures [Instrument] and [RunGauges]. The zero value of every field is its default.
type Options struct {
	// TracerProvider and MeterProvider are where spans and metrics go. Default: the global ones.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	// Parent makes the span of a handler a child of its creator's span, in the same trace. Default: each run begins a trace
	// of its own, linked to the creator, since a run may begin days after the creation.
	Parent bool

	// GaugesEvery is the time between two readings of [RunGauges]. Default 60 s.
	GaugesEvery time.Duration
}

func (o *Options) tracer() trace.Tracer {
	provider := o.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return provider.Tracer(scope)
}

func (o *Options) meter() metric.Meter {
	provider := o.MeterProvider
	if provider == nil {
		provider = otel.GetMeterProvider()
	}
	return provider.Meter(scope)
}
