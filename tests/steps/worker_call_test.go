package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var shout = engine.Kind[string, string]{Name: "shout"}

// ordering is a kit with handlers of kind "order" and "shout".
func ordering[Out any](
	t *testing.T, order func(context.Context, orderJob) (Out, error), called func(context.Context, worker.Job[string]) (string, error),
) *ordered[Out] {
	t.Helper()
	o := handling(t, order)
	worker.Handle(o.Worker, shout, called)
	return o
}

func loud(_ context.Context, job worker.Job[string]) (string, error) {
	return strings.ToUpper(job.Args), nil
}

func wantOnLane(t *testing.T, f *fixture.Fixture, want int) {
	t.Helper()
	if n := f.CountOnLane(t); n != want {
		t.Errorf("%d executions, want %d", n, want)
	}
}

// A handler gets the result of another execution, and a later attempt that of the step.
func TestCall(t *testing.T) {
	o := ordering(t, func(ctx context.Context, job orderJob) (string, error) {
		out, err := worker.Call(ctx, job, "shout", shout, "hey")
		if err == nil && job.Lease.Attempt == 0 {
			err = errors.New("halfway")
		}
		return out + "!", err
	}, loud)
	x := o.run(t, worker.Suspended, worker.Completed, worker.Retrying, worker.Completed)
	o.wantResult(t, x, "HEY!")
	wantOnLane(t, o.Fixture, 2)
	steps, err := o.StepResults(t.Context(), x)
	if err != nil || len(steps) != 1 || steps[0].Outcome != engine.StepSucceeded || string(steps[0].Result) != `"HEY"` || len(steps[0].Called) != 1 {
		t.Errorf("%+v, error %v", steps, err)
	}
}

// Results of a fan-out are in input order.
func TestCallAll(t *testing.T) {
	o := ordering(t, func(ctx context.Context, job orderJob) ([]string, error) {
		none, err := worker.CallAll(ctx, job, "none", shout, nil)
		if err != nil || len(none) != 0 {
			return nil, worker.Permanent(errors.New("a call of none"))
		}
		return worker.CallAll(ctx, job, "all", shout, []string{"a", "b", "", "c"})
	}, loud)
	x := o.Create(t, retrying)
	o.Drain()
	o.wantResult(t, x, []string{"A", "B", "", "C"})
	wantOnLane(t, o.Fixture, 5)
}

// A call that fails is final, unless the handler acts on it. Replays of both continue with the new result.
func TestFailedCalls(t *testing.T) {
	broken := true
	o := ordering(t, func(ctx context.Context, job orderJob) ([]string, error) {
		if _, err := worker.Call(ctx, job, "optional", shout, "bad"); !errors.Is(err, fferr.ErrEnded) && broken {
			return nil, err
		}
		return worker.CallAll(ctx, job, "all", shout, []string{"good", "bad", "bad"})
	}, func(ctx context.Context, job worker.Job[string]) (string, error) {
		if job.Args == "bad" && broken {
			return "", worker.Permanent(errors.New("too loud"))
		}
		return loud(ctx, job)
	})
	x := o.Create(t, retrying)
	o.Drain()
	for _, text := range []string{"2 of 3", "too loud"} {
		fftest.RequireFailure(t, o.Kit.Kit, x, text)
	}
	if attempts := o.StoredAttempts(t, x); len(attempts) != 1 {
		t.Errorf("%d attempts", len(attempts))
	}
	broken = false
	steps, err := o.Steps(t.Context(), x)
	if err != nil || len(steps) != 2 {
		t.Fatal(steps, err)
	}
	for _, failed := range append(slices.Concat(steps[0].Called, steps[1].Called[1:]), x) {
		o.Replay(t, failed)
	}
	o.Drain()
	o.wantResult(t, x, []string{"GOOD", "BAD", "BAD"})
	wantOnLane(t, o.Fixture, 5)
}

// A result of another type, and a call whose name became a step's, fail the caller at once.
func TestChangedCalls(t *testing.T) {
	for _, test := range []struct {
		name, want string
		then       func(context.Context, orderJob) error
	}{
		{"type", `result of the call "a"`, func(ctx context.Context, job orderJob) error {
			_, err := worker.Call(ctx, job, "a", engine.Kind[string, int]{Name: "shout"}, "x")
			return err
		}},
		{"step", `"a" was stored by worker.Call, and the code calls worker.Step`, func(ctx context.Context, job orderJob) error {
			_, err := worker.Step(ctx, job, "a", func(context.Context) (string, error) { return "", nil })
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := ordering(t, func(ctx context.Context, job orderJob) (string, error) {
				if !job.Resumed {
					_, err := worker.Call(ctx, job, "a", shout, "x")
					return "", err
				}
				return "", test.then(ctx, job)
			}, loud)
			x := o.run(t, worker.Suspended, worker.Completed, worker.Failed)
			fftest.RequireFailure(t, o.Kit.Kit, x, test.want)
		})
	}
}

// The failure of a call that the handler has handled is its outcome for good: a later run takes the same branch, although the
// called execution has succeeded meanwhile. A replay from the call asks anew. W4.
func TestHandledFailuresOfCallsAreStored(t *testing.T) {
	for _, test := range []struct {
		name string
		call func(ctx context.Context, job orderJob) error
	}{
		{"Call", func(ctx context.Context, job orderJob) error {
			_, err := worker.Call(ctx, job, "ask", shout, "bad")
			return err
		}},
		{"CallAll", func(ctx context.Context, job orderJob) error {
			_, err := worker.CallAll(ctx, job, "ask", shout, []string{"good", "bad", "bad"})
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			broken := true
			var texts, done []string
			o := ordering(t, func(ctx context.Context, job orderJob) (string, error) {
				branch, err := "ship", test.call(ctx, job)
				if errors.Is(err, fferr.ErrAwaiting) {
					return "", err
				}
				if errors.Is(err, fferr.ErrEnded) {
					branch = "refund"
					texts = append(texts, err.Error())
				}
				_, err = worker.Step(ctx, job, branch, func(context.Context) (string, error) {
					done = append(done, branch)
					return branch, nil
				})
				if err == nil && broken {
					err = worker.Permanent(errors.New("halfway"))
				}
				return branch, err
			}, func(ctx context.Context, job worker.Job[string]) (string, error) {
				if job.Args == "bad" && broken {
					return "", worker.Permanent(errors.New("too loud"))
				}
				return loud(ctx, job)
			})
			x := o.Create(t, retrying)
			o.Drain()
			fftest.RequireFailure(t, o.Kit.Kit, x, "halfway")
			steps, err := o.Steps(t.Context(), x)
			if err != nil || len(steps) != 2 || steps[0].Outcome != engine.StepFailed || !strings.Contains(steps[0].Error, "too loud") {
				t.Fatalf("%+v, error %v", steps, err)
			}
			broken = false
			for _, called := range steps[0].Called {
				if o.Stored(t, called).State != fixture.StateCompleted {
					o.Replay(t, called)
				}
			}
			o.Drain()
			o.Replay(t, x)
			o.Drain()
			o.wantResult(t, x, "refund")
			if want := []string{"refund"}; !slices.Equal(done, want) || len(texts) != 2 || texts[0] != texts[1] {
				t.Errorf("done %q, failures %q", done, texts)
			}
			if _, err := operator.Replay(t.Context(), o.Kit.Fixture.Engine, x, operator.ReplayCompleted, operator.ReplayFromStep("ask")); err != nil {
				t.Fatal(err)
			}
			o.Drain()
			o.wantResult(t, x, "ship")
		})
	}
}
