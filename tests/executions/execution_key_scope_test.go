package executions

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// neighbours returns another lane of the partition of a lane, and two new flows of that partition.
func neighbours(t *testing.T, f *fixture.Fixture) (id.LaneID, [2]*id.FlowID) {
	t.Helper()
	here := id.Partitions{}.LanePartition(f.Lane)
	lane := f.Lane
	for i := 0; lane == f.Lane || (id.Partitions{}).LanePartition(lane) != here; i++ {
		lane = id.LaneID(fmt.Sprint(f.Lane, ".", i))
	}
	var flows [2]*id.FlowID
	for i := range flows {
		flow := id.NewFlowID()
		for (id.Partitions{}).FlowPartition(flow) != here {
			flow = id.NewFlowID()
		}
		if _, err := f.CreateFlow(t.Context(), engine.FlowSpec{ID: flow}); err != nil {
			t.Fatal(err)
		}
		flows[i] = &flow
	}
	return lane, flows
}

// An idempotency key belongs to its namespace, lane and kind, or flow and kind, even where these share a partition: work
// of another kind, or on another lane, was lost as a duplicate.
func TestIdempotencyKeyBelongsToLaneOrFlowAndKind(t *testing.T) {
	f := fixture.New(t)
	lane, flows := neighbours(t, f)
	base := engine.ExecutionSpec{Lane: f.Lane, Kind: "send-mail", IdempotencyKey: f.Key("order 1"), Payload: []byte("mail")}
	specs := map[string]engine.ExecutionSpec{"lane and kind": base}
	for name, change := range map[string]func(*engine.ExecutionSpec){
		"another kind":             func(s *engine.ExecutionSpec) { s.Kind = "send-sms" },
		"another lane":             func(s *engine.ExecutionSpec) { s.Lane = lane },
		"a member":                 func(s *engine.ExecutionSpec) { s.Flow = flows[0] },
		"a member of another flow": func(s *engine.ExecutionSpec) { s.Flow = flows[1] },
		"a member of another kind": func(s *engine.ExecutionSpec) { s.Flow, s.Kind = flows[0], "send-sms" },
		"another namespace":        func(s *engine.ExecutionSpec) { s.Namespace = "other" },
		"kind a":                   func(s *engine.ExecutionSpec) { s.Kind, s.IdempotencyKey = "a", f.Key("b") },
		"kind a and what follows":  func(s *engine.ExecutionSpec) { s.Kind, s.IdempotencyKey = "a"+f.Name, "b" },
		"an id elsewhere":          func(s *engine.ExecutionSpec) { s.ID = elsewhere(f) },
	} {
		spec := base
		change(&spec)
		specs[name] = spec
	}
	created := make(map[string]id.ExecutionID)
	for name, spec := range specs {
		first, err := f.CreateExecution(t.Context(), spec)
		if err != nil || first.Duplicate {
			t.Errorf("%s: created %+v, %v; want an execution of its own", name, first, err)
		}
		created[name] = first.ID
	}
	for name, spec := range specs {
		if again, err := f.CreateExecution(t.Context(), spec); err != nil || again != (engine.Created{ID: created[name], Duplicate: true}) {
			t.Errorf("%s again: created %+v, %v; want a duplicate of %s", name, again, err, created[name])
		}
	}
}

// elsewhere is an id of another partition than the lane's.
func elsewhere(f *fixture.Fixture) id.ExecutionID {
	return id.ExecutionIDFromRow((id.Partitions{}.LanePartition(f.Lane)+1)%id.DefaultFlowPartitions, id.NewExecutionUUID())
}

// A creation that carries the key of an execution with another payload is refused, and the error names the execution.
// Fields outside the content may differ.
func TestKeyConflictNamesTheExistingExecution(t *testing.T) {
	for _, bound := range []bool{false, true} {
		t.Run(fmt.Sprint("in a transaction ", bound), func(t *testing.T) {
			f := fixture.New(t)
			b := newLettered(t, f)
			first := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", IdempotencyKey: f.Key("key"), Payload: []byte("1"), PayloadEncoding: "json"}
			existing, err := f.CreateExecution(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			repeated, payload, encoding, none := first, first, first, first
			repeated.Priority, repeated.Tags, repeated.DelayUntil = 7, map[string]string{"app.a": "b"}, f.Time().Add(time.Hour)
			payload.Payload, encoding.PayloadEncoding, none.Payload = []byte("2"), "xml", nil
			fresh := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", IdempotencyKey: f.Key("fresh"), Payload: []byte("1")}
			freshOther := fresh
			freshOther.Payload = []byte("2")
			outcomes, err := b.createAll(t, bound, []engine.ExecutionSpec{repeated, payload, encoding, none, fresh, freshOther, fresh})
			if err != nil {
				t.Fatal(err)
			}
			if want := (engine.Created{ID: existing.ID, Duplicate: true}); outcomes[0].Value != want || outcomes[0].Err != nil {
				t.Errorf("repeated: %+v, want %+v", outcomes[0], want)
			}
			for i, conflictsWith := range map[int]id.ExecutionID{1: existing.ID, 2: existing.ID, 3: existing.ID, 5: outcomes[4].Value.ID} {
				conflict, ok := errors.AsType[*fferr.KeyConflictError](outcomes[i].Err)
				if !ok || !errors.Is(outcomes[i].Err, fferr.ErrKeyConflict) || conflict.Existing != conflictsWith || outcomes[i].Value.Duplicate {
					t.Errorf("outcome %d is %+v, want a conflict with %s", i, outcomes[i], conflictsWith)
				}
			}
			if want := (engine.Created{ID: outcomes[4].Value.ID, Duplicate: true}); outcomes[4].Err != nil || outcomes[6].Value != want || outcomes[6].Err != nil {
				t.Errorf("created %+v, and again %+v", outcomes[4], outcomes[6])
			}
			if got := f.CountOnLane(t); got != 2 {
				t.Errorf("%d executions, want 2", got)
			}
		})
	}
}

// A result may have replaced the payload of a member, and an ended execution may be gone: a repetition is a duplicate then.
func TestKeyOfAnIncomparableExecutionIsADuplicate(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, nil, "a")
	node := engine.Node{Key: "b", Spec: engine.ExecutionSpec{Kind: "test", Lane: f.Lane, IdempotencyKey: f.Key("b"), Payload: []byte("before")}}
	growth := engine.Growth{Flow: flow, Nodes: []engine.Node{node}, Edges: []engine.Edge{{From: "a", To: "b", PassResult: "a"}}}
	if _, err := f.GrowFlow(t.Context(), growth); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		spec := node.Spec
		spec.Flow = &flow
		if got, err := f.CreateExecution(t.Context(), spec); err != nil || got != (engine.Created{ID: f.NodeID(flow, "b"), Duplicate: true}) {
			t.Errorf("created %+v, %v; want a duplicate of b", got, err)
		}
		// The result becomes the payload.
		if _, err := f.CompleteExecutions(t.Context(), []engine.Completion{{Lease: f.ClaimOne(t).Lease, Result: []byte(rand.Text())}}); err != nil {
			t.Fatal(err)
		}
	}

	gone := engine.ExecutionSpec{Kind: "test", Lane: f.Lane, IdempotencyKey: f.Key("gone"), Payload: []byte("1")}
	first, err := f.CreateExecution(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	f.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", first.ID.UUID())
	gone.Payload = []byte("2")
	if got, err := f.CreateExecution(t.Context(), gone); err != nil || got != (engine.Created{ID: first.ID, Duplicate: true}) {
		t.Errorf("created %+v, %v; want a duplicate of %s", got, err, first.ID)
	}
}

// Keys that an older version stored hold in their partition and namespace until they expire, for every lane and kind.
// Anything but a repetition is refused; afterwards the key is free.
func TestKeysOfOlderVersionsHoldUntilTheyExpire(t *testing.T) {
	f := fixture.New(t)
	lane, flows := neighbours(t, f)
	spec := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", IdempotencyKey: f.Key("key"), Payload: []byte("1")}
	existing, err := f.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	f.Exec(t, "UPDATE ffx_create_dedup SET idempotency_key = $1 WHERE execution_id = $2", f.Key("key"), existing.ID.UUID())
	if got, err := f.CreateExecution(t.Context(), spec); err != nil || got != (engine.Created{ID: existing.ID, Duplicate: true}) {
		t.Errorf("created %+v, %v; want a duplicate of %s", got, err, existing.ID)
	}
	for name, change := range map[string]func(*engine.ExecutionSpec){
		"another kind":    func(s *engine.ExecutionSpec) { s.Kind = "other" },
		"another lane":    func(s *engine.ExecutionSpec) { s.Lane = lane },
		"a member":        func(s *engine.ExecutionSpec) { s.Flow = flows[0] },
		"another payload": func(s *engine.ExecutionSpec) { s.Payload = []byte("2") },
	} {
		other := spec
		change(&other)
		_, err := f.CreateExecution(t.Context(), other)
		if conflict, ok := errors.AsType[*fferr.KeyConflictError](err); !ok || conflict.Existing != existing.ID {
			t.Errorf("%s: error %v, want a conflict with %s", name, err, existing.ID)
		}
	}
	f.Advance(24 * time.Hour)
	spec.Kind = "other"
	if got, err := f.CreateExecution(t.Context(), spec); err != nil || got.Duplicate {
		t.Errorf("after the window: created %+v, %v; want a new execution", got, err)
	}
}

func TestReservedIdempotencyKeysAreRefused(t *testing.T) {
	f := fixture.New(t)
	_, err := f.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", IdempotencyKey: "\x01key"})
	if refusal, ok := errors.AsType[*fferr.InputError](err); !ok || refusal.Field != "idempotency key" {
		t.Errorf("error %v, want a refusal of the key", err)
	}
}
