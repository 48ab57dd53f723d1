// Package fair places the work of tenants in a lane so they take turns: start-time fair queueing. The package knows no
// database.
//
// A place stands where the age of other work does: in nanoseconds since the Unix epoch. Executions of one tenant follow
// each other at a distance of [Unit] over the weight, however fast they were created. A tenant without waiting work
// begins at the place the lane serves now, and so goes next. Unused turns are lost.
package fair

import (
	"sync"
	"time"
)

// Unit is the distance between two executions of a tenant with weight 1.
const Unit = int64(time.Millisecond)

// MaxWeight is the greatest weight. Up to MaxWeight, distances are exact to a thousandth.
const MaxWeight = 1000

// Step returns the distance between two executions of a tenant.
func Step(weight int) int64 { return Unit / int64(weight) }

// Last is the last execution of a tenant in a lane.
type Last struct {
	Place   int64
	Started bool
}

// IsLeft reports whether an execution started before its place was served, which says nothing about the present: the
// lane was empty since, or the execution was claimed out of order.
func (l *Last) IsLeft(head int64) bool { return l != nil && l.Started && l.Place/Unit > head/Unit }

// Next returns the place of a tenant's next execution. Head is the place the lane serves now, in whole milliseconds, as
// the queue has it. Last is nil for a tenant without executions.
func Next(head int64, last *Last, weight int) int64 {
	if last == nil || last.IsLeft(head) {
		return head
	}
	return max(head, last.Place+Step(weight))
}

// stuck is how long the head of a lane counts as being served. For lack of a handler or a capability, there may be no
// worker for the head for longer, and later work must not wait.
const stuck = time.Second

// missPace is the pause until the next look from the front of the queue, in times of the last one's duration.
const missPace = 50

// lateMs is how far before the present a look begins, unless at the front.
const lateMs = 1000

// A Head remembers which place a lane served when its process looked last. A look begins there, and does not read the
// entries of claimed work again. The zero value is usable. A Head is safe for concurrent use.
type Head struct {
	mu     sync.Mutex
	known  bool
	missed bool
	at     [16]byte // the execution at the place
	place  int64
	from   int64
	since  time.Time // when the execution was seen first
	fullAt time.Time
	took   time.Duration
}

// From returns the place, in milliseconds, from which to look for the head of the lane; 0 for the front of the queue.
func (h *Head) From(now time.Time) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.known, h.missed && now.Sub(h.fullAt) >= missPace*h.took:
		return 0
	case !h.missed && now.Sub(h.since) > stuck:
		return h.place/Unit + 1
	}
	return h.from
}

// Found records the head a look from a place found, and the id of the execution there. Several may have one place.
func (h *Head) Found(from, place int64, at [16]byte, began, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look(from, began, now)
	if !h.known || h.missed || h.at != at {
		h.since = now
	}
	h.known, h.missed, h.at, h.place, h.from = true, false, at, place, place/Unit
}

// Missed records that a look from a place found nothing, so the lane serves the present. The next look starts at the
// front, or soon after one that took long, a second before the present, for late commits.
func (h *Head) Missed(from, present int64, began, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.look(from, began, now)
	h.known, h.missed, h.from = true, true, present/Unit-lateMs
}

func (h *Head) look(from int64, began, now time.Time) {
	if from == 0 {
		h.fullAt, h.took = now, now.Sub(began)
	}
}
