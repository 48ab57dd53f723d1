package flows

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// keyed returns a flow with the key of order number, whose node "wait" has the key of payment number.
func keyed(f *fixture.Flows, number string) engine.FlowSpec {
	return engine.FlowSpec{
		BusinessKey: id.BusinessKey{Name: "order", Value: f.Fixture.Name + number},
		Nodes: []engine.Node{
			{Key: "start", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane}},
			{Key: "wait", Spec: engine.ExecutionSpec{
				Kind: "test", Lane: f.Lane, BusinessKey: id.BusinessKey{Name: "payment", Value: f.Fixture.Name + number},
			}},
		},
		Edges: []engine.Edge{{From: "start", To: "wait"}},
	}
}

// A flow and its members are found by their keys. A second flow with one of them is refused as a whole, with what has
// the key, whether it is new in one statement or grows around existing executions.
func TestFlowWithBusinessKeys(t *testing.T) {
	for _, joined := range []bool{false, true} {
		t.Run(map[bool]string{false: "new", true: "joined"}[joined], func(t *testing.T) {
			f := fixture.NewFlows(t)
			shaped := func(spec engine.FlowSpec) engine.FlowSpec {
				spec.Edges[0].AllowStarted = joined
				return spec
			}
			spec := shaped(keyed(f, "1"))
			created, err := f.CreateFlow(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			member := f.NodeID(created.ID, "wait")
			if found, err := f.FindFlowByKey(t.Context(), "order", spec.BusinessKey.Value); found != created.ID || err != nil {
				t.Errorf("found %s, %v; want %s", found, err, created.ID)
			}
			if found, err := f.FindExecutionByKey(t.Context(), "payment", spec.BusinessKey.Value); found != member || err != nil {
				t.Errorf("found %s, %v; want %s", found, err, member)
			}
			if _, err := f.FindExecutionByKey(t.Context(), "order", spec.BusinessKey.Value); !errors.Is(err, fferr.ErrNotFound) {
				t.Errorf("an execution has the flow's key: %v", err)
			}
			if s := f.Describe(t, created.ID); s.BusinessKey != spec.BusinessKey {
				t.Errorf("described %q", s.BusinessKey)
			}
			again := spec
			again.ID = created.ID
			if repeated, err := f.CreateFlow(t.Context(), again); err != nil || !repeated.Existed {
				t.Errorf("repeated: %+v, %v", repeated, err)
			}

			for name, c := range map[string]struct {
				change func(*engine.FlowSpec)
				flow   *id.FlowID
				member id.ExecutionID
			}{
				"the flow's":             {func(s *engine.FlowSpec) { s.BusinessKey = spec.BusinessKey }, &created.ID, id.ExecutionID{}},
				"a member's":             {func(s *engine.FlowSpec) { s.Nodes[0].Spec.BusinessKey = spec.Nodes[1].Spec.BusinessKey }, nil, member},
				"a member's of the flow": {func(s *engine.FlowSpec) { s.Nodes[0].Spec.BusinessKey = spec.BusinessKey }, &created.ID, id.ExecutionID{}},
			} {
				other := shaped(keyed(f, "2"))
				other.ID = id.NewFlowID()
				c.change(&other)
				_, err := f.CreateFlow(t.Context(), other)
				conflict, ok := errors.AsType[*fferr.KeyConflictError](err)
				if !ok || conflict.Existing != c.member || (conflict.ExistingFlow == nil) != (c.flow == nil) || c.flow != nil && *conflict.ExistingFlow != *c.flow {
					t.Errorf("%s: %v, %+v", name, err, conflict)
				}
				f.WantNoFlow(t, other.ID)
			}
			other := shaped(keyed(f, "2"))
			if _, err := f.CreateFlow(t.Context(), other); err != nil { // the refused ones left no key
				t.Error(err)
			}
		})
	}
}

// A flow and its nodes have different keys.
func TestFlowRefusesARepeatedBusinessKey(t *testing.T) {
	f := fixture.NewFlows(t)
	for name, change := range map[string]func(*engine.FlowSpec){
		"of the flow":       func(s *engine.FlowSpec) { s.Nodes[1].Spec.BusinessKey = s.BusinessKey },
		"of two nodes":      func(s *engine.FlowSpec) { s.Nodes[0].Spec.BusinessKey = s.Nodes[1].Spec.BusinessKey },
		"of a joining flow": func(s *engine.FlowSpec) { s.Nodes[1].Spec.BusinessKey, s.Edges[0].AllowStarted = s.BusinessKey, true },
	} {
		spec := keyed(f, "1")
		change(&spec)
		_, err := f.CreateFlow(t.Context(), spec)
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != `node "wait"` {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Growth gives keys to new members, and is refused as a whole if one is taken. A node that exists adds nothing.
func TestGrowthWithBusinessKeys(t *testing.T) {
	f := fixture.NewFlows(t)
	spec := keyed(f, "1")
	spec.ID = id.NewFlowID()
	flow := f.NewFlowOf(t, spec)
	key := id.BusinessKey{Name: "order", Value: f.Fixture.Name + "2"}
	growth := engine.Growth{Flow: flow, Nodes: []engine.Node{
		{Key: "late", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: key}},
		{Key: "later", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: id.BusinessKey{Name: "order", Value: f.Fixture.Name + "1"}}},
	}}
	_, err := f.GrowFlow(t.Context(), growth)
	if conflict, ok := errors.AsType[*fferr.KeyConflictError](err); !ok || conflict.ExistingFlow == nil || *conflict.ExistingFlow != flow {
		t.Fatalf("%v", err)
	}
	if _, err := f.FindExecutionByKey(t.Context(), key.Name, key.Value); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("a refused growth left a key: %v", err)
	}
	growth.Nodes = growth.Nodes[:1]
	for _, created := range []int{1, 0} {
		if grown, err := f.GrowFlow(t.Context(), growth); err != nil || len(grown.Created) != created {
			t.Errorf("%+v, %v; want %d created", grown, err, created)
		}
	}
	if found, err := f.FindExecutionByKey(t.Context(), key.Name, key.Value); found != f.NodeID(flow, "late") || err != nil {
		t.Errorf("found %s, %v", found, err)
	}
}

// A flow locks its keys and then its new lanes, as creations do: the reverse order of two calls would be a deadlock.
func TestFlowLocksLanesAfterKeys(t *testing.T) {
	t.Parallel()
	for _, joined := range []bool{false, true} {
		t.Run(fmt.Sprintf("joined_%t", joined), func(t *testing.T) {
			f := fixture.NewFlows(t)
			rival := f.Rival(t)
			spec := keyed(f, "")
			spec.Nodes[1].Spec.Lane = id.LaneID(f.Fixture.Name + "-new")
			if joined {
				spec.ID = id.NewFlowID()
				spec.Nodes[0] = engine.Node{Key: "start", Execution: f.Standalone(t, spec.ID, "start")}
			}
			tx := f.BeginTx(t)
			first, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: f.Lane, BusinessKey: spec.Nodes[1].Spec.BusinessKey})
			if err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error {
				_, err := rival.CreateFlow(ctx, spec)
				return err
			})
			rival.AwaitBlocked(t, f.Fixture)
			if written := fixture.Texts(t, f.Pool, `
				SELECT l.mode FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
				WHERE a.application_name = $1 AND l.relation = 'ff_lane_registry'::regclass AND l.mode = 'RowExclusiveLock'`, rival.Name); len(written) > 0 {
				t.Error("a flow registers its lanes before it has its keys")
			}
			fixture.Commit(t, tx)
			if conflict, ok := errors.AsType[*fferr.KeyConflictError](wait()); !ok || conflict.Existing != first.ID {
				t.Errorf("the flow's creation returned %v, want a conflict with %s", conflict, first.ID)
			}
		})
	}
}
