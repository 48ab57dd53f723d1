package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

const (
	maxWritten   = 10_000           // leases; the ends of others are found by polls
	writtenSweep = 1_024            // leases at which old ones are first removed
	writtenPause = time.Second      // between two removals
	writtenFor   = 10 * time.Minute // after the last frame; at least the lease's TTL
)

// writtenStreams remembers the leases that have appended frames by this process. Their settlement notifies the readers of
// the stream. It costs other settlements one atomic load.
type writtenStreams struct {
	count atomic.Int64

	mu      sync.Mutex
	until   map[Fence]time.Time
	sweepAt int
	swept   time.Time
}

// note remembers a lease.
func (w *writtenStreams) note(l *Lease) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until == nil {
		w.until, w.sweepAt = make(map[Fence]time.Time), writtenSweep
	}
	if _, known := w.until[l.Fence]; !known && len(w.until) >= w.sweepAt {
		if now.Sub(w.swept) < writtenPause {
			return
		}
		w.swept = now
		for fence, until := range w.until {
			if now.After(until) {
				delete(w.until, fence)
			}
		}
		w.sweepAt = max(writtenSweep, min(2*len(w.until), maxWritten))
		if len(w.until) >= maxWritten {
			w.count.Store(int64(len(w.until)))
			return
		}
	}
	w.until[l.Fence] = now.Add(max(writtenFor, l.TTL))
	w.count.Store(int64(len(w.until)))
}

// take returns the streams of leases that have written some, and forgets them.
func (w *writtenStreams) take(fences []Fence) (keys []core.StreamKey) {
	if w.count.Load() == 0 || len(fences) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fence := range fences {
		if _, known := w.until[fence]; known {
			delete(w.until, fence)
			keys = append(keys, core.StreamKey{Execution: fence.Execution, Attempt: fence.Attempt})
		}
	}
	w.count.Store(int64(len(w.until)))
	return keys
}

// ringStreams notifies the readers of the streams of leases that were settled: it is called after the commit, or passes
// the notifications on to the caller's transaction.
func (e *Engine) ringStreams(settled []Fence) {
	keys := e.written.take(settled)
	if len(keys) == 0 {
		return
	}
	var due core.Notifications
	for _, k := range keys {
		due.Stream(k)
	}
	e.c.PassOn(&due)
}
