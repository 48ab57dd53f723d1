package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
)

const (
	maxWritten   = 10_000           // leases; the ends of others are found by polls
	writtenSweep = 1_024            // leases at which old ones are first removed
	writtenPause = time.Second      // between two removals
	writtenFor   = 10 * time.Minute // after the last frame; at least the lease's TTL
)

// WrittenStreams remembers the leases with frames appended by this process. Their settlement notifies the readers of
// the stream. Other settlements cost one atomic load more.
type WrittenStreams struct {
	count atomic.Int64

	mu      sync.Mutex
	until   map[id.Fence]time.Time
	sweepAt int
	swept   time.Time
}

// Note remembers a lease.
func (w *WrittenStreams) Note(l id.Fence, ttl time.Duration) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.until == nil {
		w.until, w.sweepAt = make(map[id.Fence]time.Time), writtenSweep
	}
	if _, known := w.until[l]; !known && len(w.until) >= w.sweepAt {
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
	w.until[l] = now.Add(max(writtenFor, ttl))
	w.count.Store(int64(len(w.until)))
}

// take returns and forgets the streams of leases with written frames.
func (w *WrittenStreams) take(fences []id.Fence) (keys []StreamKey) {
	if w.count.Load() == 0 || len(fences) == 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, fence := range fences {
		if _, known := w.until[fence]; known {
			delete(w.until, fence)
			keys = append(keys, StreamOf(fence))
		}
	}
	w.count.Store(int64(len(w.until)))
	return keys
}

// NotifyStreams notifies the readers of streams written under settled leases. Call NotifyStreams after the commit; in a
// caller's transaction, see [Core.Forward].
func (c *Core) NotifyStreams(settled []id.Fence) {
	keys := c.Written.take(settled)
	if len(keys) == 0 {
		return
	}
	var due Notifications
	for _, k := range keys {
		due.Stream(k)
	}
	c.Forward(context.Background(), &due)
}
