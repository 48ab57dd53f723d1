package steps

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// forms are the forms of steps. Each writes its result by a worker, unless it is a pause, and waits until it is let go
// before it ends.
var forms = map[string]func(ctx context.Context, job worker.Job[struct{}], by string, wait func(context.Context)) error{
	"step": func(ctx context.Context, job worker.Job[struct{}], by string, wait func(context.Context)) error {
		_, err := worker.Step(ctx, job, "form", func(ctx context.Context) (string, error) {
			wait(ctx)
			return by, nil
		})
		return err
	},
	"step in a transaction": func(ctx context.Context, job worker.Job[struct{}], by string, wait func(context.Context)) error {
		_, err := worker.StepTx(ctx, job, "form", func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1, 'form', $2)", job.ID.UUID(), by)
			wait(ctx)
			return by, err
		})
		return err
	},
	"sleep": func(ctx context.Context, job worker.Job[struct{}], _ string, wait func(context.Context)) error {
		wait(ctx)
		return worker.Sleep(ctx, job, "form", 0)
	},
}

// A worker that has lost its execution to another one, and is in the middle of a step, stores nothing: neither the step nor
// what the user wrote in its transaction. Whether it has heard of the loss or not, it gets ErrLeaseLost.
func TestFormerWorkerStoresNothing(t *testing.T) {
	for name, form := range forms {
		for _, hears := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", heard", false: ", unheard"}[hears], func(t *testing.T) {
				c := fixture.NewLoneCrew(t)
				c.Exec(t, effectTables)
				began, letGo, former := make(chan bool, 1), make(chan bool), make(chan error, 1)
				c.Work(t, worker.Config{NoReconcile: true, Concurrency: 1}, func(w *worker.Worker) {
					fixture.HandleKind(w, "order", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
						if !hears {
							ctx = context.WithoutCancel(ctx)
						}
						err := form(ctx, job, "former", func(ctx context.Context) {
							began <- true
							<-letGo
							if hears {
								<-ctx.Done()
							}
						})
						former <- err
						return "former", err
					})
				})
				x := c.Create(t, retrying)
				fixture.Received(t, began)
				later, err := engine.New(c.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }})
				if err != nil {
					t.Fatal(err)
				}
				fixture.Run(t, later.Maintenance().ExpireLeases, 1)
				c.Work(t, worker.Config{NoReconcile: true}, func(w *worker.Worker) {
					fixture.HandleKind(w, "order", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
						return "next", form(ctx, job, "next", func(context.Context) {})
					})
				})
				wantSettlements(t, c, worker.Completed)
				steps, err := c.Engine.StepResults(t.Context(), x)
				if err != nil {
					t.Fatal(err)
				}
				before := c.Dump(t, x)

				letGo <- true
				if err := fixture.Received(t, former); !errors.Is(err, worker.ErrLeaseLost) {
					t.Errorf("the former worker got %v", err)
				}
				wantSettlements(t, c, worker.Abandoned)
				c.WantUnchanged(t, x, before)
				if got, err := c.Engine.StepResults(t.Context(), x); err != nil || len(got) != 1 || string(got[0].Result) != string(steps[0].Result) {
					t.Errorf("steps %+v, before %+v, error %v", got, steps, err)
				}
				booked := fixture.Texts(t, c.Pool, "SELECT key FROM booked")
				if name == "step in a transaction" != slices.Equal(booked, []string{"next"}) {
					t.Errorf("booked by %q", booked)
				}
				if got := string(c.Stored(t, x).Result); got != `"next"` {
					t.Errorf("the result is %s", got)
				}
			})
		}
	}
}
