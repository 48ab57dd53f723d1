package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

type (
	Approval  struct{ By string }
	Rejection struct{ Reason string }
)

// Signals are declared once, for senders and for handlers.
var (
	Approved = engine.Signal[Approval]{Name: "approved"}
	Rejected = engine.Signal[Rejection]{Name: "rejected"}
)

func mail(context.Context, id.ExecutionID) error { return nil }

// A handler mails a question once, in a step, and waits for the answer.
func ExampleSignal_Await() {
	_ = func(ctx context.Context, job worker.Job[string]) (string, error) {
		_, err := worker.Step(ctx, job, "ask", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, mail(ctx, job.ID)
		})
		if err != nil {
			return "", err
		}
		approval, err := Approved.Await(ctx, job, engine.Wait{Timeout: 72 * time.Hour})
		if errors.Is(err, fferr.ErrWaitTimeout) {
			return "nobody has answered", nil
		}
		return approval.By, err // at first ErrAwaiting, which suspends the execution
	}
}

// Two of three reviewers have to approve. job is the handler's worker.Job. One who approves twice counts once.
func ExampleSignal_AwaitEach() {
	_ = func(ctx context.Context, job engine.Awaiter) (int, error) {
		approvals, err := Approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{})
		return len(approvals), err
	}
}

// The first of two signals decides.
func ExampleAwaitAny() {
	_ = func(ctx context.Context, job engine.Awaiter) (string, error) {
		won, err := engine.AwaitAny(ctx, job, engine.Wait{}, Approved.Received(), Rejected.Received())
		if err != nil {
			return "", err
		}
		if rejection, ok, err := Rejected.Match(won); ok {
			return "rejected: " + rejection.Reason, err
		}
		approval, err := Approved.Decode(won)
		return "approved by " + approval.By, err
	}
}

// A handler needs an approval and a payment of more than 100, in any order.
func ExampleAwaitAll() {
	paid := engine.Signal[struct{ Euros int }]{Name: "paid"}
	_ = func(ctx context.Context, job engine.Awaiter) (string, error) {
		signals, err := engine.AwaitAll(ctx, job, engine.Wait{}, Approved.Received(), paid.Received().Where("$.Euros > 100"))
		if err != nil {
			return "", err
		}
		payment, _, err := paid.Match(signals...)
		return fmt.Sprint(payment.Euros, " euros"), err
	}
}

// A webhook sends a signal. The service may deliver its event twice, and both are one signal.
func ExampleSignal_Send() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Lane: "articles", Kind: "publish"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		err := Approved.Send(ctx, eng, created.ID, Approval{By: "ada"}, engine.From("user", "ada"), engine.Once("evt_1"))
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
}

// A holder of a lease suspends its execution, and a signal continues it.
func ExampleEngine_Suspend() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	created, err := eng.CreateExecution(ctx, engine.ExecutionSpec{Lane: "reviews", Kind: "review"})
	if err != nil {
		log.Fatal(err)
	}
	reviewer := engine.ClaimSpec{Lane: "reviews", Worker: "reviewer", Instance: "reviewer-1", LeaseTTL: 30 * time.Second}
	claimed, err := eng.Claim(ctx, reviewer, 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range claimed {
		if _, err := eng.Suspend(ctx, engine.SuspendSpec{Lease: c.Lease, Condition: engine.Received("approved")}); err != nil {
			log.Fatal(err)
		}
	}
	signalled, err := eng.Signal(ctx, engine.SignalSpec{Execution: created.ID, Name: "approved"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(signalled.Effect)
	// Output: satisfied
}

// A page of approvals lists the open waits for a signal, the longest first.
func ExampleEngine_Waits() {
	ctx := context.Background()
	pool, eng := connect(ctx)
	defer pool.Close()
	for wait, err := range eng.Waits(ctx, engine.WaitFilter{Name: "approved"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(wait.Execution, wait.Asked, "since", wait.Since)
	}
	// Output:
}
