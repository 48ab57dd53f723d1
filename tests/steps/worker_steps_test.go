package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// ordered is a kit with a handler of kind "order".
type ordered[Out any] struct {
	*fixture.Kit
	kind engine.Kind[struct{}, Out]
}

func handling[Out any](t *testing.T, fn func(context.Context, orderJob) (Out, error)) *ordered[Out] {
	t.Helper()
	return handle(fixture.NewKit(t), fn)
}

func handle[Out any](k *fixture.Kit, fn func(context.Context, orderJob) (Out, error)) *ordered[Out] {
	o := &ordered[Out]{k, engine.Kind[struct{}, Out]{Name: "order"}}
	worker.Handle(o.Worker, o.kind, fn)
	return o
}

// run creates an execution, runs it as far as it goes, and checks how the runs were settled.
func (o *ordered[Out]) run(t *testing.T, want ...worker.Settlement) id.ExecutionID {
	t.Helper()
	x := o.Create(t, retrying)
	o.WantSettled(t, want...)
	return x
}

func (o *ordered[Out]) wantResult(t *testing.T, x id.ExecutionID, want Out) {
	t.Helper()
	fftest.RequireResult(t, o.Kit.Kit, o.kind, x, want)
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
type counted map[string]int

func (c counted) want(t *testing.T, want string) {
	t.Helper()
	if got := fmt.Sprint(c); got != "map["+want+"]" {
		t.Errorf("calls %s, want %s", got, want)
	}
}

// step is a step that counts its calls.
func step(ctx context.Context, job orderJob, calls counted, name string) (string, error) {
	return worker.Step(ctx, job, name, func(context.Context) (string, error) {
		calls[name]++
		return name + "!", nil
	})
}

// stepsOf runs steps, one after the other, and joins their results.
func stepsOf(ctx context.Context, job orderJob, calls counted, names ...string) (all string, err error) {
	for _, name := range names {
		result, err := step(ctx, job, calls, name)
		if err != nil {
			return "", err
		}
		all += result
	}
	return all, nil
}

// A handler that fails after two of three steps goes on with the third.
func TestHandlerContinuesAfterItsLastStep(t *testing.T) {
	calls := counted{}
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		ab, err := stepsOf(ctx, job, calls, "a", "b")
		if err == nil && job.Lease.Attempt == 0 {
			err = errors.New("halfway")
		}
		if err != nil {
			return "", err
		}
		d, err := step(ctx, job, calls, "d")
		return ab + d, err
	})
	x := o.run(t, worker.Retrying, worker.Completed)
	calls.want(t, "a:1 b:1 d:1")
	o.wantResult(t, x, "a!b!d!")
	steps, err := o.StepResults(t.Context(), x)
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
	calls := 0
	o := handling(t, func(ctx context.Context, job orderJob) (int, error) {
		return worker.Step(ctx, job, "flaky", func(context.Context) (int, error) {
			if calls++; calls < 5 {
				return 0, fmt.Errorf("call %d", calls)
			}
			return 7, nil
		}, worker.Retry(*policy.ImmediateRetries(2)))
	})
	x := o.run(t, worker.Retrying, worker.Completed)
	attempts, err := o.ListAttempts(t.Context(), x, "", 0)
	if err != nil || !strings.Contains(attempts.Items[0].Failure.Message, `step "flaky": call 3`) {
		t.Errorf("%+v, error %v", attempts, err)
	}
	steps, err := o.Steps(t.Context(), x)
	if err != nil || calls != 5 || len(steps) != 1 || steps[0].Tries != 2 || steps[0].Error != "call 4" || steps[0].Result != nil || steps[0].ResultSize != 1 {
		t.Errorf("%d calls, %+v, error %v", calls, steps, err)
	}
}

// What a step's function gets from the engine about another execution says nothing about its own lease.
func TestStepMeetsErrorsOfOtherExecutions(t *testing.T) {
	k := fixture.NewKit(t)
	o := handle(k, func(ctx context.Context, job orderJob) (int, error) {
		calls := 0
		fn := func(ctx context.Context) (int, error) {
			if calls++; calls < 3 {
				_, err := k.DescribeExecution(ctx, k.NewExecutionID(k.Lane))
				return 0, err
			}
			return calls, nil
		}
		if _, err := worker.Step(ctx, job, "plain", fn, worker.Retry(*policy.ImmediateRetries(2))); err != nil {
			return 0, err
		}
		calls = 1
		got, err := worker.StepTx(ctx, job, "tx", func(ctx context.Context, _ pgx.Tx) (int, error) { return fn(ctx) })
		if !errors.Is(err, fferr.ErrNotFound) || errors.Is(err, worker.ErrLeaseLost) {
			return got, fmt.Errorf("the step returned %w", err)
		}
		return 1, nil
	})
	o.run(t, worker.Completed)
}

// Steps of goroutines and nested ones are stored like others.
func TestParallelAndNestedSteps(t *testing.T) {
	var inner atomic.Int64
	o := handling(t, func(ctx context.Context, job orderJob) (int, error) {
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
		if job.Lease.Attempt == 0 {
			errs = append(errs, errors.New("halfway"))
		}
		return sum, errors.Join(errs...)
	})
	x := o.run(t, worker.Retrying, worker.Completed)
	o.wantResult(t, x, 1225)
	if steps, err := o.Steps(t.Context(), x); err != nil || len(steps) != 100 || inner.Load() != 50 {
		t.Errorf("%d steps after %d calls, error %v", len(steps), inner.Load(), err)
	}
}

// A repeated name in one run is a mistake of the handler, and no retry mends it.
func TestRepeatedStepName(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		return stepsOf(ctx, job, counted{}, "same", "same")
	})
	fftest.RequireFailure(t, o.Kit.Kit, o.run(t, worker.Failed), `the name "same" was used before in this run`)
}

// A result that the new code can't decode names the step.
func TestStepResultDoesNotDecode(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (int, error) {
		if job.Lease.Attempt == 0 {
			_, err := step(ctx, job, counted{}, "charge")
			return 0, errors.Join(err, errors.New("deploy"))
		}
		return worker.Step(ctx, job, "charge", func(context.Context) (int, error) { panic("must not run") })
	})
	x := o.run(t, worker.Retrying, worker.Failed)
	fftest.RequireFailure(t, o.Kit.Kit, x, `result of step "charge" of kind "order" does not decode into int`)
}

// The writes of a StepTx and its result are in one commit: an attempt that fails behind it doesn't repeat them.
func TestStepTxHappensOnce(t *testing.T) {
	k := fixture.NewKit(t)
	o := handle(k, func(ctx context.Context, job orderJob) (string, error) {
		got, err := worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "booked", k.WithTx(tx).SetExecutionTag(ctx, job.ID, "app.booked", "yes")
		})
		if err == nil && job.Lease.Attempt == 0 {
			err = errors.New("halfway")
		}
		return got, err
	})
	x := o.run(t, worker.Retrying, worker.Completed)
	if tag, _, err := k.ExecutionTag(t.Context(), x, "app.booked"); tag != "yes" || err != nil {
		t.Error(tag, err)
	}
	o.wantResult(t, x, "booked")
}

// A StepTx that fails writes nothing.
func TestFailedStepTxWritesNothing(t *testing.T) {
	k := fixture.NewKit(t)
	o := handle(k, func(ctx context.Context, job orderJob) (string, error) {
		return worker.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (string, error) {
			err := k.WithTx(tx).SetExecutionTag(ctx, job.ID, "app.booked", "yes")
			return "", errors.Join(err, worker.Permanent(errors.New("no")))
		})
	})
	x := o.run(t, worker.Failed)
	fftest.RequireFailure(t, k.Kit, x, "no")
	if tag, set, err := k.ExecutionTag(t.Context(), x, "app.booked"); set || err != nil {
		t.Error(tag, err)
	}
	wantSteps(t, k.Engine, x)
}

// A sleeping execution holds no lease, and sleeps once.
func TestSleep(t *testing.T) {
	runs := 0
	o := handling(t, func(ctx context.Context, job orderJob) (int, error) {
		runs++
		if err := worker.Sleep(ctx, job, "cool-off", time.Hour); err != nil {
			return 0, err
		}
		if runs == 2 {
			return 0, errors.New("after the pause")
		}
		return runs, worker.Sleep(ctx, job, "none", 0)
	})
	x := o.run(t, worker.Delayed)
	o.Advance(time.Hour)
	o.WantSettled(t, worker.Retrying, worker.Completed)
	steps, err := o.Steps(t.Context(), x)
	if err != nil || len(steps) != 2 || steps[0].Outcome != engine.StepSlept || steps[0].Name != "cool-off" {
		t.Errorf("%+v, error %v", steps, err)
	}
}

// The key of a step is the same in all its runs, and another for each step and execution.
func TestStepIdempotencyKey(t *testing.T) {
	keys := make(map[string]int)
	o := handling(t, func(ctx context.Context, job orderJob) (int, error) {
		for _, name := range []string{"a", "b"} {
			_, err := worker.Step(ctx, job, name, func(ctx context.Context) (int, error) {
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
	for range 2 {
		o.run(t, worker.Retrying, worker.Retrying, worker.Completed)
	}
	if len(keys) != 4 {
		t.Errorf("%v", keys)
	}
}

// Whatever a handler asks for after its context has ended, it gets the cause, as of a lost lease.
func TestStepsReportTheCauseOfAnEndedContext(t *testing.T) {
	gone := errors.New("gone")
	calls := maps.Clone(jobCalls)
	calls["Step"] = func(ctx context.Context, job orderJob) error { // its function runs if the steps are known
		_, err := step(ctx, job, counted{}, "late")
		return err
	}
	calls["results of a Call"] = func(ctx context.Context, job orderJob) error {
		_, err := worker.Call(ctx, job, "called", shout, "")
		return err
	}
	for _, read := range []bool{false, true} { // whether the run has read its steps before
		for name, call := range calls {
			t.Run(fmt.Sprintf("%s, read %v", name, read), func(t *testing.T) {
				var got error
				ordering(t, func(ctx context.Context, job orderJob) (string, error) {
					if !job.Resumed {
						_, err := worker.Call(ctx, job, "called", shout, "")
						return "", err
					}
					if read {
						if _, err := step(ctx, job, counted{}, "before"); err != nil {
							return "", err
						}
					}
					ended, end := context.WithCancelCause(ctx)
					end(gone)
					got = call(ended, job)
					return "", nil
				}, loud).run(t, worker.Suspended, worker.Completed, worker.Completed)
				if !errors.Is(got, gone) {
					t.Errorf("got %v", got)
				}
			})
		}
	}
}
