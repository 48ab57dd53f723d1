package notify

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// linger is how long the connection keeps listening to channels without waiters: some come back, and many leave at once.
const linger = 2 * time.Second

// waiting is the state of a [Listener]: the waiters of this process by channel, and the channels of the shared
// connection. The caller of Serve that has the turn uses the connection.
type waiting struct {
	mu        sync.Mutex
	waiters   map[string][]*func(payload string)
	listening map[string]bool     // channels of the connection, in use or left
	fresh     map[string]struct{} // channels with waiters, not yet on the connection
	unused    map[string]struct{} // channels without waiters, still on the connection
	tidyAt    time.Time           // when to drop the unused ones; zero: there are none
	left      *conn               // the connection left by the last caller with the turn, for the next one
	interrupt context.CancelFunc  // of the current wait for a notification; nil outside
}

func newWaiting() waiting {
	return waiting{
		waiters: make(map[string][]*func(string)), listening: make(map[string]bool),
		fresh: make(map[string]struct{}), unused: make(map[string]struct{}),
	}
}

// join adds a waiter on a channel until leave is called; one more call of got may follow.
func (w *waiting) join(channel string, got func(payload string)) (leave func()) {
	w.mu.Lock()
	w.waiters[channel] = append(slices.Clip(w.waiters[channel]), &got)
	late := w.listening[channel]
	if late {
		delete(w.unused, channel)
	} else {
		w.fresh[channel] = struct{}{}
		w.disturb() // the connection does not listen to the channel yet
	}
	w.mu.Unlock()
	if late {
		got("")
	}
	return func() { closeConn(w.leave(channel, &got)) }
}

// disturb interrupts the wait for a notification.
func (w *waiting) disturb() {
	if w.interrupt != nil {
		w.interrupt()
	}
}

// leave removes a waiter, and returns the connection if it was the last one and the connection is not in use.
func (w *waiting) leave(channel string, got *func(string)) (unused *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiters[channel] = slices.DeleteFunc(slices.Clone(w.waiters[channel]), func(other *func(string)) bool { return other == got })
	if len(w.waiters[channel]) == 0 {
		delete(w.waiters, channel)
		delete(w.fresh, channel)
		w.abandon(channel)
	}
	if len(w.waiters) > 0 || w.left == nil {
		return nil
	}
	unused, w.left = w.left, nil
	w.disconnected()
	return unused
}

// abandon records that a channel has no waiters.
func (w *waiting) abandon(channel string) {
	if !w.listening[channel] {
		return
	}
	w.unused[channel] = struct{}{}
	if w.tidyAt.IsZero() {
		w.tidyAt = time.Now().Add(linger)
		w.disturb()
	}
}

// disconnected records that no connection listens to any channel.
func (w *waiting) disconnected() {
	clear(w.listening)
	clear(w.unused)
	w.tidyAt = time.Time{}
	for channel := range w.waiters {
		w.fresh[channel] = struct{}{}
	}
}

// deliver calls all waiters on a channel.
func (w *waiting) deliver(channel, payload string) {
	w.mu.Lock()
	waiters := w.waiters[channel]
	w.mu.Unlock()
	for _, got := range waiters {
		(*got)(payload)
	}
}

// wanted returns the channels with waiters but without a connection, and the channels listened to for too long without
// waiters. If there are none, interrupt is called when there are, until the next call of wanted, but not before a
// nonzero tidyAt.
func (w *waiting) wanted(interrupt context.CancelFunc) (channels, idle []string, tidyAt time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt = nil
	if !w.tidyAt.IsZero() && !time.Now().Before(w.tidyAt) {
		idle = slices.Collect(maps.Keys(w.unused))
		for _, channel := range idle {
			delete(w.listening, channel)
		}
		clear(w.unused)
		w.tidyAt = time.Time{}
	}
	channels = slices.Collect(maps.Keys(w.fresh))
	if len(channels)+len(idle) == 0 {
		w.interrupt = interrupt
	}
	return channels, idle, w.tidyAt
}

// listens records that the connection listens to channels from now on. It calls their waiters with "", since earlier
// notifications were lost. join calls later waiters.
func (w *waiting) listens(channels []string) {
	w.mu.Lock()
	var waiters []*func(string)
	for _, channel := range channels {
		w.listening[channel] = true
		delete(w.fresh, channel)
		waiters = append(waiters, w.waiters[channel]...)
		if len(w.waiters[channel]) == 0 {
			w.abandon(channel) // in the meantime
		}
	}
	w.mu.Unlock()
	for _, got := range waiters {
		(*got)("")
	}
}

// Hears reports whether a connection listens to a channel.
func (w *waiting) Listens(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listening[channel]
}

// take returns the connection left by the last caller with the turn, or nil.
func (w *waiting) take() *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.left
	w.left = nil
	return taken
}

// leaveBehind keeps a connection for the next caller with the turn; nil means no connection. Without waiters it returns
// the connection, which the caller closes. Otherwise the last waiter does.
func (w *waiting) leaveBehind(c *conn) (unused *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.interrupt = c, nil
	if c == nil || len(w.waiters) == 0 {
		w.left = nil
		w.disconnected()
		return c
	}
	return nil
}
