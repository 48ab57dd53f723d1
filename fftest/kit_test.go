package fftest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	greet    = engine.Kind[string, string]{Name: "greet"}
	publish  = engine.Kind[string, string]{Name: "publish"}
	approved = engine.Signal[string]{Name: "approved"}
)

func TestDrainRunsCreatedWork(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		return "hello, " + job.Args, nil
	})
	created := fftest.Create(kit, greet, "Ada")
	kit.Drain()
	fftest.RequireResult(t, kit, greet, created.ID, "hello, Ada")
}

func TestAdvanceFiresDelaysAndRetries(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	tries := 0
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		if tries++; tries == 1 {
			return "", errors.New("not yet")
		}
		return "hello, " + job.Args, nil
	})
	created := fftest.Create(kit, greet, "Ada", engine.After(time.Hour))
	kit.Advance(time.Hour - time.Millisecond)
	kit.Drain()
	if tries != 0 {
		t.Fatal("a millisecond early")
	}
	kit.Advance(time.Millisecond)
	kit.Drain()
	if tries != 1 {
		t.Fatalf("%d tries", tries)
	}
	kit.Advance(time.Minute)
	kit.Drain()
	fftest.RequireResult(t, kit, greet, created.ID, "hello, Ada")
}

func TestSignalEndsWait(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	worker.Handle(kit.Worker, publish, func(ctx context.Context, job worker.Job[string]) (string, error) {
		if err := worker.Sleep(ctx, job, "cool down", 24*time.Hour); err != nil {
			return "", err
		}
		by, err := approved.Await(ctx, job, engine.Wait{})
		return job.Args + ", approved by " + by, err
	})
	created := fftest.Create(kit, publish, "a draft")
	kit.Drain()
	kit.Advance(24 * time.Hour)
	kit.Drain()
	fftest.Send(kit, created.ID, approved, "ada")
	kit.Drain()
	fftest.RequireResult(t, kit, publish, created.ID, "a draft, approved by ada")
}

func TestAMonthOfADailyDelay(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	days := 0
	daily := engine.Kind[struct{}, int]{Name: "daily", Policy: &policy.Execution{Retry: policy.ImmediateRetries(3)}}
	worker.Handle(kit.Worker, daily, func(_ context.Context, job worker.Job[struct{}]) (int, error) {
		if days++; days == 10 {
			return 0, errors.New("once")
		}
		if days <= 30 {
			return 0, job.Delay(24 * time.Hour)
		}
		return days, nil
	})
	created := fftest.Create(kit, daily, struct{}{})
	kit.Drain()
	most := 0
	for range 30 {
		before := kit.Trips()
		kit.Advance(24 * time.Hour)
		kit.Drain()
		most = max(most, kit.Trips()-before)
	}
	fftest.RequireResult(t, kit, daily, created.ID, 31)
	if want := 15; most > want { // with the failure
		t.Errorf("%d round trips for a day, want at most %d", most, want)
	}
}

// A connection costs more than most tests: it learns the catalog and plans each statement.
func TestAKitUsesOneConnection(t *testing.T) {
	t.Parallel()
	kit := fftest.New(t)
	worker.Handle(kit.Worker, greet, func(_ context.Context, job worker.Job[string]) (string, error) {
		return "hello, " + job.Args, nil
	})
	created := fftest.Create(kit, greet, "Ada")
	kit.Drain()
	fftest.RequireResult(t, kit, greet, created.ID, "hello, Ada")
	if n := kit.Pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
