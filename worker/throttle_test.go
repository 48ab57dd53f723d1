package worker

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

func TestThrottleHalvesAndRecovers(t *testing.T) {
	t.Parallel()
	l, now := throttle{capacity: 100, every: time.Second}, epoch
	want := func(n int) {
		t.Helper()
		if got := l.holds(now); got != n {
			t.Errorf("%d of 100 after %v, want %d", got, now.Sub(epoch), n)
		}
	}
	want(100)
	l.late(now, 100, false)
	l.late(now.Add(time.Second-1), 50, true) // part of the same delay
	want(50)
	now = now.Add(2*time.Second - 1) // the first third in which nothing is late
	want(50)
	now = now.Add(2 * time.Second)
	want(63) // 50 · 1.125²
	now = now.Add(4 * time.Second)
	want(100)
	if l.throttled(now) {
		t.Error("it is throttled for ever")
	}

	// What is late all the time, in thirds or less often than that, leaves one execution.
	for _, every := range []time.Duration{time.Second, 1500 * time.Millisecond} {
		for range 100 {
			l.late(now, 100, true)
			now = now.Add(every)
		}
		want(1)
	}
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
		want(n)
		now = now.Add(time.Second)
	}
	now = now.Add(20 * time.Second)
	want(100)
}

// overloaded sets up handlers that take three leases, and an engine that needs a hundredth of a second per renewed lease.
//
//pace:allow it is called in bubbles alone
func overloaded(w *Worker, eng *fakeEngine) {
	on(w, "long", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
		select {
		case <-ctx.Done():
			return struct{}{}, context.Cause(ctx)
		case <-time.After(3 * time.Second): // three leases
			return struct{}{}, nil
		}
	})
	eng.expires = make(map[id.ExecutionID]time.Time)
	eng.renewTakes = func(leases int) time.Duration { return time.Duration(leases) * 10 * time.Millisecond }
}

// Under overload a renewal takes longer the more leases it renews. A worker that kept claiming would lose nearly all of
// them, and its handlers would work for nothing.
func TestLateWorkerClaimsLess(t *testing.T) {
	inBubble(t, Config{LeaseTTL: time.Second, Concurrency: 100, DrainTimeout: time.Second}, overloaded, func(t *testing.T, b *bubble) {
		b.eng.putMany(100_000, "long")
		b.wakeLane()
		b.pass(20 * time.Second)
		claimed, completed := b.left(engine.DefaultLane), len(b.seen().ended)
		b.pass(100 * time.Second)
		claimed, completed = claimed-b.left(engine.DefaultLane), len(b.seen().ended)-completed
		t.Logf("%d claimed, %d completed", claimed, completed)
		if completed < 300 || completed < claimed/2 {
			t.Errorf("%d claimed, but only %d completed", claimed, completed)
		}

		// It uses all its room again once renewals are quick.
		b.eng.mu.Lock()
		b.eng.renewTakes = func(int) time.Duration { return time.Millisecond }
		b.eng.mu.Unlock()
		b.pass(10 * time.Second)
		if n := b.held.len(); n < 100 {
			t.Errorf("%d executions are held, want all that it may have", n)
		}
	})
}

// Locks of other transactions don't count as overload.
func TestLockedLeasesDoNotThrottle(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 3 * time.Second, DrainTimeout: time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		locked := work("long")
		b.eng.lockedLease[locked.ID] = true
		b.eng.put(engine.DefaultLane, locked)
		b.eng.putMany(5, "long")
		b.wakeLane()
		b.pass(time.Minute)
		if n := len(b.eng.causes); n != 1 {
			t.Errorf("%d leases were lost, want the one whose attempt is locked", n)
		}
		b.late.mu.Lock()
		defer b.late.mu.Unlock()
		if !b.late.since.IsZero() {
			t.Error("the worker claims less")
		}
	})
}

// wantMostCompleted lets the worker settle into an overload, and fails the test unless it then completes most executions that
// it claims, and at least so many.
func (b *bubble) wantMostCompleted(t *testing.T, atLeast int) {
	t.Helper()
	b.eng.putMany(100_000, "long")
	b.wakeLane()
	b.pass(20 * time.Second)
	claimed, completed := b.left(engine.DefaultLane), len(b.seen().ended)
	b.pass(100 * time.Second)
	claimed, completed = claimed-b.left(engine.DefaultLane), len(b.seen().ended)-completed
	t.Logf("%d claimed, %d completed", claimed, completed)
	if completed < atLeast || completed < claimed/2 {
		t.Errorf("%d claimed, but only %d completed", claimed, completed)
	}
}

// A worker that can keep only a few of a hundred costly leases holds a few: its limit keeps halving.
func TestThrottledWorkerHoldsWhatItCanKeep_C13(t *testing.T) {
	inBubble(t, Config{LeaseTTL: time.Second, Concurrency: 100, DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
		overloaded(w, eng)
		eng.renewTakes = func(leases int) time.Duration { return time.Duration(leases) * 100 * time.Millisecond }
	}, func(t *testing.T, b *bubble) { b.wantMostCompleted(t, 50) })
}

// An overloaded database that answers no renewal in a third of a lease is given two thirds.
func TestSlowRenewalsAreGivenTime_C13(t *testing.T) {
	inBubble(t, Config{LeaseTTL: time.Second, Concurrency: 4, DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
		overloaded(w, eng)
		eng.renewTakes = func(int) time.Duration { return 400 * time.Millisecond }
	}, func(t *testing.T, b *bubble) { b.wantMostCompleted(t, 30) })
}

// A claim that is answered so late that its leases are nearly over, or that a renewal finds them so, makes the worker claim
// less. A lease that was revoked in time does not, even if its handler takes long to end.
func TestLateClaimsThrottle_C13(t *testing.T) {
	for name, c := range map[string]struct {
		claimTakes time.Duration
		reason     error
		after      time.Duration
		throttled  bool
	}{
		"answered late":   {900 * time.Millisecond, nil, 910 * time.Millisecond, true},
		"found expired":   {500 * time.Millisecond, fferr.ErrLeaseExpired, time.Second, true},
		"revoked in time": {0, fferr.ErrLeaseRevoked, 1500 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{LeaseTTL: time.Second, DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
				on(w, "long", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
					<-ctx.Done()
					<-time.After(time.Second)
					return struct{}{}, ctx.Err()
				})
				eng.claimTakes = c.claimTakes
				eng.renewTakes = func(int) time.Duration { return 50 * time.Millisecond }
				eng.renewErr = func(engine.Lease) (item, call error) { return c.reason, nil }
			}, func(t *testing.T, b *bubble) {
				b.eng.putMany(1, "long")
				b.wakeLane()
				b.pass(c.after)
				if got := b.late.throttled(time.Now()); got != c.throttled {
					t.Errorf("the worker claims less: %v, want %v", got, c.throttled)
				}
			})
		})
	}
}
