package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// replaceUnder declares the limits "newest", which cancels what runs for a newcomer, and "other", as the spec says.
func replaceUnder(t *testing.T, f *fixture.Fixture, units int, other limit.Spec) {
	t.Helper()
	other.Name = "other"
	newest := limit.Spec{Name: "newest", Units: units, WhenFull: engine.CancelRunning}
	if err := limit.Declare(t.Context(), f.Engine, newest, other); err != nil {
		t.Fatal(err)
	}
}

// runningUnder creates an execution with limits, which starts.
func runningUnder(t *testing.T, f *fixture.Fixture, names ...string) engine.Claimed {
	t.Helper()
	f.Advance(time.Millisecond)
	newUnder(t, f, names...)
	return wantClaimable(t, f, 1, "the first with these limits")[0]
}

// newUnder creates an execution with limits.
func newUnder(t *testing.T, f *fixture.Fixture, names ...string) id.ExecutionID {
	t.Helper()
	return create(t, f, 1, func(s *engine.ExecutionSpec) {
		for _, name := range names {
			s.Limits = append(s.Limits, engine.LimitKey{Name: name})
		}
	})[0]
}

func wantPublic(t *testing.T, f *fixture.Fixture, x id.ExecutionID, want state.PublicState, when string) {
	t.Helper()
	if s := describe(t, f, x); s.State.Public != want {
		t.Errorf("%s it is %s, want %s", when, s.State.Public, want)
	}
}

// A limit with CancelRunning cancels nothing for an execution that another limit keeps waiting, and does once that has room. L15.
func TestNothingIsCancelledForWhatCantStart_L15(t *testing.T) {
	for name, c := range map[string]struct {
		other limit.Spec
		open  func(t *testing.T, f *fixture.Fixture, holder engine.Claimed)
	}{
		"running work": {
			limit.Spec{Units: 1},
			func(t *testing.T, f *fixture.Fixture, holder engine.Claimed) { complete(t, f, holder) },
		},
		"a rate": {
			limit.Spec{Units: 1, Window: window},
			func(t *testing.T, f *fixture.Fixture, holder engine.Claimed) { f.Advance(window) },
		},
		"nothing at all": {
			limit.Spec{Units: 1},
			func(t *testing.T, f *fixture.Fixture, holder engine.Claimed) {
				complete(t, f, holder)
				if err := limit.Set(t.Context(), f.Engine, limit.Name{Name: "other"}, limit.Setting{Units: 1}); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		for order, names := range map[string][]string{"it waits there": {"newest", "other"}, "it waits at the other one": {"other", "newest"}} {
			t.Run(name+", "+order, func(t *testing.T) {
				f := fixture.NewCloned(t)
				replaceUnder(t, f, 1, c.other)
				running, holder := runningUnder(t, f, "newest"), runningUnder(t, f, "other")
				if name == "nothing at all" {
					if err := limit.Set(t.Context(), f.Engine, limit.Name{Name: "other"}, limit.Setting{}); err != nil {
						t.Fatal(err)
					}
				}
				x := newUnder(t, f, names...)
				wantClaimable(t, f, 0, "while the other limit is full")
				wantPublic(t, f, running.ID, state.PublicActive, "while the other limit is full")
				c.open(t, f, holder)
				wantClaimable(t, f, 1, "once the other limit has room")
				wantPublic(t, f, running.ID, state.PublicCancelled, "then")
				wantPublic(t, f, x, state.PublicActive, "the newcomer")
			})
		}
	}
}

// As many executions are cancelled as newcomers can start: the room in another limit is for one alone. L15.
func TestNewcomersShareTheRoomElsewhere_L15(t *testing.T) {
	f := fixture.NewCloned(t)
	replaceUnder(t, f, 2, limit.Spec{Units: 1})
	first, second := runningUnder(t, f, "newest"), runningUnder(t, f, "newest")
	newUnder(t, f, "newest", "other")
	newUnder(t, f, "newest", "other")
	wantClaimable(t, f, 1, "with room for one")
	wantPublic(t, f, first.ID, state.PublicCancelled, "the longest")
	wantPublic(t, f, second.ID, state.PublicActive, "the other one")
}

// While an operator lets nothing start, newcomers cancel nothing. L15.
func TestNothingIsCancelledWhileNothingStarts_L15(t *testing.T) {
	f := fixture.NewCloned(t)
	replaceUnder(t, f, 1, limit.Spec{Units: 1})
	running := runningUnder(t, f, "newest")
	if err := limit.Set(t.Context(), f.Engine, limit.Name{Name: "newest"}, limit.Setting{}); err != nil {
		t.Fatal(err)
	}
	newUnder(t, f, "newest")
	wantClaimable(t, f, 0, "while nothing starts")
	wantPublic(t, f, running.ID, state.PublicActive, "what runs")
}

// A newcomer to two limits with CancelRunning makes executions go in both.
func TestNewcomerReplacesInBothLimits(t *testing.T) {
	f := fixture.NewCloned(t)
	replaceUnder(t, f, 1, limit.Spec{Units: 1, WhenFull: engine.CancelRunning})
	first, second := runningUnder(t, f, "newest"), runningUnder(t, f, "other")
	x := newUnder(t, f, "newest", "other")
	wantClaimable(t, f, 1, "in place of both")
	wantPublic(t, f, first.ID, state.PublicCancelled, "the one")
	wantPublic(t, f, second.ID, state.PublicCancelled, "the other one")
	wantPublic(t, f, x, state.PublicActive, "the newcomer")
}
