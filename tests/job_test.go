package tests

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// job is one of the engine's background operations.
type job = func(context.Context, int) (int, error)

// run runs a job until it finds nothing more, and fails the test when it did not act on want rows.
func run(t *testing.T, j job, want int) {
	t.Helper()
	got := 0
	for {
		n, err := j(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		if n < 100 {
			break
		}
	}
	if got != want {
		t.Errorf("acted on %d rows, want %d", got, want)
	}
}

// A job passes over what others hold, and finds it the next time.
func TestJobs_wait_for_nobody(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*engine.ExecutionSpec)
		started bool
		job     func(*fixture) job
	}{
		{"lease", func(*engine.ExecutionSpec) {}, true, func(f *fixture) job { return f.Maintenance().ExpireLeases }},
		{"attempt", timingOutAfter(time.Millisecond, nil), true, func(f *fixture) job { return f.Maintenance().ExpireAttempts }},
		{"deadline", func(spec *engine.ExecutionSpec) { spec.Deadline = start.Add(time.Second) }, false, func(f *fixture) job { return f.Maintenance().ExpireDeadlines }},
		{"delay", func(spec *engine.ExecutionSpec) { spec.DelayUntil = start.Add(time.Second) }, false, func(f *fixture) job { return f.Maintenance().PromoteDelayed }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := cloneFixture(t)
			x := f.create(t, c.change)
			if c.started {
				f.claim(t)
			}
			f.advance(leaseTTL)
			before := f.dump(t, x)
			tx := f.begin(t)
			lockExecution(t, tx, x)
			run(t, c.job(f), 0)
			commit(t, tx)
			if c.started {
				tx := f.begin(t)
				lockAttempt(t, tx, x, 0)
				run(t, c.job(f), 0)
				commit(t, tx)
			}
			f.wantUnchanged(t, x, before)
			run(t, c.job(f), 1)
		})
	}
}

func TestJobs_refuse_bad_batches(t *testing.T) {
	f := newFixture(t)
	for name, j := range map[string]job{
		"leases": f.Maintenance().ExpireLeases, "attempts": f.Maintenance().ExpireAttempts, "deadlines": f.Maintenance().ExpireDeadlines, "delayed": f.Maintenance().PromoteDelayed, "keys": f.Maintenance().PruneCreationKeys,
	} {
		for _, batch := range []int{-1, 0, engine.MaxBatch + 1} {
			if _, err := j(t.Context(), batch); err == nil {
				t.Errorf("%s: a batch of %d was not refused", name, batch)
			} else {
				wantInputError(t, err, "batch")
			}
		}
	}
}
