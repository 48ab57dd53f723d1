package limits

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A holder whose lease was lost can't give away the place that its execution has again: its completion is refused.
func TestFormerHolderFreesNoPlace(t *testing.T) {
	for name, completeAs := range map[string]func(*testing.T, *fixture.Fixture, ...engine.Lease) []error{
		"one": func(t *testing.T, f *fixture.Fixture, leases ...engine.Lease) []error {
			return []error{f.CompleteExecution(t.Context(), leases[0], nil)}
		},
		"among others": func(t *testing.T, f *fixture.Fixture, leases ...engine.Lease) []error {
			completions := make([]engine.Completion, len(leases))
			for i := range leases {
				completions[i].Lease = leases[i]
			}
			errs, err := f.CompleteExecutions(t.Context(), completions)
			if err != nil {
				t.Fatal(err)
			}
			return errs
		},
		"with a claim": func(t *testing.T, f *fixture.Fixture, leases ...engine.Lease) []error {
			errs, claimed, err := f.Claimer(t).CompleteAndClaim(t.Context(), []engine.Completion{{Lease: leases[0]}}, 1)
			if err != nil || len(claimed) > 0 {
				t.Fatalf("claimed %d, %v", len(claimed), err)
			}
			return errs
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1))
			known(t, f, kind, "acme")
			x := created(t, f.Engine, kind, sync{Tenant: "acme"}).ID
			former := claim(t, f, 1)[0]
			other := f.Start(t)
			created(t, f.Engine, kind, sync{Tenant: "acme"})
			wantClaimable(t, f, 0, "while the first runs")
			f.SetAttempt(t, x, 0, "lease_expires_at_ms = 1")
			f.Exec(t, "UPDATE ffx_lease_timer SET due_at_ms = 1")
			f.Once(t, upkeep.Of(f.Engine).ExpireLeases)
			if again := claim(t, f, 1); len(again) != 1 || again[0].ID != x {
				t.Fatalf("claimed %v, want %s again", again, x)
			}
			if errs := completeAs(t, f, former.Lease, other.Lease); errs[0] == nil {
				t.Fatal("the former holder has completed it")
			}
			wantClaimable(t, f, 0, "while the present holder runs")
		})
	}
}

// Executions that a full limit cancels are looked at again under their locks: one that has got a place since the look, or given
// its place back, stays.
func TestSurplusIsJudgedUnderItsLock(t *testing.T) {
	t.Run("got a place", func(t *testing.T) {
		f := fixture.NewCloned(t)
		kind := kindOf(f, atOnce(1).WhenFull(engine.CancelNew))
		known(t, f, kind, "")
		created(t, f.Engine, kind, sync{})
		running := claim(t, f, 1)[0]
		x := created(t, f.Engine, kind, sync{}).ID
		r := f.StoppedBefore(t, "ReadExecutionForecasts")
		pass := passing(t, r.Engine)
		r.AwaitStop(t)
		complete(t, f, running)
		wantClaimable(t, f, 1, "the one to cancel, which has the place now")
		r.Resume()
		pass()
		if s := describe(t, f, x); s.State.Public != state.PublicActive {
			t.Errorf("it is %s", s.State.Public)
		}
	})
	t.Run("gave it back", func(t *testing.T) {
		f := fixture.NewCloned(t)
		kind := kindOf(f, atOnce(1).WhenFull(engine.CancelRunning))
		known(t, f, kind, "")
		x := created(t, f.Engine, kind, sync{}).ID
		running := claim(t, f, 1)[0]
		created(t, f.Engine, kind, sync{})
		r := f.StoppedBefore(t, "ReadExecutionForecasts")
		pass := passing(t, r.Engine)
		r.AwaitStop(t)
		if err := f.DelayExecution(t.Context(), running.Lease, f.Time().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		r.Resume()
		pass()
		if s := describe(t, f, x); s.State.Public != state.PublicDelayed {
			t.Errorf("it is %s", s.State.Public)
		}
	})
}

// A newcomer makes as many executions go as have the units that it takes, the longest first, and not one more.
func TestNewcomerReplacesNoMoreThanItTakes(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(3).WhenFull(engine.CancelRunning))
	known(t, f, kind, "")
	var running []id.ExecutionID
	for range 3 {
		f.Advance(time.Millisecond)
		running = append(running, created(t, f.Engine, kind, sync{}).ID)
		if n := len(claim(t, f, 1)); n != 1 {
			t.Fatalf("claimed %d", n)
		}
	}
	f.Advance(time.Millisecond)
	created(t, f.Engine, kind, sync{})
	if n, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 1); err != nil || n != 1 {
		t.Fatalf("acted on %d, %v, want one cancelled", n, err)
	}
	for i, x := range running {
		if gone := describe(t, f, x).State.Public == state.PublicCancelled; gone != (i == 0) {
			t.Errorf("execution %d is cancelled: %v", i, gone)
		}
	}
}

// A key with starts in a window above an hour is kept, so that its rate goes on counting them.
func TestKeyWithStartsInALongWindowIsKept(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, engine.Rate[sync](1, 3*time.Hour))
	created(t, f.Engine, kind, sync{})
	complete(t, f, wantClaimable(t, f, 1, "the first")...)
	f.Advance(2 * time.Hour)
	if n := forget(t, f); n != 0 {
		t.Errorf("forgot %d keys within the window", n)
	}
	created(t, f.Engine, kind, sync{})
	wantClaimable(t, f, 0, "in the same window")
	f.Advance(time.Hour)
	if n := forget(t, f); n != 0 {
		t.Errorf("forgot %d keys at which one waits", n)
	}
	complete(t, f, wantClaimable(t, f, 1, "in the next window")...)
	f.Advance(3 * time.Hour)
	if n := forget(t, f); n != 1 {
		t.Errorf("forgot %d keys after the window", n)
	}
}

// A pass of the gate wakes the workers of the lanes in which it has admitted, and so does the end of an execution that hands its
// place over.
func TestAdmissionsWakeTheirLanes(t *testing.T) {
	for name, give := range map[string]func(*testing.T, *fixture.Fixture, engine.Claimed){
		"a pass of the gate": func(t *testing.T, f *fixture.Fixture, c engine.Claimed) {
			f.Cancel(t, c.ID) // gives the place back, and leaves the rest to the gate
			admit(t, f.Engine)
		},
		"the end of an execution": func(t *testing.T, f *fixture.Fixture, c engine.Claimed) { complete(t, f, c) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1))
			known(t, f, kind, "")
			created(t, f.Engine, kind, sync{})
			running := claim(t, f, 1)[0]
			kind.Lane = f.Lane + ".next" // in which nothing is claimable yet
			created(t, f.Engine, kind, sync{})
			wantClaimable(t, f, 0, "while the first runs")
			f.Flush()
			other := f.Rival(t)
			woken := make(chan id.LaneID, 1000)
			ctx, cancel := context.WithCancel(t.Context())
			ended := fixture.Async(t, func(context.Context) error {
				return other.Listen(ctx, func(lane id.LaneID) { woken <- lane })
			})
			for lane := progress.Receive(t, "the listener to connect", woken); lane != ""; {
				lane = progress.Receive(t, "the listener to connect", woken)
			}
			give(t, f, running)
			for progress.Receive(t, "the lane to be woken", woken) != kind.Lane {
			}
			cancel()
			_ = ended()
		})
	}
}
