package streams

import "context"

// readerState is the state of a reader.
type readerState int

const (
	idle    readerState = iota // its program works, or it has left
	pending                    // to be read for
	reading                    // being read for
	joining                    // until the hub has joined its channel; then pending
	parked                     // until it is woken
)

// Reader is a running reader of one stream, or of several one after another. One goroutine uses it.
type Reader[R comparable, A any] struct {
	hub     *Hub[R, A]
	channel string
	answers chan Answer[R, A] // buffered for one

	// Under the hub's lock.
	state   readerState
	request R
	joined  *channel[R, A] // that wakes it
	seen    bool           // a read for it has succeeded
	again   bool           // it was woken since its last read began
	atEnd   bool           // its last answer had nothing behind it

	failures  int // of reads for it alone, while others
	succeeded int // reads of the hub at the first of these
}

// Reader returns a reader that a channel wakes. Callers must pair it with [Reader.Leave].
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
// Errors: ctx's; that of the answer; that of the first read of the reader, and later permanent ones.
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

// failsAlone notes that a read for the reader alone has failed. It reports whether that has happened several times, while
// reads for others have succeeded: then it isn't an outage.
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

// Follow goes on with another stream, which another channel wakes for.
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
		h.rouse()
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
