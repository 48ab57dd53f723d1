package fftest

import (
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// Create creates an execution of a kind. The test fails if the engine refuses.
//
//	created := fftest.Create(kit, Fulfil, order, engine.After(time.Hour))
func Create[In, Out any](k *Kit, kind engine.Kind[In, Out], args In, options ...engine.CreateOption) engine.Created {
	k.t.Helper()
	created, err := kind.Create(k.t.Context(), k.Engine, args, options...)
	if err != nil {
		k.t.Fatalf("fftest: create %q: %v", kind.Name, err)
	}
	return created
}

// Send sends a signal to an execution. The test fails if the engine refuses.
func Send[T any](k *Kit, x id.ExecutionID, signal engine.Signal[T], value T, options ...engine.SendOption) {
	k.t.Helper()
	if err := signal.Send(k.t.Context(), k.Engine, x, value, options...); err != nil {
		k.t.Fatalf("fftest: send %q: %v", signal.Name, err)
	}
}
