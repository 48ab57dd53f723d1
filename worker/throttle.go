package worker

import (
	"math"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// throttle makes a worker claim less after late renewals. The limit halves with each late third of a lease, down to one
// execution. While the worker still holds more than the limit, only a lost lease halves it again. After a third with
// nothing late, a small limit grows by one execution, a larger one by an eighth. So an overloaded worker soon holds
// only what it can keep, and a worker that is never late claims up to its capacity.
type throttle struct {
	capacity int           // executions that may be held if nothing is late
	every    time.Duration // a third of a lease: the interval between renewals

	warned warn.Repeated

	mu    sync.Mutex
	limit float64   // at since
	since time.Time // time of the last late lease; zero if there was none
	cut   time.Time // time of the last halving
}

// smallLimit is the limit from which on an eighth is more than one execution.
const smallLimit = 8

// late records a lease that was claimed or renewed with less than a third left, or expired, and how many executions
// were held then. It reports whether the worker claims less as a result.
func (l *throttle) late(now time.Time, held int, lost bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.since = l.at(now), now
	switch {
	case !l.cut.IsZero() && now.Sub(l.cut) < l.every:
		return false // part of the same delay
	case !lost && l.limit < float64(min(held, l.capacity)):
		return false // it still holds executions claimed before the last cut
	}
	l.limit, l.cut = max(1, l.limit/2), now
	return true
}

// holds returns how many executions may be held, at least one.
func (l *throttle) holds(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, int(l.at(now)))
}

// throttled reports whether the usable part is less than the whole.
func (l *throttle) throttled(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at(now) < float64(l.capacity)
}

func (l *throttle) at(now time.Time) float64 {
	if l.since.IsZero() {
		return float64(l.capacity)
	}
	calm := max(0, float64(now.Sub(l.since))/float64(l.every)-1) // thirds
	byOne := min(calm, max(0, smallLimit-l.limit))
	return min(float64(l.capacity), (l.limit+byOne)*math.Pow(1+1.0/smallLimit, calm-byOne))
}
