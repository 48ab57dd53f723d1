package limits

import (
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// statesOf returns the public states of executions, and fails unless a cancelled one says that its limit cancelled it.
func statesOf(t *testing.T, f *fixture.Fixture, ids []id.ExecutionID) (states []state.PublicState) {
	t.Helper()
	for _, x := range ids {
		s := describe(t, f, x)
		states = append(states, s.State.Public)
		if s.State.Public == state.PublicCancelled && (s.CancelledBy != "limit" || !strings.Contains(s.CancellationReason, "limit sync/tenant")) {
			t.Errorf("cancelled by %q: %q", s.CancelledBy, s.CancellationReason)
		}
	}
	return states
}

// A full limit lets executions wait, or cancels the new, the old, or all but the newest of those that wait.
func TestFullLimitsDoAsTheySay(t *testing.T) {
	const waits, limited, active, cancelled = state.PublicWaiting, state.PublicRateLimited, state.PublicActive, state.PublicCancelled
	for _, c := range []struct {
		name  engine.WhenFull
		first []state.PublicState // three that are created together; one has room
		then  []state.PublicState // with another one, while the one that had room runs
	}{
		{
			engine.WaitForRoom,
			[]state.PublicState{waits, limited, limited},
			[]state.PublicState{active, limited, limited, limited},
		},
		{
			engine.CancelNew,
			[]state.PublicState{waits, cancelled, cancelled},
			[]state.PublicState{active, cancelled, cancelled, cancelled},
		},
		{
			engine.KeepNewest,
			[]state.PublicState{waits, cancelled, limited},
			[]state.PublicState{active, cancelled, cancelled, limited},
		},
		{
			engine.CancelRunning,
			[]state.PublicState{cancelled, cancelled, waits},
			[]state.PublicState{cancelled, cancelled, cancelled, waits},
		},
	} {
		t.Run(string(c.name), func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1).WhenFull(c.name))
			var ids []id.ExecutionID
			for range 3 {
				ids = append(ids, created(t, f.Engine, kind, sync{Tenant: "acme"}).ID)
			}
			other := created(t, f.Engine, kind, sync{Tenant: "other"}).ID
			admit(t, f.Engine)
			if got := statesOf(t, f, ids); !slices.Equal(got, c.first) {
				t.Fatalf("%v, want %v", got, c.first)
			}
			if claimed := claim(t, f, 10); len(claimed) != 2 {
				t.Fatalf("claimed %d", len(claimed))
			}
			ids = append(ids, created(t, f.Engine, kind, sync{Tenant: "acme"}).ID)
			admit(t, f.Engine)
			if got := statesOf(t, f, ids); !slices.Equal(got, c.then) {
				t.Fatalf("%v, want %v", got, c.then)
			}
			if got := statesOf(t, f, []id.ExecutionID{other}); got[0] != active {
				t.Errorf("another key: %v", got)
			}
		})
	}
}

// A rate that is full cancels as well, and goes on when its window has room.
func TestFullRateCancels(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, engine.Rate[sync](2, minute).Per("tenant", tenantOf).WhenFull(engine.CancelNew))
	var ids []id.ExecutionID
	for range 3 {
		ids = append(ids, created(t, f.Engine, kind, sync{}).ID)
	}
	admit(t, f.Engine)
	want := []state.PublicState{state.PublicWaiting, state.PublicWaiting, state.PublicCancelled}
	if got := statesOf(t, f, ids); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
