package workers

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler without a result completes its execution. It knows the tick that it is for, and the key of its execution, which
// is the same in each attempt and another one than those of its steps. F4
func TestHandleFuncKnowsItsTickAndKey(t *testing.T) {
	k := fixture.NewKit(t)
	kind := engine.Kind[string, struct{}]{Name: "report"}
	var ticks []time.Time
	keys := make(map[string]int)
	worker.HandleFunc(k.Worker, kind, func(ctx context.Context, job worker.Job[string]) error {
		keys[worker.IdempotencyKey(ctx)]++
		if job.Args == "fails once" && job.Retries == 0 {
			return context.DeadlineExceeded
		}
		ticks = append(ticks, job.Tick())
		_, err := worker.Step(ctx, job, "charge", func(ctx context.Context) (struct{}, error) {
			keys[worker.IdempotencyKey(ctx)]++
			return struct{}{}, nil
		})
		return err
	})
	created := fftest.Create(k.Kit, kind, "fails once")
	k.Drain()
	k.Advance(time.Minute)
	fftest.RequireResult(t, k.Kit, kind, created.ID, struct{}{})
	if len(ticks) != 1 || !ticks[0].IsZero() {
		t.Errorf("ticks %v of an execution that no schedule created", ticks)
	}
	if len(keys) != 2 || keys[""] > 0 {
		t.Errorf("keys %v, want one of the execution, twice, and one of the step", keys)
	}

	at := k.Time().Add(time.Hour)
	if err := schedule.Put(t.Context(), k.Engine, schedule.Of(kind, "hourly", "", schedule.Spec{Every: time.Hour, Start: at})); err != nil {
		t.Fatal(err)
	}
	k.Advance(time.Hour)
	if len(ticks) != 2 || !ticks[1].Equal(at) {
		t.Errorf("ticks %v, want %v", ticks, at)
	}
	if len(keys) != 4 {
		t.Errorf("keys %v", keys)
	}
}
