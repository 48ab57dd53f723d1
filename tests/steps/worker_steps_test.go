package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// handling is a crew with a handler of kind "order".
func handling[Out any](t *testing.T, fn func(context.Context, worker.Job[struct{}]) (Out, error)) *fixture.Crew {
	t.Helper()
	c := fixture.NewLoneCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) { fixture.HandleKind(w, "order", fn) })
	return c
}

// retrying is an execution of kind "order" whose failures are retried at once.
func retrying(s *engine.ExecutionSpec) {
	s.Kind = "order"
	s.Policy = &policy.Execution{Retry: policy.ImmediateRetries(5)}
}

func wantSettlements(t *testing.T, c *fixture.Crew, want ...worker.Settlement) {
	t.Helper()
	for i, s := range c.Next(t, len(want)) {
		if s.Settlement != want[i] {
			t.Fatalf("settlement %d: %+v, want %s", i, s, want[i])
		}
	}
}

// counted counts the calls of steps by name.
type counted struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counted) call(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[string]int)
	}
	c.calls[name]++
}

func (c *counted) want(t *testing.T, want string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := fmt.Sprint(c.calls); got != "map["+want+"]" {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// step is a step that counts its calls.
func step(ctx context.Context, job worker.Job[struct{}], calls *counted, name string) (string, error) {
	return worker.Step(ctx, job, name, func(context.Context) (string, error) {
		calls.call(name)
		return name + "!", nil
	})
}

// A handler that fails after two of three steps goes on with the third.
func TestHandlerContinuesAfterItsLastStep(t *testing.T) {
	var calls counted
	failed := false
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		a, err := step(ctx, job, &calls, "a")
		if err != nil {
			return "", err
		}
		b, err := step(ctx, job, &calls, "b")
		if err != nil {
			return "", err
		}
		if !failed {
			failed = true
			return "", errors.New("halfway")
		}
		d, err := step(ctx, job, &calls, "d")
		return a + b + d, err
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Completed)
	calls.want(t, "a:1 b:1 d:1")
	if got := c.Stored(t, x); string(got.Result) != `"a!b!d!"` {
		t.Errorf("%s", got.Result)
	}
	steps, err := c.Engine.StepResults(t.Context(), x)
	if err != nil || len(steps) != 3 {
		t.Fatal(steps, err)
	}
	for i, name := range []string{"a", "b", "d"} {
		if s := steps[i]; s.Name != name || s.Seq != i || s.Tries != 1 || string(s.Result) != `"`+name+`!"` || s.Outcome != engine.StepSucceeded || s.Attempt != i/2 {
			t.Errorf("%+v", s)
		}
	}
}

// A failing step is retried by its own policy. Its last error fails the attempt, and the next attempt runs it again.
func TestFailingStep(t *testing.T) {
	var calls counted
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		return worker.Step(ctx, job, "flaky", func(context.Context) (int, error) {
			calls.call("flaky")
			if calls.calls["flaky"] < 5 {
				return 0, fmt.Errorf("call %d", calls.calls["flaky"])
			}
			return 7, nil
		}, worker.Retry(*policy.ImmediateRetries(2)))
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Completed)
	calls.want(t, "flaky:5")
	attempts, err := c.Engine.ListAttempts(t.Context(), x, "", 0)
	if err != nil || !strings.Contains(attempts.Items[0].Failure.Message, `step "flaky": call 3`) {
		t.Errorf("%+v, error %v", attempts, err)
	}
	steps, err := c.Engine.Steps(t.Context(), x)
	if err != nil || len(steps) != 1 || steps[0].Tries != 2 || steps[0].Error != "call 4" || steps[0].Result != nil || steps[0].ResultSize != 1 {
		t.Errorf("%+v, error %v", steps, err)
	}
}

// What a step's function gets from the engine about another execution says nothing about its own lease.
func TestStepMeetsErrorsOfOtherExecutions(t *testing.T) {
	var c *fixture.Crew
	c = handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		calls := 0
		fn := func(ctx context.Context) (int, error) {
			if calls++; calls < 3 {
				_, err := c.Engine.DescribeExecution(ctx, c.Engine.NewExecutionID(c.Lane))
				return 0, err
			}
			return calls, nil
		}
		if _, err := worker.Step(ctx, job, "plain", fn, worker.Retry(*policy.ImmediateRetries(2))); err != nil {
			return 0, err
		}
		calls = 1
		got, err := worker.StepTx(ctx, job, "tx", func(ctx context.Context, _ pgx.Tx) (int, error) { return fn(ctx) })
		if !errors.Is(err, engine.ErrNotFound) || errors.Is(err, worker.ErrLeaseLost) {
			return got, fmt.Errorf("the step returned %w", err)
		}
		return 1, nil
	})
	c.Create(t, retrying)
	wantSettlements(t, c, worker.Completed)
}

// Steps of goroutines and nested ones are stored like others.
func TestParallelAndNestedSteps(t *testing.T) {
	var inner atomic.Int64
	failed := false
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		var wg sync.WaitGroup
		results := make([]int, 50)
		errs := make([]error, len(results))
		for i := range results {
			wg.Go(func() {
				results[i], errs[i] = worker.Step(ctx, job, worker.Key("outer", i), func(ctx context.Context) (int, error) {
					return worker.Step(ctx, job, worker.Key("inner", i), func(context.Context) (int, error) {
						inner.Add(1)
						return i, nil
					})
				})
			})
		}
		wg.Wait()
		sum := 0
		for _, n := range results {
			sum += n
		}
		if !failed {
			failed = true
			return 0, errors.Join(append(errs, errors.New("halfway"))...)
		}
		return sum, errors.Join(errs...)
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != "1225" || inner.Load() != 50 {
		t.Errorf("%s after %d calls", got.Result, inner.Load())
	}
	if steps, err := c.Engine.Steps(t.Context(), x); err != nil || len(steps) != 100 {
		t.Errorf("%d steps, error %v", len(steps), err)
	}
}

// A repeated name in one run is a mistake of the handler, and no retry mends it.
func TestRepeatedStepName(t *testing.T) {
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		for range 2 {
			if _, err := worker.Step(ctx, job, "same", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Failed)
	attempts, err := c.Engine.ListAttempts(t.Context(), x, "", 0)
	if err != nil || !strings.Contains(attempts.Items[0].Failure.Message, `the name "same" was used before in this run`) {
		t.Errorf("%+v, error %v", attempts, err)
	}
}

// A result that the new code can't decode names the step.
func TestStepResultDoesNotDecode(t *testing.T) {
	first := true
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		if first {
			first = false
			if _, err := worker.Step(ctx, job, "charge", func(context.Context) (string, error) { return "ch_1", nil }); err != nil {
				return 0, err
			}
			return 0, errors.New("deploy")
		}
		return worker.Step(ctx, job, "charge", func(context.Context) (int, error) { panic("must not run") })
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Failed)
	attempts, err := c.Engine.ListAttempts(t.Context(), x, "", 0)
	if err != nil || !strings.Contains(attempts.Items[1].Failure.Message, `result of step "charge" of kind "order" does not decode into int`) {
		t.Errorf("%+v, error %v", attempts, err)
	}
}

// The writes of a StepTx and its result are in one commit: an attempt that fails behind it doesn't repeat them.
func TestStepTxHappensOnce(t *testing.T) {
	failed := false
	var c *fixture.Crew
	c = handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		got, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "booked", c.Engine.WithTx(tx).SetExecutionTag(ctx, job.ID, "app.booked", "yes")
		})
		if err == nil && !failed {
			failed = true
			err = errors.New("halfway")
		}
		return got, err
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Completed)
	if tag, _, err := c.Engine.ExecutionTag(t.Context(), x, "app.booked"); tag != "yes" || err != nil {
		t.Error(tag, err)
	}
	if got := c.Stored(t, x); string(got.Result) != `"booked"` {
		t.Errorf("%s", got.Result)
	}
}

// A StepTx that fails writes nothing.
func TestFailedStepTxWritesNothing(t *testing.T) {
	var c *fixture.Crew
	c = handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		return worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
			if err := c.Engine.WithTx(tx).SetExecutionTag(ctx, job.ID, "app.booked", "yes"); err != nil {
				return "", err
			}
			return "", worker.Permanent(errors.New("no"))
		})
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Failed)
	if tag, set, err := c.Engine.ExecutionTag(t.Context(), x, "app.booked"); set || err != nil {
		t.Error(tag, err)
	}
	if steps, err := c.Engine.Steps(t.Context(), x); err != nil || len(steps) != 0 {
		t.Error(steps, err)
	}
}

// A sleeping execution holds no lease, and sleeps once.
func TestSleep(t *testing.T) {
	var runs atomic.Int64
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int64, error) {
		n := runs.Add(1)
		if err := worker.Sleep(ctx, job, "cool-off", time.Millisecond); err != nil {
			return 0, err
		}
		if n == 2 {
			return 0, errors.New("after the pause")
		}
		return n, worker.Sleep(ctx, job, "none", 0)
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Delayed, worker.Retrying, worker.Completed)
	steps, err := c.Engine.Steps(t.Context(), x)
	if err != nil || len(steps) != 2 || steps[0].Outcome != engine.StepSlept || steps[0].Name != "cool-off" {
		t.Errorf("%+v, error %v", steps, err)
	}
}

// The key of a step is the same in all its runs, and another for each step and execution.
func TestStepIdempotencyKey(t *testing.T) {
	var mu sync.Mutex
	keys := make(map[string]int)
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		for _, name := range []string{"a", "b"} {
			_, err := worker.Step(ctx, job, name, func(ctx context.Context) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				key := worker.IdempotencyKey(ctx)
				if keys[key]++; keys[key] == 1 {
					return 0, errors.New("once")
				}
				return 0, nil
			})
			if err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Retrying, worker.Completed)
	c.Create(t, retrying)
	wantSettlements(t, c, worker.Retrying, worker.Retrying, worker.Completed)
	if len(keys) != 4 {
		t.Errorf("%v", keys)
	}
}

// Whatever a handler asks for after its context has ended, it gets the cause, as of a lost lease.
func TestStepsReportTheCauseOfAnEndedContext(t *testing.T) {
	gone := errors.New("gone")
	forms := map[string]func(context.Context, *fixture.Crew, orderJob) error{
		"wait": func(ctx context.Context, _ *fixture.Crew, job orderJob) error {
			_, err := approved.Await(ctx, job, engine.Wait{})
			return err
		},
		"step": func(ctx context.Context, _ *fixture.Crew, job orderJob) error {
			_, err := worker.Step(ctx, job, "step", func(context.Context) (string, error) { return "", nil })
			return err
		},
		"step in a transaction": func(ctx context.Context, _ *fixture.Crew, job orderJob) error {
			_, err := worker.StepTx(ctx, job, "step", func(context.Context, pgx.Tx) (string, error) { return "", nil })
			return err
		},
		"turn": func(ctx context.Context, _ *fixture.Crew, job orderJob) error {
			return worker.Turn(ctx, job, "turn", func(context.Context, pgx.Tx, *worker.TurnTx) error { return nil })
		},
		"sleep": func(ctx context.Context, _ *fixture.Crew, job orderJob) error {
			return worker.Sleep(ctx, job, "sleep", 0)
		},
		"results of a call": func(ctx context.Context, c *fixture.Crew, job orderJob) error {
			_, err := worker.Call(ctx, job, "called", shout(c), "")
			return err
		},
		"call": func(ctx context.Context, c *fixture.Crew, job orderJob) error {
			_, err := worker.Call(ctx, job, "another", shout(c), "")
			return err
		},
	}
	for _, read := range []bool{false, true} { // whether the run has read its steps before
		for name, form := range forms {
			t.Run(fmt.Sprintf("%s, read %v", name, read), func(t *testing.T) {
				got := make(chan error, 1)
				c := ordering(t, func(ctx context.Context, c *fixture.Crew, job orderJob) (string, error) {
					if !job.Resumed {
						_, err := worker.Call(ctx, job, "called", shout(c), "")
						return "", err
					}
					if read {
						if _, err := worker.Step(ctx, job, "before", func(context.Context) (string, error) { return "", nil }); err != nil {
							return "", err
						}
					}
					ended, end := context.WithCancelCause(ctx)
					end(gone)
					got <- form(ended, c, job)
					return "", nil
				}, loud)
				c.Create(t, retrying)
				if err := fixture.Received(t, got); !errors.Is(err, gone) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}
