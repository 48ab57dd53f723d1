package signals

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

type approval struct{ By string }

var (
	approved = engine.Signal[approval]{Name: "approved"}
	paid     = engine.Signal[int]{Name: "paid"}
)

// awaiting is a crew with a handler of kind "publish".
func awaiting[Out any](t *testing.T, fn func(context.Context, worker.Job[struct{}]) (Out, error)) *fixture.Crew {
	t.Helper()
	c := fixture.NewLoneCrew(t)
	c.Work(t, worker.Config{}, func(w *worker.Worker) { fixture.HandleKind(w, "publish", fn) })
	return c
}

func kindPublish(s *engine.ExecutionSpec) { s.Kind = "publish" }

func wantSettlements(t *testing.T, c *fixture.Crew, want ...worker.Settlement) {
	t.Helper()
	for i, s := range c.Next(t, len(want)) {
		if s.Settlement != want[i] || s.Lease.Attempt != 0 {
			t.Fatalf("settlement %d: %+v, want %s", i, s, want[i])
		}
	}
}

// A handler waits for two signals in turn. Each wakes it, and it gets both again when it runs anew.
func TestHandlerAwaitsSignals(t *testing.T) {
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		a, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Hour})
		if err != nil {
			return "", err
		}
		amount, err := paid.Await(ctx, job, engine.Wait{Where: "$ > 10"})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(a.By, amount), nil
	})
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Suspended)
	c.WantState(t, x, "suspended unowned not_applicable suspended attempt_interrupted waiting_for_signal")
	if err := approved.Send(t.Context(), c.Engine, x, approval{"ada"}); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Suspended)
	if err := paid.Send(t.Context(), c.Engine, x, 10); err != nil {
		t.Fatal(err)
	}
	c.WantState(t, x, "suspended unowned not_applicable suspended attempt_interrupted waiting_for_signal")
	if err := paid.Send(t.Context(), c.Engine, x, 11); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"ada11"` || got.AttemptCount != 1 {
		t.Errorf("%+v", got)
	}
}

// Signals that come before the wait are kept for it.
func TestHandlerGetsEarlySignals_S4(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	first := true
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		if first {
			first = false
			close(began)
			<-goOn
		}
		a, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		b, err := approved.Await(ctx, job, engine.Wait{})
		return a.By + b.By, err
	})
	x := c.Create(t, kindPublish)
	<-began
	for _, by := range []string{"ada", "bob"} {
		spec, err := approved.Spec(x, approval{by})
		if err != nil {
			t.Fatal(err)
		}
		signalled, err := c.Engine.Signal(t.Context(), spec)
		if err != nil || signalled.Effect != engine.SignalBuffered {
			t.Fatal(signalled, err)
		}
	}
	close(goOn)
	wantSettlements(t, c, worker.Suspended, worker.Suspended, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"adabob"` {
		t.Errorf("%s", got.Result)
	}
}

// expireWaits waits until the wait of an execution has timed out.
func expireWaits(t *testing.T, c *fixture.Crew, x id.ExecutionID) {
	t.Helper()
	fixture.Await(t, "the timeout", func() bool {
		if _, err := c.Maintenance().ExpireWaits(t.Context(), 10); err != nil {
			t.Error(err)
		}
		// It may be the worker's own background work.
		received, err := c.Eng.ReceivedSignals(t.Context(), x)
		return err != nil || len(received) > 0
	})
}

// A wait that times out resumes the handler with an error, for this wait alone.
func TestHandlerWaitTimesOut_S24(t *testing.T) {
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Millisecond})
		if !errors.Is(err, engine.ErrWaitTimeout) {
			return "", err
		}
		amount, err := paid.Await(ctx, job, engine.Wait{})
		return fmt.Sprint("nobody, but ", amount), err
	})
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Suspended)
	expireWaits(t, c, x)
	wantSettlements(t, c, worker.Suspended)
	if err := paid.Send(t.Context(), c.Engine, x, 5); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"nobody, but 5"` {
		t.Errorf("%s", got.Result)
	}
}

// The first of several signals wins.
func TestHandlerAwaitsAnyOf(t *testing.T) {
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, engine.Received("rejected"), engine.Received("approved"))
		return won.Name, err
	})
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Suspended)
	if err := approved.Send(t.Context(), c.Engine, x, approval{"ada"}); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"approved"` {
		t.Errorf("%s", got.Result)
	}
}

// A step asks before the wait, again with the same waitpoint if that failed, and not after the wait.
func TestHandlerAsksInAStep(t *testing.T) {
	var links []string
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, err := worker.Step(ctx, job, "ask", func(ctx context.Context) (struct{}, error) {
			w, err := job.Waitpoint(ctx, "decision", time.Hour)
			if links = append(links, w.ID.String()); err == nil && len(links) == 1 {
				err = fmt.Errorf("no mail: %w", job.Delay(0))
			}
			return struct{}{}, err
		})
		if err != nil {
			return "", err
		}
		a, err := approved.Await(ctx, job, engine.Wait{Key: "decision"})
		return a.By, err
	})
	if _, err := c.Engine.Operator().SeedKey(t.Context(), "k1", wire.NewSecret()); err != nil {
		t.Fatal(err)
	}
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Delayed, worker.Suspended)
	spec, err := approved.Spec(x, approval{"ada"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Engine.Signal(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	wantSettlements(t, c, worker.Completed)
	if len(links) != 2 || links[0] != links[1] {
		t.Errorf("asked with the waitpoints %q, want the same twice", links)
	}
}

// The payload of the winner is decoded by its declaration.
func TestHandlerMatchesSignals(t *testing.T) {
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		all, err := engine.AwaitAll(ctx, job, engine.Wait{}, approved.Received(), paid.Received())
		if err != nil {
			return "", err
		}
		amount, isPaid, err := paid.Match(all...)
		if err != nil {
			return "", err
		}
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received(), paid.Received())
		if err != nil {
			return "", err
		}
		_, again, _ := paid.Match(won)
		a, ok, err := approved.Match(won)
		return fmt.Sprint(amount, isPaid, again, a.By, ok), err
	})
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Suspended)
	for _, send := range []func() error{
		func() error { return approved.Send(t.Context(), c.Engine, x, approval{"ada"}) },
		func() error { return paid.Send(t.Context(), c.Engine, x, 5) },
		func() error { return approved.Send(t.Context(), c.Engine, x, approval{"bob"}) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	fixture.Await(t, "the end", func() bool { return c.Next(t, 1)[0].Settlement == worker.Completed })
	if got := c.Stored(t, x); string(got.Result) != `"5 true falsebobtrue"` {
		t.Errorf("%s", got.Result)
	}
}

// Two of three reviewers: one of them counts once.
func TestHandlerAwaitsDistinctSources(t *testing.T) {
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		reviews, err := approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{})
		return fmt.Sprint(reviews), err
	})
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Suspended)
	for _, by := range []string{"ada", "ada", "bob"} {
		if err := approved.Send(t.Context(), c.Engine, x, approval{by}, engine.From("user", by)); err != nil {
			t.Fatal(err)
		}
	}
	wantSettlements(t, c, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"[{ada} {ada} {bob}]"` {
		t.Errorf("%s", got.Result)
	}
}

// A signal sent by SQL, in a transaction of its own.
func TestSignalFromSQL(t *testing.T) {
	c := awaiting(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		a, err := approved.Await(ctx, job, engine.Wait{})
		return a.By, err
	})
	x := c.Create(t, kindPublish)
	wantSettlements(t, c, worker.Suspended)
	c.Exec(t, `SELECT ffx_signal($1, 'approved', '{"By": "sql"}')`, x.String())
	wantSettlements(t, c, worker.Completed)
	if got := c.Stored(t, x); string(got.Result) != `"sql"` {
		t.Errorf("%s", got.Result)
	}
}
