package worker

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

func TestThrottleHalvesAndRecovers(t *testing.T) {
	t.Parallel()
	l, now := throttle{every: time.Second}, epoch
	want := func(n int) {
		t.Helper()
		if got := l.of(100, now); got != n {
			t.Errorf("%d of 100 after %v, want %d", got, now.Sub(epoch), n)
		}
	}
	want(100)
	l.late(now)
	l.late(now.Add(time.Second - 1)) // part of the same delay
	want(50)
	now = now.Add(4 * time.Second)
	want(75)
	now = now.Add(4 * time.Second)
	want(100)
	if l.throttled(now) {
		t.Error("it is throttled for ever")
	}
	for range 100 {
		l.late(now)
		now = now.Add(time.Second)
	}
	want(12)
	l.share, l.since = 0, now
	want(1)
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
		b.tell()
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
		b.tell()
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
