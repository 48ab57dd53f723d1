package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// The advice of docs/from-river.md that a wrong line would also compile with (F1).

type chargeArgs struct {
	Order int `json:"order"`
}

func (chargeArgs) Kind() string { return "charge" }

type charging struct {
	river.WorkerDefaults[chargeArgs]
	work func(*river.Job[chargeArgs]) error
}

func (w *charging) Work(_ context.Context, job *river.Job[chargeArgs]) error { return w.work(job) }

// riverClient returns a started client with one worker on a database of its own.
func riverClient(t *testing.T, work func(*river.Job[chargeArgs]) error) *river.Client[pgx.Tx] {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), pgtest.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	driver, log := riverpgxv5.New(pool), slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &charging{work: work})
	client, err := river.NewClient(driver, &river.Config{
		Logger: log, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func startRiver(t *testing.T, client *river.Client[pgx.Tx], kinds ...river.EventKind) <-chan *river.Event {
	t.Helper()
	ended, cancel := client.Subscribe(kinds...)
	t.Cleanup(cancel)
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.StopAndCancel(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return ended
}

var charge = engine.Kind[chargeArgs, string]{Name: "charge", Lane: "charges"}

// A snoozed job runs again from its beginning, and so does the handler that returns job.Delay. worker.Sleep would go on
// behind the pause and complete the work undone.
func TestFromRiverSnoozeIsDelay(t *testing.T) {
	done := make([]string, 0, 2)
	client := riverClient(t, func(job *river.Job[chargeArgs]) error {
		if done = append(done, "river"); len(done) == 1 {
			return river.JobSnooze(0)
		}
		return nil
	})
	ended := startRiver(t, client, river.EventKindJobCompleted)
	if _, err := client.Insert(t.Context(), chargeArgs{}, nil); err != nil {
		t.Fatal(err)
	}
	<-ended
	rivers := len(done)

	kit, ours := fftest.New(t), 0
	worker.Handle(kit.Worker, charge, func(_ context.Context, job worker.Job[chargeArgs]) (string, error) {
		if ours++; ours == 1 {
			return "", job.Delay(time.Hour)
		}
		return "charged", nil
	})
	created := fftest.Create(kit, charge, chargeArgs{})
	kit.Drain()
	kit.Advance(time.Hour)
	kit.Drain()
	fftest.RequireResult(t, kit, charge, created.ID, "charged")
	if ours != rivers {
		t.Errorf("the handler ran %d times, River's %d times", ours, rivers)
	}
}

// A job with MaxAttempts and River's retry policy, and an execution with the page's policy, give up after about the same time.
// The page has the times of the default policy.
func TestFromRiverRetriesAsLong(t *testing.T) {
	boom := errors.New("boom")
	fails := func(t *testing.T, retry *policy.Retry) time.Duration {
		kit := fftest.New(t)
		failing := charge
		failing.Policy = &policy.Execution{Retry: retry}
		worker.Handle(kit.Worker, failing, func(context.Context, worker.Job[chargeArgs]) (string, error) { return "", boom })
		created, began := fftest.Create(kit, failing, chargeArgs{}), kit.Now()
		for {
			kit.Drain()
			x, err := kit.Engine.DescribeExecution(t.Context(), created.ID)
			if err != nil {
				t.Fatal(err)
			}
			if x.DelayUntil.IsZero() {
				fftest.RequireFailure(t, kit, created.ID, "boom")
				return kit.Now().Sub(began)
			}
			kit.Advance(x.DelayUntil.Sub(kit.Now()))
		}
	}
	for _, c := range []struct {
		attempts int
		ours     time.Duration // of the default pauses
	}{{5, 156 * time.Second}, {25, 19*time.Hour + 12*time.Minute + 36*time.Second}} {
		var rivers time.Duration
		for errored := range c.attempts - 1 {
			next := (&river.DefaultClientRetryPolicy{}).NextRetry(&rivertype.JobRow{Attempt: errored + 1, Errors: make([]rivertype.AttemptError, errored)})
			rivers += time.Until(next).Round(time.Second)
		}
		if got := fails(t, &policy.Retry{MaxRetries: c.attempts - 1}); got != c.ours {
			t.Errorf("%d attempts: the default pauses last %v, and the page says %v", c.attempts, got, c.ours)
		}
		got := fails(t, &policy.Retry{MaxRetries: c.attempts - 1, Backoff: policy.Backoff{First: 10 * time.Second, Max: 24 * time.Hour, Factor: 3}})
		//pace:allow both are pauses that a policy plans, of up to weeks
		if ratio := float64(got) / float64(rivers); ratio < 0.6 || ratio > 1.6 {
			t.Errorf("%d attempts: the page's pauses last %v, River's %v", c.attempts, got, rivers)
		}
	}
}

// River's unique jobs give their key back when they fail for good or are cancelled, and keep it when they complete, as
// WhileUnfailed does. WhileKept keeps it in all cases, the default in none.
func TestFromRiverUniqueStates(t *testing.T) {
	client := riverClient(t, func(job *river.Job[chargeArgs]) error {
		if job.Args.Order == 1 {
			return river.JobCancel(errors.New("declined"))
		}
		return nil
	})
	ended := startRiver(t, client, river.EventKindJobCompleted, river.EventKindJobCancelled)
	for order, want := range map[int]bool{1: false, 2: true} {
		for again := range 2 {
			inserted, err := client.Insert(t.Context(), chargeArgs{order}, &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
			if err != nil {
				t.Fatal(err)
			}
			if got := inserted.UniqueSkippedAsDuplicate; again == 1 && got != want {
				t.Errorf("River: order %d again is a duplicate: %v, want %v", order, got, want)
			}
			if !inserted.UniqueSkippedAsDuplicate {
				<-ended
			}
		}
	}
	for while, want := range map[engine.UniqueWhile][2]bool{
		engine.WhileUnfailed: {false, true}, engine.WhileKept: {true, true}, engine.WhileUnfinished: {false, false},
	} {
		kit := fftest.New(t)
		kind := charge
		kind.Unique = &engine.Unique{ByArgs: true, While: while}
		worker.Handle(kit.Worker, kind, func(_ context.Context, job worker.Job[chargeArgs]) (string, error) {
			if job.Args.Order == 1 {
				return "", worker.Permanent(errors.New("declined"))
			}
			return "charged", nil
		})
		for order := range 2 {
			first := fftest.Create(kit, kind, chargeArgs{order + 1})
			kit.Drain()
			if again := fftest.Create(kit, kind, chargeArgs{order + 1}); (again.ID == first.ID) != want[order] {
				t.Errorf("%s: order %d again is %v of %v", while, order+1, again.ID, first.ID)
			}
			kit.Drain()
		}
	}
}
