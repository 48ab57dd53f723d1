package ffotel

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labelSets keeps the label sets of one metric, at most [MaxLabelSets] including "other".
type labelSets struct {
	names []string
	other *labelSet
	sets  cache[labelKey, *labelSet]
}

// labelKey has the values of a set's labels.
type labelKey [4]string

// labelSet is a set of labels with their values.
type labelSet struct {
	record  []metric.RecordOption
	add     []metric.AddOption
	observe []metric.ObserveOption
}

func newLabelSets(names []string) *labelSets {
	others := make([]string, len(names))
	for i := range others {
		others[i] = other
	}
	l := &labelSets{names: names}
	l.other = l.set(others)
	return l
}

// of returns the set with the values, in the order of the metric's labels, or the set of "other" if there are too many.
func (l *labelSets) of(values ...string) *labelSet {
	var key labelKey
	copy(key[:], values)
	set, ok := l.sets.get(key)
	if ok {
		return set
	}
	if set, ok = l.sets.add(key, MaxLabelSets-1, func() *labelSet { return l.set(key[:len(values)]) }); ok {
		return set
	}
	return l.other
}

// set returns a set without its empty labels.
func (l *labelSets) set(values []string) *labelSet {
	attrs := make([]attribute.KeyValue, 0, len(values))
	for i, value := range values {
		if value != "" {
			attrs = append(attrs, attribute.String(l.names[i], strings.ToValidUTF8(value, "?")))
		}
	}
	option := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &labelSet{[]metric.RecordOption{option}, []metric.AddOption{option}, []metric.ObserveOption{option}}
}
