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
	"github.com/flowfabric/flowfabric-go/policy"
)

// quickAndSlow registers handlers of the kinds "quick", which returns at once, and "slow", which takes a second.
//
//pace:allow it sets workers in bubbles up
func quickAndSlow(w *Worker, _ *fakeEngine) {
	on(w, "quick", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
	on(w, "slow", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
		select {
		case <-ctx.Done():
			return struct{}{}, context.Cause(ctx)
		case <-time.After(time.Second):
			return struct{}{}, nil
		}
	})
}

func TestSettleOneImmediately(t *testing.T) {
	bothWays(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		began := sinceEpoch()
		b.eng.putMany(1, "quick")
		b.wakeLane()
		if len(b.seen().done) != 1 || b.seen().done[0].at != began {
			t.Errorf("completions %v, want one at %v", b.seen().done, began)
		}
	})
}

func TestSettleBatchesWhatArrivesDuringACommit(t *testing.T) {
	var commit chan struct{}
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		commit = make(chan struct{})
		eng.doneErr = func([]engine.Completion) (item, call error) {
			if len(eng.done) == 1 {
				eng.mu.Unlock()
				<-commit
				eng.mu.Lock()
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		b.eng.putMany(3, "quick")
		b.wakeLane()
		close(commit)
		synctest.Wait()
		if done := b.seen().done; len(done) != 2 || len(done[0].items) != 1 || len(done[1].items) != 3 {
			t.Errorf("completions %v, want one, and then the three that came meanwhile", done)
		}
	})
}

// Members of flows are settled two batches at a time while their completions make others claimable, and otherwise in
// turns, since a single settler makes larger batches.
func TestSettleMembersInTurns(t *testing.T) {
	for _, c := range []struct {
		name      string
		releasing bool
		most      int
	}{{"nothing is released", false, 1}, {"others are released", true, memberSettlers}} {
		t.Run(c.name, func(t *testing.T) {
			const members = 200
			inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
				quickAndSlow(w, eng)
				eng.settleTakes = 10 * time.Millisecond
				eng.doneErr = func([]engine.Completion) (item, call error) {
					if c.releasing {
						eng.wake("another")
					}
					return nil, nil
				}
			}, func(t *testing.T, b *bubble) {
				for range members {
					member := work("quick")
					member.Flow = new(newFlowID())
					b.eng.put(engine.DefaultLane, member)
					b.run.wakeLane("") // other notifications would look like a release
					b.pass(time.Millisecond)
				}
				b.pass(time.Second)
				seen := b.seen()
				if n := items(seen.done); n != members {
					t.Errorf("%d of %d settled", n, members)
				}
				if seen.settlesMost != c.most {
					t.Errorf("%d batches at once, want %d", seen.settlesMost, c.most)
				}
			})
		})
	}
}

func TestSettleFullBatchesTogether(t *testing.T) {
	inBubble(t, Config{SettleBatch: 10}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(35, "quick")
		b.wakeLane()
		b.pass(time.Second)
		if n := items(b.seen().done); n != 35 {
			t.Errorf("%d completed, want 35", n)
		}
		for _, c := range b.seen().done {
			if len(c.items) > 10 {
				t.Errorf("batch of %d, want at most 10", len(c.items))
			}
		}
	})
}

func TestSettleRetriesAfterFailures(t *testing.T) {
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = outOfReach(2)
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		b.pass(time.Second)
		if len(b.seen().done) != 3 {
			t.Fatalf("%d calls, want 3", len(b.seen().done))
		}
		for i, full := range []time.Duration{firstSettlePause, 2 * firstSettlePause} {
			if pause := b.seen().done[i+1].at - b.seen().done[i].at; pause < full/2 || pause > full {
				t.Errorf("pause %d is %v, want between %v and %v", i, pause, full/2, full)
			}
		}
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held, want 0", n)
		}
	})
}

func TestSettleIsNotBlockedByOneExecution(t *testing.T) {
	poison := work("quick")
	settled := make(map[string]int)
	lost := false
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func(batch []engine.Completion) (item, call error) {
			if slices.ContainsFunc(batch, func(c engine.Completion) bool { return c.Lease.Execution == poison.ID }) {
				return nil, fmt.Errorf("complete: %w", fferr.ErrTransport)
			}
			for _, c := range batch {
				settled[c.Lease.Execution.String()]++
			}
			return nil, nil
		}
		eng.renewErr = func(engine.Lease) (item, call error) {
			if lost {
				item = &fferr.LeaseError{Err: fferr.ErrLeaseRevoked}
			}
			return item, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(20, "quick")
		b.eng.put(engine.DefaultLane, poison)
		b.eng.putMany(20, "quick")
		b.wakeLane()
		b.pass(10 * time.Second)
		if len(settled) != 40 {
			t.Errorf("%d of 40 settled beside the one that cannot be", len(settled))
		}
		for execution, n := range settled {
			if n != 1 {
				t.Errorf("%s settled %d times", execution, n)
			}
		}
		b.pass(10 * DefaultLeaseTTL)
		if n := b.held.len(); n != 1 {
			t.Errorf("%d executions held, want the impossible one, as long as its lease lives", n)
		}
		b.eng.mu.Lock()
		lost = true
		b.eng.mu.Unlock()
		b.pass(DefaultLeaseTTL)
		if n := b.held.len(); n != 0 {
			t.Errorf("%d executions held, want the impossible one given up", n)
		}
	})
}

func TestSettleFailsARefusedResult(t *testing.T) {
	bothWays(t, Config{}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func([]engine.Completion) (item, call error) {
			return &fferr.InputError{Field: "result", Reason: "too large"}, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		if items(b.seen().failed) != 1 {
			t.Fatalf("failures %v, want one", b.seen().failed)
		}
		got := b.seen().failed[0].items[0].Failure
		if got.Class != policy.Permanent || got.Category != "result" || !strings.Contains(got.Message, "too large") {
			t.Errorf("failure %+v, want a permanent one of the result", got)
		}
	})
}

func TestSettleFailsARefusedWait(t *testing.T) {
	bothWays(t, Config{}, func(w *Worker, eng *fakeEngine) {
		on(w, "bad", func(ctx context.Context, job Job[struct{}]) (string, error) {
			return engine.Signal[string]{Name: "approved"}.Await(ctx, job, engine.Wait{Where: "no path"})
		})
		on(w, "worse", func(ctx context.Context, job Job[struct{}]) (string, error) {
			return engine.Signal[string]{}.Await(ctx, job, engine.Wait{})
		})
		eng.suspendErr = &fferr.InputError{Field: "condition", Reason: "no path"}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "bad")
		b.eng.putMany(1, "worse")
		b.wakeLane()
		b.pass(time.Minute)
		if items(b.seen().failed) != 2 {
			t.Fatalf("failures %v, want two", b.seen().failed)
		}
		for _, call := range b.seen().failed {
			for _, item := range call.items {
				if got := item.Failure; got.Class != policy.Permanent || got.Category != "wait" {
					t.Errorf("failure %+v, want a permanent one of the wait", got)
				}
			}
		}
	})
}

func TestSettleDropsALostLease(t *testing.T) {
	var outcomes []Report
	inBubble(t, Config{Observer: hookFunc(func(o Report) { outcomes = append(outcomes, o) })}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func([]engine.Completion) (item, call error) {
			return &fferr.LeaseError{Err: fferr.ErrStaleLease}, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "quick")
		b.wakeLane()
		b.pass(time.Minute)
		if len(b.seen().done) != 1 || len(b.seen().failed) != 0 {
			t.Errorf("%d completions and %d failures, want 1 and 0", len(b.seen().done), len(b.seen().failed))
		}
		if len(outcomes) != 1 || outcomes[0].Settlement != Abandoned || !errors.Is(outcomes[0].Err, fferr.ErrStaleLease) {
			t.Errorf("outcomes %v, want one abandoned to a stale lease", outcomes)
		}
	})
}

func TestSettleFetchesWorkReleasedByAFlow(t *testing.T) {
	bothWays(t, Config{PollInterval: time.Hour}, func(w *Worker, eng *fakeEngine) {
		quickAndSlow(w, eng)
		eng.doneErr = func(batch []engine.Completion) (item, call error) {
			if len(eng.done) == 1 {
				eng.lanes[engine.DefaultLane] = append(eng.lanes[engine.DefaultLane], work("quick")) // its downstream
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		member := work("quick")
		member.Flow = new(newFlowID())
		b.eng.put(engine.DefaultLane, member)
		b.wakeLane()
		synctest.Wait()
		if n := items(b.seen().done); n != 2 {
			t.Errorf("%d completed, want the downstream too, without a notification", n)
		}
	})
}

// way is how an execution is settled: like one of its kind.
type way struct {
	name   string
	kind   string
	member bool
}

// ways begins with those that store an outcome.
var ways = []way{
	{"completed", "quick", false},
	{"member completed", "quick", true},
	{"failed", "bad", false},
	{"given back", "long", false},
}

// inEachWay runs [inBubble] for some ways. A test begins when the only execution of its bubble is being settled.
func inEachWay(
	t *testing.T, ways []way, cfg Config, setUp func(*fakeEngine), test func(t *testing.T, b *bubble, x id.ExecutionID),
) {
	t.Helper()
	for _, way := range ways {
		for _, batch := range []int{0, 1} {
			cfg.FetchBatch = batch
			t.Run(fmt.Sprintf("%s, batches of %d", way.name, batch), func(t *testing.T) {
				inBubble(t, cfg, func(w *Worker, eng *fakeEngine) {
					quickAndSlow(w, eng)
					untilCancelled(w, eng)
					on(w, "bad", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, errors.New("bad") })
					setUp(eng)
				}, func(t *testing.T, b *bubble) {
					one := work(way.kind)
					if way.member {
						one.Flow = new(newFlowID())
					}
					b.eng.put(engine.DefaultLane, one)
					b.wakeLane()
					if way.kind == "long" {
						b.held.interrupt(ErrShutdown)
						synctest.Wait()
					}
					test(t, b, one.ID)
				})
			})
		}
	}
}

// A lease is renewed until the outcome of its execution is committed, however long that takes.
func TestSettleRenewsLeasesUntilTheCommit(t *testing.T) {
	const ttl, takes = 3 * time.Second, 20 * time.Second
	for _, c := range []struct {
		name  string
		ways  []way
		setUp func(*fakeEngine)
	}{
		{"slow commit", ways, func(eng *fakeEngine) { eng.settleTakes = takes }},
		{"locked", ways[:3], func(eng *fakeEngine) {
			busyUntil := func() error {
				if sinceEpoch() < takes {
					return fferr.ErrBusy
				}
				return nil
			}
			eng.doneErr = func([]engine.Completion) (item, call error) { return busyUntil(), nil }
			eng.failErr = func([]engine.AttemptFailure) (item, call error) { return busyUntil(), nil }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inEachWay(t, c.ways, Config{LeaseTTL: ttl}, c.setUp, func(t *testing.T, b *bubble, x id.ExecutionID) {
				b.pass(takes + maxSettlePause)
				seen := b.seen()
				if n := b.held.len(); n != 0 || len(seen.renewed) < int(takes/ttl) {
					t.Errorf("%d renewals and %d executions held, want some every %v until it is settled", len(seen.renewed), n, ttl)
				}
				last := time.Duration(0)
				for _, r := range seen.renewed {
					if len(r.items) != 1 || r.items[0].Lease.Execution != x || r.at-last >= ttl {
						t.Errorf("renewed %v at %v after %v", r.items, r.at, last)
					}
					last = r.at
				}
				if last < takes-ttl/2 {
					t.Errorf("last renewed at %v, want it until %v", last, takes)
				}
			})
		})
	}
}

// An error that does not mean a lost lease leaves the task to be retried.
func TestSettleRetriesATemporaryErrorOfOne(t *testing.T) {
	for _, passing := range []error{
		fferr.ErrBusy, fferr.ErrContention, fferr.ErrTransport, fferr.ErrUnavailable, fferr.ErrReadOnly, fferr.ErrDenied,
		context.DeadlineExceeded, errors.New("unforeseen"),
	} {
		t.Run(passing.Error(), func(t *testing.T) {
			inEachWay(t, ways, Config{}, func(eng *fakeEngine) {
				calls := 0
				answer := func() error {
					if calls++; calls <= 3 {
						return fmt.Errorf("settle: %w", passing)
					}
					return nil
				}
				eng.doneErr = func([]engine.Completion) (item, call error) { return answer(), nil }
				eng.failErr = func([]engine.AttemptFailure) (item, call error) { return answer(), nil }
				eng.backErr = func(engine.Lease) error { return answer() }
			}, func(t *testing.T, b *bubble, x id.ExecutionID) {
				if n := b.held.len(); n != 1 {
					t.Fatalf("%d executions held after an error that passes, want 1", n)
				}
				b.pass(maxSettlePause)
				seen := b.seen()
				if calls := len(seen.done) + len(seen.failed) + len(seen.back); calls != 4 || b.held.len() != 0 {
					t.Errorf("%d calls and %d executions held, want 4 and none", calls, b.held.len())
				}
			})
		})
	}
}
