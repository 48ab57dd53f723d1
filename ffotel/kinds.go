package ffotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// kinds keeps the common parts of runs, for at most [MaxLabelSets] kinds and lanes, since lanes may come from data.
type kinds struct {
	*instruments
	known cache[kindKey, *kind]
}

type kindKey struct {
	lane id.LaneID
	kind string
}

// kind has the common parts of the runs of a kind in a lane.
type kind struct {
	*instruments
	kindKey

	span  string                  // its name
	child []trace.SpanStartOption // below the span in the context
	root  []trace.SpanStartOption // in a trace of its own
	part  []trace.SpanStartOption // of a part's span

	wait     []metric.RecordOption
	outcomes cache[outcome, outcomeLabels]
}

// outcome is how a run ended.
type outcome struct {
	settlement worker.Settlement
	class      string // of its error
}

// outcomeLabels are the labels of runs with the same outcome.
type outcomeLabels struct {
	run     []metric.RecordOption
	settled []metric.AddOption
}

func (k *kinds) of(lane id.LaneID, name string) *kind {
	key := kindKey{lane, name}
	known, ok := k.known.get(key)
	if ok {
		return known
	}
	if known, ok = k.known.add(key, MaxLabelSets, func() *kind { return newKind(k.instruments, key) }); ok {
		return known
	}
	return newKind(k.instruments, key)
}

func newKind(instruments *instruments, key kindKey) *kind {
	own := attribute.String(attrKind, key.kind)
	child := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String(attrSystem, system),
		attribute.String(attrOperation, spanProcess),
		attribute.String(attrOperationType, "process"),
		attribute.String(attrDestination, string(key.lane)),
		own,
	)}
	return &kind{
		instruments: instruments, kindKey: key, span: spanProcess + " " + key.kind,
		child: child, root: append(child[:len(child):len(child)], trace.WithNewRoot()),
		part: []trace.SpanStartOption{trace.WithAttributes(own)},
		wait: instruments.wait.labels.of(string(key.lane), key.kind).record,
	}
}

// labels returns the labels of an outcome. Classes may be of a program's own, so there are at most [MaxLabelSets].
func (k *kind) labels(of outcome) outcomeLabels {
	labels, ok := k.outcomes.get(of)
	if ok {
		return labels
	}
	if labels, ok = k.outcomes.add(of, MaxLabelSets, func() outcomeLabels { return k.newLabels(of) }); ok {
		return labels
	}
	return k.newLabels(of)
}

func (k *kind) newLabels(of outcome) outcomeLabels {
	lane, settlement := string(k.lane), string(of.settlement)
	return outcomeLabels{
		run:     k.run.labels.of(lane, k.kind, settlement).record,
		settled: k.settled.labels.of(lane, k.kind, settlement, of.class).add,
	}
}
