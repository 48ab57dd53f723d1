package sequences

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Members run one at a time, in the order of creation, whatever their priority and lane. The sequence goes with the last.
func TestMembersRunInOrder(t *testing.T) {
	l := lineOf(t, 2, engine.SequenceStops)
	created, err := l.CreateExecutions(t.Context(), []engine.ExecutionSpec{
		{Lane: l.Lane, Kind: "test", Priority: 9, Sequence: engine.Sequence{Key: account}},
		{Lane: l.Lane, Kind: "other", Sequence: engine.Sequence{Key: account}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range created {
		if outcome.Err != nil || outcome.Value.State != "waiting_children" {
			t.Errorf("%+v", outcome)
		}
		l.members = append(l.members, outcome.Value.ID)
	}
	l.wantRows(t, 1, 4, 0)
	for i := range l.members {
		for n, x := range l.members[i:] {
			if place := l.Describe(t, x).Sequence; place.Ahead != n || place.First != l.members[i] || place.Place != int64(i+n+1) {
				t.Errorf("%d of %d: %+v", n, i, place)
			}
		}
		c := l.wantTurn(t, i)
		l.complete(t, c)
	}
	l.wantTurn(t, -1)
	l.wantRows(t, 0, 0, 0)
	if place := l.Describe(t, l.members[0]).Sequence; place == nil || place.Key != account || place.Place != 0 {
		t.Errorf("%+v of an ended member", place)
	}
}

// Sequences of different keys and namespaces do not wait for each other.
func TestKeysCountWithinNamespaces(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, namespace := range []id.Namespace{"", "other"} {
		for _, key := range []string{"a", "b", "a"} {
			f.Create(t, of(engine.Sequence{Key: key}), func(spec *engine.ExecutionSpec) { spec.Namespace = namespace })
		}
	}
	if claimed := f.ClaimN(t, 10); len(claimed) != 4 {
		t.Errorf("claimed %d, want 4", len(claimed))
	}
}

// A sequence stops at a member that fails, and goes on when it is replayed and succeeds.
func TestFailureStops(t *testing.T) {
	l := lineOf(t, 3, engine.SequenceStops)
	l.fail(t, l.wantTurn(t, 0))
	l.wantTurn(t, -1)
	if s := l.describe(t); s.StoppedAt.IsZero() || s.First != l.members[0] || s.Size != 3 {
		t.Errorf("%+v", s)
	}
	for range 2 {
		if _, err := operator.Replay(t.Context(), l.Fixture.Engine, l.members[0]); err != nil {
			t.Fatal(err)
		}
		l.fail(t, l.wantTurn(t, 0))
		l.wantTurn(t, -1)
	}
	if _, err := operator.Replay(t.Context(), l.Fixture.Engine, l.members[0]); err != nil {
		t.Fatal(err)
	}
	if s := l.describe(t); !s.StoppedAt.IsZero() {
		t.Errorf("still stopped: %+v", s)
	}
	l.complete(t, l.wantTurn(t, 0))
	l.wantTurn(t, 1)
}

// An operator lets a stopped sequence go on. The failed member, replayed then, waits at the end of the line.
func TestContinuePassesOver(t *testing.T) {
	l := lineOf(t, 2, engine.SequenceStops)
	name := engine.SequenceName{Key: account}
	if err := operator.ContinueSequence(t.Context(), l.Fixture.Engine, name); err != nil {
		t.Fatal(err)
	}
	l.fail(t, l.wantTurn(t, 0))
	for range 2 {
		if err := operator.ContinueSequence(t.Context(), l.Fixture.Engine, name); err != nil {
			t.Fatal(err)
		}
	}
	c := l.wantTurn(t, 1)
	replayed, err := operator.Replay(t.Context(), l.Fixture.Engine, l.members[0])
	if err != nil || replayed.State != "waiting_children" {
		t.Fatalf("%+v, %v", replayed, err)
	}
	l.wantTurn(t, -1)
	l.complete(t, c)
	l.complete(t, l.wantTurn(t, 0))
	if err := operator.ContinueSequence(t.Context(), l.Fixture.Engine, name); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	l.wantRows(t, 0, 0, 0)
	if replayed, err := operator.Replay(t.Context(), l.Fixture.Engine, l.members[0], operator.ReplayCompleted); err != nil || replayed.State != "waiting" {
		t.Fatalf("%+v, %v", replayed, err)
	}
	l.complete(t, l.wantTurn(t, 0))
	l.wantRows(t, 0, 0, 0)
}

func TestFailureSkips(t *testing.T) {
	l := lineOf(t, 2, engine.SequenceSkips)
	l.fail(t, l.wantTurn(t, 0))
	l.fail(t, l.wantTurn(t, 1))
	l.wantRows(t, 0, 0, 0)
}

// A cancelled member is passed over, whether it runs or waits.
func TestCancelledMembersArePassedOver(t *testing.T) {
	l := lineOf(t, 5, engine.SequenceStops)
	l.Cancel(t, l.members[1])
	c := l.wantTurn(t, 0)
	l.Cancel(t, c.ID)
	l.complete(t, l.wantTurn(t, 2))
	cancelled, err := l.CancelExecutions(t.Context(), []engine.CancelSpec{{ID: l.members[3]}, {ID: l.members[4]}})
	if err != nil || errors.Join(cancelled...) != nil {
		t.Fatal(cancelled, err)
	}
	l.wantRows(t, 0, 0, 0)
}

// A sequence stops at a member that expired while it waited, when its turn comes.
func TestExpiredMemberStopsInItsTurn(t *testing.T) {
	l := lineOf(t, 1, engine.SequenceStops)
	l.members = append(l.members, l.Create(t, of(engine.Sequence{Key: account}), func(spec *engine.ExecutionSpec) {
		spec.Deadline = l.Time().Add(time.Minute)
	}), l.Create(t, of(engine.Sequence{Key: account})))
	c := l.wantTurn(t, 0)
	l.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(l.Engine).ExpireDeadlines, 1)
	if s := l.describe(t); !s.StoppedAt.IsZero() {
		t.Errorf("stopped before its turn: %+v", s)
	}
	fixture.Run(t, upkeep.Of(l.Engine).ExpireLeases, 1)
	l.complete(t, l.wantTurn(t, 0))
	l.wantTurn(t, -1)
	if s := l.describe(t); s.StoppedAt.IsZero() || s.First != l.members[1] {
		t.Errorf("%+v", s)
	}
	_ = c
}

// Delays, retries and lost leases keep the turn.
func TestTurnIsKept(t *testing.T) {
	l := &line{Fixture: fixture.NewCloned(t)}
	l.members = append(l.members, l.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Sequence, spec.DelayUntil = engine.Sequence{Key: account}, l.Time().Add(time.Minute)
		spec.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 3, Backoff: policy.Fixed(time.Minute)}}
	}), l.Create(t, of(engine.Sequence{Key: account}), func(spec *engine.ExecutionSpec) { spec.DelayUntil = l.Time().Add(3 * time.Hour) }))
	l.wantTurn(t, -1)
	l.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(l.Engine).PromoteDelayed, 1)
	l.fail(t, l.wantTurn(t, 0))
	l.wantTurn(t, -1)
	l.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(l.Engine).PromoteDelayed, 1)
	l.wantTurn(t, 0)
	l.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(l.Engine).ExpireLeases, 1)
	l.complete(t, l.wantTurn(t, 0))
	// The second one has a delay of its own.
	l.wantTurn(t, -1)
	if s := l.Describe(t, l.members[1]); s.State.Public != "delayed" {
		t.Errorf("%+v", s.State)
	}
	l.Advance(2 * time.Hour)
	fixture.Run(t, upkeep.Of(l.Engine).PromoteDelayed, 1)
	l.complete(t, l.wantTurn(t, 1))
}

// A creation that repeats another one, or is refused, takes no place.
func TestRepetitionsTakeNoPlace(t *testing.T) {
	f := fixture.NewCloned(t)
	first := engine.ExecutionSpec{
		ID: f.NewExecutionID(f.Lane), Lane: f.Lane, Kind: "test", IdempotencyKey: "k", BusinessKey: id.BusinessKey{Name: "order", Value: "1"},
		Sequence: engine.Sequence{Key: account},
	}
	refused, keyed := first, first
	refused.ID, refused.IdempotencyKey = id.ExecutionID{}, ""
	keyed.ID = id.ExecutionID{}
	for i, spec := range []engine.ExecutionSpec{first, first, keyed, refused} {
		created, err := f.CreateExecution(t.Context(), spec)
		if i == 3 && !errors.Is(err, fferr.ErrKeyConflict) || i < 3 && (err != nil || created.Duplicate != (i > 0)) {
			t.Errorf("%d: %+v, %v", i, created, err)
		}
	}
	(&line{Fixture: f}).wantRows(t, 1, 1, 0)
}

func TestSequencesThatAreRefused(t *testing.T) {
	f := fixture.New(t)
	for field, spec := range map[string]engine.ExecutionSpec{
		"sequence key": {Sequence: engine.Sequence{OnFailure: engine.SequenceSkips}},
		"sequence":     {Sequence: engine.Sequence{Key: "k", OnFailure: "jumps"}},
	} {
		spec.Kind = "test"
		_, err := f.CreateExecution(t.Context(), spec)
		fixture.WantInputError(t, err, field)
	}
	_, err := f.CreateFlow(t.Context(), engine.FlowSpec{Kind: "flow", Nodes: []engine.Node{
		{Key: "a", Spec: engine.ExecutionSpec{Kind: "test", Sequence: engine.Sequence{Key: "k"}}},
	}})
	if !errors.Is(err, fferr.ErrInvalidInput) {
		t.Error(err)
	}
	c := f.Start(t)
	_, err = f.Call(t.Context(), engine.CallSpec{Lease: c.Lease, Name: "s", Executions: []engine.ExecutionSpec{{Kind: "k", Sequence: engine.Sequence{Key: "k"}}}})
	fixture.WantInputError(t, err, "sequence")
	x := f.Create(t, of(engine.Sequence{Key: string(f.Lane)}), func(spec *engine.ExecutionSpec) { spec.DelayUntil = f.Time().Add(time.Hour) })
	second := f.Create(t, of(engine.Sequence{Key: string(f.Lane)}))
	if err := operator.Unblock(t.Context(), f.Engine, second, "waiting_for_children"); !errors.Is(err, fferr.ErrNotEligible) {
		t.Error(err)
	}
	f.Cancel(t, second)
	f.Cancel(t, x)
}
