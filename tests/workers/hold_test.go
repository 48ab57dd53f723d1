package workers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

type call struct{ Tenant string }

// calls is a kind of the crew's lane that runs one execution of each tenant at once.
func calls(lane id.LaneID) engine.Kind[call, struct{}] {
	return engine.Kind[call, struct{}]{
		Name: "call", Lane: lane,
		Limits: []engine.Limit[call]{engine.Concurrency[call](1).Per("tenant", func(c call) string { return c.Tenant })},
	}
}

// An API answers one handler with "429": until the hold of its key ends, no other handler with the key begins, and
// handlers with other keys do.
func TestHandlerHoldsItsKeyForAll(t *testing.T) {
	f := fixture.NewCloned(t)
	c := fixture.CrewOn(t, f, engine.Config{Now: f.Time})
	kind := calls(c.Lane)
	var acme []id.ExecutionID
	for _, tenant := range []string{"acme", "acme", "acme", "other"} {
		created, err := kind.Create(t.Context(), c.Eng, call{Tenant: tenant})
		if err != nil {
			t.Fatal(err)
		}
		if tenant == "acme" {
			acme = append(acme, created.ID)
		}
	}
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		worker.HandleFunc(w, kind, func(ctx context.Context, job worker.Job[call]) error {
			until := fixture.Start.Add(time.Hour)
			if job.Args.Tenant != "acme" || !f.Time().Before(until) {
				return nil
			}
			if job.ID != acme[0] {
				return errors.New("it started during the hold")
			}
			if err := job.HoldLimit(ctx, engine.LimitKey{Name: "call/tenant", Key: "acme"}, until); err != nil {
				return err
			}
			return job.Delay(time.Minute) // shorter than the hold
		})
	})
	for _, s := range c.Next(t, 2) { // the delayed one, and the one of another tenant
		if s.Err != nil {
			t.Errorf("settled %+v", s)
		}
	}
	for _, use := range fixture.Listed(t, limit.Keys(t.Context(), f.Engine, limit.Name{Name: "call/tenant"})) {
		want := limit.Holding{}
		if use.Key == "acme" {
			want = limit.Holding{Until: fixture.Start.Add(time.Hour), By: "execution " + acme[0].String()}
		}
		if !use.Hold.Until.Equal(want.Until) || use.Hold.By != want.By {
			t.Errorf("%q is held: %+v, want %+v", use.Key, use.Hold, want)
		}
	}
	f.Advance(time.Minute)
	fixture.Await(t, "the delayed execution to wait for the held key", func() bool {
		s, err := f.DescribeExecution(t.Context(), acme[0])
		return err == nil && s.State.Public == state.PublicRateLimited
	})
	f.Advance(time.Hour)
	for _, s := range c.Next(t, 3) {
		if s.Err != nil {
			t.Errorf("settled %+v after the hold", s)
		}
	}
	for _, x := range acme {
		c.WantState(t, x, fixture.StateCompleted)
	}
}

// A hold names a limit of the execution.
func TestHandlersHoldRefuses(t *testing.T) {
	f := fixture.NewCloned(t)
	c := fixture.CrewOn(t, f, engine.Config{Now: f.Time})
	if err := limit.Declare(t.Context(), c.Eng, limit.Spec{Name: "declared", Units: 1}); err != nil {
		t.Fatal(err)
	}
	kind := calls(c.Lane)
	spec := kind.Spec(call{Tenant: "acme"})
	spec.Limits = append(spec.Limits, engine.LimitKey{Name: "declared"})
	if _, err := c.Eng.CreateExecution(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	until := f.Time().Add(time.Minute)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		worker.HandleFunc(w, kind, func(ctx context.Context, job worker.Job[call]) error {
			for _, refused := range []struct {
				key   engine.LimitKey
				until time.Time
				field string
			}{
				{engine.LimitKey{}, until, "limit"},
				{engine.LimitKey{Name: "other/tenant"}, until, `limit "other/tenant"`},
				{engine.LimitKey{Name: "tenant"}, until, `limit "tenant"`},
				{engine.LimitKey{Name: "call/tenant", Units: 1}, until, `limit "call/tenant" units`},
				{engine.LimitKey{Name: "call/tenant", Key: strings.Repeat("k", 513)}, until, `limit "call/tenant" key`},
				{engine.LimitKey{Name: "call/tenant"}, time.Time{}, `limit "call/tenant" until`},
				{engine.LimitKey{Name: "call/tenant"}, until.Add(limit.MaxHold), `limit "call/tenant" until`},
			} {
				fixture.WantInputError(t, job.HoldLimit(ctx, refused.key, refused.until), refused.field)
			}
			if uses := fixture.Listed(t, limit.Keys(ctx, c.Eng, limit.Name{Name: "call/tenant"})); len(uses) != 1 || uses[0].Hold != (limit.Holding{}) {
				t.Errorf("refused calls held %+v", uses)
			}
			// Limits of the spec, other keys, and ends.
			for _, err := range []error{
				job.HoldLimit(ctx, engine.LimitKey{Name: "declared"}, until),
				job.HoldLimit(ctx, engine.LimitKey{Name: "call/tenant", Key: "other"}, until),
				job.HoldLimit(ctx, engine.LimitKey{Name: "call/tenant", Key: "other"}, f.Time()),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			if err := limit.Delete(ctx, c.Eng, limit.Name{Name: "declared"}); err != nil {
				t.Error(err)
			}
			if err := job.HoldLimit(ctx, engine.LimitKey{Name: "declared"}, until); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("of a deleted limit: %v", err)
			}
			return nil
		})
	})
	if s := c.Next(t, 1)[0]; s.Err != nil {
		t.Errorf("settled %+v", s)
	}
}
