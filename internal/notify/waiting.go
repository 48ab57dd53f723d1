package notify

import (
	"context"
	"slices"
	"sync"
)

// waiting is the state of a [Listener]: the waiters of this process by channel, and the channels that the shared
// connection listens to. The caller of Serve that has the turn uses the connection.
type waiting struct {
	mu        sync.Mutex
	wakes     map[string][]*func(payload string)
	listening map[string]bool    // channels of the connection, in use or left
	left      *conn              // the connection left by the last caller with the turn, for the next one
	interrupt context.CancelFunc // of the current wait for a notification; nil outside it
}

// join adds a waiter on a channel until leave is called; wake may be called once more after that.
func (w *waiting) join(channel string, wake func(payload string)) (leave func()) {
	w.mu.Lock()
	w.wakes[channel] = append(slices.Clip(w.wakes[channel]), &wake)
	late := w.listening[channel]
	if !late && w.interrupt != nil {
		w.interrupt() // the connection does not listen to the channel yet
	}
	w.mu.Unlock()
	if late {
		wake("")
	}
	return func() { closeConn(w.leave(channel, &wake)) }
}

// leave removes a waiter, and returns the connection if it was the last one and the connection is not in use.
func (w *waiting) leave(channel string, wake *func(string)) (unused *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakes[channel] = slices.DeleteFunc(slices.Clone(w.wakes[channel]), func(other *func(string)) bool { return other == wake })
	if len(w.wakes[channel]) == 0 {
		delete(w.wakes, channel)
	}
	if len(w.wakes) > 0 || w.left == nil {
		return nil
	}
	unused, w.left = w.left, nil
	clear(w.listening)
	return unused
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

// wanted returns the channels with waiters that the connection does not listen to. If there are none, interrupt is
// called when one appears, until the next call of wanted.
func (w *waiting) wanted(interrupt context.CancelFunc) (channels []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for channel := range w.wakes {
		if !w.listening[channel] {
			channels = append(channels, channel)
		}
	}
	w.interrupt = nil
	if len(channels) == 0 {
		w.interrupt = interrupt
	}
	return channels
}

// listens notes that the connection listens to channels from now on. It wakes their waiters with "", since earlier
// notifications were lost. Later waiters are woken by join.
func (w *waiting) listens(channels []string) {
	w.mu.Lock()
	var wakes []*func(string)
	for _, channel := range channels {
		w.listening[channel] = true
		wakes = append(wakes, w.wakes[channel]...)
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

// idle reports whether a channel has no waiters left, and if so removes it from the listened channels.
func (w *waiting) idle(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wakes[channel]) > 0 {
		return false
	}
	delete(w.listening, channel)
	return true
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
		clear(w.listening)
		return c
	}
	return nil
}
