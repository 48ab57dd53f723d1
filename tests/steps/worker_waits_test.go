package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var rejected = engine.Signal[string]{Name: "rejected"}

// send sends a signal from a user, and checks how the runs that follow were settled.
func (o *ordered[Out]) send(t *testing.T, x id.ExecutionID, signal engine.Signal[string], user string, want ...worker.Settlement) {
	t.Helper()
	fftest.Send(o.Kit.Kit, x, signal, user, engine.From("user", user))
	o.WantSettled(t, want...)
}

// replay replays an execution, and checks how the runs that follow were settled.
func (o *ordered[Out]) replay(t *testing.T, x id.ExecutionID, options []operator.ReplayOption, want ...worker.Settlement) {
	t.Helper()
	if _, err := operator.Replay(t.Context(), o.Kit.Fixture.Engine, x, options...); err != nil {
		t.Fatal(err)
	}
	o.WantSettled(t, want...)
}

// wantOutcomes fails the test unless an execution has these steps: place, name, outcome and signals of each.
func wantOutcomes(t *testing.T, e *engine.Engine, x id.ExecutionID, want ...string) {
	t.Helper()
	steps, err := e.StepResults(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		signals, err := s.Signals()
		text := fmt.Sprint(s.Seq, " ", s.Name, ": ", s.Outcome)
		for _, signal := range signals {
			text += " " + signal.Name + string(signal.Payload)
		}
		if got = append(got, text); err != nil || s.Tries != 1 || s.EndedAt.Before(s.StartedAt) {
			t.Errorf("%+v, error %v", s, err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("steps\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A step, a wait and a step run once each, however often the handler runs. A first run reads nothing, a later one its
// steps alone.
func TestWaitBetweenSteps(t *testing.T) {
	calls, log, f := counted{}, new(fixture.StatementLog), fixture.NewCloned(t)
	f.Pool = log.Open(t, f.Url)
	c := fixture.CrewOn(t, f, engine.Config{})
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "order", func(ctx context.Context, job orderJob) (string, error) {
			draft, err := step(ctx, job, calls, "draft")
			if err != nil {
				return "", err
			}
			by, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Hour})
			if err != nil {
				return "", err
			}
			published, err := step(ctx, job, calls, "publish")
			if err == nil && job.Lease.Attempt == 0 {
				err = errors.New("behind it")
			}
			return draft + by + published, err
		})
	})
	var x id.ExecutionID
	for _, run := range []struct {
		begin func() error
		want  []worker.Settlement
		reads int
	}{
		{func() error { x = c.Create(t, retrying); return nil }, []worker.Settlement{worker.Suspended}, 0},
		{func() error {
			return approved.Send(t.Context(), c.Engine, x, "ada", engine.From("user", "ada"))
		}, []worker.Settlement{worker.Retrying, worker.Completed}, 2},
	} {
		names := fixture.Names(log.During(func() {
			if err := run.begin(); err != nil {
				t.Error(err)
			}
			wantSettlements(t, c, run.want...)
		}))
		reads := slices.DeleteFunc(names, func(name string) bool { return name != "ListSteps" && name != "GetSuspension" })
		if len(reads) != run.reads || slices.Contains(reads, "GetSuspension") {
			t.Errorf("the worker reads by %q, want ListSteps %d times", reads, run.reads)
		}
	}
	calls.want(t, "draft:1 publish:1")
	if got := c.Stored(t, x); string(got.Result) != `"draft!adapublish!"` || got.AttemptCount != 2 {
		t.Errorf("%+v", got)
	}
	wantOutcomes(t, c.Engine, x, "0 draft: success", `1 signal approved: signal approved"ada"`, "2 publish: success")
	steps, err := c.Engine.StepResults(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	signals := mustSignals(t, steps[1])
	received, err := c.Engine.ReceivedSignals(t.Context(), x)
	if err != nil || len(received) != 1 || fmt.Sprint(signals) != fmt.Sprint(received) || signals[0].Source != "ada" {
		t.Errorf("the step has %+v, the suspension %+v, error %v", signals, received, err)
	}
}

// A replay keeps the approval unless it drops the step of the wait.
func TestReplayAndWaits(t *testing.T) {
	for name, test := range map[string]struct {
		options []operator.ReplayOption
		waits   bool
		calls   string
	}{
		"all":             {nil, false, "a:1 b:1"},
		"behind the wait": {[]operator.ReplayOption{operator.ReplayFromStep("b")}, false, "a:1 b:2"},
		"before the wait": {[]operator.ReplayOption{operator.ReplayFromStep("signal approved")}, true, "a:1 b:2"},
		"none":            {[]operator.ReplayOption{operator.ReplayWithoutSteps}, true, "a:2 b:2"},
	} {
		t.Run(name, func(t *testing.T) {
			calls := counted{}
			o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
				if _, err := step(ctx, job, calls, "a"); err != nil {
					return "", err
				}
				by, err := approved.Await(ctx, job, engine.Wait{})
				if err != nil {
					return "", err
				}
				if _, err := step(ctx, job, calls, "b"); err != nil {
					return "", err
				}
				return by, untilReplayed(job)
			})
			x := o.run(t, worker.Suspended)
			o.send(t, x, approved, "ada", worker.Failed)
			by := "ada"
			if test.waits {
				by = "bob"
				o.replay(t, x, test.options, worker.Suspended)
				o.send(t, x, approved, by, worker.Completed)
			} else {
				o.replay(t, x, test.options, worker.Completed)
			}
			calls.want(t, test.calls)
			o.wantResult(t, x, by)
			wantOutcomes(t, o.Engine, x, "0 a: success", `1 signal approved: signal approved"`+by+`"`, "2 b: success")
		})
	}
}

// untilReplayed fails an attempt for good unless it is a replay.
func untilReplayed(job orderJob) error {
	if job.Type == state.ReplayAttempt {
		return nil
	}
	return worker.Permanent(errors.New("no"))
}

// A timeout is remembered too: after a replay the handler doesn't wait again.
func TestTimeoutOfAWaitIsAStep(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		_, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Hour})
		if !errors.Is(err, fferr.ErrWaitTimeout) {
			return "", err
		}
		return "none", untilReplayed(job)
	})
	x := o.run(t, worker.Suspended)
	o.Advance(time.Hour)
	o.WantSettled(t, worker.Failed)
	o.replay(t, x, nil, worker.Completed)
	wantOutcomes(t, o.Engine, x, "0 signal approved: timeout timeout")
}

// Signals that come before their waits are in the steps of these. Two waits for one name are two steps.
func TestEarlySignalsAndRepeatedWaits(t *testing.T) {
	runs := 0
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		runs++
		a, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		b, err := approved.Await(ctx, job, engine.Wait{})
		if err == nil && runs < 4 {
			err = errors.New("behind both")
		}
		return a + b, err
	})
	x := o.Create(t, retrying)
	for _, user := range []string{"ada", "bob"} {
		fftest.Send(o.Kit.Kit, x, approved, user)
	}
	o.WantSettled(t, worker.Suspended, worker.Suspended, worker.Retrying, worker.Completed)
	o.wantResult(t, x, "adabob")
	wantOutcomes(t, o.Engine, x, `0 signal approved: signal approved"ada"`, `1 signal approved#2: signal approved"bob"`)
}

// Waits for several signals are one step each, with the signals that count.
func TestWaitsForSeveralSignalsAreSteps(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received(), rejected.Received())
		if err != nil {
			return "", err
		}
		all, err := engine.AwaitAll(ctx, job, engine.Wait{}, approved.Received(), rejected.Received())
		if err != nil {
			return "", err
		}
		each, err := approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{})
		if err == nil && job.Lease.Attempt == 0 {
			err = errors.New("behind them")
		}
		return won.Name + all[0].Name + all[1].Name + fmt.Sprint(each), err
	})
	x := o.run(t, worker.Suspended)
	o.send(t, x, rejected, "ada", worker.Suspended)
	o.send(t, x, approved, "ada")
	o.send(t, x, rejected, "bob", worker.Suspended)
	o.send(t, x, approved, "cyd")
	o.send(t, x, approved, "cyd")
	o.send(t, x, approved, "dan", worker.Retrying, worker.Completed)
	o.wantResult(t, x, "rejectedapprovedrejected[cyd cyd dan]")
	wantOutcomes(t, o.Engine, x,
		`0 signal approved, rejected: signal rejected"ada"`,
		`1 signal approved#2, rejected#2: signal approved"ada" rejected"bob"`,
		`2 signal approved#3: signal approved"cyd" approved"cyd" approved"dan"`)
}

// An operator's Resume brings no signal, so it is no result: the handler waits again.
func TestResumedWaitIsNoStep(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		return approved.Await(ctx, job, engine.Wait{})
	})
	x := o.run(t, worker.Suspended)
	if err := o.Resume(t.Context(), x, 0); err != nil {
		t.Fatal(err)
	}
	o.WantSettled(t, worker.Suspended)
	wantOutcomes(t, o.Engine, x)
	o.send(t, x, approved, "ada", worker.Completed)
	wantOutcomes(t, o.Engine, x, `0 signal approved: signal approved"ada"`)
}

// New code that waits for more signals gets the one that came for the wait of the code before.
func TestNewCodeWaitsForMore(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		if !job.Resumed {
			return approved.Await(ctx, job, engine.Wait{})
		}
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received(), rejected.Received())
		return won.Name, err
	})
	x := o.run(t, worker.Suspended)
	o.send(t, x, approved, "ada", worker.Completed)
	wantOutcomes(t, o.Engine, x, `0 signal approved: signal approved"ada"`)
}

// The names of waits are not for steps.
func TestStepNamedLikeAWait(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (int, error) {
		return worker.Step(ctx, job, "signal approved", func(context.Context) (int, error) { panic("must not run") })
	})
	fftest.RequireFailure(t, o.Kit.Kit, o.run(t, worker.Failed), `"signal approved" begins with "signal "`)
}
