package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/ffotel"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/observe"
	"github.com/flowfabric/flowfabric-go/worker"
)

type (
	order struct{ Card, Item string }
	mail  struct{ To string }
)

var (
	fulfil   = engine.Kind[order, string]{Name: "fulfil", Lane: "orders"}
	notify   = engine.Kind[mail, struct{}]{Name: "notify"}
	approved = engine.Signal[string]{Name: "approved"}
)

// shop is a kit with an order service, and its telemetry.
type shop struct {
	*fftest.Kit
	*exporter
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
}

func newShop(t *testing.T, opts ffotel.Options) *shop {
	t.Helper()
	t.Parallel()
	s := &shop{exporter: newExporter(t), spans: tracetest.NewInMemoryExporter()}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(s.spans))
	s.tracer = provider.Tracer("shop")
	opts.TracerProvider, opts.MeterProvider = provider, s.exporter
	instrument := func(engineConfig *engine.Config, workerConfig *worker.Config) {
		if err := ffotel.Instrument(engineConfig, workerConfig, opts); err != nil {
			t.Error(err)
		}
	}
	s.Kit = fftest.New(t, fftest.SQL("CREATE TABLE stock (item text)"),
		fftest.EngineConfig(func(cfg *engine.Config) { instrument(cfg, nil) }),
		fftest.WorkerConfig(func(cfg *worker.Config) { instrument(nil, cfg) }))
	worker.Handle(s.Worker, notify, func(context.Context, worker.Job[mail]) (struct{}, error) { return struct{}{}, nil })
	worker.Handle(s.Worker, fulfil, handleOrder)
	return s
}

// handleOrder fails in its first attempt, then waits for the approval and sends a mail.
func handleOrder(ctx context.Context, job worker.Job[order]) (string, error) {
	charge, err := worker.Step(ctx, job, "charge", func(context.Context) (string, error) { return "charge of " + job.Args.Card, nil })
	if err != nil {
		return "", err
	}
	_, err = worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
		_, err := tx.Exec(ctx, "INSERT INTO stock VALUES ($1)", job.Args.Item)
		return struct{}{}, err
	})
	if err != nil {
		return "", err
	}
	if job.Lease.Attempt == 0 {
		return "", errors.New("the process had a bad day")
	}
	by, err := approved.Await(ctx, job, engine.Wait{})
	if err != nil {
		return "", err
	}
	_, err = worker.Call(ctx, job, "mail", notify, mail{job.Args.Card})
	return charge + ", approved by " + by, err
}

// run lets an order be created, fail once, be approved and mailed.
func (s *shop) run(t *testing.T) {
	t.Helper()
	ctx, request := s.tracer.Start(t.Context(), "POST /orders")
	created, err := fulfil.Create(ctx, s.Engine, order{"secret card", "lamp"})
	request.End()
	if err != nil {
		t.Fatal(err)
	}
	s.Drain()
	s.Advance(time.Hour) // the retry
	s.Drain()
	ctx, request = s.tracer.Start(t.Context(), "POST /approvals")
	if err = approved.Send(ctx, s.Engine, created.ID, "grace"); err != nil {
		t.Fatal(err)
	}
	request.End()
	s.Drain()
	fftest.RequireResult(t, s.Kit, fulfil, created.ID, "charge of secret card, approved by grace")
}

// drawn returns the spans as a tree for each trace. Ids are numbered, and times left out.
func drawn(spans tracetest.SpanStubs) string {
	names := make(map[trace.SpanID]string)
	for i, span := range spans {
		names[span.SpanContext.SpanID()] = fmt.Sprintf("%d", i+1)
	}
	ids := make(map[string]string)
	number := func(key, value string) string {
		if !slices.Contains([]string{"messaging.message.id", "messaging.client.id", "messaging.message.conversation_id"}, key) {
			return value
		}
		if ids[value] == "" {
			ids[value] = fmt.Sprintf("%s-%d", key[strings.LastIndex(key, ".")+1:], len(ids)+1)
		}
		return ids[value]
	}
	var text strings.Builder
	var draw func(parent trace.SpanID, in trace.TraceID, depth int)
	draw = func(parent trace.SpanID, in trace.TraceID, depth int) {
		for _, span := range byStart(spans) {
			if span.Parent.SpanID() != parent || span.SpanContext.TraceID() != in {
				continue
			}
			indent := strings.Repeat("  ", depth)
			fmt.Fprintf(&text, "%s%s [%s] %s\n", indent, span.Name, names[span.SpanContext.SpanID()], span.SpanKind)
			for _, attr := range span.Attributes {
				value := attr.Value.String()
				if attr.Key == "flowfabric.retry_at" {
					value = "…"
				}
				fmt.Fprintf(&text, "%s    %s: %s\n", indent, attr.Key, number(string(attr.Key), value))
			}
			for _, link := range span.Links {
				fmt.Fprintf(&text, "%s    link to [%s]: %s\n", indent, names[link.SpanContext.SpanID()], link.Attributes[0].Value.String())
			}
			if span.Status.Description != "" {
				fmt.Fprintf(&text, "%s    %s: %s\n", indent, span.Status.Code, span.Status.Description)
			}
			draw(span.SpanContext.SpanID(), in, depth+1)
		}
	}
	drawn := make(map[trace.TraceID]bool)
	for _, span := range byStart(spans) {
		if in := span.SpanContext.TraceID(); !drawn[in] {
			drawn[in] = true
			fmt.Fprintf(&text, "trace %d\n", len(drawn))
			draw(trace.SpanID{}, in, 1)
		}
	}
	return text.String()
}

// byStart returns the spans in the order of their start.
func byStart(spans tracetest.SpanStubs) tracetest.SpanStubs {
	return slices.SortedStableFunc(slices.Values(spans), func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
}

// TestTraceOfAnOrder compares the spans of an order with a file. Set FF_GOLDEN=1 to write it.
func TestTraceOfAnOrder(t *testing.T) {
	for name, opts := range map[string]ffotel.Options{"links": {}, "parent": {Parent: true}} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, opts)
			s.run(t)
			got, file := drawn(byStart(s.spans.GetSpans())), "testdata/order_"+name+".txt"
			if os.Getenv("FF_GOLDEN") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("%v\n%s", err, got)
			}
			if strings.Contains(got, "secret") {
				t.Error("a span has a payload")
			}
		})
	}
}

// A handler links its run to the runs of its upstreams.
func TestLinkUpstreams(t *testing.T) {
	s := newShop(t, ffotel.Options{})
	gather := engine.Kind[struct{}, struct{}]{Name: "gather"}
	worker.Handle(s.Worker, gather, func(ctx context.Context, job worker.Job[struct{}]) (struct{}, error) {
		upstreams, err := job.Upstreams(ctx)
		ffotel.LinkUpstreams(ctx, upstreams)
		return struct{}{}, err
	})
	_, err := s.Engine.CreateFlow(t.Context(), engine.FlowSpec{
		Nodes: []engine.Node{{Key: "a", Spec: notify.Spec(mail{})}, {Key: "b", Spec: notify.Spec(mail{})}, {Key: "all", Spec: gather.Spec(struct{}{})}},
		Edges: []engine.Edge{{From: "a", To: "all"}, {From: "b", To: "all"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Drain()
	runs := make(map[trace.SpanID]bool)
	linked := 0
	for _, span := range s.spans.GetSpans() {
		switch span.Name {
		case "process notify":
			runs[span.SpanContext.SpanID()] = true
		case "process gather":
			for _, link := range span.Links {
				if runs[link.SpanContext.SpanID()] && link.Attributes[0].Value.AsString() == "upstream" {
					linked++
				}
			}
		}
	}
	if len(runs) != 2 || linked != 2 {
		t.Errorf("%d links to %d upstreams", linked, len(runs))
	}
}

func TestMetricsOfAnOrder(t *testing.T) {
	s := newShop(t, ffotel.Options{})
	s.run(t)
	got := s.scrape(t)
	want(t, got, 1, "flowfabric_executions_created_total", "lane=orders", "kind=fulfil")
	want(t, got, 1, "flowfabric_executions_created_total", "lane=default", "kind=notify")
	want(t, got, 1, "flowfabric_executions_settled_total", "lane=orders", "kind=fulfil", "settlement=retrying", "class=transient")
	want(t, got, 2, "flowfabric_executions_settled_total", "lane=orders", "kind=fulfil", "settlement=suspended")
	want(t, got, 1, "flowfabric_executions_settled_total", "lane=orders", "kind=fulfil", "settlement=completed")
	want(t, got, 1, "flowfabric_executions_settled_total", "lane=default", "kind=notify", "settlement=completed")
	want(t, got, 1, "flowfabric_run_duration_seconds", "lane=default", "kind=notify", "settlement=completed")
	want(t, got, 4, "flowfabric_wait_duration_seconds", "lane=orders", "kind=fulfil")
	want(t, got, 2, "flowfabric_step_duration_seconds", "lane=orders", "kind=fulfil", "form=step")
	want(t, got, 1, "flowfabric_signals_total", "outcome=accepted")
	if n, ok := value(got, "flowfabric_claim_duration_seconds", "lane=orders"); !ok || n < 4 {
		t.Errorf("%v claims", n)
	}
}

// The events of an engine that an order does not make.
func TestMetricsOfEvents(t *testing.T) {
	t.Parallel()
	exporter, cfg, own := newExporter(t), engine.Config{Observer: new(watcher)}, 0
	cfg.Middleware = []engine.Middleware{func(context.Context, *engine.ExecutionSpec) error { own++; return nil }}
	before := cfg
	if err := ffotel.Instrument(&cfg, nil, ffotel.Options{MeterProvider: exporter}); err != nil {
		t.Fatal(err)
	}
	no := errors.New("no")
	for _, event := range []observe.Event{
		observe.Signalled{Duplicate: true}, observe.Claimed{Lane: "a", Err: no}, observe.Renewed{Leases: 5, Lost: 2}, observe.Renewed{Leases: 5},
		observe.JobRan{Job: "retention", Err: no}, observe.JobRan{Job: "retention", Acted: 3},
	} {
		cfg.Observer.Observe(t.Context(), event)
	}
	got := exporter.scrape(t)
	want(t, got, 1, "flowfabric_signals_total", "outcome=duplicate")
	want(t, got, 1, "flowfabric_claim_duration_seconds", "lane=a", "error_type=_OTHER")
	want(t, got, 2, "flowfabric_leases_lost_total")
	want(t, got, 1, "flowfabric_jobs_failed_total", "job=retention")
	for _, middleware := range cfg.Middleware {
		if err := middleware(t.Context(), &engine.ExecutionSpec{Tags: make(map[string]string)}); err != nil {
			t.Error(err)
		}
	}
	if passed := len(before.Observer.(*watcher).take()); passed != 6 || own != 1 {
		t.Errorf("the program's observer has got %d events, its middleware %d executions", passed, own)
	}
	if err := ffotel.Instrument(&cfg, nil, ffotel.Options{}); err == nil {
		t.Error("instrumented twice")
	}
}

// Made-up kinds share a set of labels once there are too many.
func TestLabelSetsEndAtABound(t *testing.T) {
	t.Parallel()
	exporter, cfg := newExporter(t), engine.Config{}
	if err := ffotel.Instrument(&cfg, nil, ffotel.Options{MeterProvider: exporter}); err != nil {
		t.Fatal(err)
	}
	const kinds = 2 * ffotel.MaxLabelSets
	for i := range kinds {
		cfg.Observer.Observe(t.Context(), observe.Created{Lane: "a", Kind: fmt.Sprint(i), Count: 1})
	}
	got := exporter.scrape(t)
	if n := len(got["flowfabric_executions_created_total"].GetMetric()); n != ffotel.MaxLabelSets {
		t.Errorf("%d series", n)
	}
	want(t, got, kinds-ffotel.MaxLabelSets+1, "flowfabric_executions_created_total", "lane=other", "kind=other")
}

// A batch has a span for each kind, in any order of its executions, which share the link. What is not sampled has none,
// unless the trace goes on in the executions.
func TestBatchesShareASpan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		opts    ffotel.Options
		sampler sdk.Sampler
		spans   []string
		tags    int // executions that have the tag
	}{
		{"sampled", ffotel.Options{}, sdk.AlwaysSample(), []string{"create a", "create b", "create a"}, 5},
		{"not sampled", ffotel.Options{}, sdk.NeverSample(), nil, 0},
		{"not sampled, in one trace", ffotel.Options{Parent: true}, sdk.NeverSample(), nil, 5},
	} {
		exporter, cfg := tracetest.NewInMemoryExporter(), engine.Config{}
		c.opts.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithSampler(c.sampler))
		if err := ffotel.Instrument(&cfg, nil, c.opts); err != nil {
			t.Fatal(err)
		}
		tags, contexts := 0, make(map[string]int)
		create := func(kinds ...string) {
			ctx := cfg.Observer.BeginCreation(t.Context())
			for _, kind := range kinds {
				spec := engine.ExecutionSpec{Kind: kind, Tags: map[string]string{ffotel.TraceparentTag: "of a copy"}}
				if err := cfg.Middleware[0](ctx, &spec); err != nil {
					t.Error(err)
				}
				if tag, ok := spec.Tags[ffotel.TraceparentTag]; ok {
					tags++
					contexts[tag]++
				}
			}
		}
		create("a", "b", "a", "b")
		create("a")
		var spans []string
		for _, span := range exporter.GetSpans() {
			spans = append(spans, span.Name)
		}
		if !slices.Equal(spans, c.spans) || tags != c.tags || tags > 0 && len(contexts) != 3 {
			t.Errorf("%s: spans %q, %d tags, %v", c.name, spans, tags, contexts)
		}
	}
}
