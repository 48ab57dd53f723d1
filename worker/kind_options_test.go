package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
)

// gated registers a kind whose handlers wait for a value of the returned channel. running has their number, most the largest.
type gated struct {
	gate          chan struct{}
	running, most atomic.Int64
}

func onGate(w *Worker, kind string, options ...HandleOption) *gated {
	g := &gated{gate: make(chan struct{})}
	Handle(w, engine.Kind[size, size]{Name: kind}, func(ctx context.Context, _ Job[size]) (size, error) {
		n := g.running.Add(1)
		defer g.running.Add(-1)
		for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
		}
		select {
		case <-g.gate:
		case <-ctx.Done(): // a test has failed
		}
		return size{}, nil
	}, options...)
	return g
}

// A worker holds no more work of a limited kind than it runs, and goes on with other kinds of the lane meanwhile.
func TestConcurrencyOfAKind(t *testing.T) {
	for _, batch := range []int{0, 1} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			var slow *gated
			inBubble(t, Config{Concurrency: 10, FetchBatch: batch, SettleBatch: batch}, func(w *Worker, eng *fakeEngine) {
				slow = onGate(w, "limited", Concurrency(2))
				quickAndSlow(w, eng)
			}, func(t *testing.T, b *bubble) {
				for range 6 {
					b.eng.put(engine.DefaultLane, work("limited"))
				}
				b.eng.put(engine.DefaultLane, work("quick"), work("quick"), work("quick"))
				b.wakeLane()
				b.pass(10 * time.Second) // polls find nothing more to claim
				for left := 4; ; left-- {
					if n, in := slow.running.Load(), b.left(engine.DefaultLane); n != 2 || in != max(left, 0) || b.held.len() != 2 {
						t.Fatalf("%d run, %d are in the lane, %d are held; want 2, %d and 2", n, in, b.held.len(), left)
					}
					if left == 0 {
						break
					}
					slow.gate <- struct{}{}
					synctest.Wait()
				}
				slow.gate <- struct{}{}
				slow.gate <- struct{}{}
				synctest.Wait()
				if n := items(b.seen().done); n != 9 || slow.most.Load() != 2 {
					t.Errorf("%d completed, want 9; %d ran at once, want 2", n, slow.most.Load())
				}
			})
		})
	}
}

// The limit holds for a kind across the lanes of a worker, and within the worker's own.
func TestConcurrencyOfAKindHoldsAcrossLanes(t *testing.T) {
	var slow *gated
	inBubble(t, Config{Concurrency: 10, Lanes: []Lane{{Name: "a"}, {Name: "b"}}}, func(w *Worker, _ *fakeEngine) {
		slow = onGate(w, "limited", Concurrency(3))
	}, func(t *testing.T, b *bubble) {
		for range 5 {
			b.eng.put("a", work("limited"))
			b.eng.put("b", work("limited"))
		}
		b.eng.wake("a")
		b.eng.wake("b")
		b.pass(10 * time.Second)
		if slow.running.Load() != 3 || b.held.len() != 3 || b.left("a")+b.left("b") != 7 {
			t.Errorf("%d run, %d are held, %d and %d are left", slow.running.Load(), b.held.len(), b.left("a"), b.left("b"))
		}
		for range 10 {
			slow.gate <- struct{}{}
			synctest.Wait()
		}
		if n := items(b.seen().done); n != 10 || slow.most.Load() != 3 {
			t.Errorf("%d completed, want 10; %d ran at once, want 3", n, slow.most.Load())
		}
	})
}

// A limited kind comes first when a handler is free, but never takes more than its limit.
func TestConcurrencyOfAKindLeavesRoomForOthers(t *testing.T) {
	var limited, other *gated
	inBubble(t, Config{Concurrency: 4}, func(w *Worker, _ *fakeEngine) {
		limited, other = onGate(w, "limited", Concurrency(3)), onGate(w, "other")
	}, func(t *testing.T, b *bubble) {
		for range 20 {
			b.eng.put(engine.DefaultLane, work("limited"), work("other"))
		}
		b.wakeLane()
		for range 10 {
			if n := limited.running.Load() + other.running.Load(); n != 4 || other.running.Load() < 1 {
				t.Fatalf("%d of the limited kind run, %d of the other", limited.running.Load(), other.running.Load())
			}
			select {
			case limited.gate <- struct{}{}:
			case other.gate <- struct{}{}:
			}
			synctest.Wait()
		}
		close(limited.gate)
		close(other.gate)
	})
}

// A worker without limits claims as before: once from each lane.
func TestKindsWithoutLimitsShareOneClaimer(t *testing.T) {
	inBubble(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		if len(b.lanes) != 1 || b.slots != nil || b.lanes[0].slots != nil {
			t.Errorf("%d lanes, slots %v", len(b.lanes), b.slots)
		}
	})
}

func TestTimeoutOfAKind(t *testing.T) {
	bothWays(t, Config{LeaseTTL: time.Minute}, func(w *Worker, _ *fakeEngine) {
		handle := func(kind string, end func(ctx context.Context, job Job[size]) error) {
			Handle(w, engine.Kind[size, size]{Name: kind}, func(ctx context.Context, job Job[size]) (size, error) {
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, ErrHandlerTimeout) {
					return size{}, Permanent(fmt.Errorf("ended by %w", cause))
				}
				return size{}, end(ctx, job)
			}, Timeout(5*time.Second))
		}
		handle("obeys", func(ctx context.Context, _ Job[size]) error { return ctx.Err() })
		handle("classifies", func(context.Context, Job[size]) error { return Permanent(errors.New("no")) })
		handle("finishes", func(context.Context, Job[size]) error { return nil })
		handle("delays", func(_ context.Context, job Job[size]) error { return job.Delay(time.Hour) })
		Handle(w, engine.Kind[size, size]{Name: "fails"}, func(context.Context, Job[size]) (size, error) {
			return size{}, errors.New("no")
		}, Timeout(5*time.Second))
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, work("obeys"), work("classifies"), work("finishes"), work("delays"), work("fails"))
		b.wakeLane()
		b.pass(5 * time.Second)
		var classes []policy.Class
		for _, c := range b.seen().failed {
			for _, f := range c.items {
				classes = append(classes, f.Failure.Class)
			}
		}
		slices.Sort(classes)
		if want := []policy.Class{policy.Permanent, policy.TimedOut, policy.Transient}; !slices.Equal(classes, want) {
			t.Errorf("failed as %v, want %v", classes, want)
		}
		if seen := b.seen(); items(seen.done) != 1 || items(seen.delayed) != 1 {
			t.Errorf("%d completed, %d delayed, want one each", items(seen.done), items(seen.delayed))
		}
	})
}

func TestHandleRefusesBadOptions(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]HandleOption{
		"nil": nil, "no concurrency": Concurrency(0), "too large": Concurrency(MaxConcurrency + 1),
		"no timeout": Timeout(0), "negative": Timeout(-time.Second),
	} {
		w := onFake(t, newFakeEngine(), Config{})
		Handle(w, engine.Kind[size, size]{Name: "k"}, func(context.Context, Job[size]) (size, error) { return size{}, nil }, option)
		if err := w.Run(t.Context()); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
