package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var rejected = engine.Signal[string]{Name: "rejected"}

func send(t *testing.T, c *fixture.Crew, x id.ExecutionID, signal engine.Signal[string], value string) {
	t.Helper()
	if err := signal.Send(t.Context(), c.Engine, x, value, engine.From("user", value)); err != nil {
		t.Fatal(err)
	}
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

// logged is a crew like that of handling, with a log of the statements that its worker sends.
func logged[Out any](t *testing.T, fn func(context.Context, worker.Job[struct{}]) (Out, error)) (*fixture.Crew, *fixture.StatementLog) {
	t.Helper()
	f, log := fixture.NewCloned(t), new(fixture.StatementLog)
	f.Pool = log.Open(t, f.Url)
	c := fixture.CrewOn(t, f, engine.Config{})
	c.Work(t, worker.Config{}, func(w *worker.Worker) { fixture.HandleKind(w, "order", fn) })
	return c, log
}

// A step, a wait and a step run once each, however often the handler runs. A first run reads nothing, a later one its
// steps alone.
func TestWaitBetweenSteps(t *testing.T) {
	var calls counted
	failed := false
	c, log := logged(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		draft, err := step(ctx, job, &calls, "draft")
		if err != nil {
			return "", err
		}
		by, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Hour})
		if err != nil {
			return "", err
		}
		published, err := step(ctx, job, &calls, "publish")
		if err == nil && !failed {
			failed = true
			err = errors.New("behind it")
		}
		return draft + by + published, err
	})
	var x id.ExecutionID
	for _, run := range []struct {
		begin func()
		want  []worker.Settlement
		reads int
	}{
		{func() { x = c.Create(t, retrying) }, []worker.Settlement{worker.Suspended}, 0},
		{func() { send(t, c, x, approved, "ada") }, []worker.Settlement{worker.Retrying, worker.Completed}, 2},
	} {
		names := fixture.Names(log.During(func() {
			run.begin()
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
	signals, err := steps[1].Signals()
	if err != nil || len(signals) != 1 {
		t.Fatal(signals, err)
	}
	received, err := c.Engine.ReceivedSignals(t.Context(), x)
	if err != nil || len(received) != 1 || fmt.Sprint(signals) != fmt.Sprint(received) || signals[0].Source != "ada" {
		t.Errorf("the step has %+v, the suspension %+v, error %v", signals, received, err)
	}
}

// A replay keeps the approval unless it drops the step of the wait.
func TestReplayAndWaits(t *testing.T) {
	for name, test := range map[string]struct {
		options []engine.ReplayOption
		waits   bool
		calls   string
	}{
		"all":             {nil, false, "a:1 b:1"},
		"behind the wait": {[]engine.ReplayOption{engine.ReplayFromStep("b")}, false, "a:1 b:2"},
		"before the wait": {[]engine.ReplayOption{engine.ReplayFromStep("signal approved")}, true, "a:1 b:2"},
		"none":            {[]engine.ReplayOption{engine.ReplayWithoutSteps}, true, "a:2 b:2"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls counted
			fails := true
			c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
				if _, err := step(ctx, job, &calls, "a"); err != nil {
					return "", err
				}
				by, err := approved.Await(ctx, job, engine.Wait{})
				if err != nil {
					return "", err
				}
				if _, err := step(ctx, job, &calls, "b"); err != nil {
					return "", err
				}
				if fails {
					fails = false
					return "", worker.Permanent(errors.New("no"))
				}
				return by, nil
			})
			x := c.Create(t, retrying)
			wantSettlements(t, c, worker.Suspended)
			send(t, c, x, approved, "ada")
			wantSettlements(t, c, worker.Failed)
			if _, err := c.Engine.Operator().ReplayExecution(t.Context(), x, test.options...); err != nil {
				t.Fatal(err)
			}
			by := "ada"
			if test.waits {
				by = "bob"
				wantSettlements(t, c, worker.Suspended)
				send(t, c, x, approved, by)
			}
			wantSettlements(t, c, worker.Completed)
			calls.want(t, test.calls)
			if got := c.Stored(t, x); string(got.Result) != `"`+by+`"` {
				t.Errorf("%s", got.Result)
			}
			wantOutcomes(t, c.Engine, x, "0 a: success", `1 signal approved: signal approved"`+by+`"`, "2 b: success")
		})
	}
}

// A timeout is remembered too: after a replay the handler doesn't wait again.
func TestTimeoutOfAWaitIsAStep(t *testing.T) {
	fails := true
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Millisecond})
		if !errors.Is(err, engine.ErrWaitTimeout) {
			return "", err
		}
		if fails {
			fails = false
			return "", worker.Permanent(errors.New("no"))
		}
		return "nobody", nil
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Suspended)
	fixture.Await(t, "the timeout", func() bool {
		if _, err := c.Maintenance().ExpireWaits(t.Context(), 10); err != nil {
			t.Error(err)
		}
		steps, err := c.Engine.Steps(t.Context(), x) // the worker's own background work may be first
		return err != nil || len(steps) > 0
	})
	wantSettlements(t, c, worker.Failed)
	if _, err := c.Engine.Operator().ReplayExecution(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Completed)
	wantOutcomes(t, c.Engine, x, "0 signal approved: timeout timeout")
}

// Signals that come before their waits are in the steps of these. Two waits for one name are two steps.
func TestEarlySignalsAndRepeatedWaits(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		if runs.Add(1) == 1 {
			close(began)
			<-goOn
		}
		a, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		b, err := approved.Await(ctx, job, engine.Wait{})
		if err == nil && runs.Load() < 4 {
			err = errors.New("behind both")
		}
		return a + b, err
	})
	x := c.Create(t, retrying)
	<-began
	send(t, c, x, approved, "ada")
	send(t, c, x, approved, "bob")
	close(goOn)
	wantSettlements(t, c, worker.Suspended, worker.Suspended, worker.Retrying, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"adabob"` {
		t.Errorf("%s", got.Result)
	}
	wantOutcomes(t, c.Engine, x, `0 signal approved: signal approved"ada"`, `1 signal approved#2: signal approved"bob"`)
}

// Waits for several signals are one step each, with the signals that count.
func TestWaitsForSeveralSignalsAreSteps(t *testing.T) {
	failed := false
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received(), rejected.Received())
		if err != nil {
			return "", err
		}
		all, err := engine.AwaitAll(ctx, job, engine.Wait{}, approved.Received(), rejected.Received())
		if err != nil {
			return "", err
		}
		each, err := approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{})
		if err == nil && !failed {
			failed = true
			err = errors.New("behind them")
		}
		return won.Name + all[0].Name + all[1].Name + fmt.Sprint(each), err
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Suspended)
	send(t, c, x, rejected, "ada")
	wantSettlements(t, c, worker.Suspended)
	send(t, c, x, approved, "ada")
	send(t, c, x, rejected, "bob")
	wantSettlements(t, c, worker.Suspended)
	for _, by := range []string{"cyd", "cyd", "dan"} {
		send(t, c, x, approved, by)
	}
	wantSettlements(t, c, worker.Retrying, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"rejectedapprovedrejected[cyd cyd dan]"` {
		t.Errorf("%s", got.Result)
	}
	wantOutcomes(t, c.Engine, x,
		`0 signal approved, rejected: signal rejected"ada"`,
		`1 signal approved#2, rejected#2: signal approved"ada" rejected"bob"`,
		`2 signal approved#3: signal approved"cyd" approved"cyd" approved"dan"`)
}

// An operator's Resume brings no signal, so it is no result: the handler waits again.
func TestResumedWaitIsNoStep(t *testing.T) {
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		return approved.Await(ctx, job, engine.Wait{})
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Suspended)
	if err := c.Engine.Resume(t.Context(), x, 0); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Suspended)
	wantOutcomes(t, c.Engine, x)
	send(t, c, x, approved, "ada")
	wantSettlements(t, c, worker.Completed)
	wantOutcomes(t, c.Engine, x, `0 signal approved: signal approved"ada"`)
}

// New code that waits for more signals gets the one that came for the wait of the code before.
func TestNewCodeWaitsForMore(t *testing.T) {
	var runs atomic.Int64
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		if runs.Add(1) == 1 {
			return approved.Await(ctx, job, engine.Wait{})
		}
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received(), rejected.Received())
		return won.Name, err
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Suspended)
	send(t, c, x, approved, "ada")
	wantSettlements(t, c, worker.Completed)
	wantOutcomes(t, c.Engine, x, `0 signal approved: signal approved"ada"`)
}

// The names of waits are not for steps.
func TestStepNamedLikeAWait(t *testing.T) {
	c := handling(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		return worker.Step(ctx, job, "signal approved", func(context.Context) (int, error) { panic("must not run") })
	})
	x := c.Create(t, retrying)
	wantSettlements(t, c, worker.Failed)
	attempts, err := c.Engine.ListAttempts(t.Context(), x, "", 0)
	if err != nil || !strings.Contains(attempts.Items[0].Failure.Message, `"signal approved" begins with "signal "`) {
		t.Errorf("%+v, error %v", attempts, err)
	}
}
