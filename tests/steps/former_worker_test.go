package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// former is a run of a handler in one of the forms of steps, by one of two workers that believe that they hold the execution.
type former struct {
	*fixture.Crew
	job  worker.Job[struct{}]
	by   string
	wait func(context.Context) // until the run is let go, in the middle of its form
}

// forms are the forms of steps. Each writes the name of its worker where it can. The error is that of a worker that has
// lost the execution; a wait stores nothing before it is settled.
var forms = []struct {
	name string
	run  func(context.Context, *former) error
	lost error
}{
	{"step", func(ctx context.Context, r *former) error {
		_, err := worker.Step(ctx, r.job, "form", func(ctx context.Context) (string, error) {
			r.wait(ctx)
			return r.by, nil
		})
		return err
	}, worker.ErrLeaseLost},
	{"step in a transaction", func(ctx context.Context, r *former) error {
		_, err := worker.StepTx(ctx, r.job, "form", func(ctx context.Context, tx pgx.Tx) (string, error) {
			err := r.book(ctx, tx)
			r.wait(ctx)
			return r.by, err
		})
		return err
	}, worker.ErrLeaseLost},
	{"sleep", func(ctx context.Context, r *former) error {
		r.wait(ctx)
		return worker.Sleep(ctx, r.job, "form", 0)
	}, worker.ErrLeaseLost},
	{"wait", func(ctx context.Context, r *former) error {
		r.wait(ctx)
		_, err := approved.Await(ctx, r.job, engine.Wait{})
		return err
	}, fferr.ErrAwaiting},
	{"call", func(ctx context.Context, r *former) error {
		r.wait(ctx)
		_, err := worker.Call(ctx, r.job, "form", singer(r.Lane), r.by)
		return err
	}, worker.ErrLeaseLost},
	{"call of several", func(ctx context.Context, r *former) error {
		r.wait(ctx)
		_, err := worker.CallAll(ctx, r.job, "form", singer(r.Lane), []string{r.by, "b"})
		return err
	}, worker.ErrLeaseLost},
	{"results of a call", func(ctx context.Context, r *former) error {
		// The first step of a run reads all of them: the former worker doesn't see the results that the next one stores.
		_, err := worker.Step(ctx, r.job, "before", func(context.Context) (string, error) { return "", nil })
		if err == nil && r.job.Resumed {
			r.wait(ctx)
		}
		if err == nil {
			_, err = worker.CallAll(ctx, r.job, "form", singer(r.Lane), []string{"a", "b"})
		}
		return err
	}, worker.ErrLeaseLost},
	{"turn", turnForm(func(*former, *worker.TurnTx) error { return nil }), worker.ErrLeaseLost},
	{"turn that completes", turnForm(func(r *former, t *worker.TurnTx) error { return t.Complete(r.by) }), worker.ErrLeaseLost},
	{"turn that sleeps", turnForm(func(_ *former, t *worker.TurnTx) error { return t.Sleep(0) }), worker.ErrLeaseLost},
	{"turn that waits", turnForm(func(_ *former, t *worker.TurnTx) error {
		return t.Await(approved.Received(), engine.Wait{})
	}), worker.ErrLeaseLost},
}

func (r *former) book(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1, 'form', $2)", r.job.ID.UUID(), r.by)
	return err
}

func turnForm(end func(*former, *worker.TurnTx) error) func(context.Context, *former) error {
	return func(ctx context.Context, r *former) error {
		return worker.Turn(ctx, r.job, "form", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
			if err := r.book(ctx, tx); err != nil {
				return err
			}
			r.wait(ctx)
			if ctx.Err() != nil { // it has heard of its loss
				return context.Cause(ctx)
			}
			if _, err := t.Engine().CreateExecution(ctx, engine.ExecutionSpec{Lane: beside(r.Lane), Kind: "child of " + r.by}); err != nil {
				return err
			}
			return end(r, t)
		})
	}
}

// handleForm runs a worker whose handler is a run of a form.
func handleForm(t *testing.T, c *fixture.Crew, run func(ctx context.Context, job worker.Job[struct{}]) (string, error)) {
	t.Helper()
	c.Work(t, worker.Config{NoReconcile: true, Concurrency: 1}, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", run)
		worker.Handle(w, singer(c.Lane), loud)
	})
}

// A worker that has lost its execution to another one, and is in the middle of a step, stores nothing: neither the step nor
// what the user wrote in its transaction, nor new executions. Whether it has heard of the loss or not, it gets
// ErrLeaseLost, except from a wait, which is refused when it is settled.
func TestFormerWorkerStoresNothing(t *testing.T) {
	for _, form := range forms {
		for _, notifies := range []bool{false, true} {
			t.Run(form.name+map[bool]string{true: ", heard", false: ", unheard"}[notifies], func(t *testing.T) {
				c := fixture.NewLoneCrew(t)
				c.Exec(t, effectTables)
				began, release, got := make(chan bool, 1), make(chan bool), make(chan error, 10)
				handleForm(t, c, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
					if !notifies {
						ctx = context.WithoutCancel(ctx)
					}
					err := form.run(ctx, &former{Crew: c, job: job, by: "former", wait: func(ctx context.Context) {
						began <- true
						<-release
						if notifies {
							<-ctx.Done()
						}
					}})
					got <- err
					return "former", err
				})
				later, err := engine.New(c.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }})
				if err != nil {
					t.Fatal(err)
				}
				x := c.Create(t, retrying)
				if err := approved.Send(t.Context(), c.Engine, x, "ada"); err != nil {
					t.Fatal(err)
				}
				until(t, later, "the former worker to begin", func() bool { return len(began) > 0 })
				fixture.Run(t, upkeep.Of(later).ExpireLeases, 1)
				handleForm(t, c, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
					return "next", form.run(ctx, &former{Crew: c, job: job, by: "next", wait: func(context.Context) {}})
				})
				until(t, later, "the next worker to complete", func() bool { return c.Stored(t, x).State == fixture.StateCompleted })
				before, all := c.Dump(t, x), everything(t, c)

				release <- true
				for settled := range c.Settled {
					if settled.Settlement == worker.Abandoned {
						break
					}
				}
				if err := lastOf(got); !errors.Is(err, form.lost) {
					t.Errorf("the former worker got %v", err)
				}
				c.WantUnchanged(t, x, before)
				if now := everything(t, c); now != all {
					t.Errorf("before:\n%s\nnow:\n%s", all, now)
				}
				booked := fixture.Texts(t, c.Pool, "SELECT key FROM booked")
				if writes := strings.HasPrefix(form.name, "turn") || form.name == "step in a transaction"; writes != slices.Equal(booked, []string{"next"}) {
					t.Errorf("booked by %q", booked)
				}
				if got := string(c.Stored(t, x).Result); got != `"next"` {
					t.Errorf("the result is %s", got)
				}
			})
		}
	}
}

// until waits, and lets pauses and calls end meanwhile.
func until(t *testing.T, later *engine.Engine, what string, happened func() bool) {
	t.Helper()
	fixture.Await(t, what, func() bool {
		for _, job := range []func(context.Context, int) (int, error){upkeep.Of(later).PromoteDelayed, upkeep.Of(later).ResumeCallers} {
			if _, err := job(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
		return happened()
	})
}

func lastOf(errs chan error) (last error) {
	for len(errs) > 0 {
		last = <-errs
	}
	return last
}

// everything returns what the runs of a form may have written.
func everything(t *testing.T, c *fixture.Crew) string {
	t.Helper()
	return strings.Join(fixture.Texts(t, c.Pool, `
		SELECT to_jsonb(s)::text FROM ffx_step AS s
		UNION ALL SELECT to_jsonb(b)::text FROM booked AS b
		UNION ALL SELECT e.execution_id || ' ' || e.lane_id || ' ' || e.public_state FROM ff_exec_core AS e
		UNION ALL SELECT to_jsonb(v)::text FROM ff_signal_event AS v
		ORDER BY 1`), "\n")
}
