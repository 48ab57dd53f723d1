package telemetry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/observe"
	"github.com/flowfabric/flowfabric-go/reconcile"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// recorder notes events.
type recorder struct {
	tracer
	mu     sync.Mutex
	events []observe.Event
}

func (r *recorder) Observe(_ context.Context, e observe.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// take returns the events since the last call.
func (r *recorder) take() []observe.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// created returns the new executions since the last call, by lane and kind.
func (r *recorder) created() map[string]int {
	counts := make(map[string]int)
	for _, e := range r.take() {
		if c, ok := e.(observe.Created); ok {
			counts[fmt.Sprintf("%s/%s", c.Lane, c.Kind)] += c.Count
		}
	}
	return counts
}

func newRecorded(t *testing.T) (*fixture.Fixture, *recorder) {
	t.Helper()
	f, r := fixture.New(t), &recorder{}
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Observer: r})
	return f, r
}

func specs(lane id.LaneID, kind string, n int) []engine.ExecutionSpec {
	all := make([]engine.ExecutionSpec, n)
	for i := range all {
		all[i] = engine.ExecutionSpec{Lane: lane, Kind: kind}
	}
	return all
}

// Each execution counts once, and only after the commit, whichever statement inserts it.
func TestCreationsAreReportedAfterTheCommit(t *testing.T) {
	f, r := newRecorded(t)
	lane := string(f.Lane)
	rollback := errors.New("roll back")
	unique := func(n int) []engine.ExecutionSpec {
		all := specs(f.Lane, "unique", n)
		for i := range all {
			all[i].Unique, all[i].Payload = &engine.Unique{ByArgs: true, ByLane: true}, fmt.Append(nil, i)
		}
		return all
	}
	for _, test := range []struct {
		name   string
		create func(context.Context) error
		want   map[string]int
	}{
		{"one", func(ctx context.Context) error {
			_, err := f.CreateExecution(ctx, engine.ExecutionSpec{Lane: f.Lane, Kind: "a"})
			return err
		}, map[string]int{lane + "/a": 1}},
		{"several kinds", func(ctx context.Context) error {
			_, err := f.CreateExecutions(ctx, append(specs(f.Lane, "a", 2), specs(f.Lane, "b", 3)...))
			return err
		}, map[string]int{lane + "/a": 2, lane + "/b": 3}},
		{"many alike, in chunks", func(ctx context.Context) error {
			_, err := f.CreateExecutions(ctx, specs(f.Lane, "a", engine.MaxCreate+5))
			return err
		}, map[string]int{lane + "/a": engine.MaxCreate + 5}},
		{"unique", func(ctx context.Context) error {
			_, err := f.CreateExecutions(ctx, unique(20))
			return err
		}, map[string]int{lane + "/unique": 20}},
		{"unique again, one new", func(ctx context.Context) error {
			_, err := f.CreateExecutions(ctx, unique(21))
			return err
		}, map[string]int{lane + "/unique": 1}},
		{"a flow", func(ctx context.Context) error {
			_, err := f.CreateFlow(ctx, engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{
				{Key: "a", Spec: engine.ExecutionSpec{Lane: f.Lane, Kind: "a"}}, {Key: "b", Spec: engine.ExecutionSpec{Lane: f.Lane, Kind: "b"}},
			}})
			return err
		}, map[string]int{lane + "/a": 1, lane + "/b": 1}},
		{"InTx", func(ctx context.Context) error {
			return f.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
				for range 2 {
					if _, err := eng.CreateExecutions(ctx, specs(f.Lane, "a", 12)); err != nil {
						return err
					}
				}
				if got := r.created(); len(got) > 0 {
					return fmt.Errorf("reported before the commit: %v", got)
				}
				return nil
			})
		}, map[string]int{lane + "/a": 24}},
		{"InTx, rolled back", func(ctx context.Context) error {
			err := f.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
				_, err := eng.CreateExecutions(ctx, specs(f.Lane, "a", 12))
				return errors.Join(err, rollback)
			})
			if errors.Is(err, rollback) {
				err = nil
			}
			return err
		}, map[string]int{}},
		{"the caller's transaction", func(ctx context.Context) error {
			tx := f.BeginTx(t)
			_, err := f.WithTx(tx).CreateExecution(ctx, engine.ExecutionSpec{Lane: f.Lane, Kind: "a"})
			return err
		}, map[string]int{lane + "/a": 1}},
	} {
		r.take()
		if err := test.create(t.Context()); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if got := r.created(); !maps.Equal(got, test.want) {
			t.Errorf("%s: reported %v, want %v", test.name, got, test.want)
		}
	}
}

// Signals, claims and renewals are reported with their outcomes.
func TestOperationsAreReported(t *testing.T) {
	f, r := newRecorded(t)
	x := f.Create(t)
	r.take()
	want := func(what string, want ...observe.Event) {
		t.Helper()
		got := r.take()
		for i := range got {
			switch e := got[i].(type) {
			case observe.Claimed:
				if e.Took <= 0 {
					t.Errorf("%s took %v", what, e.Took)
				}
				e.Took = 0
				got[i] = e
			case observe.Renewed:
				if e.Took <= 0 {
					t.Errorf("%s took %v", what, e.Took)
				}
				e.Took = 0
				got[i] = e
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: reported %+v, want %+v", what, got, want)
		}
	}
	claimed := claimOne(t, f)
	want("claim", observe.Claimed{Lane: f.Lane, Executions: 1})
	claimer, err := f.NewClaimer(f.Worker())
	if err != nil {
		t.Fatal(err)
	}
	f.Create(t)
	r.take()
	_, again, err := claimer.CompleteAndClaim(t.Context(), []engine.Completion{{Lease: claimed.Lease}}, 5)
	if err != nil || len(again) != 1 {
		t.Fatalf("%d claimed, error %v", len(again), err)
	}
	want("complete and claim", observe.Claimed{Lane: f.Lane, Executions: 1})
	other := f.Worker()
	other.Lane = f.Lane + "-other"
	beside, err := f.NewClaimer(other)
	if err != nil {
		t.Fatal(err)
	}
	claimer.Wake()
	if _, err := f.ClaimEach(t.Context(), []engine.LaneClaim{{Claimer: claimer, Limit: 1}, {Claimer: beside, Limit: 1}}); err != nil {
		t.Fatal(err)
	}
	want("claim of each lane", observe.Claimed{Lane: f.Lane}, observe.Claimed{Lane: other.Lane})
	if _, err := f.RenewLeases(t.Context(), []engine.Renewal{{Lease: claimed.Lease}, {Lease: again[0].Lease}}); err != nil {
		t.Fatal(err)
	}
	want("renewal", observe.Renewed{Leases: 2, Lost: 1})
	for _, duplicate := range []bool{false, true} {
		if _, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: again[0].ID, Name: "go", IdempotencyKey: "once"}); err != nil {
			t.Fatal(err)
		}
		want("signal", observe.Signalled{Name: "go", Duplicate: duplicate})
	}
	outcomes, err := f.SignalEach(t.Context(), []engine.SignalSpec{{Execution: x, Name: "late"}, {Execution: again[0].ID, Name: "go"}})
	if err != nil || outcomes[0].Err == nil {
		t.Fatalf("%+v, %v", outcomes, err)
	}
	want("signals", observe.Signalled{Name: "go"})
}

// Background jobs are reported with the number of rows they acted on.
func TestJobsAreReported(t *testing.T) {
	f := fixture.NewCloned(t)
	r := &recorder{}
	eng := f.EngineOn(t, f.Pool, engine.Config{Observer: r})
	f.Create(t, func(s *engine.ExecutionSpec) { s.DelayUntil = time.UnixMilli(f.Clock.Load()).Add(time.Second) })
	f.Advance(time.Minute)
	jobs, err := reconcile.New(eng, reconcile.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { jobs.Run(ctx); close(ran) }()
	fixture.Await(t, "the job to be reported", func() bool {
		return slices.ContainsFunc(r.take(), func(e observe.Event) bool {
			job, ok := e.(observe.JobRan)
			return ok && job.Job == "promote_delayed" && job.Acted == 1 && job.Err == nil && job.Took > 0
		})
	})
	stop()
	<-ran
}

// A panic of an observer fails no operation.
func TestPanicsOfObserversAreLogged(t *testing.T) {
	f := fixture.New(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{Observer: panics{}})
	f.Create(t)
	if claimed := claimOne(t, f); claimed.ID.IsZero() {
		t.Error("nothing is claimed")
	}
}

type panics struct{ tracer }

func (panics) Observe(context.Context, observe.Event) { panic("observed") }
