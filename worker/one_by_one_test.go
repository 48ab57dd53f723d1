package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

func TestOneByOneCompletesWithTheNextClaim(t *testing.T) {
	inBubble(t, Config{FetchBatch: 1, Concurrency: 1, PollInterval: time.Hour}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(5, "slow")
		b.wakeLane()
		b.pass(4*time.Second + 500*time.Millisecond)
		seen := b.seen()
		if items(seen.done) != 4 || seen.together != 4 {
			t.Errorf("%d completed, %d of them with a claim; want 4", items(seen.done), seen.together)
		}
		for i, c := range seen.done {
			if want := time.Duration(i+1) * time.Second; c.at != want {
				t.Errorf("completion %d at %v, want it as soon as its handler has returned, at %v", i, c.at, want)
			}
		}
		b.pass(time.Second)
		if n := items(b.seen().done); n != 5 {
			t.Errorf("%d completed, want the last one too, after which nothing is left", n)
		}
	})
}

// If many handlers end at once, one claim completes all of them, and none waits for room.
func TestOneByOneCompletesAllEndedHandlers(t *testing.T) {
	inBubble(t, Config{FetchBatch: 1, Concurrency: 20, PollInterval: time.Hour}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(50, "slow")
		b.wakeLane()
		b.pass(3*time.Second + 500*time.Millisecond)
		if n := items(b.seen().done); n != 50 {
			t.Errorf("%d completed in three rounds of 20 handlers, want 50", n)
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held", n)
		}
	})
}

// If the call that completes and claims fails, the completion is retried separately.
func TestOneByOneSettlesAfterAFailedClaim(t *testing.T) {
	inBubble(t, Config{FetchBatch: 1}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = outOfReach(2)
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		b.pass(time.Second)
		if len(b.seen().done) != 3 {
			t.Errorf("%d calls, want 3", len(b.seen().done))
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held, want 0", n)
		}
		b.eng.putMany(1, "quick")
		b.pass(maxFetchPause)
		if len(b.seen().done) != 4 {
			t.Error("does not go on")
		}
	})
}

func TestOneByOneDropsALostLease(t *testing.T) {
	var outcomes []Report
	cfg := Config{FetchBatch: 1, Observer: hookFunc(func(o Report) { outcomes = append(outcomes, o) })}
	inBubble(t, cfg, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func([]engine.Completion) (item, call error) {
			return &fferr.LeaseError{Err: fferr.ErrStaleLease}, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		b.pass(time.Minute)
		if len(b.seen().done) != 1 || len(outcomes) != 1 || outcomes[0].Settlement != Abandoned || !errors.Is(outcomes[0].Err, fferr.ErrStaleLease) {
			t.Errorf("%d calls, outcomes %v; want one abandoned to a stale lease", len(b.seen().done), outcomes)
		}
	})
}

// A handler that ends when the worker stops is settled, whichever of the two the fetcher notices first.
func TestOneByOneEndsWithItsLastHandler(t *testing.T) {
	for range 20 {
		t.Run("", func(t *testing.T) {
			inBubble(t, Config{FetchBatch: 1}, quickAndSlow, func(t *testing.T, b *bubble) {
				b.eng.putMany(1, "slow")
				b.wakeLane()
				<-time.After(time.Second)
				b.stop()
				if n := items(b.seen().done); n != 1 {
					t.Errorf("%d completed, want 1", n)
				}
				if n := b.held.len(); n != 0 {
					t.Errorf("%d executions held", n)
				}
			})
		})
	}
}

// During a claim a handler ends and fills the channel to the settler, which is the fetcher itself; then the worker is
// stopped. The claimed work goes back without waiting for room in the channel.
func TestOneByOneReturnsLateClaimsAtTheEnd(t *testing.T) {
	cfg := Config{FetchBatch: 1, SettleBatch: 1, Concurrency: 3, PollInterval: time.Hour}
	inBubble(t, cfg, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimTakes = time.Second
	}, func(t *testing.T, b *bubble) {
		b.pass(2 * time.Second) // the first poll finds nothing
		b.eng.putMany(3, "quick")
		b.wakeLane()
		b.pass(1500 * time.Millisecond) // one has ended, and the next is being claimed
		b.stop()
		if done, back := items(b.seen().done), items(b.seen().back); done+back+b.left(engine.DefaultLane) != 3 || back != 1 {
			t.Errorf("%d completed, %d given back, %d left; want 3 in all, and one given back", done, back, b.left(engine.DefaultLane))
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held", n)
		}
	})
}
