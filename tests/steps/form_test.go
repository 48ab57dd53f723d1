package steps

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/worker"
)

// stepForms are the forms of steps, each with the functions that have it.
var stepForms = []struct {
	form  engine.StepForm
	calls []string
}{
	{engine.FormStep, []string{"worker.Step", "worker.StepTx"}}, {engine.FormSleep, []string{"worker.Sleep"}}, {engine.FormTurn, []string{"worker.Turn"}},
	{engine.FormCall, []string{"worker.Call"}}, {engine.FormCallAll, []string{"worker.CallAll"}},
}

// do makes a step of the name "part" by a function.
func do(ctx context.Context, job orderJob, function string) error {
	var err error
	switch function {
	case "worker.Step":
		_, err = worker.Step(ctx, job, "part", func(context.Context) (string, error) { return "1", nil })
	case "worker.StepTx":
		_, err = worker.StepTx(ctx, job, "part", func(context.Context, pgx.Tx) (string, error) { return "1", nil })
	case "worker.Sleep":
		err = worker.Sleep(ctx, job, "part", 0)
	case "worker.Turn":
		err = worker.Turn(ctx, job, "part", func(context.Context, pgx.Tx, *worker.TurnTx) error { return nil })
	case "worker.Call":
		_, err = worker.Call(ctx, job, "part", shout, "1")
	case "worker.CallAll":
		_, err = worker.CallAll(ctx, job, "part", shout, []string{"1"})
	}
	return err
}

// A stored step serves only code that calls its form: another one is a permanent failure that names the step and both. W9.
func TestStepsKeepTheirForm(t *testing.T) {
	for _, stored := range stepForms {
		for _, now := range stepForms {
			for _, first := range stored.calls {
				for _, function := range now.calls {
					t.Run(first+" and then "+function, func(t *testing.T) {
						var former engine.StepForm
						o := ordering(t, func(ctx context.Context, job orderJob) (string, error) {
							if former == "" {
								if err := do(ctx, job, first); err != nil {
									return "", err
								}
								former = stored.form
								return "", errors.New("halfway")
							}
							return "", do(ctx, job, function)
						}, loud)
						x := o.Create(t, retrying)
						o.Drain()
						if stored.form == now.form {
							o.wantResult(t, x, "")
							return
						}
						fftest.RequireFailure(t, o.Kit.Kit, x, `"part" was stored by `+stored.calls[0]+", and the code calls "+now.calls[0])
						if n := len(o.StoredAttempts(t, x)); n != 2 {
							t.Errorf("%d attempts", n)
						}
						steps, err := o.Steps(t.Context(), x)
						if err != nil || len(steps) != 1 || steps[0].Form != stored.form {
							t.Errorf("%+v, error %v", steps, err)
						}
					})
				}
			}
		}
	}
}

// The name of a step is checked before its function runs, in a job for a test too. W13.
func TestStepNamesAreCheckedFirst(t *testing.T) {
	var name string
	ran := false
	charge := func(ctx context.Context, job orderJob) (string, error) {
		return worker.Step(ctx, job, name, func(context.Context) (string, error) {
			ran = true
			return "", nil
		})
	}
	o := handling(t, charge)
	for _, name = range []string{"a\x00b", "a\xff", "", strings.Repeat("a", engine.MaxStepName+1)} {
		x := o.Create(t, retrying)
		o.Drain()
		fftest.RequireFailure(t, o.Kit.Kit, x, "step")
		if n := len(o.StoredAttempts(t, x)); n != 1 || ran {
			t.Errorf("%q: %d attempts, the function ran: %t", name, n, ran)
		}
		if _, err := charge(t.Context(), worker.JobForTest(struct{}{})); !errors.Is(err, fferr.ErrInvalidInput) || ran {
			t.Errorf("%q in a test: %v, the function ran: %t", name, err, ran)
		}
	}
	job := worker.JobForTest(struct{}{})
	if err := worker.Sleep(t.Context(), job, "part", time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := do(t.Context(), worker.NextRunForTest(job), "worker.Step"); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a step instead of a pause, in a test: %v", err)
	}
}
