package ffotel

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Handler returns a handler that adds attributes to the records of a handler's context before passing them to next:
// execution, kind and attempt of the run, and trace_id and span_id of the span. They stand outside all groups. A record that
// already has the attribute execution gets no other one, as the worker's own records.
//
// The worker must have been configured by [Instrument]. The context is the one given to the logger: use InfoContext and its
// like.
func Handler(next slog.Handler) slog.Handler { return &handler{base: next, next: next} }

// handler adds attributes outside the groups of next. base is next before its first group, and since repeats the later calls.
type handler struct {
	base, next slog.Handler
	since      []func(slog.Handler) slog.Handler
	known      bool // base has the attribute execution
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	attrs := h.attrs(ctx, &record)
	switch {
	case len(attrs) == 0:
		return h.next.Handle(ctx, record)
	case len(h.since) == 0:
		record = record.Clone()
		record.AddAttrs(attrs...)
		return h.next.Handle(ctx, record)
	}
	next := h.base.WithAttrs(attrs)
	for _, add := range h.since {
		next = add(next)
	}
	return next.Handle(ctx, record)
}

// attrs returns the attributes to add to a record.
func (h *handler) attrs(ctx context.Context, record *slog.Record) []slog.Attr {
	var attrs []slog.Attr
	if run := currentOf(ctx); run != nil && !h.known && !hasExecution(record) {
		attrs = append(attrs, slog.String(logExecution, run.work.ID.String()), slog.String(logKind, run.work.Kind),
			slog.Int(logAttempt, run.work.Lease.Attempt))
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		attrs = append(attrs, slog.String(logTrace, span.TraceID().String()), slog.String(logSpan, span.SpanID().String()))
	}
	return attrs
}

// Attributes of log records.
const (
	logExecution = "execution"
	logKind      = "kind"
	logAttempt   = "attempt"
	logTrace     = "trace_id"
	logSpan      = "span_id"
)

func hasExecution(record *slog.Record) (found bool) {
	record.Attrs(func(a slog.Attr) bool {
		found = a.Key == logExecution
		return !found
	})
	return found
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.next = h.next.WithAttrs(attrs)
	if len(h.since) == 0 {
		with.base = with.next
		with.known = h.known || slices.ContainsFunc(attrs, func(a slog.Attr) bool { return a.Key == logExecution })
	} else {
		with.since = append(slices.Clip(h.since), func(to slog.Handler) slog.Handler { return to.WithAttrs(attrs) })
	}
	return &with
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	with := *h
	with.next = h.next.WithGroup(name)
	with.since = append(slices.Clip(h.since), func(to slog.Handler) slog.Handler { return to.WithGroup(name) })
	return &with
}

// toValid returns the text as valid UTF-8.
func toValid(text string) string { return strings.ToValidUTF8(text, "?") }
