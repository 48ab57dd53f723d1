package core

import (
	"context"
	"log/slog"
)

const maxTrace = 256 // bytes of a trace context

// Trace returns a trace context to store, or "" if it is too long or not printable ASCII: telemetry fails no operation.
func Trace(trace string) string {
	if len(trace) > maxTrace {
		return ""
	}
	for i := range len(trace) {
		if trace[i] < ' ' || trace[i] > '~' {
			return ""
		}
	}
	return trace
}

// AddTrace adds the trace context of item n to a column. A column without any stays nil, and one may be too short.
func AddTrace(column []string, n int, trace string) []string {
	trace = Trace(trace)
	if trace == "" {
		return column
	}
	for len(column) < n {
		column = append(column, "")
	}
	return append(column, trace)
}

// FirstTrace returns the trace context of the only item of a column, or nil.
func FirstTrace(column []string) *string {
	if len(column) == 0 {
		return nil
	}
	return &column[0]
}

// TraceContext returns the trace context in ctx to store, or "".
func (c *Core) TraceContext(ctx context.Context) (trace string) {
	if c.Observer == nil {
		return ""
	}
	defer c.observerPanics(ctx)
	return Trace(c.Observer.TraceContext(ctx))
}

// BeginCreation returns the context for the middleware of one operation.
func (c *Core) BeginCreation(ctx context.Context) (derived context.Context) {
	if c.Observer == nil {
		return ctx
	}
	derived = ctx // after a panic, and without a context
	defer c.observerPanics(ctx)
	if given := c.Observer.BeginCreation(ctx); given != nil {
		derived = given
	}
	return derived
}

// observerPanics logs a panic of the observer, which fails no operation.
func (c *Core) observerPanics(ctx context.Context) {
	if value := recover(); value != nil {
		c.Log.LogAttrs(ctx, slog.LevelError, "observer panicked", slog.Any("panic", value))
	}
}
