package signals

import (
	"context"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

func ordered(number string) func(*engine.ExecutionSpec) {
	return func(s *engine.ExecutionSpec) {
		kindPublish(s)
		s.BusinessKey = id.BusinessKey{Name: "order", Value: number}
	}
}

// A signal reaches its execution by a business key: typed, in the caller's transaction, and from SQL.
func TestSignalByBusinessKey(t *testing.T) {
	for name, send := range map[string]func(*testing.T, *fixture.Kit){
		"on a pool": func(t *testing.T, k *fixture.Kit) {
			if err := approved.SendTo(t.Context(), k.Engine, "order", "4711", approval{By: "ada"}); err != nil {
				t.Fatal(err)
			}
		},
		"in a transaction": func(t *testing.T, k *fixture.Kit) {
			tx := k.BeginTx(t)
			eng := k.WithTx(tx)
			if err := approved.SendTo(t.Context(), eng, "order", "4712", approval{}); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("to none: %v", err)
			}
			if err := approved.SendTo(t.Context(), eng, "order", "4711", approval{By: "ada"}, engine.Once("1")); err != nil {
				t.Fatal(err)
			}
			fixture.Commit(t, tx)
			if err := approved.SendTo(t.Context(), k.Engine, "order", "4711", approval{By: "bob"}, engine.Once("1")); err != nil {
				t.Errorf("repeated: %v", err)
			}
		},
		"from SQL": func(t *testing.T, k *fixture.Kit) {
			k.Exec(t, `SELECT ffx_signal_to('order', '4711', 'approved', '{"By": "ada"}')`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
				a, err := approved.Await(ctx, job, engine.Wait{})
				return a.By, err
			}, engine.Key("order", "4711"))
			p.WantSettled(t, worker.Suspended)
			send(t, p.Kit)
			p.wantResult(t, "ada")
		})
	}
}

// A key that no execution has is not found. A spec names the receiver once, and a waitpoint is no key's.
func TestSignalByBusinessKeyIsChecked(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, ordered("1"))
	if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{BusinessKey: id.BusinessKey{Name: "order", Value: "2"}}); err != nil {
		t.Fatal(err)
	}
	to := func(number string) engine.SignalSpec {
		return engine.SignalSpec{BusinessKey: id.BusinessKey{Name: "order", Value: number}, Name: "ready"}
	}
	if signalled, err := f.Engine.Signal(t.Context(), to("1")); err != nil || signalled.Execution != x || signalled.Effect != engine.SignalBuffered {
		t.Errorf("%+v, %v", signalled, err)
	}
	for _, number := range []string{"2", "3"} {
		_, err := f.Engine.Signal(t.Context(), to(number))
		if missing, ok := errors.AsType[*fferr.NotFoundError](err); !ok || missing.ID != "order="+number {
			t.Errorf("order %s: %v", number, err)
		}
		if _, err := f.Pool.Exec(t.Context(), "SELECT ffx_signal_to('order', $1, 'ready')", number); err == nil {
			t.Errorf("order %s: a signal from SQL was accepted", number)
		}
	}
	both := to("1")
	both.Execution = x
	if _, err := f.Engine.Signal(t.Context(), both); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("with an execution: %v", err)
	}
	if _, err := f.SignalWaitpoint(t.Context(), engine.WaitpointSignal{SignalSpec: to("1")}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("to a waitpoint: %v", err)
	}
	if err := approved.SendTo(t.Context(), f.Engine, "", "", approval{}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("without a key: %v", err)
	}
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Engine.Signal(t.Context(), to("1")); !errors.Is(err, fferr.ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}
