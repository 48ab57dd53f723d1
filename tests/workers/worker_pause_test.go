package workers

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A worker whose lane is paused, or that is drained, finishes its executions, claims nothing more, logs it once, and
// continues when it is notified.
func TestWorkerPausesAndResumes(t *testing.T) {
	for _, p := range fixture.Pausings {
		t.Run(p.Name, func(t *testing.T) {
			c := fixture.NewCrew(t)
			log := new(fixture.LockedBuffer)
			w := fixture.NewWorker(t, c.Eng, worker.Config{
				Lanes: []worker.Lane{{Name: c.Lane}}, Instance: c.Worker().Instance, PollInterval: 100 * time.Millisecond, LeaseTTL: time.Second,
				NoReconcile: true, Observer: c, Log: slog.New(slog.NewTextHandler(log, nil)),
			})
			begun, end := make(chan struct{}, 10), make(chan struct{})
			fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (struct{}, error) {
				begun <- struct{}{}
				<-end
				return struct{}{}, nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			ran := fixture.Async(t, func(context.Context) error { return w.Run(ctx) })
			running := c.Create(t)
			<-begun
			p.Must(t, c.Fixture, c.Eng)
			waiting := []id.ExecutionID{c.Create(t), c.Create(t)}
			fixture.Await(t, "the worker to say what halts it", func() bool {
				return strings.Contains(log.String(), map[state.Halt]string{
					state.HaltedLane: "lane is paused", state.HaltedWorker: "worker is drained",
				}[p.Halt])
			})
			expires := func() int64 { return *c.StoredAttempts(t, running)[0].LeaseExpiresAtMs }
			before := expires()
			fixture.Await(t, "the running attempt to be renewed", func() bool { return expires() > before })
			close(end)
			if s := c.Next(t, 1)[0]; s.ID != running || s.Err != nil {
				t.Errorf("settled %+v, want %v", s, running)
			}
			c.WantState(t, running, fixture.StateCompleted)
			for _, x := range waiting {
				c.WantState(t, x, fixture.StateReady)
			}
			p.MustEnd(t, c.Fixture, c.Eng)
			c.Next(t, 2)
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

// A worker claims again soon after the end of its lane's pause, although nothing notifies it and no background work runs.
func TestWorkerGoesOnAfterAPauseWithAnEnd(t *testing.T) {
	f := fixture.NewCloned(t)
	c := fixture.CrewOn(t, f, engine.Config{Now: f.Time})
	x := c.Create(t)
	if err := operator.PauseLane(t.Context(), f.Engine, c.Lane, operator.LanePause{Until: f.Time().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	log := new(fixture.LockedBuffer)
	w := fixture.NewWorker(t, c.Eng, worker.Config{
		Lanes: []worker.Lane{{Name: c.Lane}}, NoReconcile: true, Observer: c, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
	ctx, cancel := context.WithCancel(t.Context())
	ran := fixture.Async(t, func(context.Context) error { return w.Run(ctx) })
	fixture.Await(t, "the worker to find the pause", func() bool { return strings.Contains(log.String(), "lane is paused") })
	c.WantState(t, x, fixture.StateReady)
	f.Advance(time.Hour)
	if s := c.Next(t, 1)[0]; s.ID != x || s.Err != nil {
		t.Errorf("settled %+v, want %v", s, x)
	}
	cancel()
	if err := ran(); err != nil {
		t.Error(err)
	}
}
