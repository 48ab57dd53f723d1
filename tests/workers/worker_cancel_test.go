package workers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// The handler of an execution cancelled anywhere is notified at once: the next renewal of its lease is an hour away.
func TestWorkerIsNotifiedOfACancellation(t *testing.T) {
	c := fixture.NewCrew(t)
	cfg := fixture.Alone
	cfg.LeaseTTL, cfg.DrainTimeout = 3*time.Hour, time.Second
	began, causes := c.Long(t, cfg)
	operator := c.Rival(t)
	cancelled := c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "long" })
	c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "long" })
	for range 2 {
		fixture.Received(t, began)
	}
	if err := operator.CancelExecution(t.Context(), engine.CancelSpec{ID: cancelled}); err != nil {
		t.Fatal(err)
	}
	if cause := fixture.Received(t, causes); !errors.Is(cause, worker.ErrCancelled) || !errors.Is(cause, worker.ErrLeaseLost) {
		t.Errorf("cause %v", cause)
	}
	s := c.Next(t, 1)[0]
	if s.ID != cancelled || s.Settlement != worker.Abandoned || !errors.Is(s.Err, worker.ErrCancelled) {
		t.Errorf("settled %+v", s)
	}
	c.WantState(t, cancelled, fixture.StateCancelled)
	if got := c.Stored(t, cancelled); got.Result != nil {
		t.Errorf("stored %+v", got)
	}
	if len(causes) > 0 {
		t.Errorf("the other one was cancelled too: %v", <-causes)
	}
}

// Many at once, by the plural, members of a flow among them.
func TestWorkerIsNotifiedOfManyCancellations(t *testing.T) {
	c := fixture.NewCrew(t)
	cfg := fixture.Alone
	cfg.LeaseTTL, cfg.DrainTimeout, cfg.Concurrency = 3*time.Hour, time.Second, 40
	began, causes := c.Long(t, cfg)
	for range 40 {
		c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "long" })
	}
	var specs []engine.CancelSpec
	for range 40 {
		specs = append(specs, engine.CancelSpec{ID: fixture.Received(t, began)})
	}
	operator := c.Rival(t)
	for batch := range slices.Chunk(specs[:30], 3) {
		// The workers notified of the batch before renew their leases: executions held at that moment are repeated.
		for len(batch) > 0 {
			outcomes, err := operator.CancelExecutions(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			var busy []engine.CancelSpec
			for i, outcome := range outcomes {
				if errors.Is(outcome, fferr.ErrBusy) {
					busy = append(busy, batch[i])
				} else if outcome != nil {
					t.Error(outcome)
				}
			}
			batch = busy
		}
	}
	for range 30 {
		if cause := fixture.Received(t, causes); !errors.Is(cause, worker.ErrCancelled) {
			t.Errorf("cause %v", cause)
		}
	}
	c.Next(t, 30)
	if len(causes) > 0 {
		t.Errorf("another one ended: %v", <-causes)
	}
}

// Without a notification a worker learns of a cancellation with the next renewal, and so it does after one in a
// caller's transaction, which notifies no worker.
func TestWorkerLearnsOfACancellationByRenewing(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    engine.Config
		cancel func(t *testing.T, f *fixture.Fixture, x id.ExecutionID)
	}{
		"without a listener": {engine.Config{NoListener: true}, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) { rivalCancel(t, f, x) }},
		"in a caller's transaction": {engine.Config{}, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			tx := f.BeginTx(t)
			if err := f.WithTx(tx).CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, tx)
		}},
		"by another program, which leaves the attempt": {engine.Config{}, func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'terminal', public_state = 'cancelled'")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			crew := fixture.CrewOn(t, f, c.cfg)
			cfg := fixture.Alone
			cfg.LeaseTTL = 6 * time.Second
			began, causes := crew.Long(t, cfg)
			x := f.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "long" })
			fixture.Received(t, began)
			c.cancel(t, f, x)
			if cause := fixture.Received(t, causes); !errors.Is(cause, worker.ErrCancelled) {
				t.Errorf("cause %v", cause)
			}
			if s := crew.Next(t, 1)[0]; s.Settlement != worker.Abandoned {
				t.Errorf("settled %+v", s)
			}
		})
	}
}

func rivalCancel(t *testing.T, f *fixture.Fixture, x id.ExecutionID) {
	t.Helper()
	if err := f.Rival(t).CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
		t.Fatal(err)
	}
}

// A lease that another worker has taken is lost, and nothing was cancelled.
func TestWorkerSeparatesALostLeaseFromACancellation(t *testing.T) {
	c := fixture.NewCrew(t)
	cfg := fixture.Alone
	cfg.LeaseTTL = 6 * time.Second
	began, causes := c.Long(t, cfg)
	x := c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "long" })
	fixture.Received(t, began)
	c.SetAttempt(t, x, 0, "lease_epoch = 9")
	if cause := fixture.Received(t, causes); errors.Is(cause, worker.ErrCancelled) || !errors.Is(cause, worker.ErrLeaseLost) {
		t.Errorf("cause %v", cause)
	}
}

// If a handler returns before it is notified, its result is refused, and the hooks get the reason.
func TestWorkerResultAfterACancelIsRefused(t *testing.T) {
	k := fixture.NewKit(t)
	fixture.HandleKind(k.Worker, "rash", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		return "too late", k.CancelExecution(ctx, engine.CancelSpec{ID: job.ID})
	})
	x := k.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "rash" })
	k.Drain()
	if s := k.Reports[0]; s.Settlement != worker.Abandoned || !errors.Is(s.Err, worker.ErrCancelled) {
		t.Errorf("settled %+v", s)
	}
	k.WantState(t, x, fixture.StateCancelled)
}
