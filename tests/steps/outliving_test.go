package steps

import (
	"context"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A step of a goroutine that outlives its handler is being stored when the attempt ends. It comes too late: the next attempt
// runs the step itself, and a completed execution gets no more steps.
func TestStepOutlivesItsHandler(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		settled worker.Settlement
		want    []string
	}{
		{"failed", errors.New("the handler doesn't wait"), worker.Retrying, []string{`late="run 2"`}},
		{"completed", nil, worker.Completed, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := &stepLog{reached: make(chan bool), release: make(chan bool)}
			crew := log.crew(t, fixture.NewCloned(t))
			left, next, late := make(chan bool), make(chan bool), make(chan error, 1)
			runs := 0
			crew.Work(t, fixture.Alone, func(w *worker.Worker) {
				fixture.HandleKind(w, "order", func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
					runs++
					if runs == 2 {
						next <- true
						_, err := worker.Step(ctx, job, "late", func(context.Context) (string, error) { return "run 2", nil })
						return 2, err
					}
					go func() {
						_, err := worker.Step(context.WithoutCancel(ctx), job, "late", func(context.Context) (string, error) { return "run 1", nil })
						late <- err
					}()
					<-left
					return 1, c.err
				})
			})
			x := crew.Create(t, retrying)
			fixture.Received(t, log.reached)
			left <- true
			wantSettlements(t, crew, c.settled)
			if c.err != nil {
				fixture.Received(t, next)
			}
			log.release <- true
			if err := fixture.Received(t, late); !errors.Is(err, worker.ErrLeaseLost) {
				t.Errorf("the late step returned %v", err)
			}
			if c.err != nil {
				wantSettlements(t, crew, worker.Completed)
			}
			wantSteps(t, crew.Engine, x, c.want...)
		})
	}
}

// A step whose context never ends returns an error once its worker has stopped.
func TestStepOutlivesItsWorker(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	jobs := make(chan worker.Job[struct{}], 1)
	stop := c.Work(t, fixture.Alone, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", func(_ context.Context, job worker.Job[struct{}]) (int, error) {
			jobs <- job
			return 1, nil
		})
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Completed)
	stop()
	job := fixture.Received(t, jobs)
	late := make(chan error, 1)
	go func() {
		_, err := worker.Step(context.Background(), job, "late", func(context.Context) (int, error) { return 1, nil })
		late <- err
	}()
	if err := fixture.Received(t, late); !errors.Is(err, worker.ErrShutdown) {
		t.Errorf("the late step returned %v", err)
	}
	wantSteps(t, c.Engine, x)
}
