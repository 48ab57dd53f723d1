package notify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// waiter is a call of Listen and its wake-ups.
type waiter struct {
	woken chan string
	end   func()
}

func listen(t *testing.T, l *Listener, channel string) waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan string, 10), make(chan error, 1)
	go func() { ended <- l.Listen(ctx, channel, func(payload string) { woken <- payload }) }()
	return waiter{woken, func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v, want the context's error", err)
		}
	}}
}

func (w waiter) want(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for len(w.woken) > 0 {
		got = append(got, <-w.woken)
	}
	if !slices.Equal(got, want) {
		t.Errorf("woken with %q, want %q", got, want)
	}
}

func TestListenerWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewListener(nil, nil)
		first, second, other := listen(t, l, "a"), listen(t, l, "a"), listen(t, l, "b")
		synctest.Wait()
		l.deliver("a", "1")
		first.end()
		l.deliver("a", "2")
		l.deliver("b", "3")
		first.want(t, "1")
		second.want(t, "1", "2")
		other.want(t, "3")
		second.end()
		other.end()
		if len(l.waiters) > 0 {
			t.Errorf("%d channels are left behind", len(l.waiters))
		}
	})
}

// wakes are the wake-ups of a waiter without a call of Listen.
type waiters []string

func (w *waiters) join(waiting *waiting, channel string) (leave func()) {
	return waiting.join(channel, func(payload string) { *w = append(*w, payload) })
}

// Notifications sent before the connection listens are lost, so it wakes the waiters of that time, and also those
// that join later.
func TestWaitingWakesEarlyAndLateWaiters(t *testing.T) {
	w := &NewListener(nil, nil).waiting
	interrupted := 0
	interrupt := func() { interrupted++ }
	var before, after, other waiters
	leave := before.join(w, "a")
	wanted := func() []string {
		channels, _, _ := w.wanted(interrupt)
		return channels
	}
	if got := wanted(); !slices.Equal(got, []string{"a"}) || len(before) > 0 {
		t.Errorf("wants %q, woken with %q", got, before)
	}
	w.listens([]string{"a"})
	if got := wanted(); len(got) > 0 {
		t.Errorf("wants %q", got)
	}
	leaveAfter := after.join(w, "a")
	if len(before) != 1 || len(after) != 1 || interrupted != 0 {
		t.Errorf("woken with %q and %q, interrupted %d times", before, after, interrupted)
	}

	// A channel that the connection does not listen to yet interrupts its wait.
	leaveOther := other.join(w, "b")
	if len(other) > 0 || interrupted != 1 {
		t.Errorf("woken with %q, interrupted %d times, want once", other, interrupted)
	}
	if got := wanted(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("wants %q", got)
	}
	third := new(waiters)
	leaveThird := third.join(w, "c") // while it listens to b
	w.listens([]string{"b"})
	if got := wanted(); len(other) != 1 || interrupted != 1 || !slices.Equal(got, []string{"c"}) {
		t.Errorf("woken with %q, interrupted %d times, wants %q", other, interrupted, got)
	}

	// A waiter that comes back is served by the same LISTEN.
	leave()
	leaveAfter()
	late := new(waiters)
	leaveLate := late.join(w, "a")
	if got := wanted(); len(*late) != 1 || slices.Contains(got, "a") {
		t.Errorf("woken with %q, wants %q", *late, got)
	}

	// A lost connection listens to no channel.
	w.listens([]string{"a", "c"})
	w.leaveBehind(nil)
	got := wanted()
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("wants %q after the loss", got)
	}
	for _, leave := range []func(){leaveOther, leaveThird, leaveLate} {
		leave()
	}
	if len(w.waiters) > 0 {
		t.Errorf("%d channels are left behind", len(w.waiters))
	}
}

// The last waiter closes the connection. If all have left while it is in use, its user closes it.
func TestWaitingClosesAnUnusedConnection(t *testing.T) {
	w := &NewListener(nil, nil).waiting
	var who waiters
	leave := who.join(w, "a")
	c := new(conn)
	if unused := w.leaveBehind(c); unused != nil {
		t.Error("somebody waits, but the connection is given up")
	}
	if w.take() != c || w.take() != nil {
		t.Error("the connection is not left to the next one, once")
	}
	w.listens([]string{"a"})
	leave() // while it is in use
	if unused := w.leaveBehind(c); unused != c || w.take() != nil || w.Listens("a") {
		t.Error("nobody waits, but the connection is left to somebody")
	}
}

// The connection stops listening to channels that have had no waiters for a while, to all of them at once.
func TestWaitingTidiesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &NewListener(nil, nil).waiting
		interrupted := 0
		var who waiters
		leaves := make(map[string]func())
		for _, channel := range []string{"a", "b", "c"} {
			leaves[channel] = who.join(w, channel)
		}
		channels, _, _ := w.wanted(nil)
		leaves["c"]() // while the connection begins to listen to it
		w.listens(channels)
		leaves["a"]()
		_, idle, tidyAt := w.wanted(func() { interrupted++ })
		if len(idle) > 0 || time.Until(tidyAt) != linger {
			t.Errorf("%q are idle, and the others at %v", idle, tidyAt)
		}
		leaves["b"]()
		time.Sleep(linger)
		again := who.join(w, "b")
		_, idle, tidyAt = w.wanted(nil)
		if slices.Sort(idle); !slices.Equal(idle, []string{"a", "c"}) || !tidyAt.IsZero() || interrupted != 0 || !w.Listens("b") {
			t.Errorf("%q are idle, next at %v, interrupted %d times, hears b: %v", idle, tidyAt, interrupted, w.Listens("b"))
		}
		w.wanted(func() { interrupted++ })
		again()
		if interrupted != 1 {
			t.Errorf("interrupted %d times, want once for the first idle channel", interrupted)
		}
		lost := w.leaveBehind(nil)
		if _, idle, tidyAt = w.wanted(nil); lost != nil || len(idle) > 0 || !tidyAt.IsZero() {
			t.Errorf("%q are idle on no connection", idle)
		}
	})
}
