// Package streams lets many readers of a process wait for growing streams. Each asks for its next page and blocks; a
// [Hub] answers all by few statements, one at a time, and holds nothing for readers that don't wait.
//
// No change is missed. A reader looks again after its channel was registered, and sees every earlier commit. A later
// commit is notified: the hub is registered by then, and if the connection does not listen to the channel yet, the
// reader looks again once it does. A notification during a look leads to another look. Polls make up for lost
// notifications.
package streams

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

const (
	maxReads = 200   // streams in one read
	maxSize  = 2_000 // of one read, by Size
	maxPolls = 1_000 // streams in one poll

	pollInterval = time.Second
	deafInterval = 200 * time.Millisecond // while no notifications arrive

	readTimeout        = 30 * time.Second
	minRetry, maxRetry = 100 * time.Millisecond, 2 * time.Second
	maxFailures        = 3 // of one stream, while others can be read
)

// Source reads streams: R is a request for the part of a stream after a position, A an answer.
type Source[R comparable, A any] struct {
	// Read answers requests, in their order.
	Read func(ctx context.Context, reads []R) ([]Answer[R, A], error)

	// Poll reports for each request whether Read may have an answer.
	Poll func(ctx context.Context, reads []R) ([]bool, error)

	// Size is how much a request asks for.
	Size func(R) int

	// Copy returns an answer for another reader with the same request.
	Copy func(A) A

	// Permanent reports whether an error of a read will repeat.
	Permanent func(error) bool

	// Send sends a notification.
	Send func(ctx context.Context, channel, payload string) error
}

// Answer is the answer to a request.
type Answer[R comparable, A any] struct {
	Value A
	Err   error // of a single stream

	Wait bool // there is no answer yet: wait for one to Next
	Next R

	AtEnd bool // the stream had nothing behind the answer
}

// Hub has the waiting readers of a process. Without readers it uses no connection and no goroutine.
type Hub[R comparable, A any] struct {
	source   Source[R, A]
	listener *notify.Listener
	log      *slog.Logger
	failing  warn.Repeated
	rechecks chan struct{} // buffered for one; signals that a reader is pending, or that the last one has left

	mu        sync.Mutex
	readers   int
	running   bool
	succeeded int           // reads
	most      int           // streams in the next read: fewer after a failure, until one stream fails alone
	watch     *notify.Watch // since a reader first waited
	channels  map[string]*channel[R, A]
	pending   []*Reader[R, A]            // to read for, in order
	parked    map[*Reader[R, A]]struct{} // waiting for a notification
}

// channel is a notification channel with its readers.
type channel[R comparable, A any] struct {
	name    string
	readers map[*Reader[R, A]]struct{}
	leave   func() // nil until the hub is registered
}

// NewHub returns a hub with notifications from listener.
func NewHub[R comparable, A any](source Source[R, A], listener *notify.Listener, log *slog.Logger) *Hub[R, A] {
	return &Hub[R, A]{
		source: source, listener: listener, log: log, rechecks: make(chan struct{}, 1), most: maxReads,
		channels: make(map[string]*channel[R, A]), parked: make(map[*Reader[R, A]]struct{}),
	}
}

// run reads for pending readers, and polls for all others, until none is left.
func (h *Hub[R, A]) run() {
	var failures int
	var round []*Reader[R, A] // still to poll for
	next := time.Now().Add(deafInterval)
	for {
		readers, requests, ok := h.takePending()
		if !ok {
			return
		}
		if len(round) == 0 && !time.Now().Before(next) {
			round, next = h.waiting(), time.Now().Add(h.interval())
		}
		var failed error
		if len(requests) > 0 {
			failed = h.read(readers, requests)
		}
		if len(round) > 0 && failed == nil {
			n := min(maxPolls, len(round))
			failed = h.poll(round[:n])
			round = round[n:]
		}
		switch {
		case failed != nil:
			round = nil
			h.pause(failures, failed)
			failures++
		case len(requests) == 0 && len(round) == 0:
			h.sleep(time.Until(next))
		default:
			failures = 0
		}
	}
}

// takePending returns the pending readers and their distinct requests. If no reader is left, the goroutine of run ends.
func (h *Hub[R, A]) takePending() (readers [][]*Reader[R, A], requests []R, ok bool) {
	h.mu.Lock()
	if h.readers == 0 {
		h.running = false
		watch := h.watch
		h.watch, h.pending = nil, nil
		h.mu.Unlock()
		if watch != nil {
			watch.Close()
		}
		return nil, nil, false
	}
	defer h.mu.Unlock()
	places := make(map[R]int, min(len(h.pending), h.most))
	size := 0
	for i, r := range h.pending {
		if r.state != pending {
			continue
		}
		place, known := places[r.request]
		if !known {
			size += h.source.Size(r.request)
			if len(requests) == h.most || len(requests) > 0 && size > maxSize {
				h.pending = slices.Delete(h.pending, 0, i)
				return readers, requests, true
			}
			place = len(requests)
			places[r.request] = place
			requests, readers = append(requests, r.request), append(readers, nil)
		}
		r.state, r.again = reading, false
		readers[place] = append(readers[place], r)
	}
	clear(h.pending)
	h.pending = h.pending[:0]
	return readers, requests, true
}

// read reads for readers, and answers or parks them.
func (h *Hub[R, A]) read(readers [][]*Reader[R, A], requests []R) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	answers, err := h.source.Read(ctx, requests)
	copies := h.copies(readers, answers)
	var joining []*channel[R, A]
	h.mu.Lock()
	if err == nil {
		h.most, h.succeeded = min(2*h.most, maxReads), h.succeeded+1
	} else {
		h.most = max(1, len(requests)/2)
	}
	for i, same := range readers {
		for n, r := range same {
			switch {
			case r.state != reading: // the reader has left
			case err != nil && (!r.seen || h.source.Permanent(err) || len(requests) == 1 && r.failsAlone(h.succeeded)):
				r.answer(Answer[R, A]{Err: err})
			case err != nil:
				h.queue(r)
			case answers[i].Wait:
				r.seen, r.request = true, answers[i].Next
				if c := h.settle(r); c != nil && !slices.Contains(joining, c) {
					joining = append(joining, c)
				}
			default:
				r.seen = true
				a := answers[i]
				if n > 0 && a.Err == nil {
					a.Value = copies[i][n-1]
				}
				r.answer(a)
			}
		}
	}
	h.mu.Unlock()
	h.join(joining)
	return err
}

// copies returns the values of answers for all readers but the first of each, which gets the original.
func (h *Hub[R, A]) copies(readers [][]*Reader[R, A], answers []Answer[R, A]) [][]A {
	all := make([][]A, len(answers))
	for i, a := range answers {
		if a.Err != nil || a.Wait {
			continue
		}
		for range len(readers[i]) - 1 {
			all[i] = append(all[i], h.source.Copy(a.Value))
		}
	}
	return all
}

// settle parks a reader without an answer, unless a notification came meanwhile. If the reader is not yet registered
// with its channel, settle registers the reader, which then looks again. It returns the channel if the hub has to join
// it.
func (h *Hub[R, A]) settle(r *Reader[R, A]) (toJoin *channel[R, A]) {
	switch {
	case r.joined != nil && !r.again:
		h.park(r)
		return nil
	case r.joined != nil:
		h.queue(r)
		return nil
	}
	c := h.channels[r.channel]
	if c == nil {
		c = &channel[R, A]{name: r.channel, readers: make(map[*Reader[R, A]]struct{})}
		h.channels[r.channel] = c
	}
	c.readers[r], r.joined = struct{}{}, c
	if c.leave != nil {
		h.queue(r)
		return nil
	}
	r.state = joining
	return c
}

// join registers for channels. Their readers look again then.
func (h *Hub[R, A]) join(channels []*channel[R, A]) {
	for _, c := range channels {
		leave := h.listener.Join(c.name, func(string) { h.notified(c) })
		h.mu.Lock()
		c.leave = leave
		for r := range c.readers {
			if r.state == joining {
				h.queue(r)
			}
		}
		empty := len(c.readers) == 0 // all have left meanwhile
		h.mu.Unlock()
		if empty {
			leave()
		}
	}
}

// notified makes the readers of a channel look.
func (h *Hub[R, A]) notified(c *channel[R, A]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range c.readers {
		r.again = true
		if r.state == parked {
			h.queue(r)
		}
	}
}

func (h *Hub[R, A]) queue(r *Reader[R, A]) {
	delete(h.parked, r)
	r.state = pending
	h.pending = append(h.pending, r)
	h.recheck()
}

func (h *Hub[R, A]) park(r *Reader[R, A]) {
	r.state = parked
	h.parked[r] = struct{}{}
	if h.watch == nil {
		h.watch = h.listener.Watch(h.log, h.source.Send, h.recheck)
	}
}

func (h *Hub[R, A]) recheck() {
	select {
	case h.rechecks <- struct{}{}:
	default:
	}
}

// poll finds the readers with a missed notification, or without notifications.
func (h *Hub[R, A]) poll(readers []*Reader[R, A]) error {
	h.mu.Lock()
	readers = slices.DeleteFunc(slices.Clone(readers), func(r *Reader[R, A]) bool { return r.state != parked })
	requests := make([]R, len(readers))
	for i, r := range readers {
		requests[i] = r.request
	}
	h.mu.Unlock()
	if len(readers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	changed, err := h.source.Poll(ctx, requests)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range readers {
		if r.state == parked && (err != nil || changed[i]) {
			h.queue(r) // the read returns a permanent error
		}
	}
	return err
}

func (h *Hub[R, A]) waiting() []*Reader[R, A] {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Reader[R, A], 0, len(h.parked))
	for r := range h.parked {
		all = append(all, r)
	}
	return all
}

func (h *Hub[R, A]) interval() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watch.Silent() {
		return deafInterval
	}
	return pollInterval
}

// sleep waits until a reader is pending, or for a time.
func (h *Hub[R, A]) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.rechecks:
	}
}

// pause waits before another try, unless the last reader leaves.
func (h *Hub[R, A]) pause(failures int, err error) {
	wait := min(minRetry<<min(failures, 10), maxRetry)
	h.failing.Log(h.log, "streams cannot be read; trying again: check the database and the rights of its role",
		"error", err, "retry_in", wait)
	for until := time.Now().Add(wait); time.Now().Before(until); {
		h.sleep(time.Until(until))
		h.mu.Lock()
		empty := h.readers == 0
		h.mu.Unlock()
		if empty {
			return
		}
	}
}
