package limits

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// wantOneByOne fails unless so many executions of the fixture's lane run, never two at once.
func wantOneByOne(t *testing.T, f *fixture.Fixture, want int) {
	t.Helper()
	for ran := range want {
		claimed := wantClaimable(t, f, 1, fmt.Sprintf("after %d of %d", ran, want))
		wantClaimable(t, f, 0, "while one runs")
		complete(t, f, claimed...)
	}
	wantClaimable(t, f, 0, "after all")
}

// Whatever creates executions of a kind with a limit of one, they run one at a time, and all run. With a budget they wait until
// it is reset.
func TestAllWaysOfCreationPassTheGate(t *testing.T) {
	ways := []struct {
		name   string
		create func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec)
	}{
		{"one by one", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			for range 3 {
				ok(f.CreateExecution(t.Context(), spec()))(t)
			}
		}},
		{"a batch", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			outcomes := ok(f.CreateExecutions(t.Context(), []engine.ExecutionSpec{spec(), spec(), spec()}))(t)
			for _, o := range outcomes {
				ok(o.Value, o.Err)(t)
			}
		}},
		{"a caller's transaction", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			tx := f.BeginTx(t)
			for range 3 {
				ok(f.WithTx(tx).CreateExecution(t.Context(), spec()))(t)
			}
			fixture.Commit(t, tx)
		}},
		{"a flow", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{
				{Key: "a", Spec: spec()}, {Key: "b", Spec: spec()}, {Key: "c", Spec: spec()},
			}, Edges: []engine.Edge{{From: "a", To: "c"}}}))(t)
		}},
		{"growth of a flow", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			flow := ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{{Key: "a", Spec: spec()}}}))(t)
			ok(f.GrowFlow(t.Context(), engine.Growth{
				Flow: flow.ID, Nodes: []engine.Node{{Key: "b", Spec: spec()}, {Key: "c", Spec: spec()}},
				Edges: []engine.Edge{{From: "a", To: "b"}},
			}))(t)
		}},
		{"members of a flow", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			flow := ok(f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow"}))(t)
			for range 3 {
				s := spec()
				s.Flow = &flow.ID
				ok(f.CreateExecution(t.Context(), s))(t)
			}
		}},
		{"calls", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			caller := f.Start(t)
			ok(f.Call(t.Context(), engine.CallSpec{
				Lease: caller.Lease, Name: "parts", Executions: []engine.ExecutionSpec{spec(), spec(), spec()},
			}))(t)
			complete(t, f, caller)
		}},
		{"a schedule", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			err := schedule.Put(t.Context(), f.Engine, schedule.Spec{
				Name: "s", Every: time.Minute, Missed: schedule.MissedAll, Window: time.Hour, Execution: spec(),
			})
			if err != nil {
				t.Fatal(err)
			}
			f.Advance(3 * time.Minute)
			for n := 1; n > 0; {
				n = ok(upkeep.Of(f.Engine).RunSchedules(t.Context(), engine.MaxBatch))(t)
			}
		}},
		{"unique work", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			for n := range 6 {
				s := spec()
				s.Payload, s.Unique = fmt.Appendf(nil, "%d", n/2), &engine.Unique{ByArgs: true}
				if c := ok(f.CreateExecution(t.Context(), s))(t); c.Duplicate != (n%2 == 1) {
					t.Errorf("%d: %+v", n, c)
				}
			}
		}},
		{"keys", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			for n := range 6 {
				s := spec()
				s.IdempotencyKey, s.BusinessKey = f.Key(fmt.Sprint(n/2)), id.BusinessKey{Name: "order", Value: fmt.Sprint(n / 2)}
				if c := ok(f.CreateExecution(t.Context(), s))(t); c.Duplicate != (n%2 == 1) {
					t.Errorf("%d: %+v", n, c)
				}
			}
		}},
		{"sequences", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			for n := range 3 {
				s := spec()
				s.Sequence.Key = fmt.Sprint(n % 2)
				ok(f.CreateExecution(t.Context(), s))(t)
			}
		}},
		{"forks", func(t *testing.T, f *fixture.Fixture, spec func() engine.ExecutionSpec) {
			x := ok(f.CreateExecution(t.Context(), spec()))(t)
			fork := ok(operator.Fork(t.Context(), f.Engine, x.ID, operator.ForkSpec{}))(t)
			ok(operator.Fork(t.Context(), f.Engine, fork.ID, operator.ForkSpec{}))(t)
		}},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1), engine.Concurrency[sync](2))
			q, b := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 3}), budgetOf(t, f, 1)
			spend(t, f, b, 1)
			way.create(t, f, func() engine.ExecutionSpec {
				spec := kind.Spec(sync{Tenant: "acme"})
				spec.QuotaPolicy, spec.Budgets = &q, []id.BudgetID{b}
				return spec
			})
			wantClaimable(t, f, 0, "with an exhausted budget")
			if _, err := budget.Reset(t.Context(), f.Engine, b); err != nil {
				t.Fatal(err)
			}
			wantOneByOne(t, f, 3)
		})
	}
}

// ok returns a value, after it has failed the test for an error.
func ok[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A middleware may add limits and budgets, and those of the kind may be replaced.
func TestMiddlewareAddsLimits(t *testing.T) {
	f := fixture.NewCloned(t)
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "database", Units: 1}); err != nil {
		t.Fatal(err)
	}
	eng := f.EngineOn(t, f.Pool, engine.Config{Middleware: []engine.Middleware{
		func(_ context.Context, spec *engine.ExecutionSpec) error {
			spec.Limits = append(spec.Limits, engine.LimitKey{Name: "database", Key: spec.Kind})
			return nil
		},
	}})
	kind := kindOf(f, engine.Concurrency[sync](2))
	for range 3 {
		created(t, eng, kind, sync{})
	}
	wantOneByOne(t, f, 3)
}

// A replay asks again for places, one for each run.
func TestReplaysTakePlaces(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	var ids []id.ExecutionID
	for range 3 {
		ids = append(ids, created(t, f.Engine, kind, sync{}).ID)
	}
	wantOneByOne(t, f, 3)
	for _, x := range ids {
		replayed, err := operator.Replay(t.Context(), f.Engine, x, operator.ReplayCompleted)
		if err != nil || replayed.State != state.PublicRateLimited {
			t.Fatal(replayed, err)
		}
	}
	wantOneByOne(t, f, 3)
}

// A duplicate of unique work takes no place, whether the first waits for a limit or runs. The limits are those of the first.
func TestUniqueDuplicatesTakeNoPlace(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	create := func(tenant, payload string) engine.Created {
		t.Helper()
		spec := kind.Spec(sync{Tenant: tenant})
		spec.Payload, spec.Unique = []byte(payload), &engine.Unique{ByArgs: true}
		x, err := f.CreateExecution(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	first := create("acme", "1")
	if x := create("acme", "1"); !x.Duplicate || x.ID != first.ID {
		t.Errorf("%+v", x)
	}
	running := wantClaimable(t, f, 1, "the first")
	second := create("acme", "2")
	for _, payload := range []string{"1", "2"} {
		if x := create("acme", payload); !x.Duplicate || payload == "2" && x.ID != second.ID {
			t.Errorf("%+v", x)
		}
	}
	wantClaimable(t, f, 0, "while the first runs")
	complete(t, f, running...)
	wantOneByOne(t, f, 1)
	if n := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core")); n != 2 {
		t.Errorf("%d executions", n)
	}
}

// An execution that waits for its retry or a signal has no place. When it may go on it waits like others, by its age.
func TestRetriesAndWaitsAskAgain(t *testing.T) {
	retries := &policy.Execution{Retry: &policy.Retry{MaxRetries: 3, Backoff: policy.Fixed(time.Minute)}}
	for _, c := range []struct {
		name      string
		rest, end func(t *testing.T, f *fixture.Fixture, c engine.Claimed)
	}{
		{"retry", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) { f.Fail(t, c.Lease, engine.Failure{}) },
			func(t *testing.T, f *fixture.Fixture, _ engine.Claimed) {
				f.Advance(time.Minute)
				f.Once(t, upkeep.Of(f.Engine).PromoteDelayed)
			}},
		{"signal", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.SuspendAgain(t, c.Lease, engine.Received("go"))
		},
			func(t *testing.T, f *fixture.Fixture, c engine.Claimed) { f.Signal(t, c.Lease, "go") }},
		{"timeout of a wait", func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.SuspendAgain(t, c.Lease, engine.Received("go"), func(s *engine.SuspendSpec) { s.OnTimeout = engine.ResumeOnTimeout })
		}, func(t *testing.T, f *fixture.Fixture, _ engine.Claimed) {
			f.Advance(time.Hour)
			f.Once(t, upkeep.Of(f.Engine).ExpireWaits)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1))
			spec := kind.Spec(sync{})
			spec.Policy = retries
			created(t, f.Engine, kind, sync{})
			create := func() { ok(f.CreateExecution(t.Context(), spec))(t) }
			complete(t, f, wantClaimable(t, f, 1, "the first")...)
			create()
			create()
			resting := wantClaimable(t, f, 1, "the older")[0]
			c.rest(t, f, resting)
			admit(t, f.Engine) // the younger has the place, while the older rests
			c.end(t, f, resting)
			running := wantClaimable(t, f, 1, "the younger")
			if running[0].ID == resting.ID {
				t.Errorf("the older took the place of the younger")
			}
			create()
			complete(t, f, running...)
			again := wantClaimable(t, f, 1, "the older again")
			if again[0].ID != resting.ID {
				t.Errorf("claimed %s, want %s, which is older", again[0].ID, resting.ID)
			}
			complete(t, f, again...)
			wantOneByOne(t, f, 1)
		})
	}
}
