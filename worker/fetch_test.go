package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

func newFlowID() id.FlowID { return id.NewFlowID() }

// An idle worker polls all its lanes at once, and claims from none that is empty.
func TestFetchIdleIsNearlySilent(t *testing.T) {
	inBubble(t, Config{Lanes: []Lane{{Name: "a"}, {Name: "b"}}}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.pass(time.Minute)
		if n := len(b.seen().claims); n != 2 {
			t.Errorf("%d claims in an idle minute on two lanes, want one from each at the start", n)
		}
		if n := len(b.seen().looks); n < 60 || n > 75 {
			t.Errorf("%d looks at two lanes in an idle minute, want about 67", n)
		}
		before := len(b.seen().looks)
		for range 40 {
			b.run.poll(nil)
			b.pass(DefaultPollInterval)
		}
		if n := len(b.seen().looks); n != before {
			t.Errorf("%d looks beside those of the background work", n-before)
		}
	})
}

// A poll, its own or the background work's, finds work without a notification.
func TestFetchPollsItsLanes(t *testing.T) {
	inBubble(t, Config{Lanes: []Lane{{Name: "a"}, {Name: "b"}}}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.put("b", work("quick"))
		b.pass(2 * DefaultPollInterval)
		if n := items(b.seen().done); n != 1 {
			t.Fatalf("%d done after a look", n)
		}
		b.eng.put("a", work("quick"))
		b.run.poll([]id.LaneID{"a"})
		b.pass(time.Second / 2)
		if n := items(b.seen().done); n != 2 {
			t.Errorf("%d done after a notification", n)
		}
	})
}

func TestFetchClaimsWhenNotified(t *testing.T) {
	inBubble(t, Config{PollInterval: time.Hour}, quickAndSlow, func(t *testing.T, b *bubble) {
		before := len(b.seen().claims)
		b.eng.wake("another")
		synctest.Wait()
		if len(b.seen().claims) != before {
			t.Error("claimed for a lane that it does not serve")
		}
		b.eng.wake("")
		synctest.Wait()
		if len(b.seen().claims) != before+1 {
			t.Error("did not look after a notification for all lanes")
		}
		b.wakeLane()
		if len(b.seen().claims) != before+2 {
			t.Error("did not look after a notification for its lane")
		}
		if woken := b.seen().woken; woken != 2 {
			t.Errorf("woke its claimer %d times, want 2: otherwise it does not scan again", woken)
		}
	})
}

// A claimer starts at its last position, and may delay the full scan that finds the rest.
func TestFetchRetriesAfterANotification(t *testing.T) {
	const blind = 400 * time.Millisecond
	inBubble(t, Config{PollInterval: time.Hour}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimBlind = func() bool { return sinceEpoch() < blind }
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		b.pass(2 * blind)
		if items(b.seen().done) != 1 {
			t.Error("gave up")
		}
		if n := len(b.seen().claims); n > 7 {
			t.Errorf("%d claims in %v, want ever fewer", n, 2*blind)
		}
	})
}

func TestFetchClaimsNoMoreThanItCanHandle(t *testing.T) {
	inBubble(t, Config{Concurrency: 4}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "slow")
		b.wakeLane()
		b.pass(500 * time.Millisecond) // from here on the handlers end at different times
		b.eng.putMany(99, "slow")
		b.wakeLane()
		b.pass(100 * time.Millisecond)
		for range 30 {
			if held := b.held.len(); held != 4 && held != 0 {
				t.Errorf("%d executions held by 4 slow handlers, want none that wait", held)
			}
			b.pass(time.Second)
		}
		if n := items(b.seen().done); n < 100 {
			t.Errorf("%d of 100 completed in 30 s by 4 handlers that take 1 s, want all", n)
		}
	})
}

func TestFetchQueuesForFastHandlers(t *testing.T) {
	inBubble(t, Config{Concurrency: 4}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimTakes = 2 * time.Millisecond
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(50_000, "quick")
		b.wakeLane()
		b.pass(time.Second)
		if n := items(b.seen().done); n < 30_000 {
			t.Errorf("%d completed in a second of claims of 200 that take 2 ms, want most of 50000", n)
		}
	})
}

func TestFetchSharesBetweenLanes(t *testing.T) {
	bothWays(t, Config{Lanes: []Lane{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Concurrency: 7}, quickAndSlow, func(t *testing.T, b *bubble) {
		for range 200 {
			b.eng.put("a", work("slow"))
			b.eng.put("b", work("slow"))
		}
		b.eng.wake("")
		b.pass(21*time.Second + 500*time.Millisecond)
		left := [2]int{b.left("a"), b.left("b")}
		if left[0]+left[1] > 400-7*20 {
			t.Errorf("left %v of 200 each after 20 rounds of 7 handlers", left)
		}
		if difference := left[0] - left[1]; difference < -20 || difference > 20 {
			t.Errorf("left %v of 200 each, want about the same", left)
		}
	})
}

func TestFetchSharesEachClaimBetweenLanes(t *testing.T) {
	inBubble(t, Config{Lanes: []Lane{{Name: "a"}, {Name: "b"}}, Concurrency: 10}, func(w *Worker, _ *fakeEngine) {
		on(w, "long", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		})
	}, func(t *testing.T, b *bubble) {
		for range 100 {
			b.eng.put("a", work("long"))
			b.eng.put("b", work("long"))
		}
		b.eng.wake("")
		b.pass(time.Minute)
		if left := [2]int{b.left("a"), b.left("b")}; left != [2]int{95, 95} {
			t.Errorf("left %v of 100 each, want that 10 handlers that do not end are shared", left)
		}
	})
}

// laneNames returns the names of n lanes.
func laneNames(n int) []id.LaneID {
	names := make([]id.LaneID, n)
	for i := range names {
		names[i] = id.LaneID(fmt.Sprint("lane-", i))
	}
	return names
}

// While handlers are quick, a lane's share is large enough to avoid one claim per execution, and several lanes share a
// commit.
func TestFetchFromManyLanesWithQuickHandlers(t *testing.T) {
	const lanes, each = 100, 200
	names := laneNames(lanes)
	inBubble(t, Config{Lanes: lanesNamed(names...)}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimTakes = time.Millisecond
	}, func(t *testing.T, b *bubble) {
		for _, lane := range names {
			for range each {
				b.eng.put(lane, work("quick"))
			}
		}
		before := len(b.seen().claims)
		b.eng.wake("")
		b.pass(500 * time.Millisecond)
		fewest, most := each, 0
		for _, lane := range names {
			fewest, most = min(fewest, b.left(lane)), max(most, b.left(lane))
		}
		if most == each || most-fewest > 2*leastShare {
			t.Errorf("left %d to %d of %d in a lane, want equal shares in the long run", fewest, most, each)
		}
		b.pass(10 * time.Second)
		seen := b.seen()
		if n := items(seen.done); n != lanes*each {
			t.Fatalf("%d of %d completed", n, lanes*each)
		}
		if n := len(seen.claims) - before; n > lanes*each/5 {
			t.Errorf("%d claims for %d executions, want a tenth", n, lanes*each)
		}
		if seen.claimsMost != claimsAtOnce {
			t.Errorf("%d claims at once, want up to %d", seen.claimsMost, claimsAtOnce)
		}
		most = 0
		for _, tx := range seen.joint {
			most = max(most, len(tx.items))
			if len(tx.items) > lanesTogether || tx.n > DefaultBatch {
				t.Errorf("asked for %d executions of %d lanes in one transaction, want at most %d and %d", tx.n, len(tx.items), DefaultBatch, lanesTogether)
			}
		}
		if most != lanesTogether {
			t.Errorf("claimed from %d lanes in one transaction, want up to %d", most, lanesTogether)
		}
	})
}

// If all handlers end together, none is running for a moment, but they still count as slow.
func TestFetchFromManyLanesWithSlowHandlers(t *testing.T) {
	const lanes, each, handlers = 10, 30, 20
	names := laneNames(lanes)
	inBubble(t, Config{Lanes: lanesNamed(names...), Concurrency: handlers}, quickAndSlow, func(t *testing.T, b *bubble) {
		for _, lane := range names {
			for range each {
				b.eng.put(lane, work("slow"))
			}
		}
		b.eng.wake("")
		for range 10 {
			b.pass(time.Second)
			for _, lane := range names {
				if left, other := b.left(lane), b.left(names[0]); left != other || left == each {
					t.Fatalf("left %d of %d in %s and %d in %s, want that all rounds are shared", left, each, lane, other, names[0])
				}
			}
		}
	})
}

// A fetcher that waits for a hanging claim would lose the leases of the others.
func TestFetchDeliversWhileAClaimHangs(t *testing.T) {
	lanes := slices.Sorted(slices.Values(laneNames(lanesTogether + 1)))
	inBubble(t, Config{Lanes: lanesNamed(lanes...), Concurrency: len(lanes)}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimHangs = lanes[0]
		eng.put(lanes[lanesTogether], work("quick"))
	}, func(t *testing.T, b *bubble) {
		b.pass(time.Second)
		if n := items(b.seen().done); n != 1 {
			t.Errorf("%d completed of one lane while the claim from others hangs, want 1", n)
		}
	})
}

// A lane that was idle while another was served gets no credit for it.
func TestFetchGivesIdleLanesNoCredit(t *testing.T) {
	inBubble(t, Config{Lanes: []Lane{{Name: "a"}, {Name: "b"}}, Concurrency: 1}, quickAndSlow, func(t *testing.T, b *bubble) {
		fill := func(lane id.LaneID) {
			for range 20 {
				b.eng.put(lane, work("slow"))
			}
			b.eng.wake("")
		}
		fill("a")
		b.pass(30 * time.Second)
		fill("a")
		fill("b")
		b.pass(10*time.Second + 500*time.Millisecond)
		if left := [2]int{b.left("a"), b.left("b")}; left[0] < 13 || left[0] > 17 || left[1] < 13 || left[1] > 17 {
			t.Errorf("left %v of 20 each after 10 rounds of 1 handler, want about 15", left)
		}
	})
}

// A failing lane does not block the others.
func TestFetchSkipsAFailingLane(t *testing.T) {
	inBubble(t, Config{Lanes: []Lane{{Name: "a"}, {Name: "b"}}}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimErr = func() error {
			if last := eng.claims[len(eng.claims)-1]; last.items[0] == "a" {
				return errors.New("this lane fails")
			}
			return nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.put("b", work("quick"))
		b.eng.wake("")
		b.pass(10 * time.Second)
		if n := items(b.seen().done); n != 1 {
			t.Errorf("%d completed beside a lane that fails, want 1", n)
		}
	})
}

func TestFetchBacksOff(t *testing.T) {
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimErr = func() error {
			if sinceEpoch() < time.Minute {
				return fmt.Errorf("claim: %w", fferr.ErrUnavailable)
			}
			return nil
		}
	}, func(t *testing.T, b *bubble) {
		b.pass(time.Minute)
		if n := len(b.seen().claims); n < 12 || n > 40 {
			t.Errorf("%d claims in a minute without a database, want ever fewer, down to one in 2.5 to 5 s", n)
		}
		b.eng.putMany(1, "quick")
		b.pass(maxFetchPause)
		if items(b.seen().done) != 1 {
			t.Error("did not go on when the database was back")
		}
		b.stop()
		failures := strings.Count(b.log.String(), "cannot claim")
		b.wantLogged(t, map[string]int{
			`level=WARN msg="cannot claim`:  1, // once a minute
			`level=DEBUG msg="cannot claim`: failures - 1,
		})
	})
}

func TestFetchReturnsQueuedWorkAtTheEnd(t *testing.T) {
	inBubble(t, Config{Concurrency: 4}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.claimTakes = 2 * time.Millisecond
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(20_000, "quick")
		b.eng.putMany(5_000, "slow")
		b.wakeLane()
		b.pass(700 * time.Millisecond)
		held := b.held.len()
		if held <= 4 {
			t.Fatalf("%d executions held by 4 handlers, want some that wait", held)
		}
		b.stop()
		if n := items(b.seen().back); n != held-4 {
			t.Errorf("%d given back of %d that were held, want all but 4", n, held)
		}
	})
}

func TestFetchReturnsAClaimInProgressAtTheEnd(t *testing.T) {
	inBubble(t, Config{PollInterval: time.Hour}, func(w *Worker, eng *fakeEngine) {
		eng.claimTakes = time.Second
		on(w, "quick", func(context.Context, Job[struct{}]) (struct{}, error) {
			t.Error("started after the end")
			return struct{}{}, nil
		})
	}, func(t *testing.T, b *bubble) {
		b.pass(2 * time.Second) // the first poll finds nothing
		b.eng.putMany(10, "quick")
		b.wakeLane()
		b.stop()
		if n := items(b.seen().back); n != 10 {
			t.Errorf("%d given back, want 10", n)
		}
		if b.seen().flushed == 0 {
			t.Error("the run ended without waiting for its notifications: a closed pool would drop them")
		}
	})
}

// A worker that is notified of work on a paused lane claims no more often than an idle one, except every 100 ms while
// notifications keep coming.
func TestFetchSlowsDownOnAPausedLane(t *testing.T) {
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.halt(engine.DefaultLane, state.HaltedLane)
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "quick")
		b.wakeLane()
		before := len(b.seen().claims)
		b.pass(time.Minute)
		if n := len(b.seen().claims) - before; n < 60 || n > 76 {
			t.Errorf("%d claims in a minute, want about 67", n)
		}
		before = len(b.seen().claims)
		for range 1000 {
			b.wakeLane()
			b.pass(time.Millisecond)
		}
		if n := len(b.seen().claims) - before; n < 8 || n > 12 {
			t.Errorf("%d claims in a second with a thousand notifications, want about 10", n)
		}
		b.eng.halt(engine.DefaultLane, state.NotHalted)
		b.wakeLane()
		b.pass(2 * haltedRest)
		if items(b.seen().done) != 3 {
			t.Errorf("%d handled once the lane was resumed, want 3", items(b.seen().done))
		}
		b.wantLogged(t, map[string]int{"lane is paused": 1, "lane is resumed": 1})
	})
}

func TestFetchSlowsDownOnADrainedWorker(t *testing.T) {
	lanes := []id.LaneID{"a", "b"}
	bothWays(t, Config{Lanes: lanesNamed(lanes...), Concurrency: 1}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.put("a", work("slow"), work("quick"))
		b.eng.wake("a")
		b.pass(500 * time.Millisecond)
		for _, lane := range lanes {
			b.eng.halt(lane, state.HaltedWorker)
			b.eng.put(lane, work("quick"))
			b.eng.wake(lane)
		}
		b.pass(time.Minute)
		if n := items(b.seen().done); n != 2 && n != 1 {
			t.Errorf("%d handled, want what had been claimed before", n)
		}
		for _, lane := range lanes {
			b.eng.halt(lane, state.NotHalted)
		}
		b.eng.wake("")
		b.pass(2 * time.Second)
		if n := items(b.seen().done); n != 4 {
			t.Errorf("%d handled once it was resumed, want 4", n)
		}
		b.wantLogged(t, map[string]int{"worker is drained": 1, "worker claims again": 1})
	})
}

// wantLogged expects the given number of log lines that contain each text.
func (b *bubble) wantLogged(t *testing.T, want map[string]int) {
	t.Helper()
	for text, n := range want {
		if got := strings.Count(b.log.String(), text); got != n {
			t.Errorf("%q was logged %d times, want %d", text, got, n)
		}
	}
}
