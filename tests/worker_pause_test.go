package tests

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A worker whose lane is paused, or that is drained, ends what it runs, claims nothing more, says so once, and goes on
// when it is told.
func TestWorker_that_is_paused(t *testing.T) {
	for _, p := range pausings {
		t.Run(p.name, func(t *testing.T) {
			c := newCrew(t)
			log := new(lockedBuffer)
			w := newWorker(t, c.eng, worker.Config{
				Lanes: []id.LaneID{c.lane}, Instance: c.worker().Instance, PollInterval: 100 * time.Millisecond, LeaseTTL: time.Second,
				NoReconcile: true, Hooks: c, Log: slog.New(slog.NewTextHandler(log, nil)),
			})
			begun, end := make(chan struct{}, 10), make(chan struct{})
			on(w, "test", func(context.Context, worker.Job[struct{}]) (struct{}, error) {
				begun <- struct{}{}
				<-end
				return struct{}{}, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ran := async(t, func(context.Context) error { return w.Run(ctx) })
			running := c.create(t)
			<-begun
			p.must(t, c.fixture, c.eng)
			waiting := []id.ExecutionID{c.create(t), c.create(t)}
			await(t, "the worker to say what halts it", func() bool {
				return strings.Contains(log.String(), map[engine.Halt]string{
					engine.LanePaused: "lane is paused", engine.WorkerDrained: "worker is drained",
				}[p.halt])
			})
			expires := func() int64 { return *c.attempts(t, running)[0].LeaseExpiresAtMs }
			before := expires()
			await(t, "the running attempt to be renewed", func() bool { return expires() > before })
			close(end)
			if s := c.next(t, 1)[0]; s.ID != running || s.Err != nil {
				t.Errorf("settled %+v, want %v", s, running)
			}
			c.wantState(t, running, stateCompleted)
			for _, x := range waiting {
				c.wantState(t, x, stateReady)
			}
			p.mustEnd(t, c.fixture, c.eng)
			c.next(t, 2)
			cancel()
			if err := ran(); err != nil {
				t.Error(err)
			}
			for _, said := range []string{"lane is paused", "worker is drained", "lane is resumed", "worker claims again"} {
				if n := strings.Count(log.String(), said); n > 1 {
					t.Errorf("said %d times: %s", n, said)
				}
			}
		})
	}
}
