package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// putLimited puts executions that have places in limits.
func (f *fakeEngine) putLimited(n int, kind string) {
	for range n {
		w := work(kind)
		w.Limited = true
		f.put(engine.DefaultLane, w)
	}
}

// The completion of an execution with a limit claims in its transaction, since the next one may have its place now. It does so
// for those that end at once, and after them nothing waits.
func TestLimitedWorkCompletesWithTheNextClaim(t *testing.T) {
	inBubble(t, Config{Concurrency: 4, PollInterval: time.Hour}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putLimited(4, "slow")
		b.wakeLane()
		b.pass(500 * time.Millisecond)
		b.eng.putLimited(4, "slow") // as their completions let them in
		b.pass(time.Second)
		seen := b.seen()
		if items(seen.done) != 4 || seen.together < 1 {
			t.Errorf("%d completed, %d times with a claim; want 4, and a claim with them", items(seen.done), seen.together)
		}
		b.pass(time.Second)
		if n := items(b.seen().done); n != 8 {
			t.Errorf("%d completed, want the last ones too, after which nothing is left", n)
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held", n)
		}
	})
}

func TestRunUntilIdleHandlesLimitedWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := onFake(t, eng, Config{})
		quickAndSlow(w, eng)
		eng.putLimited(3, "quick")
		if n, err := w.RunUntilIdle(t.Context()); err != nil || n != 3 || items(eng.done) != 3 {
			t.Errorf("%d handled, %d completed, %v", n, items(eng.done), err)
		}
	})
}

// The last handlers may end after the fetcher.
func TestLimitedWorkEndsAfterTheFetcher(t *testing.T) {
	inBubble(t, Config{Concurrency: 2, PollInterval: time.Hour}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putLimited(2, "slow")
		b.wakeLane()
		b.pass(500 * time.Millisecond)
		b.stop()
		if n := items(b.seen().done); n != 2 {
			t.Errorf("%d completed, want those that ran", n)
		}
	})
}
