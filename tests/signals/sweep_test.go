package signals

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// afterAWait returns the lease of an execution that has received a signal, and has an open waitpoint and a kept signal.
func afterAWait(t *testing.T, f *fixture.Fixture, change ...func(*engine.SignalSpec)) engine.Lease {
	t.Helper()
	l := f.Start(t, func(s *engine.ExecutionSpec) {
		s.Deadline = fixture.Start.Add(48 * time.Hour)
		s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}, AttemptTimeout: time.Minute}
	}).Lease
	open(t, f, l)
	f.SuspendAgain(t, l, ready)
	f.Signal(t, l, "ready", change...)
	again := f.ClaimOne(t).Lease
	if got := f.Signal(t, l, "later", change...); got != "buffered" {
		t.Fatal(got)
	}
	return again
}

func sweep(t *testing.T, f *fixture.Fixture, want int) {
	t.Helper()
	fixture.Run(t, upkeep.Of(f.Engine).SweepWaits, want)
}

// Whatever ends an execution, nothing of its waits stays open. An end by its holder leaves them to the sweep, and the
// signals that it received are readable for an hour.
func TestEndsLeaveNoWaits(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, f *fixture.Fixture, l engine.Lease)
		left bool // to the sweep
	}{
		"complete": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}, true},
		"fail": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if _, err := f.FailExecution(t.Context(), l, engine.Failure{Message: "boom"}); err != nil {
				t.Fatal(err)
			}
		}, true},
		"cancel": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}, false},
		"cancel while it waits": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SuspendAgain(t, l, ready)
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}, false},
		"timeout of the attempt": {func(t *testing.T, f *fixture.Fixture, _ engine.Lease) {
			f.Advance(time.Minute)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
		}, false},
		"timeout of the wait": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.FailOnTimeout })
			f.Advance(time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
		}, false},
		"deadline": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			f.SuspendAgain(t, l, ready, func(s *engine.SuspendSpec) { s.Timeout = 0 })
			f.Advance(48 * time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			l := afterAWait(t, f)
			waiting := f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.Timeout = 0 })
			sweep(t, f, 0)
			c.end(t, f, l)
			suspensions, waitpoints := 1, 1 // of the one that waits
			if c.left {
				suspensions, waitpoints = 2, 3
			}
			if s, w := rows(t, f, "ff_suspension_current"), rows(t, f, "ff_waitpoint_pending"); s != suspensions || w != waitpoints {
				t.Errorf("%d suspensions and %d waitpoints after the end", s, w)
			}
			if page, err := f.Engine.ListWaitpoints(t.Context(), l.Execution, "", 0); err != nil || len(page.Items) != 0 {
				t.Errorf("listed %+v, %v", page.Items, err)
			}
			if c.left {
				sweep(t, f, 2)
				f.Advance(time.Hour - time.Millisecond)
				sweep(t, f, 0)
				if received, err := f.ReceivedSignals(t.Context(), l.Execution); err != nil || len(received) != 1 {
					t.Errorf("received %+v, %v", received, err)
				}
				f.Advance(time.Millisecond)
				sweep(t, f, 1)
			}
			if s, w := rows(t, f, "ff_suspension_current"), rows(t, f, "ff_waitpoint_pending"); s != 1 || w != 1 {
				t.Errorf("%d suspensions and %d waitpoints are left", s, w)
			}
			if waitOf(t, f, waiting.Execution) == nil {
				t.Error("the other one no longer waits")
			}
		})
	}
}

// A repeated signal is a duplicate as long as its key is remembered, although the signals of its execution are gone.
func TestSweepKeepsIdempotencyKeys(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := afterAWait(t, f, func(s *engine.SignalSpec) { s.IdempotencyKey = "k" })
	if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	f.Advance(engine.DefaultDedup - time.Millisecond)
	sweep(t, f, 3)
	for _, name := range []string{"ready", "later"} {
		if got := f.Signal(t, l, name, func(s *engine.SignalSpec) { s.IdempotencyKey = "k" }); got != "duplicate" {
			t.Errorf("%s: %s", name, got)
		}
	}
	f.Advance(time.Millisecond)
	for _, name := range []string{"ready", "later"} {
		_, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: name, IdempotencyKey: "k"})
		if !errors.Is(err, fferr.ErrEnded) {
			t.Errorf("after a day, %s: %v", name, err)
		}
	}
}

// Sweeps go on page by page, pass locked rows, delete what lost its execution, and begin again.
func TestSweepGoesOn(t *testing.T) {
	f := fixture.NewCloned(t)
	var done []id.ExecutionID
	for range 3 {
		l := f.Start(t).Lease
		f.Signal(t, l, "later")
		if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		done = append(done, l.Execution)
	}
	tx := f.BeginTx(t)
	if _, err := tx.Exec(t.Context(), "SELECT FROM ff_waitpoint_pending WHERE execution_id = $1 FOR UPDATE", done[1].UUID()); err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for range 4 {
		n, err := upkeep.Of(f.Engine).SweepWaits(t.Context(), 1)
		if err != nil || n > 1 {
			t.Fatal(n, err)
		}
		deleted += n
	}
	if deleted != 2 {
		t.Errorf("%d are deleted beside a locked one", deleted)
	}
	fixture.Commit(t, tx)
	f.Exec(t, "INSERT INTO ff_suspension_current (partition_key, execution_id, suspension_id, suspended_at_ms, condition) VALUES (7, gen_random_uuid(), gen_random_uuid(), 1, '{}')")
	sweep(t, f, 2)
	for _, batch := range []int{0, core.MaxSweep + 1} {
		_, err := upkeep.Of(f.Engine).SweepWaits(t.Context(), batch)
		fixture.WantInputError(t, err, "batch")
	}
}

// Retired keys go when their grace is over, even if no rotation follows, and a busy keystore is left to the next sweep.
func TestSweepDeletesRetiredKeys(t *testing.T) {
	f := fixture.GrantFixture(t)
	rotateTo(t, f.Engine, "k2", time.Hour)
	f.Advance(time.Hour - time.Millisecond)
	sweep(t, f, 0)
	f.Advance(time.Millisecond)
	tx := f.BeginTx(t)
	if _, err := operator.SeedKey(t.Context(), f.WithTx(tx), "k2", wire.NewSecret()); err != nil {
		t.Fatal(err)
	}
	sweep(t, f, 0)
	fixture.Commit(t, tx)
	sweep(t, f, 1)
	keys, err := operator.Keys(t.Context(), f.Engine)
	if err != nil || len(keys) != 1 || keys[0].ID != "k2" {
		t.Errorf("%+v, %v", keys, err)
	}
}

// A wait whose execution another program has ended is closed once its time has come, so that no scan finds it again.
func TestTimeoutOfAnEndedExecution(t *testing.T) {
	f := fixture.NewCloned(t)
	x, kept := f.Suspend(t, ready).Execution, f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.Timeout = 2 * time.Hour }).Execution
	f.SetExecution(t, x, "lifecycle_phase = 'terminal', public_state = 'failed', attempt_state = 'attempt_terminal', blocking_reason = NULL, terminal_at_ms = 1")
	f.Advance(time.Hour)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, x)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
	if got := storedSuspension(t, f, x); got.TimeoutAtMs != nil || got.Behavior != nil || got.Open {
		t.Errorf("%+v", got)
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
	if got := storedSuspension(t, f, kept); got.TimeoutAtMs == nil || !got.Open {
		t.Errorf("the other one: %+v", got)
	}
}
