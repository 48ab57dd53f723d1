//go:build !race

package telemetry

// The race detector makes the compiler keep other objects on the heap.

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	metricapi "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/ffotel"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// providers are tracer providers, and the allocations of hooks with each.
var providers = []struct {
	name    string
	traces  trace.TracerProvider
	run     float64 // allocations of a run's hooks beside the SDK's
	created float64 // of a batch's hooks, however large the batch is
}{
	{"no tracer", noop.NewTracerProvider(), 2, 7},
	{"not sampled", sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())), 2, 7},
	{"sampled", sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample())), 12, 9},
}

// instrumented returns configurations with telemetry that is not exported.
func instrumented(t testing.TB, traces trace.TracerProvider) (engine.Config, worker.Config) {
	t.Helper()
	var engineConfig engine.Config
	var workerConfig worker.Config
	opts := ffotel.Options{TracerProvider: traces, MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))}
	if err := ffotel.Instrument(&engineConfig, &workerConfig, opts); err != nil {
		t.Fatal(err)
	}
	return engineConfig, workerConfig
}

// claimed is an execution whose creator has a span.
func claimed() *engine.Claimed {
	work := &engine.Claimed{
		ID: id.ExecutionIDFromRow(7, id.NewExecutionUUID()), Kind: "resize", ReadyAt: time.Now(),
		Tags: map[string]string{ffotel.TraceparentTag: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
	work.Lease.Lane, work.Lease.Instance = "images", "host/1"
	return work
}

var completed = worker.Report{Settlement: worker.Completed, Ran: time.Millisecond}

// spanned starts and ends a span by the SDK alone, with as many attributes as a run has at its start.
func spanned(ctx context.Context, tracer trace.Tracer, options []trace.SpanStartOption) {
	_, span := tracer.Start(ctx, "process resize", options...)
	span.End()
}

var spanOptions = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
	attribute.Int("a", 1), attribute.Int("b", 2), attribute.Int("c", 3), attribute.Int("d", 4), attribute.Int("e", 5),
)}

// The hooks of a run allocate little beside what the SDK allocates for a span.
func TestRunsAllocateLittle(t *testing.T) {
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			engineConfig, workerConfig := instrumented(t, p.traces)
			work, tracer := claimed(), p.traces.Tracer("")
			hooks := testing.AllocsPerRun(1000, func() {
				ctx, report := workerConfig.Observer.BeginRun(t.Context(), work)
				engineConfig.Observer.TraceContext(ctx)
				report(completed)
			})
			own := testing.AllocsPerRun(1000, func() { spanned(t.Context(), tracer, spanOptions) })
			if hooks-own != p.run {
				t.Errorf("a run allocates %v times, the SDK's span %v times, want %v more", hooks, own, p.run)
			}
		})
	}
}

// The hooks of a creation allocate as often, however many executions are created.
func TestCreationsAllocateLittle(t *testing.T) {
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			cfg, _ := instrumented(t, p.traces)
			tracer := p.traces.Tracer("")
			spec := &engine.ExecutionSpec{Kind: "resize", Tags: map[string]string{ffotel.TraceparentTag: ""}}
			hooks := testing.AllocsPerRun(100, func() {
				ctx := cfg.Observer.BeginCreation(t.Context())
				for range 1000 {
					if err := cfg.Middleware[0](ctx, spec); err != nil {
						t.Error(err)
					}
				}
			})
			own := testing.AllocsPerRun(100, func() { spanned(t.Context(), tracer, spanOptions) })
			if hooks-own != p.created {
				t.Errorf("a batch allocates %v times, the SDK's span %v times, want %v more", hooks, own, p.created)
			}
		})
	}
}

// BenchmarkSDK measures what each call of the SDK costs that an instrumented run makes.
func BenchmarkSDK(b *testing.B) {
	meter := metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())).Meter("")
	histogram, err := meter.Float64Histogram("h", metricapi.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400))
	if err != nil {
		b.Fatal(err)
	}
	counter, err := meter.Int64Counter("c")
	if err != nil {
		b.Fatal(err)
	}
	labels := metricapi.WithAttributeSet(attribute.NewSet(attribute.String("lane", "images"), attribute.String("kind", "resize"), attribute.String("settlement", "completed")))
	record, add := []metricapi.RecordOption{labels}, []metricapi.AddOption{labels}
	b.Run("record", func(b *testing.B) {
		for b.Loop() {
			histogram.Record(b.Context(), 0.003, record...)
		}
	})
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			counter.Add(b.Context(), 1, add...)
		}
	})
	for _, p := range providers {
		tracer := p.traces.Tracer("")
		b.Run("span/"+p.name, func(b *testing.B) {
			for b.Loop() {
				spanned(b.Context(), tracer, spanOptions)
			}
		})
	}
	exported := sdk.NewTracerProvider(sdk.WithBatcher(nowhere{}))
	b.Run("span/exported", func(b *testing.B) {
		tracer := exported.Tracer("")
		for b.Loop() {
			spanned(b.Context(), tracer, spanOptions)
		}
	})
}

// BenchmarkRun measures the hooks of a run.
func BenchmarkRun(b *testing.B) {
	for _, p := range providers {
		engineConfig, workerConfig := instrumented(b, p.traces)
		work := claimed()
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx, report := workerConfig.Observer.BeginRun(b.Context(), work)
				engineConfig.Observer.TraceContext(ctx)
				report(completed)
			}
		})
	}
}

type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }

func (nowhere) Shutdown(context.Context) error { return nil }
