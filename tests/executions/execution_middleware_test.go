package executions

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// traced returns an engine whose middleware tags each creation, and the kinds that it has seen.
func traced(t *testing.T, f *fixture.Fixture) (eng *engine.Engine, seen *[]string) {
	t.Helper()
	seen = new([]string)
	first := func(_ context.Context, spec *engine.ExecutionSpec) error {
		*seen = append(*seen, spec.Kind)
		spec.Tags["app.trace"] = "of " + spec.Kind
		return nil
	}
	second := func(_ context.Context, spec *engine.ExecutionSpec) error {
		spec.Tags["app.trace"] += ", twice"
		spec.Priority++
		return nil
	}
	return f.EngineOn(t, f.Pool, engine.Config{Middleware: []engine.Middleware{first, second}}), seen
}

func wantTraced(t *testing.T, eng *engine.Engine, x id.ExecutionID, kind string) {
	t.Helper()
	got, err := eng.DescribeExecution(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	if want := "of " + kind + ", twice"; got.Tags["app.trace"] != want || got.Priority != 1 {
		t.Errorf("%s has the tags %v and the priority %d, want %q and 1", kind, got.Tags, got.Priority, want)
	}
}

// Each way to create executions passes every spec through the middleware once, and leaves the caller's as it is.
func TestMiddlewareSeesEveryCreationOnce(t *testing.T) {
	f := fixture.New(t)
	eng, seen := traced(t, f)
	spec := func(kind string) engine.ExecutionSpec { return engine.ExecutionSpec{Lane: f.Lane, Kind: kind} }
	tagged := spec("tagged")
	tagged.Tags = map[string]string{"app.own": "kept"}

	one, err := eng.CreateExecution(t.Context(), tagged)
	if err != nil {
		t.Fatal(err)
	}
	wantTraced(t, eng, one.ID, "tagged")
	if want := map[string]string{"app.own": "kept"}; !maps.Equal(tagged.Tags, want) {
		t.Errorf("the caller's tags are %v", tagged.Tags)
	}
	many, err := eng.CreateExecutions(t.Context(), []engine.ExecutionSpec{spec("a"), spec("b"), spec("a")})
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []string{"a", "b", "a"} {
		wantTraced(t, eng, many[i].Value.ID, kind)
	}
	of, err := engine.Kind[int, int]{Name: "typed", Lane: f.Lane}.Create(t.Context(), eng, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantTraced(t, eng, of.ID, "typed")

	flow, err := eng.CreateFlow(t.Context(), engine.FlowSpec{Namespace: "elsewhere", Nodes: []engine.Node{{Key: "n", Spec: spec("node")}}})
	if err != nil {
		t.Fatal(err)
	}
	wantTraced(t, eng, eng.NodeID(flow.ID, "n"), "node")
	growth := engine.Growth{
		Flow: flow.ID, Nodes: []engine.Node{{Key: "n", Execution: eng.NodeID(flow.ID, "n")}, {Key: "m", Spec: spec("grown")}},
		Edges: []engine.Edge{{From: "n", To: "m"}},
	}
	if _, err := eng.GrowFlow(t.Context(), growth); err != nil {
		t.Fatal(err)
	}
	wantTraced(t, eng, eng.NodeID(flow.ID, "m"), "grown")
	around, err := eng.CreateFlow(t.Context(), engine.FlowSpec{
		Nodes: []engine.Node{{Key: "one", Execution: one.ID}, {Key: "new", Spec: spec("joined")}}, Edges: []engine.Edge{{From: "one", To: "new"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantTraced(t, eng, eng.NodeID(around.ID, "new"), "joined")

	caller := fixture.Another(t)
	lease := caller.Start(t).Lease
	call := engine.CallSpec{Lease: lease, Name: "parts", Executions: []engine.ExecutionSpec{spec("called")}}
	called, err := eng.Call(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	wantTraced(t, eng, called[0], "called")

	want := []string{"tagged", "a", "b", "a", "typed", "node", "grown", "joined", "called"}
	if !slices.Equal(*seen, want) {
		t.Errorf("seen: %q, want %q", *seen, want)
	}
}

// A refusal creates nothing and names its reason. Of many creations it refuses one.
func TestMiddlewareRefusesCreations(t *testing.T) {
	f := fixture.New(t)
	full := errors.New("the tenant is over its limit")
	eng := f.EngineOn(t, f.Pool, engine.Config{Middleware: []engine.Middleware{func(_ context.Context, spec *engine.ExecutionSpec) error {
		switch spec.Kind {
		case "refused":
			return full
		case "moved":
			spec.ID = f.NewExecutionID(f.Lane)
		}
		return nil
	}}})
	spec := func(kind string) engine.ExecutionSpec { return engine.ExecutionSpec{Lane: f.Lane, Kind: kind} }
	wantRefused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, full) || !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), full.Error()) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := eng.CreateExecution(t.Context(), spec("refused"))
	wantRefused("one", err)
	many, err := eng.CreateExecutions(t.Context(), []engine.ExecutionSpec{spec("fine"), spec("refused"), spec("fine")})
	if err != nil || many[0].Err != nil || many[2].Err != nil {
		t.Errorf("of many: %v, %v", many, err)
	}
	wantRefused("of many", many[1].Err)
	flow := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{{Key: "a", Spec: spec("fine")}, {Key: "b", Spec: spec("refused")}}}
	_, err = eng.CreateFlow(t.Context(), flow)
	wantRefused("a node", err)
	if _, err := eng.DescribeFlow(t.Context(), flow.ID); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("the flow: %v", err)
	}
	caller := fixture.Another(t)
	_, err = eng.Call(t.Context(), engine.CallSpec{Lease: caller.Start(t).Lease, Name: "parts", Executions: []engine.ExecutionSpec{spec("refused")}})
	wantRefused("a call", err)
	if _, err := eng.CreateExecution(t.Context(), spec("moved")); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("with another id: %v", err)
	}
	if _, err := engine.New(f.Pool, engine.Config{Middleware: []engine.Middleware{nil}}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a nil function: %v", err)
	}
}
