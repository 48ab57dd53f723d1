package worker

import (
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// throttle makes a worker that renews its leases late claim less. Its share of the configured room halves with each late
// third of a lease, and grows by a sixteenth of the whole with each third without a late renewal. An overloaded worker
// soon holds only what it can keep; a worker that is never late has all its room.
type throttle struct {
	every time.Duration // a third of a lease: the interval between renewals

	warned warn.Repeated

	mu    sync.Mutex
	share float64   // at since
	since time.Time // time of the last cut; zero if there was none
}

const recovery = 1.0 / 16 // share of the whole room regained in a third of a lease

// late records a lease that was renewed with less than a third of it left, or that expired. It reports whether the worker
// claims less because of it.
func (l *throttle) late(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() && now.Sub(l.since) < l.every {
		return false // part of the same delay
	}
	l.share, l.since = l.at(now)/2, now
	return true
}

// of returns the usable part of a room, at least one place.
func (l *throttle) of(room int, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, int(l.at(now)*float64(room)))
}

// throttled reports whether the usable part is less than the whole.
func (l *throttle) throttled(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at(now) < 1
}

func (l *throttle) at(now time.Time) float64 {
	if l.since.IsZero() {
		return 1
	}
	return min(1, l.share+recovery*float64(now.Sub(l.since))/float64(l.every))
}
