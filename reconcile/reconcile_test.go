package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// fakeEngine records when each job was called, and answers as act says: by default that nothing was due.
type fakeEngine struct {
	mu    sync.Mutex
	calls map[string][]time.Time
	act   func(job string, call int) (int, error)

	left chan struct{} // wakes the dispatcher

	queue []id.ExecutionID // what a walk through the queue passes, one a call
	after []id.ExecutionID // where each call began
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

func (f *fakeEngine) Undispatched() <-chan struct{} { return f.left }

func (f *fakeEngine) RepairQueue(ctx context.Context, after id.ExecutionID, n int) (id.ExecutionID, int, error) {
	repaired, err := f.call(ctx, "queue", n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = append(f.after, after)
	next := slices.Index(f.queue, after) + 1
	switch {
	case err != nil:
		return after, 0, err
	case next == len(f.queue):
		return id.ExecutionID{}, repaired, nil
	}
	return f.queue[next], repaired, nil
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
		"queue": DefaultQueueRepair, "dispatch": DefaultDispatch,
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

// The walk through the queue stays where it is while a call fails, and begins anew behind the last execution.
func TestRun_goes_on_where_the_queue_repair_stopped(t *testing.T) {
	t.Parallel()
	a, b := id.NewExecutionID("lane", id.Partitions{}), id.NewExecutionID("lane", id.Partitions{})
	f := &fakeEngine{queue: []id.ExecutionID{a, b}, act: func(job string, call int) (int, error) {
		switch {
		case job != "queue":
			return 0, nil
		case call == 2:
			return 0, errors.New("no database")
		case call == 4:
			return 10, nil // a full batch: the next follows at once
		}
		return 1, nil
	}}
	runFor(t, time.Minute, f, Config{Batch: 10})
	var beginning id.ExecutionID
	if want := []id.ExecutionID{beginning, a, a, b, beginning, a, b, beginning}; len(f.after) < len(want) || !slices.Equal(f.after[:len(want)], want) {
		t.Errorf("began at %v, want %v", f.after, want)
	}
	if calls := f.calls["queue"]; calls[4] != calls[3] || calls[5] == calls[4] {
		t.Errorf("called at %v, want the fourth and fifth at once", calls)
	}
}

// Loops that run at once share one walk.
func TestRun_shares_the_queue_repair(t *testing.T) {
	t.Parallel()
	queue := make([]id.ExecutionID, 50)
	for i := range queue {
		queue[i] = id.NewExecutionID("lane", id.Partitions{})
	}
	f := &fakeEngine{queue: queue}
	synctest.Test(t, func(t *testing.T) {
		r, err := newReconciler(f, Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() { r.Run(ctx) })
		}
		running.Wait()
	})
	if want := append([]id.ExecutionID{{}}, queue...); len(f.after) < 30 || !slices.Equal(f.after, want[:len(f.after)]) {
		t.Errorf("began at %v, want each once, in the order of the queue", f.after)
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
