package fftest_test

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/worker"
)

var t *testing.T // the test's own

// Methods have no type parameters in Go, so the helpers with types are functions that take the kit.
func ExampleCreate() {
	kit := fftest.New(t)
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		return "hello, " + job.Args, nil
	})
	created := fftest.Create(kit, greet, "Ada", engine.After(24*time.Hour))
	kit.Advance(24 * time.Hour)
	kit.Drain()
	fftest.RequireResult(t, kit, greet, created.ID, "hello, Ada")
}
