package ffotel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/id"
)

// runSpans keeps the beginnings of the spans of runs: at most [MaxLabelSets], since lanes may come from data.
type runSpans struct {
	mu    sync.RWMutex
	kinds map[runKey]*runSpan
}

type runKey struct {
	lane id.LaneID
	kind string
}

// runSpan is the beginning of a run's span.
type runSpan struct {
	name  string
	child []trace.SpanStartOption // below the span in the context
	root  []trace.SpanStartOption // in a trace of its own
}

func (r *runSpans) of(lane id.LaneID, kind string) *runSpan {
	key := runKey{lane, kind}
	r.mu.RLock()
	span, ok := r.kinds[key]
	r.mu.RUnlock()
	if ok {
		return span
	}
	child := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String(attrSystem, system),
		attribute.String(attrOperation, spanProcess),
		attribute.String(attrOperationType, "process"),
		attribute.String(attrDestination, string(lane)),
		attribute.String(attrKind, kind),
	)}
	span = &runSpan{spanProcess + " " + kind, child, append(child[:len(child):len(child)], trace.WithNewRoot())}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kinds == nil {
		r.kinds = make(map[runKey]*runSpan)
	}
	if len(r.kinds) < MaxLabelSets {
		r.kinds[key] = span
	}
	return span
}
