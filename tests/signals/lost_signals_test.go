package signals

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A signal that was accepted before its wait is kept for it, whatever becomes of the waitpoints meanwhile.
func TestKeptSignalsOutliveWaitpoints(t *testing.T) {
	for _, c := range []struct {
		name    string
		byToken bool
		end     func(t *testing.T, f *fixture.Fixture, l engine.Lease, w engine.Waitpoint)
		refused error // a signal by the token afterwards
	}{
		{"by name, closed", false, func(t *testing.T, f *fixture.Fixture, l engine.Lease, w engine.Waitpoint) {
			if err := f.CloseWaitpoint(t.Context(), l, w.ID); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotFound},
		{"by name, expired", false, func(t *testing.T, f *fixture.Fixture, _ engine.Lease, _ engine.Waitpoint) {
			f.Advance(time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 1)
		}, fferr.ErrNotFound},
		{"by a token, expired", true, func(t *testing.T, f *fixture.Fixture, _ engine.Lease, _ engine.Waitpoint) {
			f.Advance(time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 1)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 0)
		}, fferr.ErrNotFound},
		{"by a token, expired, then closed", true, func(t *testing.T, f *fixture.Fixture, l engine.Lease, w engine.Waitpoint) {
			f.Advance(time.Second)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 1)
			if err := f.CloseWaitpoint(t.Context(), l, w.ID); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotFound},
		{"by a token, expired, before the job has run", true, func(_ *testing.T, f *fixture.Fixture, _ engine.Lease, _ engine.Waitpoint) {
			f.Advance(time.Second)
		}, fferr.ErrWaitpointClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			l := f.Start(t).Lease
			w, err := f.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: "ready", TTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if !c.byToken {
				f.Signal(t, l, "ready")
			} else if _, err := sendBy(t, f, w, "ready"); err != nil {
				t.Fatal(err)
			}
			c.end(t, f, l, w)
			if _, err := sendBy(t, f, w, "ready"); !errors.Is(err, c.refused) {
				t.Errorf("a signal to the former waitpoint: %v", err)
			}
			if got := f.SuspendAgain(t, l, ready); !got.Satisfied {
				t.Error("the signal is lost")
			}
			if n := rows(t, f, "ff_waitpoint_pending"); n != 0 {
				t.Errorf("%d waitpoints are left", n)
			}
			if got := f.SuspendAgain(t, l, ready); got.Satisfied {
				t.Error("the signal is used twice")
			}
		})
	}
}

// A wait binds the waitpoint whose token was handed out, not a place where signals of the same name as its key are kept.
func TestWaitBindsTheSignedWaitpoint(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	f.Signal(t, l, string(decision))
	f.Exec(t, "UPDATE ff_waitpoint_pending SET waitpoint_id = '00000000-0000-4000-8000-000000000001'")
	w := open(t, f, l)
	f.SuspendAgain(t, l, engine.Received("approved").At(decision))
	if got, err := sendBy(t, f, w, "approved"); err != nil || got.Effect != engine.SignalSatisfied {
		t.Errorf("%+v, %v", got, err)
	}
	again := f.ClaimOne(t)
	if got := f.SuspendAgain(t, again.Lease, engine.Received(string(decision))); !got.Satisfied {
		t.Error("the other signal is lost")
	}
}

// The repetition of a call that was satisfied at once is satisfied too: it does not wait for another signal.
func TestSuspendRepeatedAfterItsSignal(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	f.Signal(t, l, "ready")
	wait := id.NewSuspensionID()
	named := func(s *engine.SuspendSpec) { s.ID = wait }
	if got := f.SuspendAgain(t, l, ready, named); !got.Satisfied {
		t.Fatalf("%+v", got)
	}
	before := f.Dump(t, l.Execution)
	if got := f.SuspendAgain(t, l, ready, named); !got.Satisfied || got.ID != wait {
		t.Errorf("%+v", got)
	}
	f.WantUnchanged(t, l.Execution, before)
}

// An execution that is satisfied at once keeps its lease, which is still found when it runs out.
func TestLeaseOfASatisfiedWaitRunsOut(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	f.Signal(t, l, "ready")
	if got := f.SuspendAgain(t, l, ready); !got.Satisfied {
		t.Fatalf("%+v", got)
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0) // drops the timers of ended leases
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
}
