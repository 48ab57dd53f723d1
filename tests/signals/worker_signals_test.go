package signals

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

type approval struct{ By string }

var (
	approved = engine.Signal[approval]{Name: "approved"}
	paid     = engine.Signal[int]{Name: "paid"}
)

func kindPublish(s *engine.ExecutionSpec) { s.Kind = "publish" }

// published is an execution of kind "publish" that a kit runs.
type published[Out any] struct {
	*fixture.Kit
	kind engine.Kind[struct{}, Out]
	x    id.ExecutionID
}

// publishing creates an execution with this handler, which is still to be run.
func publishing[Out any](
	t *testing.T, fn func(context.Context, worker.Job[struct{}]) (Out, error), options ...engine.CreateOption,
) *published[Out] {
	t.Helper()
	p := &published[Out]{Kit: fixture.NewKit(t), kind: engine.Kind[struct{}, Out]{Name: "publish"}}
	worker.Handle(p.Worker, p.kind, fn)
	p.x = fftest.Create(p.Kit.Kit, p.kind, struct{}{}, options...).ID
	return p
}

// wantResult fails the test unless the last run completed the execution with this result, in its first attempt.
func (p *published[Out]) wantResult(t *testing.T, want Out) {
	t.Helper()
	p.WantSettled(t, worker.Completed)
	fftest.RequireResult(t, p.Kit.Kit, p.kind, p.x, want)
	if got := p.Stored(t, p.x); got.AttemptCount != 1 {
		t.Errorf("%+v", got)
	}
}

func (p *published[Out]) approve(by string, options ...engine.SendOption) {
	fftest.Send(p.Kit.Kit, p.x, approved, approval{by}, options...)
}

func (p *published[Out]) pay(amount int) { fftest.Send(p.Kit.Kit, p.x, paid, amount) }

// A handler waits for two signals in turn. Each wakes it, and it gets both again when it runs anew.
func TestHandlerAwaitsSignals(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		a, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Hour})
		if err != nil {
			return "", err
		}
		amount, err := paid.Await(ctx, job, engine.Wait{Where: "$ > 10"})
		return fmt.Sprint(a.By, amount), err
	})
	p.WantSettled(t, worker.Suspended)
	p.WantState(t, p.x, fixture.StateSuspended)
	p.approve("ada")
	p.WantSettled(t, worker.Suspended)
	p.pay(10)
	p.WantSettled(t)
	p.WantState(t, p.x, fixture.StateSuspended)
	p.pay(11)
	p.wantResult(t, "ada11")
}

// Signals that come before the wait are kept for it.
func TestHandlerGetsEarlySignals_S4(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		a, err := approved.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		b, err := approved.Await(ctx, job, engine.Wait{})
		return a.By + b.By, err
	})
	for _, by := range []string{"ada", "bob"} {
		spec, err := approved.Spec(p.x, approval{by})
		if err != nil {
			t.Fatal(err)
		}
		if signalled, err := p.Engine.Signal(t.Context(), spec); err != nil || signalled.Effect != engine.SignalBuffered {
			t.Fatal(signalled, err)
		}
	}
	p.WantSettled(t, worker.Suspended, worker.Suspended, worker.Completed)
	fftest.RequireResult(t, p.Kit.Kit, p.kind, p.x, "adabob")
}

// A wait that times out resumes the handler with an error, for this wait alone.
func TestHandlerWaitTimesOut_S24(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, err := approved.Await(ctx, job, engine.Wait{Timeout: time.Hour})
		if !errors.Is(err, fferr.ErrWaitTimeout) {
			return "", err
		}
		amount, err := paid.Await(ctx, job, engine.Wait{})
		return fmt.Sprint("none, but ", amount), err
	})
	p.WantSettled(t, worker.Suspended)
	p.Advance(time.Hour)
	p.WantSettled(t, worker.Suspended)
	p.pay(5)
	p.wantResult(t, "none, but 5")
}

// The first of several signals wins.
func TestHandlerAwaitsAnyOf(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, engine.Received("rejected"), engine.Received("approved"))
		return won.Name, err
	})
	p.WantSettled(t, worker.Suspended)
	p.approve("ada")
	p.wantResult(t, "approved")
}

// A step asks before the wait, again with the same waitpoint if that failed, and not after the wait.
func TestHandlerAsksInAStep(t *testing.T) {
	var links []string
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
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
	if _, err := operator.SeedKey(t.Context(), p.Kit.Fixture.Engine, "k1", wire.NewSecret()); err != nil {
		t.Fatal(err)
	}
	p.WantSettled(t, worker.Delayed, worker.Suspended)
	p.approve("ada")
	p.wantResult(t, "ada")
	if len(links) != 2 || links[0] != links[1] {
		t.Errorf("asked with the waitpoints %q, want the same twice", links)
	}
}

// The payload of the winner is decoded by its declaration.
func TestHandlerMatchesSignals(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
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
	p.approve("ada")
	p.pay(5)
	p.WantSettled(t, worker.Suspended, worker.Suspended)
	p.approve("bob")
	p.wantResult(t, "5 true falsebobtrue")
}

// Two of three reviewers: one of them counts once.
func TestHandlerAwaitsDistinctSources(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		reviews, err := approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{})
		return fmt.Sprint(reviews), err
	})
	p.WantSettled(t, worker.Suspended)
	for _, by := range []string{"ada", "ada", "bob"} {
		p.WantSettled(t)
		p.approve(by, engine.From("user", by))
	}
	p.wantResult(t, "[{ada} {ada} {bob}]")
}

// A signal sent by SQL, in a transaction of its own.
func TestSignalFromSQL(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		a, err := approved.Await(ctx, job, engine.Wait{})
		return a.By, err
	})
	p.WantSettled(t, worker.Suspended)
	p.Exec(t, `SELECT ffx_signal($1, 'approved', '{"By": "sql"}')`, p.x.String())
	p.wantResult(t, "sql")
}
