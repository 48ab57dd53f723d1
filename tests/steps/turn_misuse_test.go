package steps

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/worker"
)

// jobCalls are the steps and waits of a job. None of them may run its function.
var jobCalls = map[string]func(context.Context, orderJob) error{
	"Step": func(ctx context.Context, job orderJob) error {
		_, err := worker.Step(ctx, job, "refused", func(context.Context) (int, error) { panic("must not run") })
		return err
	},
	"StepTx": func(ctx context.Context, job orderJob) error {
		_, err := worker.StepTx(ctx, job, "refused", func(context.Context, pgx.Tx) (int, error) { panic("must not run") })
		return err
	},
	"Turn": func(ctx context.Context, job orderJob) error {
		return worker.Turn(ctx, job, "refused", func(context.Context, pgx.Tx, *worker.TurnTx) error { panic("must not run") })
	},
	"Sleep": func(ctx context.Context, job orderJob) error { return worker.Sleep(ctx, job, "refused", time.Hour) },
	"Call": func(ctx context.Context, job orderJob) error {
		_, err := worker.Call(ctx, job, "refused", shout, "hey")
		return err
	},
	"Await": func(ctx context.Context, job orderJob) error {
		_, err := approved.Await(ctx, job, engine.Wait{})
		return err
	},
}

// A step or wait of the job inside the function of its turn fails the execution, and the turn leaves nothing, even if the
// function ignores the error.
func TestTurnRefusesStepsInside(t *testing.T) {
	for name, call := range jobCalls {
		t.Run(name, func(t *testing.T) {
			c := newTurning(t)
			c.turn(func(ctx context.Context, job orderJob, tx pgx.Tx, x *worker.TurnTx) error {
				if err := call(ctx, job); !errors.Is(err, fferr.ErrInvalidInput) {
					t.Errorf("inside the turn: %v", err)
				}
				return c.write(ctx, tx, x, "lamp")
			})
			x := c.run(t, worker.Failed)
			fftest.RequireFailure(t, c.Kit.Kit, x, `the turn "reserve" calls a step or wait`)
			c.wantParts(t)
			wantSteps(t, c.Engine, x)
		})
	}
}

// The same with the context of the handler, and with the locks of the turn, for which such a step would wait. W15
func TestTurnRefusesStepsOfTheHandler(t *testing.T) {
	for name, call := range jobCalls {
		t.Run(name, func(t *testing.T) {
			c := newTurning(t)
			c.handle(func(outer context.Context, job orderJob) (string, error) {
				return "", worker.Turn(outer, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
					if _, _, err := approved.Take(ctx, x); err != nil {
						return err
					}
					if err := call(outer, job); !errors.Is(err, fferr.ErrInvalidInput) {
						t.Errorf("inside the turn: %v", err)
					}
					return c.write(ctx, tx, x, "lamp")
				})
			})
			x := c.run(t, worker.Failed)
			fftest.RequireFailure(t, c.Kit.Kit, x, `the turn "reserve" calls a step or wait`)
			c.wantParts(t)
			wantSteps(t, c.Engine, x)
		})
	}
}

// A step of another goroutine is none of the turn, and neither is one behind a turn that has failed or panicked.
func TestTurnBesideSteps(t *testing.T) {
	c := newTurning(t)
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		if err := worker.Turn(ctx, job, "failed", func(context.Context, pgx.Tx, *worker.TurnTx) error { return errTurn }); !errors.Is(err, errTurn) {
			t.Error(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = worker.Turn(ctx, job, "panicked", func(context.Context, pgx.Tx, *worker.TurnTx) error { panic("no lamp") })
		}()
		if _, err := step(ctx, job, counted{}, "behind"); err != nil {
			return "", err
		}
		return "done", worker.Turn(ctx, job, "reserve", func(turn context.Context, tx pgx.Tx, x *worker.TurnTx) error {
			stored := make(chan error)
			go func() {
				_, err := step(ctx, job, counted{}, "beside")
				stored <- err
			}()
			return errors.Join(<-stored, c.write(turn, tx, x, "lamp"))
		})
	})
	c.run(t, worker.Completed)
	c.wantParts(t, "lamp")
}

var errTurn = errors.New("no lamp")

// A turn inside the function of a step is no misuse, and neither is a step after a turn.
func TestTurnInsideAStep(t *testing.T) {
	c := newTurning(t)
	c.handle(func(ctx context.Context, job orderJob) (string, error) {
		if _, err := worker.Step(ctx, job, "outer", func(ctx context.Context) (string, error) {
			err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, x *worker.TurnTx) error {
				return c.write(ctx, tx, x, "lamp")
			})
			return "outer", err
		}); err != nil {
			return "", err
		}
		return step(ctx, job, counted{}, "after")
	})
	c.run(t, worker.Completed)
	c.wantParts(t, "lamp")
}
