package tests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/worker"
)

// crew is workers on a fixture's lane, with an engine whose clock is the database's.
type crew struct {
	*fixture
	eng     *engine.Engine
	settled chan settled
}

// settled is an execution that a worker has settled, and how.
type settled struct {
	engine.Claimed
	worker.Report
}

// newCrew is on the database that tests share, so its workers do no background work.
func newCrew(t *testing.T) *crew {
	t.Helper()
	t.Parallel()
	return crewOn(t, fixtureOn(t, openPool(t, pgtest.URL(t), nil), pgtest.URL(t)), engine.Config{})
}

// newLoneCrew has a database of its own, on which its workers do the background work too.
func newLoneCrew(t *testing.T) *crew {
	t.Helper()
	return crewOn(t, cloneFixture(t), engine.Config{})
}

func crewOn(t *testing.T, f *fixture, cfg engine.Config) *crew {
	t.Helper()
	eng, err := engine.New(f.pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = eng
	return &crew{fixture: f, eng: eng, settled: make(chan settled, 10_000)}
}

// Begin makes a crew the hooks of its workers.
func (c *crew) Begin(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	return ctx, func(o worker.Report) { c.settled <- settled{*work, o} }
}

// next waits for n executions to be settled.
func (c *crew) next(t *testing.T, n int) []settled {
	t.Helper()
	var all []settled
	for len(all) < n {
		all = append(all, progress.Receive(t, fmt.Sprintf("another execution to be settled, %d of %d", len(all)+1, n), c.settled))
	}
	return all
}

// wantEvents passes over renewals. How many there are is a matter of time: a worker renews every third of a lease, and
// also when it has begun to listen, for it may have been told of a lost lease before it did.
func (c *crew) wantEvents(t *testing.T, x id.ExecutionID, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(c.events(t, x), func(event string) bool { return event == "lease renewed" })
	if !slices.Equal(got, want) {
		t.Errorf("events of %s beside renewals:\n\t%q, want\n\t%q", x, got, want)
	}
}

// alone is the configuration of a worker on the shared database, whose rows the background work of others' tests
// would be surprised by.
var alone = worker.Config{NoReconcile: true}

// work runs a worker until the test ends or the returned function is called.
func (c *crew) work(t *testing.T, cfg worker.Config, register func(*worker.Worker)) (stop func()) {
	t.Helper()
	cfg.Lanes = []id.LaneID{c.lane}
	cfg.Hooks = c
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	w := newWorker(t, c.eng, cfg)
	register(w)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func newWorker(t *testing.T, eng *engine.Engine, cfg worker.Config) *worker.Worker {
	t.Helper()
	w, err := worker.New(eng, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// on is [worker.Handle] for a kind that has a name and types, and nothing else.
func on[In, Out any](w *worker.Worker, kind string, fn func(context.Context, worker.Job[In]) (Out, error)) {
	worker.Handle(w, engine.Kind[In, Out]{Name: kind}, fn)
}

type (
	sideArgs   struct{ Side int }
	areaResult struct{ Area int }
)

func area(_ context.Context, job worker.Job[sideArgs]) (areaResult, error) {
	return areaResult{Area: job.Args.Side * job.Args.Side}, nil
}

func TestWorker_round_trip(t *testing.T) {
	c := newCrew(t)
	x := c.create(t, func(s *engine.ExecutionSpec) {
		s.Kind, s.Payload, s.Tags = "area", []byte(`{"Side": 7}`), map[string]string{"shape.name": "square"}
	})
	var seen worker.Job[sideArgs]
	c.work(t, alone, func(w *worker.Worker) {
		on(w, "area", func(ctx context.Context, job worker.Job[sideArgs]) (areaResult, error) {
			seen = job
			return area(ctx, job)
		})
	})
	if got := c.next(t, 1)[0]; got.Settlement != worker.Completed || got.Err != nil || got.ID != x {
		t.Errorf("settled as %+v", got)
	}
	if seen.Kind != "area" || seen.Lease.Attempt != 0 || seen.Retries != 0 || seen.Tags["shape.name"] != "square" || seen.Flow != nil {
		t.Errorf("the handler saw %+v", seen)
	}
	c.wantState(t, x, stateCompleted)
	if result := c.stored(t, x).Result; string(result) != `{"Area":49}` {
		t.Errorf("result %s", result)
	}
	c.wantEvents(t, x, "lease acquired", "lease revoked backend", "completion success")
}

// A worker that looks once an hour hears of new work at once.
func TestWorker_is_told_of_work(t *testing.T) {
	c := newCrew(t)
	cfg := alone
	cfg.PollInterval = time.Hour
	c.work(t, cfg, func(w *worker.Worker) { on(w, "area", area) })
	for range 5 {
		c.create(t, func(s *engine.ExecutionSpec) { s.Kind = "area" })
		c.next(t, 1)
	}
}

func TestWorker_retries(t *testing.T) {
	c := newLoneCrew(t)
	x := c.create(t, func(s *engine.ExecutionSpec) {
		s.Kind = "flaky"
		s.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(10 * time.Millisecond)}}
	})
	c.work(t, worker.Config{}, func(w *worker.Worker) {
		on(w, "flaky", func(_ context.Context, job worker.Job[struct{}]) (string, error) {
			if job.Lease.Attempt == 0 {
				return "", errors.New("once")
			}
			return fmt.Sprintf("attempt %d after %d retries", job.Lease.Attempt, job.Retries), nil
		})
	})
	got := c.next(t, 2)
	if got[0].Settlement != worker.Retrying || got[1].Settlement != worker.Completed {
		t.Errorf("settled as %v, then %v", got[0].Report, got[1].Report)
	}
	if result := c.stored(t, x).Result; string(result) != `"attempt 1 after 1 retries"` {
		t.Errorf("result %s", result)
	}
	attempts := c.attempts(t, x)
	if len(attempts) != 2 || attempts[0].Outcome != "retry" || attempts[1].Outcome != "success" {
		t.Errorf("attempts %+v", attempts)
	}
}

// Each of these ends its execution for good.
func TestWorker_failures(t *testing.T) {
	c := crewOn(t, cloneFixture(t), engine.Config{MaxPayload: 1000})
	never := &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	c.work(t, worker.Config{}, func(w *worker.Worker) {
		on(w, "permanent", func(context.Context, worker.Job[struct{}]) (string, error) {
			return "", worker.Permanent(errors.New("no such account"))
		})
		on(w, "refused", func(context.Context, worker.Job[struct{}]) (string, error) {
			return "", &worker.Fail{Class: policy.Cancelled, Category: "by_customer"}
		})
		on(w, "panic", func(context.Context, worker.Job[struct{}]) (string, error) { panic("unforeseen\x00") })
		on(w, "area", area)
		on(w, "large", func(context.Context, worker.Job[struct{}]) ([]byte, error) { return make([]byte, 1001), nil })
	})
	for _, want := range []struct {
		kind, payload    string
		policy           *policy.Execution
		attempts         int
		category, reason string
	}{
		{kind: "permanent", attempts: 1, category: "permanent", reason: "no such account"},
		{kind: "refused", attempts: 1, category: "by_customer", reason: "by_customer failure"},
		{kind: "panic", policy: never, attempts: 1, category: "panic", reason: "worker_test.go"},
		{kind: "area", payload: `{"Side": "long"}`, attempts: 1, category: "payload", reason: "cannot unmarshal"},
		{kind: "large", attempts: 1, category: "result", reason: "1001 bytes"},
	} {
		x := c.create(t, func(s *engine.ExecutionSpec) {
			s.Kind, s.Policy, s.Payload = want.kind, want.policy, []byte(want.payload)
		})
		all := c.next(t, want.attempts)
		if last := all[len(all)-1]; last.ID != x || last.Settlement != worker.Failed {
			t.Errorf("%s: settled as %+v", want.kind, last)
		}
		c.wantState(t, x, stateFailed)
		row := c.stored(t, x)
		if got := row.raw(t, "failure_category"); got != want.category {
			t.Errorf("%s: category %q, want %q", want.kind, got, want.category)
		}
		if got := row.raw(t, "failure_reason"); !strings.Contains(got, want.reason) {
			t.Errorf("%s: reason %q, want %q in it", want.kind, got, want.reason)
		}
		if got := len(c.attempts(t, x)); got != want.attempts {
			t.Errorf("%s: %d attempts, want %d", want.kind, got, want.attempts)
		}
	}
}

func TestWorker_lost_lease_cancels_the_handler(t *testing.T) {
	c := newLoneCrew(t)
	x := c.create(t)
	started, cause := make(chan struct{}, 2), make(chan error, 1)
	c.work(t, worker.Config{LeaseTTL: 600 * time.Millisecond}, func(w *worker.Worker) {
		on(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (int64, error) {
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
	c.setAttempt(t, x, 0, "lease_expires_at_ms = 1")
	if _, err := c.eng.Maintenance().ExpireLeases(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; !errors.Is(err, worker.ErrLeaseLost) || !errors.Is(err, engine.ErrStaleLease) && !errors.Is(err, engine.ErrLeaseExpired) {
		t.Errorf("cause %v", err)
	}
	c.next(t, 2)
	c.wantState(t, x, stateCompleted)
	row := c.stored(t, x)
	if string(row.Result) == "1" || row.ReclaimCount == 0 || len(c.attempts(t, x)) != 1 {
		t.Errorf("result %s after %d lost leases and %d attempts, want that of a later epoch, one attempt",
			row.Result, row.ReclaimCount, len(c.attempts(t, x)))
	}
}

func TestWorker_attempt_timeout(t *testing.T) {
	c := newLoneCrew(t)
	x := c.create(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{
			Retry: &policy.Retry{Backoff: policy.Fixed(0)},
			// Long enough for the first attempt to reach its handler on a busy machine.
			AttemptTimeout: time.Second,
		}
	})
	cause := make(chan error, 1)
	c.work(t, worker.Config{}, func(w *worker.Worker) {
		on(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
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
	if got := c.next(t, 2); got[0].Settlement != worker.Abandoned || got[1].Settlement != worker.Completed {
		t.Errorf("settled as %v, then %v", got[0].Report, got[1].Report)
	}
	c.wantState(t, x, stateCompleted)
}

// Whatever a worker has not begun when it stops goes back, and what it has begun is finished or goes on elsewhere, in
// the same attempt.
func TestWorker_drain(t *testing.T) {
	c := newCrew(t)
	for range 20 {
		c.create(t)
	}
	started := make(chan struct{}, 20)
	stop := c.work(t, worker.Config{NoReconcile: true, Concurrency: 2, DrainTimeout: time.Millisecond}, func(w *worker.Worker) {
		on(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
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
	for _, s := range c.next(t, 2) {
		if s.Settlement != worker.Released {
			t.Errorf("settled as %v", s.Report)
		}
		c.wantState(t, s.ID, stateReturned)
	}
	resumed := 0
	c.work(t, alone, func(w *worker.Worker) {
		on(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
	})
	for _, s := range c.next(t, 20) {
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

func TestWorker_two_share_a_lane(t *testing.T) {
	c := newCrew(t)
	const n, concurrency = 2000, 20
	var running [2]atomic.Int64
	both := make(chan struct{})
	for i := range running {
		c.work(t, worker.Config{NoReconcile: true, Concurrency: concurrency}, func(w *worker.Worker) {
			on(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) {
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
		specs[i] = engine.ExecutionSpec{Lane: c.lane, Kind: "test"}
	}
	if _, err := c.eng.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	await(t, "all handlers of both workers to have something", func() bool {
		return running[0].Load() == concurrency && running[1].Load() == concurrency
	})
	release()
	seen := make(map[id.ExecutionID]bool)
	for _, s := range c.next(t, n) {
		if seen[s.ID] || s.Settlement != worker.Completed {
			t.Errorf("%s settled again, or as %v", s.ID, s.Report)
		}
		seen[s.ID] = true
	}
}

func TestWorker_highest_priority_first(t *testing.T) {
	c := newCrew(t)
	for i := range 30 {
		c.create(t, func(s *engine.ExecutionSpec) { s.Priority = i * 7 % 30 })
	}
	c.work(t, worker.Config{NoReconcile: true, Concurrency: 1}, func(w *worker.Worker) {
		on(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
	})
	var order []int
	for _, s := range c.next(t, 30) {
		order = append(order, s.Priority)
	}
	if !slices.IsSortedFunc(order, func(a, b int) int { return b - a }) {
		t.Errorf("handled in the order %v", order)
	}
}

// A flow goes through as fast as it is handled, also where nobody hears of released work.
func TestWorker_flow(t *testing.T) {
	c := newCrew(t)
	f := flowsOn(c.fixture)
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	const depth = 12
	for i := range depth {
		spec.Nodes = append(spec.Nodes, engine.Node{Key: fmt.Sprint(i), Spec: engine.ExecutionSpec{Kind: "sum"}})
		for back := range min(i, 2) {
			spec.Edges = append(spec.Edges, engine.Edge{From: fmt.Sprint(i - 1 - back), To: fmt.Sprint(i)})
		}
	}
	f.createFlow(t, spec)
	cfg := alone
	cfg.PollInterval = time.Hour
	sum := engine.Kind[struct{}, areaResult]{Name: "sum"}
	c.work(t, cfg, func(w *worker.Worker) {
		worker.Handle(w, sum, func(ctx context.Context, job worker.Job[struct{}]) (areaResult, error) {
			upstreams, err := job.Upstreams(ctx)
			if err != nil {
				return areaResult{}, err
			}
			all := areaResult{}
			for _, u := range upstreams {
				one, err := sum.ResultOf(u)
				if err != nil {
					return areaResult{}, err
				}
				all.Area += one.Area
			}
			return areaResult{Area: max(1, all.Area)}, job.Progress(ctx, 100, "summed")
		})
	})
	c.next(t, depth)
	last := c.stored(t, f.NodeID(spec.ID, fmt.Sprint(depth-1)))
	if string(last.Result) != `{"Area":144}` {
		t.Errorf("result %s, want the 12th Fibonacci number", last.Result)
	}
	if got := last.raw(t, "progress_message"); got != "summed" {
		t.Errorf("progress %q", got)
	}
}

// A handler may complete its execution in the transaction of its own writes; what it returns then changes nothing.
func TestWorker_completes_in_the_handlers_transaction(t *testing.T) {
	c := newCrew(t)
	x := c.create(t)
	c.work(t, alone, func(w *worker.Worker) {
		on(w, "test", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
			tx, err := c.pool.Begin(ctx)
			if err != nil {
				return "", err
			}
			defer tx.Rollback(context.WithoutCancel(ctx))
			if err := c.eng.WithTx(tx).CompleteExecution(ctx, job.Lease, []byte("from the transaction")); err != nil {
				return "", err
			}
			return "from the handler", tx.Commit(ctx)
		})
	})
	if got := c.next(t, 1)[0]; got.Settlement != worker.Completed {
		t.Errorf("settled as %v", got.Report)
	}
	if result := c.stored(t, x).Result; string(result) != "from the transaction" {
		t.Errorf("result %s", result)
	}
	c.wantEvents(t, x, "lease acquired", "lease revoked backend", "completion success")
}

// Connections that die again and again lose nothing: each execution ends once.
func TestWorker_killed_connections(t *testing.T) {
	for _, way := range []struct {
		name     string
		cfg      worker.Config
		n, kills int
	}{
		{"in batches", worker.Config{LeaseTTL: time.Second}, 3000, 10},
		{"one by one", worker.Config{LeaseTTL: time.Second, FetchBatch: 1, Concurrency: 2}, 400, 10},
	} {
		t.Run(way.name, func(t *testing.T) {
			f := cloneFixture(t)
			const name = "killed-worker"
			pool := openPool(t, f.url, func(cfg *pgxpool.Config) { cfg.ConnConfig.RuntimeParams["application_name"] = name })
			c := crewOn(t, f, engine.Config{})
			eng, err := engine.New(pool, engine.Config{})
			if err != nil {
				t.Fatal(err)
			}
			c.eng = eng
			specs := make([]engine.ExecutionSpec, way.n)
			for i := range specs {
				specs[i] = engine.ExecutionSpec{Lane: c.lane, Kind: "test"}
			}
			if _, err := c.CreateExecutions(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
			c.work(t, way.cfg, func(w *worker.Worker) {
				on(w, "test", func(context.Context, worker.Job[struct{}]) (string, error) { return "", nil })
			})
			for range way.kills {
				c.next(t, way.n/30)
				c.exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE application_name = $1 AND datname = current_database()`, name)
			}
			await(t, "all to end", func() bool {
				return texts(t, c.pool, "SELECT count(*)::text FROM ff_exec_core WHERE public_state = 'completed'")[0] == fmt.Sprint(way.n)
			})
			if twice := texts(t, c.pool, "SELECT execution_id::text FROM ff_completion_event GROUP BY 1 HAVING count(*) <> 1"); len(twice) > 0 {
				t.Errorf("%d executions have several completion events: %v", len(twice), twice)
			}
		})
	}
}

func TestWorker_unfit_database(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgtest.EmptyDatabase(t), nil)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, eng, worker.Config{Lanes: []id.LaneID{"a lane"}})
	on(w, "area", area)
	if err := w.Run(t.Context()); !errors.Is(err, engine.ErrNotMigrated) {
		t.Errorf("run: %v, want ErrNotMigrated", err)
	}
}
