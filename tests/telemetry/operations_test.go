package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/observe"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

func watchedKit(t *testing.T) (*fixture.Kit, *watcher) {
	t.Helper()
	w := &watcher{created: make(map[string]int)}
	return fixture.NewKit(t, fftest.EngineConfig(func(cfg *engine.Config) { cfg.Observer = w })), w
}

// Members of flows count when they are inserted, and not again with the flow.
func TestCreationsOfFlowsAreCounted(t *testing.T) {
	k, w := watchedKit(t)
	node := func(key, kind string) engine.Node {
		return engine.Node{Key: key, Spec: engine.ExecutionSpec{Kind: kind}}
	}
	spec := engine.FlowSpec{
		ID: id.NewFlowID(), Nodes: []engine.Node{node("1", "a"), node("2", "b"), node("3", "b")},
		Edges: []engine.Edge{{From: "1", To: "2"}},
	}
	for _, want := range []string{"a:1 b:2", ""} {
		if _, err := k.Engine.CreateFlow(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		w.want(t, want)
	}
	for _, want := range []string{"c:1", ""} {
		growth := engine.Growth{Flow: spec.ID, Nodes: []engine.Node{node("3", "b"), node("4", "c")}}
		if _, err := k.Engine.GrowFlow(t.Context(), growth); err != nil {
			t.Fatal(err)
		}
		w.want(t, want)
	}
	member := engine.ExecutionSpec{Kind: "d", Flow: &spec.ID}
	create(t, k.Engine, member, member)
	w.want(t, "d:2")
}

// Calls, turns, forks and ticks of schedules create executions, and replays don't.
func TestCreationsOfOtherOperationsAreCounted(t *testing.T) {
	k, w := watchedKit(t)
	called := engine.Kind[int, int]{Name: "called"}
	worker.Handle(k.Worker, called, func(context.Context, worker.Job[int]) (int, error) { return 0, nil })
	worker.Handle(k.Worker, ordered, func(ctx context.Context, job job) (string, error) {
		if _, err := worker.CallAll(ctx, job, "calls", called, []int{1, 2, 3}); err != nil {
			return "", err
		}
		return "", worker.Turn(ctx, job, "turn", func(ctx context.Context, _ pgx.Tx, x *worker.TurnTx) error {
			_, err := engine.Kind[int, int]{Name: "turned"}.Create(ctx, x.Engine(), 1, engine.After(time.Hour))
			return err
		})
	})
	x := fftest.Create(k.Kit, ordered, struct{}{}).ID
	k.Drain()
	w.want(t, "called:3 order:1 turned:1")

	if _, err := operator.Replay(t.Context(), k.Engine, x, operator.ReplayCompleted); err != nil {
		t.Fatal(err)
	}
	k.Drain()
	w.want(t, "")

	spec := operator.ForkSpec{Before: "turn", ID: id.NewExecutionID(engine.DefaultLane, id.Partitions{})}
	for _, want := range []string{"order:1", ""} {
		if _, err := operator.Fork(t.Context(), k.Engine, x, spec); err != nil {
			t.Fatal(err)
		}
		w.want(t, want)
	}
	k.Drain()
	w.want(t, "turned:1")

	every := schedule.Spec{Name: "nightly", Every: time.Minute, Execution: engine.ExecutionSpec{Kind: "called", Payload: []byte("1")}}
	if err := schedule.Put(t.Context(), k.Engine, every); err != nil {
		t.Fatal(err)
	}
	k.Advance(time.Minute)
	w.want(t, "called:1")
}

// sum returns events by their types.
func sum(events []observe.Event) (claims []observe.Claimed, renewals []observe.Renewed, jobs []observe.JobRan) {
	for _, e := range events {
		switch e := e.(type) {
		case observe.Claimed:
			claims = append(claims, e)
		case observe.Renewed:
			renewals = append(renewals, e)
		case observe.JobRan:
			jobs = append(jobs, e)
		}
	}
	return claims, renewals, jobs
}

// Claims and renewals are events, whichever way they take.
func TestClaimsAndRenewalsAreEvents(t *testing.T) {
	f, w := watch(t, fixture.New(t))
	ctx := t.Context()
	want := func(executions ...int) {
		t.Helper()
		claims, _, _ := sum(w.take())
		if len(claims) != len(executions) {
			t.Fatalf("%d claims, want %d", len(claims), len(executions))
		}
		for i, c := range claims {
			if c.Executions != executions[i] || c.Err != nil || c.Took <= 0 || !strings.HasPrefix(string(c.Lane), string(f.Lane)) {
				t.Errorf("claim %+v, want %d executions", c, executions[i])
			}
		}
	}
	create(t, f.Engine, many(f, 10, "test")...)
	claimed, err := f.Engine.Claim(ctx, f.Worker(), 3)
	if err != nil {
		t.Fatal(err)
	}
	want(3)
	claimer, beside := f.Claimer(t), f.Claimer(t)
	if _, err := claimer.Claim(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := claimer.CompleteAndClaim(ctx, []engine.Completion{{Lease: claimed[0].Lease}}, 2); err != nil {
		t.Fatal(err)
	}
	want(1, 2)
	outcomes, err := f.ClaimEach(ctx, []engine.LaneClaim{{Claimer: claimer, Limit: 3}, {Claimer: beside, Limit: 5}})
	if err != nil || len(outcomes[0].Value)+len(outcomes[1].Value) != 4 {
		t.Fatal(outcomes, err)
	}
	want(len(outcomes[0].Value), len(outcomes[1].Value))
	if _, err := f.Engine.Claim(ctx, f.Worker(), 1); err != nil {
		t.Fatal(err)
	}
	want(0)

	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := f.Engine.Claim(over, f.Worker(), 1); err == nil {
		t.Fatal("claimed")
	}
	if claims, _, _ := sum(w.take()); len(claims) != 1 || !errors.Is(claims[0].Err, context.Canceled) {
		t.Errorf("%+v", claims)
	}

	renewals := []engine.Renewal{{Lease: claimed[0].Lease}, {Lease: claimed[1].Lease}, {Lease: claimed[2].Lease}}
	if _, err := f.RenewLeases(ctx, renewals); err != nil {
		t.Fatal(err)
	}
	if _, renewed, _ := sum(w.take()); len(renewed) != 1 || renewed[0].Leases != 3 || renewed[0].Lost != 1 || renewed[0].Err != nil || renewed[0].Took <= 0 {
		t.Errorf("%+v", renewed)
	}
}

// A worker's claims and renewals use other connections, and its reconciler reports each call of a job.
func TestWorkersReportToTheEnginesObserver(t *testing.T) {
	f, w := watch(t, fixture.NewCloned(t))
	eng, err := engine.New(f.Pool, engine.Config{Observer: w}) // with the database's clock
	if err != nil {
		t.Fatal(err)
	}
	wrk := fixture.NewWorker(t, eng, worker.Config{
		Lanes: []worker.Lane{{Name: f.Lane}}, LeaseTTL: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	promoted, handled := make(chan struct{}), make(chan struct{})
	fixture.HandleKind(wrk, "test", func(ctx context.Context, job worker.Job[struct{}]) (struct{}, error) {
		defer close(handled)
		select {
		case <-promoted:
		case <-ctx.Done():
		}
		return struct{}{}, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- wrk.Run(ctx) }()
	create(t, eng, many(f, 1, "test")...)
	var claims []observe.Claimed
	var renewals []observe.Renewed
	var jobs []observe.JobRan
	fixture.Await(t, "a claim, a renewal and a job", func() bool {
		c, r, j := sum(w.take())
		claims, renewals, jobs = append(claims, c...), append(renewals, r...), append(jobs, j...)
		return len(claims) > 0 && len(renewals) > 0 && len(jobs) > 0
	})
	close(promoted)
	<-handled
	stop()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Job == "" || j.Took <= 0 || j.Err != nil {
			t.Errorf("%+v", j)
		}
	}
}

// Calls of background jobs have what they did.
func TestJobsAreEvents(t *testing.T) {
	f, w := watch(t, fixture.NewCloned(t))
	r, err := reconcile.New(f.Engine, reconcile.Config{Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = f.Time().Add(time.Minute) })
	f.Advance(time.Hour)
	if _, err := r.RunDue(t.Context(), f.Time()); err != nil {
		t.Fatal(err)
	}
	acted := make(map[string]int)
	_, _, jobs := sum(w.take())
	for _, j := range jobs {
		if acted[j.Job] += j.Acted; j.Err != nil || j.Took <= 0 {
			t.Errorf("%+v", j)
		}
	}
	if acted["promote_delayed"] != 1 {
		t.Errorf("%+v", jobs)
	}
}

// broken is an observer that panics.
type broken struct{}

func (broken) TraceContext(context.Context) string { panic("no trace context") }

func (broken) BeginCreation(context.Context) context.Context { panic("no context") }

func (broken) Observe(context.Context, observe.Event) { panic("no telemetry") }

// A panic of an observer is logged, and changes nothing for the caller.
func TestPanickingObserverOfEvents(t *testing.T) {
	f := fixture.NewCloned(t)
	var log strings.Builder
	adapted := false
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{
		Observer: broken{}, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Middleware: []engine.Middleware{func(ctx context.Context, _ *engine.ExecutionSpec) error { adapted = ctx != nil; return nil }},
	})
	x := f.Create(t)
	if !adapted {
		t.Error("the middleware has no context")
	}
	if _, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: x, Name: "go"}); err != nil {
		t.Fatal(err)
	}
	lease := f.ClaimOne(t).Lease
	if _, err := f.RenewLease(t.Context(), lease, 0); err != nil {
		t.Fatal(err)
	}
	r, err := reconcile.New(f.Engine, reconcile.Config{Instance: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.RunDue(t.Context(), f.Time()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), `msg="observer panicked" panic="no telemetry"`); n < 4 {
		t.Errorf("%d panics in the log: %s", n, log.String())
	}
}
