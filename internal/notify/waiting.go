package notify

import (
	"context"
	"slices"
	"sync"
)

// waiting is who waits in this process, by channel, and what the connection of all listens to. One of those who wait,
// whose turn it is, has the connection.
type waiting struct {
	mu        sync.Mutex
	wakes     map[string][]*func(payload string)
	listening map[string]bool    // channels of the connection, wherever it is
	left      *conn              // the connection, by the one who had the turn, for the next
	interrupt context.CancelFunc // of the wait for a notification; nil outside it
}

// join adds one who waits on a channel until the returned function is called; wake may be called perhaps once more
// after that.
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

// leave takes one away who waits, and returns the connection that nobody needs any more.
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

// wake wakes all who wait on a channel.
func (w *waiting) wake(channel, payload string) {
	w.mu.Lock()
	wakes := w.wakes[channel]
	w.mu.Unlock()
	for _, wake := range wakes {
		(*wake)(payload)
	}
}

// wanted returns the channels that somebody waits on and the connection does not listen to. With none, interrupt is
// called when there is one, until the next call of wanted.
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

// listens notes that the connection listens to channels from now on, and wakes all who wait on them with "": what came
// before was not heard. Who joins from now on is woken by joining.
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

// Hears says whether a connection listens to a channel.
func (w *waiting) Hears(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listening[channel]
}

// idle says whether the connection listens to a channel for nobody, and notes that it will do so no more.
func (w *waiting) idle(channel string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wakes[channel]) > 0 {
		return false
	}
	delete(w.listening, channel)
	return true
}

// take returns the connection that somebody left behind, nil if there is none.
func (w *waiting) take() *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.left
	w.left = nil
	return taken
}

// leaveBehind leaves a connection for whoever has the next turn; nil: there is none. The last one who waits closes it; it is
// returned where nobody waits any more.
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
