package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

// A locked result is settled once the lock is free, however long that takes, and blocks no other result.
func TestSettleSetsALockedResultAside(t *testing.T) {
	bothWays(t, Config{Concurrency: 4}, quickAndSlow, func(t *testing.T, b *bubble) {
		locked := work("quick")
		b.eng.lock(locked.ID, true)
		b.eng.put(engine.DefaultLane, locked)
		b.eng.putMany(20, "quick")
		b.wakeLane()
		if n := len(b.seen().ended); n != 20 {
			t.Errorf("%d completed at once, want the 20 that are not locked", n)
		}
		b.pass(10 * DefaultLeaseTTL)
		b.eng.putMany(20, "quick")
		b.wakeLane()
		if n := len(b.seen().ended); n != 40 {
			t.Errorf("%d completed, want those that came later too", n)
		}
		b.eng.lock(locked.ID, false)
		b.pass(maxSettlePause)
		for x, n := range b.seen().ended {
			if n != 1 {
				t.Errorf("%s completed %d times", x, n)
			}
		}
		if n := len(b.seen().ended); n != 41 {
			t.Errorf("%d completed, want the one that was locked too", n)
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held", n)
		}
	})
}

// Failures, and members of flows, go to the retrier in the same way.
func TestSettleSetsLockedFailuresAndMembersAside(t *testing.T) {
	bothWays(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		on(w, "bad", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, errors.New("bad") })
	}, func(t *testing.T, b *bubble) {
		failing, member := work("bad"), work("quick")
		member.Flow = new(newFlowID())
		b.eng.lock(failing.ID, true)
		b.eng.lock(member.ID, true)
		b.eng.put(engine.DefaultLane, failing, member)
		b.wakeLane()
		b.pass(2 * DefaultLeaseTTL)
		if n := b.held.len(); n != 2 {
			t.Fatalf("%d executions held, want both", n)
		}
		b.eng.lock(failing.ID, false)
		b.eng.lock(member.ID, false)
		b.pass(maxSettlePause)
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held", n)
		}
	})
}

// Calls for one execution queue for its lock, and each locked execution gets its turn.
func TestSettleGivesEachLockedRowItsTurn(t *testing.T) {
	var queued map[string]int
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		queued = make(map[string]int)
		eng.doneErr = func(batch []engine.Completion) (item, call error) { return fferr.ErrBusy, nil }
		eng.inLine = func(l engine.Lease) { queued[l.Execution.String()]++ }
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(5, "quick")
		b.wakeLane()
		b.pass(time.Minute)
		if len(queued) != 5 {
			t.Errorf("queued for %d of 5: %v", len(queued), queued)
		}
		b.eng.mu.Lock()
		b.eng.doneErr = nil
		b.eng.mu.Unlock()
		b.pass(maxSettlePause)
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held", n)
		}
	})
}

func TestSettleStopsWaitingWhenTheLeaseIsLost(t *testing.T) {
	for _, batch := range []int{0, 1} {
		t.Run(fmt.Sprint("batches of ", batch), func(t *testing.T) { lostLeaseEndsTheWait(t, Config{FetchBatch: batch}) })
	}
}

func lostLeaseEndsTheWait(t *testing.T, cfg Config) {
	var outcomes []Report
	cfg.Observer = hookFunc(func(o Report) { outcomes = append(outcomes, o) })
	lost := false
	inBubble(t, cfg, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func([]engine.Completion) (item, call error) { return fferr.ErrBusy, nil }
		eng.renewErr = func(engine.Lease) (item, call error) {
			if lost {
				item = &fferr.LeaseError{Err: fferr.ErrStaleLease}
			}
			return item, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "quick")
		b.wakeLane()
		b.pass(time.Minute)
		if n := b.held.len(); n != 3 {
			t.Errorf("%d executions held, want all 3", n)
		}
		b.eng.mu.Lock()
		lost = true
		b.eng.mu.Unlock()
		b.pass(DefaultLeaseTTL)
		if len(outcomes) != 3 || outcomes[0].Settlement != Abandoned || !errors.Is(outcomes[0].Err, fferr.ErrStaleLease) {
			t.Errorf("outcomes %v, want three abandoned to a stale lease", outcomes)
		}
	})
}

// If the answer to a completion was lost, the outcome is known as soon as the database answers, even if the lease is over
// by then.
func TestSettleAsksAgainAfterALostAnswer(t *testing.T) {
	var outcomes []Report
	inBubble(t, Config{Observer: hookFunc(func(o Report) { outcomes = append(outcomes, o) })}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = outOfReach(1)
		eng.renewErr = func(engine.Lease) (item, call error) { return &fferr.LeaseError{Err: fferr.ErrNotActive}, nil }
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		for _, task := range b.held.renewedBefore(time.Now().Add(time.Hour)) {
			b.lost(task, fferr.ErrNotActive)
		}
		b.pass(time.Second)
		if len(outcomes) != 1 || outcomes[0].Settlement != Completed {
			t.Errorf("outcomes %v, want one completed", outcomes)
		}
	})
}

// After a run has ended, locked results are retried for one more lease.
func TestRunWaitsOneLeaseForLockedResults(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     Config
		freedIn time.Duration
		took    time.Duration
		want    Settlement
	}{
		{"freed in time", Config{}, 10 * time.Second, 12 * time.Second, Completed},
		{"freed in time, one by one", Config{FetchBatch: 1}, 10 * time.Second, 12 * time.Second, Completed},
		{"never", Config{}, time.Hour, DefaultLeaseTTL, Abandoned},
		{"never, one by one", Config{FetchBatch: 1}, time.Hour, DefaultLeaseTTL, Abandoned},
	} {
		t.Run(c.name, func(t *testing.T) {
			var outcomes []Report
			c.cfg.Observer = hookFunc(func(o Report) { outcomes = append(outcomes, o) })
			inBubble(t, c.cfg, quickAndSlow, func(t *testing.T, b *bubble) {
				locked := work("quick")
				b.eng.lock(locked.ID, true)
				b.eng.put(engine.DefaultLane, locked)
				b.wakeLane()
				b.pass(time.Minute)
				began := time.Now()
				time.AfterFunc(c.freedIn, func() { b.eng.lock(locked.ID, false) })
				b.stop()
				if took := time.Since(began); took > c.took {
					t.Errorf("ended after %v, want at most %v", took, c.took)
				}
				if len(outcomes) != 1 || outcomes[0].Settlement != c.want {
					t.Errorf("outcomes %v, want one %s", outcomes, c.want)
				}
			})
		})
	}
}

// A worker stops claiming while it cannot settle.
func TestClaimsStopWhileTooManyResultsWait(t *testing.T) {
	for _, way := range []struct {
		name string
		cfg  Config
	}{
		{"in batches", Config{Concurrency: 10, FetchBatch: 10}},
		{"one by one", Config{Concurrency: 10, FetchBatch: 1}},
	} {
		t.Run(way.name, func(t *testing.T) {
			inBubble(t, way.cfg, func(w *Worker, eng *fakeEngine) {
				quickAndSlow(w, eng)
				eng.doneErr = func([]engine.Completion) (item, call error) { return fferr.ErrBusy, nil }
			}, func(t *testing.T, b *bubble) {
				b.eng.putMany(3*maxRetrying, "quick")
				b.wakeLane()
				b.pass(time.Minute)
				if n := b.held.len(); n < maxRetrying || n > maxRetrying+DefaultBatch+50 {
					t.Errorf("%d executions held, want about %d", n, maxRetrying)
				}
				b.eng.mu.Lock()
				b.eng.doneErr = nil
				b.eng.mu.Unlock()
				b.pass(10 * time.Second)
				if n := len(b.seen().ended); n != 3*maxRetrying {
					t.Errorf("%d completed of %d when the locks were gone", n, 3*maxRetrying)
				}
			})
		})
	}
}

// Work that is only given back delays the end of a run by no more than a few seconds.
func TestRunEndsSoonWithoutResults(t *testing.T) {
	var outcomes []Report
	cfg := Config{Observer: hookFunc(func(o Report) { outcomes = append(outcomes, o) }), DrainTimeout: time.Second}
	inBubble(t, cfg, untilCancelled, func(t *testing.T, b *bubble) {
		locked := work("long")
		b.eng.lock(locked.ID, true)
		b.eng.put(engine.DefaultLane, locked)
		b.wakeLane()
		began := time.Now()
		b.stop()
		if took := time.Since(began); took > cfg.DrainTimeout+giveBackPatience+maxSettlePause {
			t.Errorf("ended after %v", took)
		}
		if len(outcomes) != 1 || outcomes[0].Settlement != Abandoned || !errors.Is(outcomes[0].Err, fferr.ErrBusy) {
			t.Errorf("outcomes %v, want one abandoned", outcomes)
		}
	})
}
