package transactions

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A caller that forgot its transaction or its pool must not have its work done on the engine's pool. The pool here
// connects to nothing, so that every operation that touches it fails in another way.
func TestANilTransactionOrPoolIsRefused(t *testing.T) {
	nowhere := func(t *testing.T, f *fixture.Fixture) *engine.Engine {
		return f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
			config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return errors.New("the pool was touched") }
		}), engine.Config{})
	}
	bindings := []struct {
		name string
		bind func(*engine.Engine) *engine.Engine
	}{
		{"transaction", func(e *engine.Engine) *engine.Engine { return e.WithTx(nil) }},
		{"pointer to no transaction", func(e *engine.Engine) *engine.Engine { return e.WithTx((*pgxpool.Tx)(nil)) }},
		{"pool", func(e *engine.Engine) *engine.Engine { return e.WithPool(nil) }},
	}
	eachOperation(t, func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, before string) {
		for _, b := range bindings {
			if err := o.Do(t.Context(), f, b.bind(nowhere(t, f)), l); !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("%s: got %v, want %v", b.name, err, fferr.ErrInvalidInput)
			}
		}
		f.WantUnchanged(t, l.Execution, before)
		if err := o.Do(t.Context(), f, f.Engine, l); err != nil { // the invariants hold for its rows
			t.Fatal(err)
		}
	})
	t.Run("reads and others", func(t *testing.T) {
		f := fixture.New(t)
		x := f.Create(t)
		for _, b := range bindings {
			e := b.bind(nowhere(t, f))
			e.Wake(f.Lane)
			for call, err := range map[string]error{
				"prepare":    e.Prepare(t.Context()),
				"now":        second(e.Now(t.Context())),
				"describe":   second(e.DescribeExecution(t.Context(), x)),
				"list":       second(e.ListLanes(t.Context(), engine.LaneFilter{}, "", 1)),
				"progress":   second(e.FlowProgress(t.Context(), id.NewFlowID())),
				"lanes":      second(e.QueuedLanes(t.Context(), []id.LaneID{f.Lane})),
				"retention":  second(operator.Retention(t.Context(), e)),
				"jobs":       upkeep.Of(e).ReturnJobs(t.Context(), "nobody"),
				"await":      second(e.AwaitExecution(t.Context(), x)),
				"listen":     e.Listen(t.Context(), func(id.LaneID) {}),
				"lost":       e.ListenLost(t.Context(), "nobody", func() {}),
				"subscribe":  second(events.Subscribe(t.Context(), e, events.Leases(events.Filter{}), events.Options{})),
				"consumers":  second(events.Consumers(t.Context(), e)),
				"remove":     events.RemoveConsumer(t.Context(), e, events.LeaseOutbox, "nobody"),
				"worker":     second(worker.New(e, worker.Config{})),
				"reconciler": second(reconcile.New(e, reconcile.Config{})),
			} {
				if !errors.Is(err, fferr.ErrInvalidInput) {
					t.Errorf("%s: %s: got %v, want %v", b.name, call, err, fferr.ErrInvalidInput)
				}
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
