package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// shout is a kind on the lane of a crew.
func shout(c *fixture.Crew) engine.Kind[string, string] {
	return engine.Kind[string, string]{Name: "shout", Lane: c.Lane}
}

// ordering runs a worker for "order" and "shout".
func ordering[Out any](
	t *testing.T, order func(context.Context, *fixture.Crew, worker.Job[struct{}]) (Out, error),
	called func(context.Context, worker.Job[string]) (string, error),
) *fixture.Crew {
	t.Helper()
	c := fixture.NewLoneCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", func(ctx context.Context, job worker.Job[struct{}]) (Out, error) { return order(ctx, c, job) })
		worker.Handle(w, shout(c), called)
	})
	return c
}

func loud(_ context.Context, job worker.Job[string]) (string, error) {
	return strings.ToUpper(job.Args), nil
}

// A handler gets the result of another execution, and a later attempt that of the step.
func TestCall(t *testing.T) {
	var runs atomic.Int32
	c := ordering(t, func(ctx context.Context, c *fixture.Crew, job worker.Job[struct{}]) (string, error) {
		runs.Add(1)
		out, err := worker.Call(ctx, job, "shout", shout(c), "hey")
		if err != nil {
			return "", err
		}
		if job.Lease.Attempt == 0 {
			return "", errors.New("halfway")
		}
		return out + "!", nil
	}, loud)
	x := c.Create(t, retrying)
	result, err := c.Eng.AwaitExecution(t.Context(), x)
	if err != nil || string(result) != `"HEY!"` {
		t.Errorf("%s, error %v", result, err)
	}
	if n, on := runs.Load(), c.CountOnLane(t); n != 3 || on != 2 {
		t.Errorf("%d runs, %d executions", n, on)
	}
	steps, err := c.Eng.StepResults(t.Context(), x)
	if err != nil || len(steps) != 1 || steps[0].Outcome != engine.StepSucceeded || string(steps[0].Result) != `"HEY"` || len(steps[0].Called) != 1 {
		t.Errorf("%+v, error %v", steps, err)
	}
}

// Results of a fan-out are in input order.
func TestCallAll(t *testing.T) {
	c := ordering(t, func(ctx context.Context, c *fixture.Crew, job worker.Job[struct{}]) ([]string, error) {
		none, err := worker.CallAll(ctx, job, "none", shout(c), nil)
		if err != nil || len(none) != 0 {
			return nil, worker.Permanent(errors.New("a call of none"))
		}
		return worker.CallAll(ctx, job, "all", shout(c), []string{"a", "b", "", "c"})
	}, loud)
	result, err := c.Eng.AwaitExecution(t.Context(), c.Create(t, retrying))
	if err != nil || string(result) != `["A","B","","C"]` {
		t.Errorf("%s, error %v", result, err)
	}
	if n := c.CountOnLane(t); n != 5 {
		t.Errorf("%d executions, want 5", n)
	}
}

// A call that fails is final, unless the handler acts on it. Replays of both continue with the new result.
func TestFailedCalls(t *testing.T) {
	broken := atomic.Bool{}
	broken.Store(true)
	c := ordering(t, func(ctx context.Context, c *fixture.Crew, job worker.Job[struct{}]) ([]string, error) {
		if _, err := worker.Call(ctx, job, "optional", shout(c), "bad"); !errors.Is(err, engine.ErrEnded) && broken.Load() {
			return nil, err
		}
		return worker.CallAll(ctx, job, "all", shout(c), []string{"good", "bad", "bad"})
	}, func(ctx context.Context, job worker.Job[string]) (string, error) {
		if job.Args == "bad" && broken.Load() {
			return "", worker.Permanent(errors.New("too loud"))
		}
		return loud(ctx, job)
	})
	x := c.Create(t, retrying)
	_, err := c.Eng.AwaitExecution(t.Context(), x)
	ended, _ := errors.AsType[*engine.EndedError](err)
	if ended == nil || !strings.Contains(ended.Failure, "2 of 3") || !strings.Contains(ended.Failure, "too loud") {
		t.Fatal(err)
	}
	if attempts := c.StoredAttempts(t, x); len(attempts) != 1 {
		t.Errorf("%d attempts", len(attempts))
	}
	broken.Store(false)
	steps, err := c.Eng.Steps(t.Context(), x)
	if err != nil || len(steps) != 2 {
		t.Fatal(steps, err)
	}
	for _, called := range slices.Concat(steps[0].Called, steps[1].Called[1:]) {
		c.Replay(t, called)
	}
	c.Replay(t, x)
	result, err := c.Eng.AwaitExecution(t.Context(), x)
	if err != nil || string(result) != `["GOOD","BAD","BAD"]` {
		t.Errorf("%s, error %v", result, err)
	}
	if n := c.CountOnLane(t); n != 5 {
		t.Errorf("%d executions, want 5", n)
	}
}

// A result of another type, and a call whose name became a step's, fail the caller at once.
func TestChangedCalls(t *testing.T) {
	for _, test := range []struct {
		name, want string
		then       func(context.Context, *fixture.Crew, worker.Job[struct{}]) error
	}{
		{"type", `result of the call "a"`, func(ctx context.Context, c *fixture.Crew, job worker.Job[struct{}]) error {
			_, err := worker.Call(ctx, job, "a", engine.Kind[string, int]{Name: "shout", Lane: c.Lane}, "x")
			return err
		}},
		{"step", `is a call under way`, func(ctx context.Context, c *fixture.Crew, job worker.Job[struct{}]) error {
			_, err := worker.Step(ctx, job, "a", func(context.Context) (string, error) { return "", nil })
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := ordering(t, func(ctx context.Context, c *fixture.Crew, job worker.Job[struct{}]) (string, error) {
				if !job.Resumed {
					_, err := worker.Call(ctx, job, "a", shout(c), "x")
					return "", err
				}
				return "", test.then(ctx, c, job)
			}, loud)
			_, err := c.Eng.AwaitExecution(t.Context(), c.Create(t, func(s *engine.ExecutionSpec) {
				retrying(s)
				s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(1)}
			}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Error(err)
			}
		})
	}
}
