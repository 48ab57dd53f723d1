package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
)

// Each claim completes the execution before it, failures are settled at once, and the last claim finds nothing.
func TestRunUntilIdleHandlesAllOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := onFake(t, eng, Config{})
		quickAndSlow(w, eng)
		on(w, "failing", func(context.Context, Job[struct{}]) (struct{}, error) { return struct{}{}, errors.New("no") })
		eng.putMany(2, "slow")
		eng.putMany(1, "failing")
		eng.putMany(1, "quick")
		n, err := w.RunUntilIdle(t.Context())
		if err != nil || n != 4 || items(eng.done) != 3 || eng.together != 3 || items(eng.failed) != 1 {
			t.Errorf("%d handled, %d completed, %d with a claim, %d failed, %v", n, items(eng.done), eng.together, items(eng.failed), err)
		}
		if n, err := w.RunUntilIdle(t.Context()); n != 0 || err != nil {
			t.Errorf("%d more, %v", n, err)
		}
		if n := eng.apartN.Load(); n != 0 {
			t.Errorf("%d connections outlast it", n)
		}
	})
}

// An execution whose handler ends with the context is not settled.
func TestRunUntilIdleLeavesTheLeaseWhenCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := onFake(t, eng, Config{})
		died := errors.New("died")
		ctx, cancel := context.WithCancelCause(t.Context())
		on(w, "quick", func(context.Context, Job[struct{}]) (struct{}, error) {
			cancel(died)
			return struct{}{}, nil
		})
		eng.putMany(2, "quick")
		n, err := w.RunUntilIdle(ctx)
		if n != 1 || !errors.Is(err, died) || items(eng.done)+items(eng.failed)+items(eng.back) != 0 {
			t.Errorf("%d handled, %v, %d completed, %d failed, %d returned", n, err, items(eng.done), items(eng.failed), items(eng.back))
		}
	})
}

func TestRunUntilIdleReportsARefusedSettlement(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		eng := newFakeEngine()
		w := onFake(t, eng, Config{})
		quickAndSlow(w, eng)
		busy := work("quick")
		eng.locked[busy.ID] = true
		eng.put(engine.DefaultLane, busy)
		if n, err := w.RunUntilIdle(t.Context()); n != 1 || !errors.Is(err, fferr.ErrBusy) {
			t.Errorf("%d handled, %v; want ErrBusy", n, err)
		}
	})
}
