package ffotel

import (
	"testing"
	"time"
)

// A late tick does not move the readings after it, and an outage is followed by one reading, not by all missed ones.
func TestReadingsAfterAnOutage(t *testing.T) {
	due := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	if got, want := nextReading(due, due.Add(14*time.Second), time.Minute), due.Add(time.Minute); !got.Equal(want) {
		t.Errorf("after a late tick at %v, want %v", got, want)
	}
	now := due.Add(time.Hour)
	if got, want := nextReading(due, now, time.Minute), now.Add(time.Minute); !got.Equal(want) {
		t.Errorf("after an outage at %v, want %v", got, want)
	}
}
