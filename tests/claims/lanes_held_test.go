package claims

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// storedLane is a row of the view ffx_lane without its lane and its pause.
type storedLane struct {
	Waiting, Blocked, Delayed, Active, Limited, Suspended, Dependent int64
	Partial                                                          bool
}

func wantLane(t *testing.T, f *fixture.Fixture, want engine.LaneSummary) {
	t.Helper()
	if got := lanesOf(t, f.Engine, 0); !slices.Equal(got, []engine.LaneSummary{want}) {
		t.Errorf("listed\n\t%+v, want\n\t%+v", got, want)
	}
	stored := fixture.One[storedLane](t, f.Pool,
		"SELECT waiting, blocked, delayed, active, limited, suspended, dependent, partial FROM ffx_lane WHERE lane_id = $1", want.ID)
	if seen := (storedLane{
		int64(want.Waiting.N), int64(want.Blocked.N), int64(want.Delayed.N), int64(want.Active.N),
		int64(want.Limited.N), int64(want.Suspended.N), int64(want.Dependent.N), want.Limited.AtLeast,
	}); stored != seen {
		t.Errorf("the view has\n\t%+v, want\n\t%+v", stored, seen)
	}
}

// Work that waits for limits, signals, called executions, upstreams or its turn is in the counts of its lane, which stands
// still without it. F5
func TestLanesCountHeldWork(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	ctx := t.Context()
	want := engine.LaneSummary{ID: f.Lane}

	// Two behind a limit on which nothing starts.
	if err := limit.Declare(ctx, f.Engine, limit.Spec{Name: "maintenance", Units: 1}); err != nil {
		t.Fatal(err)
	}
	if err := limit.Set(ctx, f.Engine, limit.Name{Name: "maintenance"}, limit.Setting{Units: 0}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f.Create(t, func(spec *engine.ExecutionSpec) { spec.Limits = []engine.LimitKey{{Name: "maintenance"}} })
	}
	want.Limited.N = 2
	wantLane(t, f.Fixture, want)

	// One that waits for a signal, one for an execution that it called.
	f.Suspend(t, engine.Received("approved"))
	caller := f.Start(t)
	if _, err := f.Call(ctx, engine.CallSpec{
		Lease: caller.Lease, Name: "call", Executions: []engine.ExecutionSpec{{Lane: f.Lane, Kind: "test", DelayUntil: f.Time().Add(time.Hour)}},
	}); err != nil {
		t.Fatal(err)
	}
	f.SuspendAgain(t, caller.Lease, engine.Condition{}, func(s *engine.SuspendSpec) { s.Call, s.Timeout = "call", 0 })
	want.Suspended.N, want.Delayed.N = 2, 1
	wantLane(t, f.Fixture, want)

	// The second and third of a sequence, and two members behind one that a worker has. Flows are counted at their summary.
	for range 3 {
		f.Create(t, func(spec *engine.ExecutionSpec) { spec.Sequence = engine.Sequence{Key: "account 1"} })
	}
	f.Draw(t, nil, "a>b", "a>c", "b>d", "c>d")
	fixture.Run(t, upkeep.Of(f.Engine).SummariseFlows, 1)
	f.ClaimAll(t)
	want.Dependent.N, want.Active.N = 5, 2
	wantLane(t, f.Fixture, want)
}
