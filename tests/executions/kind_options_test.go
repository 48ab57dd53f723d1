package executions

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// What a kind declares once holds for each way to create its executions, and a caller's options come after it. F4
func TestKindOptionsApplyToEveryCreation(t *testing.T) {
	f := fixture.New(t)
	ctx := t.Context()
	kind := engine.Kind[string, struct{}]{
		Name: "welcome", Lane: f.Lane,
		Options: func(user string) []engine.CreateOption {
			return []engine.CreateOption{engine.WithPriority(7), engine.WithTag("app.user", user), engine.After(time.Hour)}
		},
	}
	want := func(how string, x id.ExecutionID, priority int, delay time.Duration, tags ...string) {
		t.Helper()
		got, err := f.DescribeExecution(ctx, x)
		if err != nil || got.Priority != priority || !got.DelayUntil.Equal(f.Time().Add(delay)) {
			t.Errorf("%s: priority %d, delayed until %v, %v", how, got.Priority, got.DelayUntil, err)
		}
		for i := 0; i < len(tags); i += 2 {
			if got.Tags[tags[i]] != tags[i+1] {
				t.Errorf("%s: tags %v, want %v", how, got.Tags, tags)
			}
		}
	}
	one, err := kind.Create(ctx, f.Engine, "ada")
	if err != nil {
		t.Fatal(err)
	}
	want("created", one.ID, 7, time.Hour, "app.user", "ada")
	one, err = kind.Create(ctx, f.Engine, "ada", engine.WithPriority(9), engine.WithTag("app.plan", "free"), engine.After(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	want("with options of the caller", one.ID, 9, time.Minute, "app.user", "ada", "app.plan", "free")

	specs := []engine.ExecutionSpec{kind.Spec("ada"), kind.Spec("grace")}
	specs[1].DelayUntil = f.Time().Add(2 * time.Hour)
	many, err := f.CreateExecutions(ctx, specs)
	if err != nil {
		t.Fatal(err)
	}
	want("in a batch", many[0].Value.ID, 7, time.Hour, "app.user", "ada")
	want("with an instant of the caller", many[1].Value.ID, 7, 2*time.Hour, "app.user", "grace")

	flow, err := f.CreateFlow(ctx, engine.FlowSpec{Nodes: []engine.Node{{Key: "a", Spec: kind.Spec("ada")}}})
	if err != nil {
		t.Fatal(err)
	}
	want("in a flow", f.NodeID(flow.ID, "a"), 7, time.Hour, "app.user", "ada")
	if _, err := f.GrowFlow(ctx, engine.Growth{Flow: flow.ID, Nodes: []engine.Node{{Key: "b", Spec: kind.Spec("eve")}}}); err != nil {
		t.Fatal(err)
	}
	want("in growth", f.NodeID(flow.ID, "b"), 7, time.Hour, "app.user", "eve")

	// A tick has the time of its schedule, so a delay is refused by name.
	err = schedule.Put(ctx, f.Engine, schedule.Of(kind, f.Name, "ada", schedule.Spec{Every: time.Hour}))
	if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != "Execution" {
		t.Errorf("a schedule of a delayed kind: %v", err)
	}
}
