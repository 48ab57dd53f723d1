package ffotel

import (
	"strconv"
	"testing"
)

func TestLabelSetsEndWithOther(t *testing.T) {
	labels := newLabelSets([]string{labelLane, labelKind})
	sets := make(map[*labelSet]bool)
	for i := range 2 * MaxLabelSets {
		sets[labels.of("lane", strconv.Itoa(i))] = true
	}
	if len(sets) != MaxLabelSets || !sets[labels.other] {
		t.Errorf("%d label sets, want %d, with the one of other: %v", len(sets), MaxLabelSets, sets[labels.other])
	}
	if labels.of("lane", "7") == labels.other {
		t.Error("a set from before the limit is counted as other")
	}
}

func TestMetricsHaveDistinctNames(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range Metrics() {
		if names[m.Name] || names[m.Prometheus()] {
			t.Errorf("%s occurs twice", m.Name)
		}
		names[m.Name], names[m.Prometheus()] = true, true
		if len(m.Labels) > len(labelKey{}) {
			t.Errorf("%s has more labels than a key of its sets", m.Name)
		}
	}
}
