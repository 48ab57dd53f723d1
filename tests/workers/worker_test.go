package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
	"github.com/flowfabric/flowfabric-go/worker"
)

func TestWorkerRoundTrip(t *testing.T) {
	c := fixture.NewCrew(t)
	x := c.Create(t, func(s *engine.ExecutionSpec) {
		s.Kind, s.Payload, s.Tags = "area", []byte(`{"Side": 7}`), map[string]string{"shape.name": "square"}
	})
	var seen worker.Job[fixture.SideArgs]
	c.Work(t, fixture.Alone, func(w *worker.Worker) {
		fixture.HandleKind(w, "area", func(ctx context.Context, job worker.Job[fixture.SideArgs]) (fixture.AreaResult, error) {
			seen = job
			return fixture.Area(ctx, job)
		})
	})
	if got := c.Next(t, 1)[0]; got.Settlement != worker.Completed || got.Err != nil || got.ID != x {
		t.Errorf("settled as %+v", got)
	}
	if seen.Kind != "area" || seen.Lease.Attempt != 0 || seen.Retries != 0 || seen.Tags["shape.name"] != "square" || seen.Flow != nil {
		t.Errorf("the handler saw %+v", seen)
	}
	c.WantState(t, x, fixture.StateCompleted)
	if result := c.Stored(t, x).Result; string(result) != `{"Area":49}` {
		t.Errorf("result %s", result)
	}
	c.WantEvents(t, x, "lease acquired", "lease revoked backend", "completion success")
}

// A worker that polls once an hour is notified of new work at once.
func TestWorkerIsNotifiedOfWork(t *testing.T) {
	c := fixture.NewCrew(t)
	cfg := fixture.Alone
	cfg.PollInterval = time.Hour
	c.Work(t, cfg, func(w *worker.Worker) { fixture.HandleKind(w, "area", fixture.Area) })
	for range 5 {
		c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "area" })
		c.Next(t, 1)
	}
}

func TestWorkerRetriesFailures(t *testing.T) {
	k := fixture.NewKit(t)
	flaky := engine.Kind[struct{}, string]{Name: "flaky", Policy: &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(time.Minute)}}}
	worker.Handle(k.Worker, flaky, func(_ context.Context, job worker.Job[struct{}]) (string, error) {
		if job.Lease.Attempt == 0 {
			return "", errors.New("once")
		}
		return fmt.Sprintf("attempt %d after %d retries", job.Lease.Attempt, job.Retries), nil
	})
	x := fftest.Create(k.Kit, flaky, struct{}{}).ID
	k.WantSettled(t, worker.Retrying)
	k.Advance(time.Minute)
	k.WantSettled(t, worker.Completed)
	fftest.RequireResult(t, k.Kit, flaky, x, "attempt 1 after 1 retries")
	if attempts := k.StoredAttempts(t, x); len(attempts) != 2 || attempts[0].Outcome != "retry" || attempts[1].Outcome != "success" {
		t.Errorf("attempts %+v", attempts)
	}
}

// Each of these ends its execution for good.
func TestWorkerFailsPermanently(t *testing.T) {
	c := fixture.NewKit(t, fftest.EngineConfig(func(cfg *engine.Config) { cfg.MaxPayload = 1000 }))
	never := &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	fixture.HandleKind(c.Worker, "permanent", func(context.Context, worker.Job[struct{}]) (string, error) {
		return "", worker.Permanent(errors.New("no such account"))
	})
	fixture.HandleKind(c.Worker, "refused", func(context.Context, worker.Job[struct{}]) (string, error) {
		return "", &worker.Fail{Class: policy.Cancelled, Category: "by_customer"}
	})
	fixture.HandleKind(c.Worker, "panic", func(context.Context, worker.Job[struct{}]) (string, error) { panic("unforeseen\x00") })
	fixture.HandleKind(c.Worker, "area", fixture.Area)
	fixture.HandleKind(c.Worker, "large", func(context.Context, worker.Job[struct{}]) ([]byte, error) { return make([]byte, 1001), nil })
	for _, want := range []struct {
		kind, payload    string
		policy           *policy.Execution
		category, reason string
	}{
		{kind: "permanent", category: "permanent", reason: "no such account"},
		{kind: "refused", category: "by_customer", reason: "by_customer failure"},
		{kind: "panic", policy: never, category: "panic", reason: "panic: unforeseen"},
		{kind: "area", payload: `{"Side": "long"}`, category: "payload", reason: "cannot unmarshal"},
		{kind: "large", category: "result", reason: "1001 bytes"},
	} {
		x := c.Create(t, func(s *engine.ExecutionSpec) {
			s.Kind, s.Policy, s.Payload = want.kind, want.policy, []byte(want.payload)
		})
		c.WantSettled(t, worker.Failed)
		c.WantState(t, x, fixture.StateFailed)
		row := c.Stored(t, x)
		if got := row.Raw(t, "failure_category"); got != want.category {
			t.Errorf("%s: category %q, want %q", want.kind, got, want.category)
		}
		if got := row.Raw(t, "failure_reason"); !strings.Contains(got, want.reason) {
			t.Errorf("%s: reason %q, want %q in it", want.kind, got, want.reason)
		}
		if got := len(c.StoredAttempts(t, x)); got != 1 {
			t.Errorf("%s: %d attempts, want 1", want.kind, got)
		}
		// The stack of a panic stands with the attempt, and in no error.
		if _, err := c.ExecutionResult(t.Context(), x); !errors.Is(err, fferr.ErrEnded) || strings.Contains(err.Error(), "goroutine") {
			t.Errorf("%s: its result is %v", want.kind, err)
		}
		for attempt, err := range c.Attempts(t.Context(), x) {
			if err != nil || attempt.Failure == nil {
				t.Fatalf("%s: attempt %+v, %v", want.kind, attempt, err)
			}
			stack := strings.Contains(attempt.Failure.Detail, "worker_test.go")
			if stack != (want.kind == "panic") || strings.Contains(attempt.Failure.Message, "worker_test.go") {
				t.Errorf("%s: failure %+v", want.kind, attempt.Failure)
			}
		}
	}
}

func TestWorkerLostLeaseCancelsTheHandler(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	x := c.Create(t)
	started, cause := make(chan struct{}, 2), make(chan error, 1)
	c.Work(t, worker.Config{LeaseTTL: 600 * time.Millisecond}, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (int64, error) {
			started <- struct{}{}
			if job.Lease.Epoch == 1 {
				<-ctx.Done()
				cause <- context.Cause(ctx)
			}
			return job.Lease.Epoch, nil
		})
	})
	<-started
	// Another worker of longer standing takes it over.
	c.SetAttempt(t, x, 0, "lease_expires_at_ms = 1")
	if _, err := upkeep.Of(c.Eng).ExpireLeases(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; !errors.Is(err, worker.ErrLeaseLost) || !errors.Is(err, fferr.ErrStaleLease) && !errors.Is(err, fferr.ErrLeaseExpired) {
		t.Errorf("cause %v", err)
	}
	c.Next(t, 2)
	c.WantState(t, x, fixture.StateCompleted)
	row := c.Stored(t, x)
	if string(row.Result) == "1" || row.ReclaimCount == 0 || len(c.StoredAttempts(t, x)) != 1 {
		t.Errorf("result %s after %d lost leases and %d attempts, want that of a later epoch, one attempt",
			row.Result, row.ReclaimCount, len(c.StoredAttempts(t, x)))
	}
}

func TestWorkerTimesOutAttempts(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	x := c.Create(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{
			Retry: &policy.Retry{Backoff: policy.Fixed(0)},
			// Long enough for the first attempt to reach its handler on a busy machine.
			AttemptTimeout: time.Second,
		}
	})
	cause := make(chan error, 1)
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
			if job.Lease.Attempt == 0 {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return "", ctx.Err()
			}
			return "in time", nil
		})
	})
	if err := progress.Receive(t, "the handler of the first attempt to be cancelled", cause); !errors.Is(err, worker.ErrAttemptTimeout) {
		t.Errorf("cause %v", err)
	}
	if got := c.Next(t, 2); got[0].Settlement != worker.Abandoned || got[1].Settlement != worker.Completed {
		t.Errorf("settled as %v, then %v", got[0].Report, got[1].Report)
	}
	c.WantState(t, x, fixture.StateCompleted)
}

// Executions that a worker has not begun when it stops go back; those it has begun are finished or go on elsewhere,
// in the same attempt.
func TestWorkerDrains(t *testing.T) {
	c := fixture.NewCrew(t)
	for range 20 {
		c.Create(t)
	}
	started := make(chan struct{}, 20)
	stop := c.Work(t, worker.Config{NoReconcile: true, Concurrency: 2, DrainTimeout: time.Millisecond}, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
			started <- struct{}{}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), worker.ErrShutdown) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return "", ctx.Err()
		})
	})
	<-started
	<-started
	stop()
	for _, s := range c.Next(t, 2) {
		if s.Settlement != worker.Released {
			t.Errorf("settled as %v", s.Report)
		}
		c.WantState(t, s.ID, fixture.StateReturned)
	}
	resumed := 0
	c.Work(t, fixture.Alone, func(w *worker.Worker) {
		fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
	})
	for _, s := range c.Next(t, 20) {
		if s.Lease.Attempt != 0 || s.Retries != 0 || s.Settlement != worker.Completed {
			t.Errorf("attempt %d after %d retries is %v, want the first one completed", s.Lease.Attempt, s.Retries, s.Report)
		}
		if s.Resumed {
			resumed++
		}
	}
	if resumed != 2 {
		t.Errorf("%d resumed, want the 2 that were given back", resumed)
	}
}

func TestTwoWorkersShareALane(t *testing.T) {
	c := fixture.NewCrew(t)
	const concurrency = 20
	n := soak.Size(t, 500, 2000)
	var running [2]atomic.Int64
	both := make(chan struct{})
	for i := range running {
		c.Work(t, worker.Config{NoReconcile: true, Concurrency: concurrency}, func(w *worker.Worker) {
			fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) {
				running[i].Add(1)
				<-both
				return "", nil
			})
		})
	}
	release := sync.OnceFunc(func() { close(both) })
	t.Cleanup(release) // before the workers, which wait for their handlers
	specs := make([]engine.ExecutionSpec, n)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: c.Lane, Kind: "test"}
	}
	if _, err := c.Eng.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	fixture.Await(t, "all handlers of both workers to have something", func() bool {
		return running[0].Load() == concurrency && running[1].Load() == concurrency
	})
	release()
	seen := make(map[id.ExecutionID]bool)
	for _, s := range c.Next(t, n) {
		if seen[s.ID] || s.Settlement != worker.Completed {
			t.Errorf("%s settled again, or as %v", s.ID, s.Report)
		}
		seen[s.ID] = true
	}
}

func TestWorkerTakesTheHighestPriorityFirst(t *testing.T) {
	k := fixture.NewKit(t)
	for i := range 30 {
		k.Create(t, func(s *engine.ExecutionSpec) { s.Priority = i * 7 % 30 })
	}
	var order []int
	fixture.HandleKind(k.Worker, "test", func(_ context.Context, job worker.Job[struct{}]) (string, error) {
		order = append(order, job.Priority)
		return "", nil
	})
	k.Drain()
	if len(order) != 30 || !slices.IsSortedFunc(order, func(a, b int) int { return b - a }) {
		t.Errorf("handled in the order %v", order)
	}
}

// A flow runs as fast as its handlers, even if notifications of released work are lost.
func TestWorkerRunsAFlow(t *testing.T) {
	c := fixture.NewCrew(t)
	f := fixture.FlowsOn(c.Fixture)
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	const depth = 12
	for i := range depth {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "sum"}})
		for back := range min(i, 2) {
			spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(i - 1 - back), To: fmt.Sprint(i)})
		}
	}
	f.NewFlowOf(t, spec)
	cfg := fixture.Alone
	cfg.PollInterval = time.Hour
	sum := engine.Kind[struct{}, fixture.AreaResult]{Name: "sum"}
	c.Work(t, cfg, func(w *worker.Worker) {
		worker.Handle(w, sum, func(ctx context.Context, job worker.Job[struct{}]) (fixture.AreaResult, error) {
			upstreams, err := job.Upstreams(ctx)
			if err != nil {
				return fixture.AreaResult{}, err
			}
			all := fixture.AreaResult{}
			for _, u := range upstreams {
				one, err := sum.ResultOf(u)
				if err != nil {
					return fixture.AreaResult{}, err
				}
				all.Area += one.Area
			}
			return fixture.AreaResult{Area: max(1, all.Area)}, job.Progress(ctx, 100, "summed")
		})
	})
	c.Next(t, depth)
	last := c.Stored(t, f.NodeID(spec.ID, fmt.Sprint(depth-1)))
	if string(last.Result) != `{"Area":144}` {
		t.Errorf("result %s, want the 12th Fibonacci number", last.Result)
	}
	if got := last.Raw(t, "progress_message"); got != "summed" {
		t.Errorf("progress %q", got)
	}
}

// A handler may complete its execution in the transaction of its own writes; its return value then changes nothing.
func TestWorkerCompletesInTheHandlersTransaction(t *testing.T) {
	k := fixture.NewKit(t)
	fixture.HandleKind(k.Worker, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		return "from the handler", pgx.BeginFunc(ctx, k.Pool, func(tx pgx.Tx) error {
			return k.WithTx(tx).CompleteExecution(ctx, job.Lease, []byte("from the transaction"))
		})
	})
	x := k.Create(t)
	k.WantSettled(t, worker.Completed)
	if result := k.Stored(t, x).Result; string(result) != "from the transaction" {
		t.Errorf("result %s", result)
	}
	k.WantEvents(t, x, "lease acquired", "lease revoked backend", "completion success")
}

// Connections that die again and again lose nothing: each execution ends once.
func TestWorkerSurvivesKilledConnections(t *testing.T) {
	for _, way := range []struct {
		name     string
		cfg      worker.Config
		n, kills int
	}{
		{"in batches", worker.Config{LeaseTTL: time.Second}, 3000, 10},
		{"one by one", worker.Config{LeaseTTL: time.Second, FetchBatch: 1, Concurrency: 2}, 400, 10},
	} {
		t.Run(way.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			const name = "killed-worker"
			pool := fixture.OpenPool(t, f.Url, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["application_name"] = name })
			c := fixture.CrewOn(t, f, engine.Config{})
			eng, err := engine.New(pool, engine.Config{})
			if err != nil {
				t.Fatal(err)
			}
			c.Eng = eng
			specs := make([]engine.ExecutionSpec, way.n)
			for i := range specs {
				specs[i] = engine.ExecutionSpec{Lane: c.Lane, Kind: "test"}
			}
			if _, err := c.CreateExecutions(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
			c.Work(t, way.cfg, func(w *worker.Worker) {
				fixture.HandleKind(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
			})
			for range way.kills {
				c.Next(t, way.n/30)
				c.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE application_name = $1 AND datname = current_database()`, name)
			}
			fixture.Await(t, "all to end", func() bool {
				return fixture.Texts(t, c.Pool, "SELECT count(*)::text FROM ff_exec_core WHERE public_state = 'completed'")[0] == fmt.Sprint(way.n)
			})
			if twice := fixture.Texts(t, c.Pool, "SELECT execution_id::text FROM ff_completion_event GROUP BY 1 HAVING count(*) <> 1"); len(twice) > 0 {
				t.Errorf("%d executions have several completion events: %v", len(twice), twice)
			}
		})
	}
}

func TestWorkerRefusesAnUnfitDatabase(t *testing.T) {
	t.Parallel()
	pool := fixture.OpenPool(t, pgtest.EmptyDatabase(t), nil)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := fixture.NewWorker(t, eng, worker.Config{Lanes: []worker.Lane{{Name: "a lane"}}})
	fixture.HandleKind(w, "area", fixture.Area)
	if err := w.Run(t.Context()); !errors.Is(err, fferr.ErrNotMigrated) {
		t.Errorf("run: %v, want ErrNotMigrated", err)
	}
}
