package reconcile

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

// ticking runs a process that holds the job of the schedules for a while, and then calls act. It returns when the job is called
// from then on, after act.
func ticking(t *testing.T, arrange func(*fakeProcess), act func(p, other *fakeProcess)) (calls []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDatabase()
		f.act = func(upkeep.Job, int) (int, error) { return 0, nil }
		p, other := f.process("process"), f.process("other")
		if arrange != nil {
			arrange(p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx, t, Config{}) })
		time.Sleep(3 * time.Second)
		running.Go(func() { other.run(ctx, t, Config{}) })
		time.Sleep(3 * time.Second)
		began := time.Now()
		act(p, other)
		cancel()
		running.Wait()
		for _, at := range p.calls["process"][upkeep.JobRunSchedules] {
			if !at.Before(began) {
				calls = append(calls, at.Sub(began))
			}
		}
		if calls := p.calls["other"][upkeep.JobRunSchedules]; len(calls) > 0 {
			t.Errorf("another process looks at %v", calls)
		}
	})
	return calls
}

// After a call, the process sleeps until exactly the next tick, however often it asks the database in the meantime, and calls no
// more often than the pace of the job.
func TestRunSleepsUntilTheNextTick(t *testing.T) {
	t.Parallel()
	pauses := []time.Duration{3 * time.Millisecond, 25 * time.Millisecond, 2345 * time.Millisecond, 7001 * time.Millisecond}
	var due time.Time
	got := ticking(t, func(p *fakeProcess) {
		left := pauses
		p.act = func(name upkeep.Job, _ int) (int, error) {
			if name == upkeep.JobRunSchedules {
				if due = (time.Time{}); len(left) > 0 {
					due, left = time.Now().Add(left[0]), left[1:]
				}
				p.due[name] = due
				if due.IsZero() {
					delete(p.due, name)
				}
				return 1, nil
			}
			return 0, nil
		}
		p.nextTick = func() time.Time {
			p.mu.Lock()
			defer p.mu.Unlock()
			return due
		}
	}, func(p, _ *fakeProcess) {
		p.mu.Lock()
		p.due[upkeep.JobRunSchedules] = time.Now()
		p.mu.Unlock()
		p.wake("rescheduled")
		time.Sleep(time.Minute)
	})
	want := []time.Duration{0}
	for _, pause := range pauses {
		want = append(want, want[len(want)-1]+max(pause, 20*time.Millisecond))
	}
	if !slices.Equal(got, want) {
		t.Errorf("looks at %v, want %v", got, want)
	}
}

// A change of a schedule by another process makes the holder of the job look at once, and no other process.
func TestRunLooksAtChangedSchedules(t *testing.T) {
	t.Parallel()
	got := ticking(t, nil, func(p, other *fakeProcess) {
		p.wake("rescheduled")
		other.wake("rescheduled")
		time.Sleep(time.Minute)
	})
	if !slices.Equal(got, []time.Duration{0}) {
		t.Errorf("looks at %v, want at once", got)
	}
}

// While a tick waits, ends of executions make the process look, at most ten times a second. Without one it doesn't listen for
// ends.
func TestRunLooksAtWaitingTicksWhenExecutionsEnd(t *testing.T) {
	t.Parallel()
	got := ticking(t, nil, func(p, _ *fakeProcess) {
		waits := func(waits bool) {
			p.mu.Lock()
			p.ticksWait = waits
			p.mu.Unlock()
			p.wake("rescheduled")
			synctest.Wait()
		}
		if p.wake("ended") {
			t.Error("listens for ends before a tick waits")
		}
		waits(true)
		time.Sleep(time.Second)
		for range 30 {
			if !p.wake("ended") {
				t.Error("doesn't listen for ends while a tick waits")
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		waits(false)
		if p.wake("ended") {
			t.Error("listens for ends after the last tick was created")
		}
		time.Sleep(time.Minute)
	})
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	// The change and once more since an execution may have ended before, then the ends, then the change.
	if want := []time.Duration{0, ms(20), ms(1000), ms(1100), ms(1200), ms(1300), ms(2300)}; !slices.Equal(got, want) {
		t.Errorf("looks at %v, want %v", got, want)
	}
}
