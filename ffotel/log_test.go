package ffotel

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func TestHandlerAddsRunAndSpan(t *testing.T) {
	work := &engine.Claimed{ID: id.ExecutionIDFromRow(7, id.NewExecutionUUID()), Kind: "resize"}
	work.Lease.Attempt = 2
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := &run{Context: trace.ContextWithSpanContext(context.Background(), span), work: work}
	x := work.ID.String()
	ids := "trace_id=01000000000000000000000000000000 span_id=0200000000000000\n"
	of := "execution=" + x + " kind=resize attempt=2 "

	for _, test := range []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{"plain", func(l *slog.Logger) { l.InfoContext(ctx, "m", "a", 1) }, "msg=m a=1 " + of + ids},
		{"without a context", func(l *slog.Logger) { l.Info("m") }, "msg=m\n"},
		{"with attributes", func(l *slog.Logger) { l.With("a", 1).InfoContext(ctx, "m") }, "msg=m a=1 " + of + ids},
		{"in a group", func(l *slog.Logger) { l.With("a", 1).WithGroup("g").With("b", 2).InfoContext(ctx, "m", "c", 3) },
			"msg=m a=1 " + of + "trace_id=01000000000000000000000000000000 span_id=0200000000000000 g.b=2 g.c=3\n"},
		{"the worker's own record", func(l *slog.Logger) { l.InfoContext(ctx, "m", "execution", "x") }, "msg=m execution=x " + ids},
		{"a logger of an execution", func(l *slog.Logger) { l.With("execution", "x").InfoContext(ctx, "m") }, "msg=m execution=x " + ids},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			test.log(slog.New(Handler(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: untimed}))))
			if got := out.String(); got != test.want {
				t.Errorf("got  %swant %s", got, test.want)
			}
		})
	}
}

// untimed leaves the time and the level out.
func untimed(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
		return slog.Attr{}
	}
	return a
}
