package signals

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// meeting is two calls. The second begins while the first is not committed.
type meeting struct {
	name   string
	first  string // a call of [meetingCalls]
	second string
	want   string // the answer of the second
	state  string // of the execution afterwards
	// sent is the answer to a signal by the token afterwards, and named that to one by its name.
	sent, named string
}

// scene is an execution of a flow, with a waitpoint.
type scene struct {
	*fixture.Flows
	of    id.FlowID
	lease engine.Lease
	point engine.Waitpoint
}

// meetingCalls are the calls that meet. The clock of those that name a job is after the waits and waitpoints.
func meetingCalls(s *scene) map[string]func(context.Context, *engine.Engine) string {
	signal := engine.SignalSpec{Execution: s.lease.Execution, Name: "ready"}
	done := func(err error) string {
		switch _, lost := errors.AsType[*fferr.LeaseError](err); {
		case err == nil:
			return "done"
		case lost:
			return "stale lease"
		case errors.Is(err, fferr.ErrNotSuspended):
			return "not suspended"
		}
		return effectOf(engine.Signalled{}, err)
	}
	job := func(n int, err error) string {
		if err == nil && n == 0 {
			return "nothing"
		}
		return done(err)
	}
	return map[string]func(context.Context, *engine.Engine) string{
		"suspend": func(ctx context.Context, e *engine.Engine) string {
			suspended, err := e.Suspend(ctx, engine.SuspendSpec{Lease: s.lease, Condition: ready, Timeout: time.Second})
			if suspended.Satisfied {
				return "satisfied"
			}
			return done(err)
		},
		"signal": func(ctx context.Context, e *engine.Engine) string { return effectOf(e.Signal(ctx, signal)) },
		"signal by the token": func(ctx context.Context, e *engine.Engine) string {
			return effectOf(e.SignalWaitpoint(ctx, engine.WaitpointSignal{SignalSpec: signal, Waitpoint: s.point.ID, Token: s.point.Token}))
		},
		"cancel the flow": func(ctx context.Context, e *engine.Engine) string {
			_, err := e.CancelFlow(ctx, engine.CancelFlowSpec{ID: s.of, Policy: state.CancelAll})
			return done(err)
		},
		"resume": func(ctx context.Context, e *engine.Engine) string { return done(e.Resume(ctx, s.lease.Execution, 0)) },
		"close": func(ctx context.Context, e *engine.Engine) string {
			return done(e.CloseWaitpoint(ctx, s.lease, s.point.ID))
		},
		"expire waits": func(ctx context.Context, e *engine.Engine) string { return job(upkeep.Of(e).ExpireWaits(ctx, 10)) },
		"expire waitpoints": func(ctx context.Context, e *engine.Engine) string {
			return job(upkeep.Of(e).ExpireWaitpoints(ctx, 10))
		},
	}
}

// Of two calls that meet, the second acts on what the first has committed, in either order.
func TestCallsThatMeet(t *testing.T) {
	const (
		running, waiting, resumable = fixture.StateRunning, fixture.StateSuspended, fixture.StateResumable
		cancelled, returned         = fixture.StateCancelled, fixture.StateReturned
	)
	for _, m := range []meeting{
		{"", "suspend", "signal", "satisfied", resumable, "not found", "buffered"},
		{"", "signal", "suspend", "satisfied", running, "not found", "buffered"},
		{"", "suspend", "signal by the token", "satisfied", resumable, "not found", "buffered"},
		{"", "signal by the token", "suspend", "satisfied", running, "not found", "buffered"},
		{"", "suspend", "close", "stale lease", waiting, "satisfied", "buffered"},
		{"", "close", "suspend", "done", waiting, "not found", "satisfied"},
		{"", "close", "signal by the token", "not found", running, "not found", "buffered"},
		{"", "signal by the token", "close", "done", running, "not found", "buffered"},
		{"", "suspend", "expire waitpoints", "nothing", waiting, "satisfied", "buffered"},
		{"", "expire waitpoints", "suspend", "done", waiting, "not found", "satisfied"},
		{"", "expire waitpoints", "signal by the token", "not found", running, "not found", "buffered"},
		{"", "signal by the token", "expire waitpoints", "nothing", running, "buffered", "buffered"},
		{"", "suspend", "cancel the flow", "done", cancelled, "ended", "ended"},
		{"", "cancel the flow", "suspend", "stale lease", cancelled, "ended", "ended"},
		{"suspended", "signal", "cancel the flow", "done", cancelled, "ended", "ended"},
		{"suspended", "cancel the flow", "signal", "ended", cancelled, "ended", "ended"},
		{"suspended", "signal", "expire waits", "nothing", resumable, "not found", "buffered"},
		{"suspended", "expire waits", "signal", "buffered", resumable, "not found", "buffered"},
		{"suspended", "signal", "resume", "not suspended", resumable, "not found", "buffered"},
		{"suspended", "resume", "signal", "buffered", returned, "not found", "buffered"},
		{"suspended", "resume", "expire waits", "nothing", returned, "not found", "buffered"},
		{"suspended", "expire waits", "resume", "not suspended", resumable, "not found", "buffered"},
		{"suspended", "cancel the flow", "expire waits", "nothing", cancelled, "ended", "ended"},
		{"suspended", "expire waits", "cancel the flow", "done", cancelled, "ended", "ended"},
		{"suspended", "signal", "signal by the token", "not found", resumable, "not found", "buffered"},
		{"suspended", "signal by the token", "signal", "buffered", resumable, "not found", "buffered"},
	} {
		t.Run(m.name+" "+m.first+", then "+m.second, func(t *testing.T) {
			s := newScene(t, fixture.NewCloned(t), m.name == "suspended")
			late := s.Rival(t)
			before := s.Earlier(t, s.Pool)
			beforeLate := s.Earlier(t, late.Pool)
			s.Advance(time.Second)
			clock := func(call string, then, now *engine.Engine) *engine.Engine {
				if call == "expire waits" || call == "expire waitpoints" {
					return now
				}
				return then
			}
			calls := meetingCalls(s)
			tx := s.BeginTx(t)
			calls[m.first](t.Context(), clock(m.first, before, s.Engine).WithTx(tx))
			returned, wait := fixture.Watched(t, func(ctx context.Context) string {
				return calls[m.second](ctx, clock(m.second, beforeLate, late.Engine))
			})
			late.AwaitBlockedOr(t, s.Fixture, returned)
			fixture.Commit(t, tx)
			if got := wait(); got != m.want {
				t.Errorf("%s answers %q, want %q", m.second, got, m.want)
			}
			s.WantState(t, s.lease.Execution, m.state)
			for _, after := range []struct{ call, want string }{{"signal by the token", m.sent}, {"signal", m.named}} {
				if got := calls[after.call](t.Context(), before); got != after.want {
					t.Errorf("afterwards %s answers %q, want %q", after.call, got, after.want)
				}
			}
		})
	}
}

// newScene starts the member of a flow, with a waitpoint for a second, and perhaps with a wait for a second.
func newScene(t *testing.T, on *fixture.Fixture, suspended bool) *scene {
	t.Helper()
	on.Signing(t)
	s := &scene{Flows: fixture.FlowsOn(on)}
	flow := s.Draw(t, nil, "a>b")
	s.lease = s.Flows.Lease(t, flow, "a")
	s.of = flow
	var err error
	if s.point, err = s.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: s.lease, Key: "ready", TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	if suspended {
		s.SuspendAgain(t, s.lease, ready, func(spec *engine.SuspendSpec) { spec.Timeout = time.Second })
	}
	return s
}
