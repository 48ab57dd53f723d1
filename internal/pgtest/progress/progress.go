// Package progress makes tests wait for progress instead of for a length of time.
//
// A wait fails after a minute without progress, however long the whole takes. The minute is counted in polls that
// really ran, so a process that gets no processor time, or whose server answers slowly, is not blamed for it.
package progress

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	shortest = time.Millisecond // between the first two polls
	longest  = 20 * time.Millisecond
	patience = time.Minute // the sum of the pauses in which nothing changed
)

// pacer counts the pauses since the last progress. Each counts for the length asked for.
type pacer struct{ still time.Duration }

func (p *pacer) restart() { p.still = 0 }

// next returns the next pause, and false if the wait has stood still for too long.
func (p *pacer) next() (time.Duration, bool) {
	pause := min(max(p.still/10, shortest), longest)
	p.still += pause
	return pause, p.still <= patience
}

// Poll calls look until it reports that it is done. The count is anything that changes with each step of progress. Poll
// returns an error when the count has stood still for a minute. It pauses longer than a look takes, up to a second, so
// dear looks don't keep the server busy. Unlike the other functions it may be called beside a test.
func Poll[C comparable](what string, look func() (count C, done bool)) error {
	var p pacer
	began := time.Now()
	last, done := look()
	for !done {
		took := time.Since(began)
		pause, ok := p.next()
		if !ok {
			return fmt.Errorf("waited for %s, which stood still for %v at %v", what, patience, last)
		}
		time.Sleep(max(pause, min(4*took, time.Second))) //pace:allow this is the helper that waits for all others
		began = time.Now()
		var count C
		if count, done = look(); count != last {
			p.restart()
			last = count
		}
	}
	return nil
}

// Wait is [Poll] for the goroutine of a test, which it fails.
func Wait[C comparable](t testing.TB, what string, look func() (count C, done bool)) {
	t.Helper()
	if err := Poll(what, look); err != nil {
		t.Fatal(err)
	}
}

// Equal is [Wait] for a value that is its own count: it waits until the value equals want.
func Equal[C comparable](t testing.TB, what string, want C, look func() C) {
	t.Helper()
	Wait(t, what, func() (C, bool) {
		got := look()
		return got, got == want
	})
}

// Until calls happened until it returns true. It fails the test after a minute of polls. If the wait takes many steps, use
// [Wait] or [Equal], which a slow machine can't fail.
func Until(t testing.TB, what string, happened func() bool) {
	t.Helper()
	Wait(t, what, func() (bool, bool) { return false, happened() })
}

// Receive returns the next value of c, or the zero value once c is closed. It fails the test after a minute without one.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	var p pacer
	for {
		pause, ok := p.next()
		if !ok {
			t.Fatalf("waited for %s, which did not come in %v", what, patience)
		}
		timer := time.NewTimer(pause) //pace:allow this is the helper that waits for all others
		select {
		case value := <-c:
			timer.Stop()
			return value
		case <-timer.C:
		}
	}
}

// Context returns a context that ends when step has not been called for a minute. A test passes it to a call that
// could block for ever, calls step for each arrival, and stop after the last one; the end of the test also calls
// stop.
func Context(t testing.TB, what string) (ctx context.Context, step, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	var steps atomic.Int64
	var watching sync.WaitGroup
	watching.Go(func() {
		var p pacer
		for last := steps.Load(); ; {
			pause, ok := p.next()
			if !ok {
				cancel(fmt.Errorf("waited for %s, which stood still for %v at %v", what, patience, last))
				return
			}
			timer := time.NewTimer(pause) //pace:allow this is the helper that waits for all others
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if count := steps.Load(); count != last {
				p.restart()
				last = count
			}
		}
	})
	stop = func() {
		cancel(nil)
		watching.Wait()
	}
	t.Cleanup(stop)
	return ctx, func() { steps.Add(1) }, stop
}
