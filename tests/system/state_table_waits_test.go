package system

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// suspending lets attempts wait for half an hour. Each has an id of its own, so that a repetition of the call is one.
func suspending(effect engine.OnTimeout) []call {
	spec := func(l engine.Lease) engine.SuspendSpec {
		return engine.SuspendSpec{
			Lease: l, Condition: engine.Received("ready"), Timeout: 30 * time.Minute, OnTimeout: effect, ID: id.SuspensionID(l.Execution.UUID()),
		}
	}
	return []call{
		single("Suspend", func(ctx context.Context, s *stage, x *subject) error {
			_, err := s.e.Suspend(ctx, spec(x.lease))
			return err
		}),
		several("SuspendEach", func(ctx context.Context, e *engine.Engine, leases []engine.Lease) ([]error, error) {
			var specs []engine.SuspendSpec
			for _, l := range leases {
				specs = append(specs, spec(l))
			}
			outcomes, err := e.SuspendEach(ctx, specs)
			errs := make([]error, len(outcomes))
			for i, o := range outcomes {
				errs[i] = o.Err
			}
			return errs, err
		}),
	}
}

// signalling sends a signal with an id of its own.
func signalling(name string) []call {
	return []call{single("Signal", func(ctx context.Context, s *stage, x *subject) error {
		_, err := s.e.Signal(ctx, engine.SignalSpec{Execution: x.x, Name: name, ID: id.SignalID(x.x.UUID())})
		return err
	})}
}

func resuming(delay time.Duration) []call {
	return []call{single("Resume", func(ctx context.Context, s *stage, x *subject) error { return s.e.Resume(ctx, x.x, delay) })}
}

var openingWaitpoint = []call{single("CreateWaitpoint", func(ctx context.Context, s *stage, x *subject) error {
	_, err := s.e.CreateWaitpoint(ctx, engine.WaitpointSpec{Lease: x.lease, Key: "ready", TTL: time.Minute})
	return err
})}

var closingWaitpoint = []call{single("CloseWaitpoint", func(ctx context.Context, s *stage, x *subject) error {
	open, err := s.e.ListWaitpoints(ctx, x.x, "", 10)
	for _, w := range open.Items {
		err = errors.Join(err, s.e.CloseWaitpoint(ctx, x.lease, w.ID))
	}
	return err
})}

var taking = []call{single("TakeSignal", func(ctx context.Context, s *stage, x *subject) error {
	_, ok, err := s.e.TakeSignal(ctx, x.lease, "ready")
	if err == nil && !ok {
		err = fixture.ErrIdle
	}
	return err
})}

var (
	expiringWaits      = background("ExpireWaits", (*upkeep.Upkeep).ExpireWaits)
	expiringWaitpoints = background("ExpireWaitpoints", (*upkeep.Upkeep).ExpireWaitpoints)
)

// waited are the columns that a wait writes.
var waited = left.merged(isMutation).merged(wholeRow{
	"state": fixture.StateSuspended, "lease_epoch": "2", "0.lease_epoch": "2", "0.outcome": "attempt_interrupted",
	"0.lease_expires_at_ms": "-", "0.timeout_at_ms": "-",
	"wait": "open since now until now+30m, 0 received, 0 used", "waitpoints": "active ready, until now+30m",
})

// resumed are the columns that the end of a wait writes.
var resumed = isMutation.merged(queued).merged(wholeRow{"waitpoints": "-"})

// endedWaiting are those of an end during a wait.
var endedWaiting = wholeRow{
	"wait": "-", "waitpoints": "-", "lease_epoch": "3", "0.lease_epoch": "3", "0.terminal_at_ms": "now", "execution_deadline_ms": "ended 1h0m1s",
}

const stateResumeDelayed = "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_resume_delay"

// waitTable are waits, and everything that ends them.
var waitTable = []transition{
	{name: "suspend", from: "claim, limited", calls: suspending(""), change: waited, events: []string{"revoked L1 of own by backend at now"}},
	{
		name: "suspend, to fail", from: "claim, limited", calls: suspending(engine.FailOnTimeout), change: waited,
		events: []string{"revoked L1 of own by backend at now"},
	},
	{
		name: "signal, early", from: "claim, limited", calls: signalling("ready"),
		change: wholeRow{"waitpoints": "pending ready, 1 kept"}, events: []string{"signal buffered at now"},
	},
	{name: "take a signal", from: "signal, early", calls: taking, again: fixture.ErrIdle, change: wholeRow{"waitpoints": "-"}},
	{
		name: "suspend, after its signal", from: "signal, early", calls: suspending(""),
		change: wholeRow{"waitpoints": "-", "wait": "over, 1 received, 1 used"},
	},
	{
		name: "signal", from: "suspend", calls: signalling("ready"),
		change: resumed.merged(wholeRow{"state": fixture.StateResumable, "wait": "over, 1 received, 1 used"}),
		events: []string{"ended: resumable at now", "signal satisfied at now"},
	},
	{
		name: "signal, of another name", from: "suspend", calls: signalling("other"),
		change: wholeRow{"waitpoints": "pending other, 1 kept; active ready, until 30m3s"}, events: []string{"signal buffered at now"},
	},
	{
		name: "claim, after a signal", from: "signal", calls: claiming, again: fixture.ErrIdle,
		change: leased.merged(wholeRow{
			"lease_epoch": "3", "0.outcome": "-", "0.timeout_at_ms": "now+1m", "0.lease_epoch": "3", "0.lease_id": "L2",
			"0.lease_expires_at_ms": "now+10s", "0.worker_id": "own", "0.worker_instance_id": "own", "0.resumed_at_ms": "now",
		}),
		events: []string{"acquired L2 of own at now"},
	},
	{
		name: "complete, after a signal", from: "claim, after a signal", calls: completing,
		change: success.merged(wholeRow{"0.timeout_at_ms": "-", "execution_deadline_ms": "ended 1h0m1s"}),
		events: []string{"revoked L2 of own by backend at now", "ended: success at now"},
	},
	{
		name: "replay, of what waited", from: "complete, after a signal", again: fferr.ErrNotEnded, calls: replaying,
		change: replayed.merged(wholeRow{
			"result": "-", "execution_deadline_ms": "1h0m1s", "lease_epoch": "4", "0.lease_epoch": "4", "wait": "-", "0.resumed_at_ms": "-",
		}),
		events: []string{`replayed {"branch":"normal"} at now`},
	},
	{
		name: "resume by an operator", from: "suspend", calls: resuming(0), again: fferr.ErrNotSuspended,
		change: resumed.merged(wholeRow{"state": fixture.StateReturned, "wait": "over, 0 received, 0 used"}),
		events: []string{"ended: resumable at now"},
	},
	{
		name: "resume later", from: "suspend", calls: resuming(time.Minute), again: fferr.ErrNotSuspended,
		change: resumed.merged(unqueued).merged(wholeRow{
			"state": stateResumeDelayed, "wait": "over, 0 received, 0 used", "deadline_at_ms": "now+1m", "delay_until_ms": "now+1m",
		}),
	},
	{
		name: "promote, after a resume", from: "resume later", after: time.Minute, again: fixture.ErrIdle,
		calls:  background("PromoteDelayed", (*upkeep.Upkeep).PromoteDelayed),
		change: wholeRow{"state": fixture.StateReturned, "deadline_at_ms": "1h0m1s", "delay_until_ms": "-"}.merged(isMutation).merged(queued),
	},
	{
		name: "time out", from: "suspend", after: 30 * time.Minute, calls: expiringWaits, again: fixture.ErrIdle,
		change: resumed.merged(wholeRow{"state": fixture.StateResumable, "wait": "over, 1 received, 0 used"}),
		events: []string{"ended: resumable at now"},
	},
	{
		name: "time out, which fails", from: "suspend, to fail", after: 30 * time.Minute, calls: expiringWaits, again: fixture.ErrIdle,
		change: endedWaiting.merged(isMutation).merged(wholeRow{
			"state": fixture.StateFailed, "terminal_at_ms": "now", "0.outcome": "failed",
			"raw.last_failure_message": "suspension_timeout_fail", "raw.failure_reason": "suspension_timeout_fail", "raw.failure_category": "timeout",
			"raw.failure_class": "timeout", "raw.last_mutation_at": "now",
		}),
		events: []string{"ended: failed at now"},
	},
	{
		name: "cancel, waiting", from: "suspend", calls: cancelling,
		change: cancelled.merged(endedWaiting).merged(wholeRow{"0.outcome": "cancelled"}), events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, after a signal", from: "signal", calls: cancelling,
		change: cancelled.merged(unqueued).merged(wholeRow{
			"wait": "-", "lease_epoch": "3", "0.lease_epoch": "3", "0.outcome": "cancelled", "0.terminal_at_ms": "now",
		}),
		events: []string{"ended: cancelled at now"},
	},
	{
		name: "cancel, resumed later", from: "resume later", calls: cancelling,
		change: cancelled.merged(wholeRow{"wait": "-", "delay_until_ms": "-", "lease_epoch": "3", "0.lease_epoch": "3", "0.outcome": "-"}),
		events: []string{"ended: cancelled at now"},
	},
	{
		name: "deadline, waiting", from: "suspend", after: time.Hour, again: fixture.ErrIdle, calls: deadlines,
		change: expired.merged(endedWaiting).merged(wholeRow{"state": fixture.StateExpired, "0.outcome": "expired"}),
		events: []string{"ended: expired at now"},
	},
	{
		name: "open a waitpoint", from: "claim, limited", calls: openingWaitpoint,
		change: wholeRow{"waitpoints": "pending ready, signed, until now+1m"},
	},
	{
		name: "suspend, at a waitpoint", from: "open a waitpoint", calls: suspending(""),
		change: waited.merged(wholeRow{"waitpoints": "active ready, signed, until now+30m"}), events: []string{"revoked L1 of own by backend at now"},
	},
	{name: "close a waitpoint", from: "open a waitpoint", calls: closingWaitpoint, change: wholeRow{"waitpoints": "-"}},
	{
		name: "expire a waitpoint", from: "open a waitpoint", after: time.Minute, calls: expiringWaitpoints, again: fixture.ErrIdle,
		change: wholeRow{"waitpoints": "-"},
	},
}

// Only a signal, a resume, a cancel and a job act on what waits. All other calls are refused and write nothing, also those
// of the former holder, who may only cancel it.
func TestWaitsRefuseOtherCalls(t *testing.T) {
	t.Parallel()
	calls := map[string][]call{
		"complete": completing, "fail": failing(engine.Failure{}), "release": releasing, "delay": delaying, "wait for children": parking,
		"renew": renewing, "progress": reporting, "open": openingWaitpoint,
		"replay": replaying, "revoke": revoking, "claim": claiming, "grant": granting, "claim by an operator": claimingByOperator,
		"change priority": preferring, "postpone": postponing(time.Minute), "unblock": unblocking(state.PausedByOperator),
	}
	anyones := []string{"claim", "grant", "claim by an operator", "change priority", "postpone", "unblock"}
	for _, from := range []string{"suspend", "suspend, at a waitpoint", "resume later", "signal", "time out", "cancel, waiting"} {
		t.Run(from, func(t *testing.T) {
			s := &stage{Fixture: fixture.GrantFixture(t)}
			s.e = s.Engine
			subjects := []*subject{{x: id.NewExecutionID(s.Lane, id.Partitions{}), names: make(map[string]string)}}
			before := s.reach(t, from, subjects)
			for name, forms := range calls {
				if (from == "resume later" || from == "signal" || from == "time out") && slices.Contains(anyones, name) ||
					from == "cancel, waiting" && name == "replay" {
					continue // these act on what a worker may claim, or has ended
				}
				for _, c := range forms {
					if err := c.do(t.Context(), s, subjects); err == nil {
						t.Errorf("%s is not refused", c.name)
					}
					wantRows(t, s.Fixture, "after "+c.name, subjects, before)
				}
			}
			blocking, err := operator.Block(t.Context(), s.Fixture.Engine, subjects[0].x, state.PausedByOperator, "wait")
			if runnable := from == "signal" || from == "time out"; err != nil || !runnable && blocking.Rejected == "" {
				t.Errorf("a block: %+v, %v", blocking, err)
			}
		})
	}
}

// Whatever state an execution is in, a signal is kept until its end and refused afterwards, only a wait can be resumed,
// and without a lease nothing suspends.
func TestSignalsInEveryState(t *testing.T) {
	t.Parallel()
	shared := fixture.Clone(t) // by all that are reached without a job, which would act on the rows of others
	shared.SeedKey(t, "k1", nil)
	for _, tr := range transitions() {
		if tr.seeded {
			continue
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			s := &stage{Fixture: fixture.On(t, shared.Pool, shared.Url)}
			if waitsForJobs(tr.name) {
				s.Fixture = fixture.Clone(t)
				s.SeedKey(t, "k1", nil)
			}
			s.e = s.Engine
			x := &subject{x: id.NewExecutionID(s.Lane, id.Partitions{}), names: make(map[string]string)}
			subjects := []*subject{x}
			row := s.reach(t, tr.name, subjects)
			phase, _, _ := strings.Cut(row["state"], " ")
			if phase != "suspended" {
				if err := s.e.Resume(t.Context(), x.x, 0); !errors.Is(err, fferr.ErrNotSuspended) {
					t.Errorf("a resume: %v", err)
				}
			}
			if phase != "active" && x.lease.Execution == x.x {
				_, err := s.e.Suspend(t.Context(), engine.SuspendSpec{Lease: x.lease, Condition: engine.Received("ready")})
				if _, ok := errors.AsType[*fferr.LeaseError](err); !ok {
					t.Errorf("a suspension without a lease: %v", err)
				}
				if err := closingWaitpoint[0].do(t.Context(), s, subjects); err == nil && row["waitpoints"] != "" {
					t.Error("a waitpoint is closed without a lease")
				}
			}
			wantRows(t, s.Fixture, "after the refusals", subjects, row)
			signalled, err := s.e.Signal(t.Context(), engine.SignalSpec{Execution: x.x, Name: "something else"})
			switch ended := phase == "terminal" || phase == "cancelled"; {
			case ended && !errors.Is(err, fferr.ErrEnded):
				t.Errorf("a signal after the end: %+v, %v", signalled, err)
			case !ended && (err != nil || signalled.Effect != engine.SignalBuffered):
				t.Errorf("a signal: %+v, %v", signalled, err)
			case ended:
				wantRows(t, s.Fixture, "after a signal", subjects, row)
			}
		})
	}
}

// waitsForJobs reports whether time passes on the way to a row.
func waitsForJobs(name string) bool {
	for _, tr := range transitions() {
		if tr.name == name {
			return tr.after > 0 || waitsForJobs(tr.from)
		}
	}
	return false
}
