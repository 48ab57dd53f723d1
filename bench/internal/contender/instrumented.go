package contender

import (
	"context"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	untraced "go.opentelemetry.io/otel/trace/noop"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/ffotel"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Instrumented returns the worker with telemetry, on the same database. The given share of the traces has spans, which a
// batching processor drops; with 0 there is no tracer. The metrics are not read.
func (w *Worker) Instrumented(note string, traces float64) (*Worker, error) {
	opts := ffotel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))}
	if opts.TracerProvider = untraced.NewTracerProvider(); traces > 0 {
		sampler := trace.ParentBased(trace.TraceIDRatioBased(traces))
		opts.TracerProvider = trace.NewTracerProvider(trace.WithSampler(sampler), trace.WithBatcher(nowhere{}))
	}
	cfg := engine.Config{Log: w.log}
	if err := ffotel.Instrument(&cfg, nil, opts); err != nil {
		return nil, err
	}
	eng, err := engine.New(w.pool, cfg)
	if err != nil {
		return nil, err
	}
	return &Worker{ours: &ours{store: w.store, eng: eng, log: w.log}, as: note, kind: w.kind, instrument: func(cfg *worker.Config) error {
		return ffotel.Instrument(nil, cfg, opts)
	}}, nil
}

// nowhere exports no spans.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }

func (nowhere) Shutdown(context.Context) error { return nil }
