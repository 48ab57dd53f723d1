package explain

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// asked is an execution with the explanations of it until it ran.
type asked struct {
	id    id.ExecutionID
	stuck bool
	whys  []explain.Explanation
}

// A worker runs what it can, and every execution is explained again and again. One claimed within two seconds never had a certain
// cause, and one that has waited for ten seconds always has one.
func TestCertainCausesAreRight(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	eng, err := engine.New(fixture.OpenPool(t, pgtest.CloneURL(t), nil), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := fixture.NewWorker(t, eng, worker.Config{Lanes: []worker.Lane{{Name: "busy"}}})
	fixture.HandleKind(w, "quick", func(context.Context, worker.Job[int]) (int, error) { return 0, nil })
	running, stop := context.WithCancel(ctx)
	ended := fixture.Async(t, func(context.Context) error { return w.Run(running) })
	defer func() {
		stop()
		if err := ended(); err != nil {
			t.Error(err)
		}
	}()
	if err := limit.Declare(ctx, eng, limit.Spec{Name: "none", Units: 1}); err != nil {
		t.Fatal(err)
	}
	if err := limit.Set(ctx, eng, limit.Name{Name: "none"}, limit.Setting{}); err != nil {
		t.Fatal(err)
	}
	fixture.Await(t, "the worker to register", func() bool {
		for _, err := range eng.Workers(ctx, engine.WorkerFilter{}) {
			return err == nil
		}
		return false
	})

	stuckBy := []func(*engine.ExecutionSpec){
		func(s *engine.ExecutionSpec) { s.Lane = "empty" },
		func(s *engine.ExecutionSpec) { s.Kind = "qiuck" },
		func(s *engine.ExecutionSpec) { s.DelayUntil = time.Now().Add(time.Hour) },
		func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{Capabilities: id.NewCapabilities("gpu")} },
		func(s *engine.ExecutionSpec) { s.Limits = []engine.LimitKey{{Name: "none"}} },
		func(s *engine.ExecutionSpec) { s.Sequence, s.Lane = engine.Sequence{Key: "line"}, "empty" },
		func(s *engine.ExecutionSpec) { s.Kind = "blocked" },
	}
	var all []*asked
	ask := func(a *asked) {
		why, err := explain.Execution(ctx, eng, a.id)
		if err != nil {
			t.Fatal(err)
		}
		a.whys = append(a.whys, why)
	}
	for i := range 300 {
		spec := engine.ExecutionSpec{Kind: "quick", Lane: "busy", Payload: []byte("1"), Priority: rand.IntN(3)}
		a := &asked{stuck: i%4 == 0}
		if a.stuck {
			stuckBy[rand.IntN(len(stuckBy))](&spec)
		}
		created, err := eng.CreateExecution(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if a.id = created.ID; spec.Kind == "blocked" {
			if _, err := operator.Block(ctx, eng, a.id, state.PausedByOperator, ""); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, a)
		ask(a)
		ask(all[rand.IntN(len(all))])
	}
	fixture.Await(t, "the last one to wait for ten seconds", func() bool {
		waited := true
		for _, a := range all {
			if a.stuck {
				ask(a)
				last := a.whys[len(a.whys)-1]
				waited = waited && last.At.Sub(last.Execution.CreatedAt) >= 10*time.Second
			}
		}
		return waited
	})
	for _, a := range all {
		s, err := eng.DescribeExecution(ctx, a.id)
		if err != nil {
			t.Fatal(err)
		}
		if a.stuck == !s.StartedAt.IsZero() {
			t.Fatalf("%s: stuck %v, started %v", s.Kind, a.stuck, s.StartedAt)
		}
		for _, why := range a.whys {
			certain := false
			for _, c := range why.Causes {
				certain = certain || c.Certain
			}
			switch {
			case a.stuck && why.At.Sub(s.CreatedAt) >= 10*time.Second && !certain:
				t.Errorf("%s has waited for %s without a certain cause: %+v", s.Kind, why.At.Sub(s.CreatedAt), why.Causes)
			case !a.stuck && s.StartedAt.Sub(s.CreatedAt) <= 2*time.Second && why.At.Before(s.StartedAt) && certain:
				t.Errorf("%s was claimed after %s with a certain cause: %+v", s.Kind, s.StartedAt.Sub(s.CreatedAt), why.Causes)
			}
		}
	}
}
