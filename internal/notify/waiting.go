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

// waiting is the state of a [Listener]: the waiters of this process by channel, and the channels that the shared
// connection listens to. The caller of Serve that has the turn uses the connection.
type waiting struct {
	mu        sync.Mutex
	wakes     map[string][]*func(payload string)
	listening map[string]bool     // channels of the connection, in use or left
	fresh     map[string]struct{} // channels with waiters that the connection does not listen to
	unused    map[string]struct{} // channels without waiters that it listens to
	tidyAt    time.Time           // when to stop listening to them; zero: there are none
	left      *conn               // the connection left by the last caller with the turn, for the next one
	interrupt context.CancelFunc  // of the current wait for a notification; nil outside it
}

func newWaiting() waiting {
	return waiting{
		wakes: make(map[string][]*func(string)), listening: make(map[string]bool),
		fresh: make(map[string]struct{}), unused: make(map[string]struct{}),
	}
}

// join adds a waiter on a channel until leave is called; wake may be called once more after that.
func (w *waiting) join(channel string, wake func(payload string)) (leave func()) {
	w.mu.Lock()
	w.wakes[channel] = append(slices.Clip(w.wakes[channel]), &wake)
	late := w.listening[channel]
	if late {
		delete(w.unused, channel)
	} else {
		w.fresh[channel] = struct{}{}
		w.disturb() // the connection does not listen to the channel yet
	}
	w.mu.Unlock()
	if late {
		wake("")
	}
	return func() { closeConn(w.leave(channel, &wake)) }
}

// disturb interrupts the wait for a notification.
func (w *waiting) disturb() {
	if w.interrupt != nil {
		w.interrupt()
	}
}

// leave removes a waiter, and returns the connection if it was the last one and the connection is not in use.
func (w *waiting) leave(channel string, wake *func(string)) (unused *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakes[channel] = slices.DeleteFunc(slices.Clone(w.wakes[channel]), func(other *func(string)) bool { return other == wake })
	if len(w.wakes[channel]) == 0 {
		delete(w.wakes, channel)
		delete(w.fresh, channel)
		w.abandon(channel)
	}
	if len(w.wakes) > 0 || w.left == nil {
		return nil
	}
	unused, w.left = w.left, nil
	w.deafen()
	return unused
}

// abandon notes that a channel has no waiters.
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

// deafen notes that no connection listens to any channel.
func (w *waiting) deafen() {
	clear(w.listening)
	clear(w.unused)
	w.tidyAt = time.Time{}
	for channel := range w.wakes {
		w.fresh[channel] = struct{}{}
	}
}

// wake wakes all waiters on a channel.
func (w *waiting) wake(channel, payload string) {
	w.mu.Lock()
	wakes := w.wakes[channel]
	w.mu.Unlock()
	for _, wake := range wakes {
		(*wake)(payload)
	}
}

// wanted returns the channels with waiters that the connection does not listen to, and those that it listens to for too
// long without waiters. If there are none, interrupt is called when there are, until the next call of wanted, but not
// before tidyAt if that is not zero.
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

// listens notes that the connection listens to channels from now on. It wakes their waiters with "", since earlier
// notifications were lost. Later waiters are woken by join.
func (w *waiting) listens(channels []string) {
	w.mu.Lock()
	var wakes []*func(string)
	for _, channel := range channels {
		w.listening[channel] = true
		delete(w.fresh, channel)
		wakes = append(wakes, w.wakes[channel]...)
		if len(w.wakes[channel]) == 0 {
			w.abandon(channel) // in the meantime
		}
	}
	w.mu.Unlock()
	for _, wake := range wakes {
		(*wake)("")
	}
}

// Hears reports whether a connection listens to a channel.
func (w *waiting) Hears(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listening[channel]
}

// take returns the connection that the last caller with the turn left, or nil.
func (w *waiting) take() *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.left
	w.left = nil
	return taken
}

// leaveBehind keeps a connection for the next caller with the turn, or notes that there is none (nil). It returns the
// connection if there are no waiters: then the caller closes it. Otherwise the last waiter does.
func (w *waiting) leaveBehind(c *conn) (unused *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.interrupt = c, nil
	if c == nil || len(w.wakes) == 0 {
		w.left = nil
		w.deafen()
		return c
	}
	return nil
}
