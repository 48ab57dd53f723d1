package worker

import (
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// A throttle makes a worker that is too late for its leases claim less. Its share of the configured room halves with each
// late third of a lease, and grows by a sixteenth of the whole with each third that is not late. So an overloaded worker
// soon holds no more than it can keep, and one that is never late always has all of its room.
type throttle struct {
	every time.Duration // a third of a lease: the pace of renewals

	warned warn.Repeated

	mu    sync.Mutex
	share float64   // at since
	since time.Time // of the last cut; zero: there was none
}

const recovery = 1.0 / 16 // of the whole room, in a third of a lease

// late notes that a lease was renewed with less than a third of it left, or was lost because its time ran out. It reports
// whether the worker claims less because of it.
func (l *throttle) late(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.since.IsZero() && now.Sub(l.since) < l.every {
		return false // of the same delay
	}
	l.share, l.since = l.at(now)/2, now
	return true
}

// of returns how much of a room may be used, at least one place.
func (l *throttle) of(room int, now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, int(l.at(now)*float64(room)))
}

// throttled reports whether less than the whole room may be used.
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
