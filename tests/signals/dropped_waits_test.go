package signals

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A handler that drops the error of a wait, a pause or a call does not complete the execution, whose signal would be lost. The
// failure says what to return. W15
func TestDroppedWaitIsNoSuccess(t *testing.T) {
	child := engine.Kind[int, int]{Name: "child"}
	for name, wait := range map[string]func(context.Context, worker.Job[struct{}]) error{
		"signal approved": func(ctx context.Context, job worker.Job[struct{}]) error {
			_, err := approved.Await(ctx, job, engine.Wait{})
			return err
		},
		"signal a, b": func(ctx context.Context, job worker.Job[struct{}]) error {
			_, err := engine.AwaitAny(ctx, job, engine.Wait{}, engine.Received("a"), engine.Received("b"))
			return err
		},
		"pause": func(ctx context.Context, job worker.Job[struct{}]) error {
			return worker.Sleep(ctx, job, "pause", time.Hour)
		},
		"call": func(ctx context.Context, job worker.Job[struct{}]) error {
			_, err := worker.Call(ctx, job, "call", child, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
				if err := wait(ctx, job); !worker.ContinuesLater(err) {
					t.Error(err)
				}
				return "published", nil
			})
			p.WantSettled(t, worker.Failed)
			fftest.RequireFailure(t, p.Kit.Kit, p.x, fmt.Sprintf("%q is not over", name))
			fftest.RequireFailure(t, p.Kit.Kit, p.x, "return the error of the wait, as it is or wrapped by %w")
		})
	}
}

// Another error of such a handler is the failure, with its class, and also says what to return.
func TestErrorInsteadOfAWaitHasARemark(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, err := approved.Await(ctx, job, engine.Wait{})
		return "", &worker.Fail{Class: policy.Permanent, Category: "review", Err: fmt.Errorf("no approval: %v", err)}
	})
	p.WantSettled(t, worker.Failed)
	fftest.RequireFailure(t, p.Kit.Kit, p.x, "no approval")
	fftest.RequireFailure(t, p.Kit.Kit, p.x, `"signal approved" is not over: to wait, return the error of the wait`)
	attempts, err := p.Engine.ListAttempts(t.Context(), p.x, "", 0)
	if err != nil || attempts.Items[0].Failure.Category != "review" {
		t.Errorf("%+v, %v", attempts, err)
	}
}

// The error of one wait is enough, beside the error of another and beside other errors.
func TestOneErrorOfManyWaits(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, first := approved.Await(ctx, job, engine.Wait{})
		amount, second := paid.Await(ctx, job, engine.Wait{})
		if first != nil || second != nil {
			return "", errors.Join(errors.New("other work failed"), first, second)
		}
		return fmt.Sprint(amount), nil
	})
	p.WantSettled(t, worker.Suspended)
	p.pay(5)
	p.approve("ada")
	p.WantSettled(t, worker.Suspended, worker.Completed)
	fftest.RequireResult(t, p.Kit.Kit, p.kind, p.x, "5")
}

// A stored signal that does not decode is a permanent failure, whatever reads it. Another try would not help. W15
func TestSignalThatDoesNotDecodeIsPermanent(t *testing.T) {
	for name, read := range map[string]func(context.Context, worker.Job[struct{}]) error{
		"Await": func(ctx context.Context, job worker.Job[struct{}]) error {
			_, err := paid.Await(ctx, job, engine.Wait{})
			return err
		},
		"AwaitEach": func(ctx context.Context, job worker.Job[struct{}]) error {
			_, err := paid.AwaitEach(ctx, job, 1, engine.DistinctSignals, engine.Wait{})
			return err
		},
		"Match": func(ctx context.Context, job worker.Job[struct{}]) error {
			won, err := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received(), paid.Received())
			if err != nil {
				return err
			}
			_, _, err = paid.Match(won)
			return fmt.Errorf("the payment: %w", err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) { return "", read(ctx, job) })
			p.WantSettled(t, worker.Suspended)
			fftest.Send(p.Kit.Kit, p.x, engine.Signal[string]{Name: "paid"}, "five")
			p.WantSettled(t, worker.Failed)
			fftest.RequireFailure(t, p.Kit.Kit, p.x, `signal of kind "paid" does not decode into int`)
			attempts, err := p.Engine.ListAttempts(t.Context(), p.x, "", 0)
			if err != nil || len(attempts.Items) != 1 || attempts.Items[0].Failure.Category != "signal" {
				t.Errorf("%+v, %v", attempts, err)
			}
		})
	}
}
