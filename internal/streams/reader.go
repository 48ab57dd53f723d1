package streams

import "context"

// readerState is the state of a reader.
type readerState int

const (
	idle    readerState = iota // its program works, or has left
	pending                    // to be read for
	reading                    // being read for
	joining                    // until the hub has joined its channel; then pending
	parked                     // until a notification
)

// Reader is a running reader of one stream, or of several one after another. One goroutine uses it.
type Reader[R comparable, A any] struct {
	hub     *Hub[R, A]
	channel string
	answers chan Answer[R, A] // buffered for one

	// Under the hub's lock.
	state   readerState
	request R
	joined  *channel[R, A] // the channel, once joined
	seen    bool           // a read has succeeded
	again   bool           // a notification came since the last read began
	atEnd   bool           // its last answer reached the end

	failures  int // of reads alone, while others succeeded
	succeeded int // reads of the hub at the first failure
}

// Reader returns a reader for a channel. Callers must pair it with [Reader.Leave].
func (h *Hub[R, A]) Reader(channel string) *Reader[R, A] {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers++
	if !h.running {
		h.running = true
		go h.run()
	}
	return &Reader[R, A]{hub: h, channel: channel, answers: make(chan Answer[R, A], 1)}
}

// Await returns the answer to a request once there is one. After an error of ctx the reader can only leave.
//
// Errors: ctx's; the answer's; an error of the reader's first read, and later permanent ones.
func (r *Reader[R, A]) Await(ctx context.Context, request R) (value A, err error) {
	if err := ctx.Err(); err != nil {
		return value, err
	}
	h := r.hub
	h.mu.Lock()
	r.request = request
	if r.atEnd && !r.again && r.joined != nil {
		h.park(r)
	} else {
		h.queue(r)
	}
	h.mu.Unlock()
	select {
	case <-ctx.Done():
		return value, ctx.Err()
	case a := <-r.answers:
		return a.Value, a.Err
	}
}

// failsAlone records a failed read for the reader alone. It reports whether several have failed while reads for others
// succeeded, so this is no outage.
func (r *Reader[R, A]) failsAlone(succeeded int) bool {
	if r.failures == 0 {
		r.succeeded = succeeded
	}
	r.failures++
	return r.failures >= maxFailures && succeeded > r.succeeded
}

// answer ends the wait. The caller has the hub's lock.
func (r *Reader[R, A]) answer(a Answer[R, A]) {
	r.state, r.atEnd, r.failures = idle, a.AtEnd, 0
	r.answers <- a
}

// Follow continues with another stream on another channel.
func (r *Reader[R, A]) Follow(channel string) {
	h := r.hub
	h.mu.Lock()
	leave := r.part()
	r.channel, r.atEnd = channel, false
	h.mu.Unlock()
	leave()
}

// Leave ends the reader.
func (r *Reader[R, A]) Leave() {
	h := r.hub
	h.mu.Lock()
	leave := r.part()
	r.state = idle
	delete(h.parked, r)
	h.readers--
	if h.readers == 0 {
		h.recheck()
	}
	h.mu.Unlock()
	leave()
}

// part takes the reader out of its channel. The caller calls leave without the hub's lock.
func (r *Reader[R, A]) part() (leave func()) {
	c := r.joined
	r.joined = nil
	if c == nil {
		return func() {}
	}
	delete(c.readers, r)
	if len(c.readers) > 0 {
		return func() {}
	}
	delete(r.hub.channels, c.name)
	if c.leave == nil {
		return func() {} // join does
	}
	return c.leave
}
