package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// fakeEngine records when each job was called, and answers as act says: by default that nothing was due.
type fakeEngine struct {
	mu    sync.Mutex
	calls map[string][]time.Time
	act   func(job string, call int) (int, error)

	left chan struct{} // wakes the dispatcher
}

func (f *fakeEngine) call(ctx context.Context, job string, batch int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = make(map[string][]time.Time)
	}
	f.calls[job] = append(f.calls[job], time.Now())
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if f.act == nil {
		return 0, nil
	}
	return f.act(job, len(f.calls[job]))
}

func (f *fakeEngine) ExpireLeases(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "leases", batch)
}

func (f *fakeEngine) PromoteDelayed(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "delays", batch)
}

func (f *fakeEngine) ExpireAttempts(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "attempts", batch)
}

func (f *fakeEngine) ExpireDeadlines(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "deadlines", batch)
}

func (f *fakeEngine) PruneCreationKeys(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "keys", batch)
}

func (f *fakeEngine) DispatchCompletions(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "dispatch", batch)
}

func (f *fakeEngine) UnblockRoutes(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "routes", batch)
}

func (f *fakeEngine) Undispatched() <-chan struct{} { return f.left }

func (f *fakeEngine) Retain(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "retention", batch)
}

func (f *fakeEngine) TrimOutboxes(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "outboxes", batch)
}

func (f *fakeEngine) PurgeFlows(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "flows", batch)
}

func (f *fakeEngine) ExpireGrants(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "grants", batch)
}

func (f *fakeEngine) RepairQueue(ctx context.Context, batch int) (int, error) {
	return f.call(ctx, "queue", batch)
}

// runFor runs a reconciler on f for as long as d. Whatever it leaves running fails the test.
func runFor(t *testing.T, d time.Duration, f *fakeEngine, cfg Config) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := newReconciler(f, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		r.Run(ctx)
	})
}

func TestRun_cadence(t *testing.T) {
	t.Parallel()
	f := &fakeEngine{}
	runFor(t, 10*time.Minute, f, Config{})
	for job, every := range map[string]time.Duration{
		"leases": DefaultLeaseExpiry, "delays": DefaultDelayedPromotion, "attempts": DefaultAttemptTimeout,
		"deadlines": DefaultExecutionDeadline, "keys": DefaultCreationKeys,
		"queue": DefaultQueueRepair, "dispatch": DefaultDispatch, "grants": DefaultGrantExpiry, "routes": DefaultRouteUnblocking,
		"retention": DefaultRetention, "outboxes": DefaultRetention, "flows": DefaultRetention,
	} {
		want := int(10 * time.Minute / every)
		if got := len(f.calls[job]); got < want*9/10-1 || got > want*11/10+1 {
			t.Errorf("%s: %d calls in 10 minutes, want about %d", job, got, want)
		}
		intervals := make(map[time.Duration]bool)
		for i := range len(f.calls[job]) - 1 {
			d := f.calls[job][i+1].Sub(f.calls[job][i])
			intervals[d] = true
			if d < every*9/10 || d > every*11/10 {
				t.Errorf("%s: %v between two calls, want %v within a tenth", job, d, every)
			}
		}
		if len(intervals) < 3 {
			t.Errorf("%s: always in step", job)
		}
	}
}

func TestRun_repeats_full_batches_at_once(t *testing.T) {
	t.Parallel()
	f := &fakeEngine{act: func(job string, call int) (int, error) {
		if job == "leases" && call < 5 {
			return 10, nil
		}
		return 9, nil
	}}
	runFor(t, 1800*time.Millisecond, f, Config{Batch: 10})
	calls := f.calls["leases"]
	if len(calls) != 5 || calls[4] != calls[0] {
		t.Errorf("called at %v, want 5 times without a pause", calls)
	}
}

// What this engine leaves undispatched is not left until the next look.
func TestRun_dispatches_when_woken(t *testing.T) {
	t.Parallel()
	f := &fakeEngine{}
	synctest.Test(t, func(t *testing.T) {
		f.left = make(chan struct{}, 1)
		r, err := newReconciler(f, Config{Dispatch: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx) })
		for range 3 {
			time.Sleep(time.Second)
			f.left <- struct{}{}
		}
		running.Wait()
		calls := f.calls["dispatch"]
		if len(calls) != 3 || calls[0].Sub(began) != time.Second || calls[2].Sub(began) != 3*time.Second {
			t.Errorf("called at %v, want 1, 2 and 3 s after %v", calls, began)
		}
	})
}

func TestRun_backs_off(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &fakeEngine{act: func(job string, call int) (int, error) {
		if job == "leases" && call <= 30 {
			return 0, errors.New("no database")
		}
		return 0, nil
	}}
	runFor(t, 30*time.Minute, f, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	calls := f.calls["leases"]
	if d := calls[29].Sub(calls[28]); d < maxPause/2 || d > maxPause {
		t.Errorf("%v between failures, want the longest pause in the end", d)
	}
	if d := calls[len(calls)-1].Sub(calls[len(calls)-2]); d > 2*time.Second {
		t.Errorf("%v between calls after the failures, want the interval again", d)
	}
	if n := strings.Count(log.String(), "no database"); n != 30 {
		t.Errorf("%d failures in the log, want 30", n)
	}
	if n := len(f.calls["delays"]); n < 2000 {
		t.Errorf("%d calls of another job, want it undisturbed", n)
	}
}

func TestNew_refuses(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{LeaseExpiry: -1},
		{DelayedPromotion: -1},
		{AttemptTimeout: -1},
		{ExecutionDeadline: -1},
		{CreationKeys: -1},
		{QueueRepair: -1},
		{Dispatch: -1},
		{Batch: -1},
		{Batch: engine.MaxBatch + 1},
	} {
		if _, err := newReconciler(&fakeEngine{}, cfg); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("%+v: %v, want invalid input", cfg, err)
		}
	}
	if _, err := New(nil, Config{}); !errors.Is(err, engine.ErrInvalidInput) {
		t.Errorf("without an engine: %v, want invalid input", err)
	}
}
