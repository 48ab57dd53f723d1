package signals

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var ready = engine.Received("ready")

// suspension is the stored row of an execution's latest wait, with times relative to the fixture's start.
type suspension struct {
	TimeoutAtMs *int64
	Behavior    *string
	Reason      *string
	Condition   string
	Open        bool
	Satisfied   int
	Signals     int
	Waitpoints  int
}

func storedSuspension(t *testing.T, f *fixture.Fixture, x id.ExecutionID) suspension {
	t.Helper()
	return fixture.One[suspension](t, f.Pool, `
		SELECT timeout_at_ms - $3 AS timeout_at_ms, timeout_behavior AS behavior, reason_code AS reason, condition::text,
			ffx_open_since_ms IS NOT NULL AS open, jsonb_array_length(satisfied_set) AS satisfied,
			(SELECT coalesce(sum(jsonb_array_length(v)), 0)::integer FROM jsonb_each(member_map) AS m (k, v)) AS signals,
			(SELECT count(*)::integer FROM ff_waitpoint_pending AS w WHERE (w.partition_key, w.execution_id) = (s.partition_key, s.execution_id)) AS waitpoints
		FROM ff_suspension_current AS s WHERE partition_key = $1 AND execution_id = $2`, x.Partition(), x.UUID(), fixture.Start.UnixMilli())
}

// An execution waits without a lease, and continues with the same attempt once the signal has come.
func TestSuspendUntilASignal(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}, AttemptTimeout: time.Minute}
	}).Lease
	f.Advance(time.Second)
	if got := f.SuspendAgain(t, l, ready); got.Satisfied || got.ID.IsZero() {
		t.Errorf("%+v", got)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend")
	attempt := f.StoredAttempts(t, l.Execution)[0]
	if attempt.Outcome != "attempt_interrupted" || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs != nil || attempt.TimeoutAtMs != nil || attempt.LeaseEpoch != 2 {
		t.Errorf("attempt %+v", attempt)
	}
	stored := storedSuspension(t, f, l.Execution)
	if !stored.Open || *stored.TimeoutAtMs != 3601000 || *stored.Behavior != "auto_resume_with_timeout_signal" || *stored.Reason != "waiting_for_signal" ||
		stored.Condition != `{"Single": {"matcher": {"ByName": "ready"}, "waitpoint_key": "ready"}}` || stored.Waitpoints != 1 {
		t.Errorf("%+v", stored)
	}
	// Neither the lease's end nor the attempt's timeout ends the wait.
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 0)
	if got := f.Signal(t, l, "other"); got != "buffered" {
		t.Error(got)
	}
	if got := f.Signal(t, l, "ready", func(s *engine.SignalSpec) { s.Payload, s.Source = []byte("\x00\xff"), "ada" }); got != "satisfied" {
		t.Error(got)
	}
	f.WantState(t, l.Execution, fixture.StateResumable)
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend", "completion resumable")
	stored = storedSuspension(t, f, l.Execution)
	if stored.Open || stored.TimeoutAtMs != nil || stored.Behavior != nil || stored.Satisfied != 1 || stored.Signals != 1 || stored.Waitpoints != 1 {
		t.Errorf("%+v", stored)
	}
	again := f.ClaimOne(t)
	if !again.Resumed || again.Lease.Attempt != 0 || again.Lease.Epoch != 3 || again.Lease.AttemptID != l.AttemptID || again.Retries != 0 {
		t.Errorf("claimed %+v", again)
	}
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 1 || received[0].Name != "ready" || string(received[0].Payload) != "\x00\xff" || received[0].Source != "ada" || !received[0].Matched {
		t.Errorf("%+v, %v", received, err)
	}
	if err := f.CompleteExecution(t.Context(), again.Lease, nil); err != nil {
		t.Fatal(err)
	}
}

// The holder of an older lease suspends nothing, and gets the reason.
func TestSuspendIsFenced_S9_S15(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, f *fixture.Fixture, l engine.Lease)
		want   error
	}{
		"after the lease": {func(_ *testing.T, f *fixture.Fixture, _ engine.Lease) { f.Advance(fixture.LeaseTTL) }, fferr.ErrLeaseExpired},
		"after the end": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotActive},
		"after a cancel": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) {
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrStaleLease},
		"while it waits": {func(t *testing.T, f *fixture.Fixture, l engine.Lease) { f.SuspendAgain(t, l, ready) }, fferr.ErrStaleLease},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Start(t).Lease
			c.before(t, f, l)
			before := f.Dump(t, l.Execution)
			_, err := f.Engine.Suspend(t.Context(), engine.SuspendSpec{Lease: l, Condition: ready})
			fixture.WantLeaseError(t, err, c.want)
			_, err = f.Engine.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: "k", TTL: time.Hour})
			fixture.WantLeaseError(t, err, c.want)
			f.WantUnchanged(t, l.Execution, before)
		})
	}
}

// A repetition with the same id is a success; with another one it is a stale lease.
func TestSuspendRepeated_S8(t *testing.T) {
	f := fixture.NewCloned(t)
	wait := id.NewSuspensionID()
	named := func(s *engine.SuspendSpec) { s.ID = wait }
	l := f.Suspend(t, ready, named)
	before := f.Dump(t, l.Execution)
	if got := f.SuspendAgain(t, l, ready, named); got.ID != wait || got.Satisfied {
		t.Errorf("%+v", got)
	}
	f.WantUnchanged(t, l.Execution, before)
}

// A wait that early signals satisfied is satisfied when the call is repeated: its signals are used, and must not be waited
// for again.
func TestSuspendRepeatedAfterEarlySignals(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	f.Signal(t, l, "ready")
	spec := engine.SuspendSpec{Lease: l, Condition: ready, ID: id.NewSuspensionID()}
	for range 2 {
		got, err := f.Engine.Suspend(t.Context(), spec)
		if err != nil || !got.Satisfied {
			t.Fatalf("%+v, %v, want a satisfied wait", got, err)
		}
	}
	f.WantState(t, l.Execution, fixture.StateRunning)
	spec.ID = id.NewSuspensionID()
	if got, err := f.Engine.Suspend(t.Context(), spec); err != nil || got.Satisfied {
		t.Errorf("%+v, %v, want another wait to suspend", got, err)
	}
}

func TestSuspendIsChecked_S10(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	for field, change := range map[string]func(*engine.SuspendSpec){
		"condition":     func(s *engine.SuspendSpec) { s.Condition = engine.Condition{} },
		"condition ":    func(s *engine.SuspendSpec) { s.Condition = ready.Where("$.a >") },
		"condition  ":   func(s *engine.SuspendSpec) { s.Condition = engine.Received("") },
		"condition    ": func(s *engine.SuspendSpec) { s.Condition = ready.Where("$.amount > $limit") },
		"condition     ": func(s *engine.SuspendSpec) {
			s.Condition = engine.AllOf(ready, ready.Where(`$ ? (@ starts with $"x")`))
		},
		"condition   ": func(s *engine.SuspendSpec) { s.Condition = engine.AllOf(ready, engine.OperatorOnly()) },
		"timeout":      func(s *engine.SuspendSpec) { s.Timeout = -1 },
		"timeout ":     func(s *engine.SuspendSpec) { s.Timeout = time.Microsecond },
		"timeout  ":    func(s *engine.SuspendSpec) { s.Timeout, s.Condition = 0, engine.TimeoutOnly() },
		"on timeout":   func(s *engine.SuspendSpec) { s.OnTimeout = "explode" },
		"resume delay": func(s *engine.SuspendSpec) { s.ResumeDelay = -1 },
		"reason":       func(s *engine.SuspendSpec) { s.Reason = "waiting_for_worker" },
		"asked":        func(s *engine.SuspendSpec) { s.Asked = strings.Repeat("?", engine.MaxAsked+1) },
		"pointer":      func(s *engine.SuspendSpec) { s.Pointer = "\x00" },
	} {
		spec := engine.SuspendSpec{Lease: l, Condition: ready}
		change(&spec)
		_, err := f.Engine.Suspend(t.Context(), spec)
		fixture.WantInputError(t, err, strings.TrimSpace(field))
	}
	f.WantState(t, l.Execution, fixture.StateRunning)
}

// Each effect of a timeout, at its time and not before.
func TestTimeouts_S1_S23(t *testing.T) {
	for _, c := range []struct {
		effect engine.OnTimeout
		state  string
		events []string
	}{
		{engine.ResumeOnTimeout, fixture.StateResumable, []string{"completion resumable"}},
		{engine.FailOnTimeout, fixture.StateFailed, []string{"completion failed"}},
		{engine.ExpireOnTimeout, fixture.StateExpired, []string{"completion expired"}},
		{engine.CancelOnTimeout, fixture.StateCancelled, []string{"completion cancelled"}},
	} {
		t.Run(string(c.effect), func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.OnTimeout = c.effect })
			f.Advance(time.Hour - time.Millisecond)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
			f.WantState(t, l.Execution, fixture.StateSuspended)
			f.Advance(time.Millisecond)
			// From its time on the clock decides, whether or not the job has run.
			if got := f.Signal(t, l, "ready"); got != "buffered" {
				t.Errorf("a signal after the time: %s", got)
			}
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
			f.WantState(t, l.Execution, c.state)
			f.WantEvents(t, l.Execution, append([]string{"lease acquired", "lease revoked backend"}, c.events...)...)
			_, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready"})
			if ended := c.effect != engine.ResumeOnTimeout; errors.Is(err, fferr.ErrEnded) != ended {
				t.Errorf("a signal after the timeout: %v", err)
			}
			if c.effect == engine.ResumeOnTimeout {
				if again := f.ClaimOne(t); !again.Resumed {
					t.Errorf("%+v", again)
				}
			} else if n := rows(t, f, "ff_waitpoint_pending"); n != 0 {
				t.Errorf("%d waitpoints are left", n)
			}
		})
	}
}

// An escalated wait goes on, and still takes its signal.
func TestEscalatedWaitTakesItsSignal_S25(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.EscalateOnTimeout })
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
	f.WantState(t, l.Execution, "suspended unowned not_applicable suspended attempt_interrupted paused_by_operator")
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
	if got := f.Signal(t, l, "ready"); got != "satisfied" {
		t.Error(got)
	}
	f.WantState(t, l.Execution, fixture.StateResumable)
}

// The timeout of a wait that is over ends nothing.
func TestTimeoutOfAFormerWait_S1(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, ready, func(s *engine.SuspendSpec) { s.OnTimeout = engine.FailOnTimeout })
	f.Signal(t, l, "ready")
	again := f.ClaimOne(t)
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
	f.WantState(t, l.Execution, fixture.StateRunning)
	_ = again
}

// An operator resumes an execution, at once or later; the tokens and waitpoints of the wait are gone.
func TestResume_S18_S20_S21_S53(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, engine.AllOf(ready, engine.Received("paid")))
	f.Signal(t, l, "paid")
	if err := f.Engine.Resume(t.Context(), l.Execution, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, l.Execution, "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_resume_delay")
	if stored := f.Stored(t, l.Execution); *stored.DelayUntilMs != fixture.Start.Add(time.Minute).UnixMilli() {
		t.Errorf("%+v", stored)
	}
	err := f.Engine.Resume(t.Context(), l.Execution, 0)
	if refusal, ok := errors.AsType[*fferr.StateError](err); !ok || !errors.Is(err, fferr.ErrNotSuspended) {
		t.Errorf("resumed twice: %v, %v", err, refusal)
	}
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	again := f.ClaimOne(t)
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 1 || received[0].Name != "paid" || received[0].Matched || !again.Resumed {
		t.Errorf("%+v, %v, %+v", received, err, again)
	}
	if n := storedSuspension(t, f, l.Execution).Waitpoints; n != 0 {
		t.Errorf("%d waitpoints", n)
	}
	// What came for the earlier wait counts for the next one.
	if got := f.SuspendAgain(t, again.Lease, engine.Received("paid")); !got.Satisfied {
		t.Errorf("%+v", got)
	}
	f.WantState(t, l.Execution, fixture.StateRunning)
}

// After a cancel nothing brings a waiting execution back.
func TestCancelWhileSuspended_S2(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Suspend(t, ready)
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
		t.Fatal(err)
	}
	before := f.Dump(t, l.Execution)
	if _, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready"}); !errors.Is(err, fferr.ErrEnded) {
		t.Error(err)
	}
	f.Advance(2 * time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 0)
	if err := f.Engine.Resume(t.Context(), l.Execution, 0); !errors.Is(err, fferr.ErrNotSuspended) {
		t.Error(err)
	}
	f.WantUnchanged(t, l.Execution, before)
}

// Waits that another transaction holds, or whose flow is locked, are left to the next call; all others go.
func TestTimeoutsPassLockedRows(t *testing.T) {
	f := fixture.NewCloned(t)
	var leases []engine.Lease
	for range 5 {
		leases = append(leases, f.Suspend(t, ready))
	}
	f.Advance(time.Hour)
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, leases[0].Execution)
	for _, want := range []int{2, 2, 0} {
		if n, err := upkeep.Of(f.Engine).ExpireWaits(t.Context(), 2); err != nil || n != want {
			t.Errorf("%d, %v; want %d", n, err, want)
		}
	}
	fixture.Commit(t, tx)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaits, 1)
}

// The end of a member by its timeout has its consequences in the same transaction, and so has the cancel of its flow.
func TestTimeoutOfAMember(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	for effect, want := range map[engine.OnTimeout]map[string]string{
		engine.FailOnTimeout:   {"a": fixture.StateFailed, "b": fixture.StateSkipped},
		engine.ExpireOnTimeout: {"a": fixture.StateExpired, "b": fixture.StateSkipped},
		engine.CancelOnTimeout: {"a": fixture.StateCancelled, "b": fixture.StateSkipped},
	} {
		flow := f.Draw(t, nil, "a>b")
		f.ClaimAll(t)
		f.SuspendAgain(t, f.Lease(t, flow, "a"), ready, func(s *engine.SuspendSpec) { s.OnTimeout = effect })
		f.Advance(time.Hour)
		// A busy flow is left to a later call, and then it ends.
		tx := f.BeginTx(t)
		if err := f.WithTx(tx).LockFlows(t.Context(), flow); err != nil {
			t.Fatal(err)
		}
		if n, err := upkeep.Of(f.WithTx(tx)).ExpireWaits(t.Context(), 10); err != nil || n != 1 {
			t.Errorf("in the transaction that holds the flow: %d, %v", n, err)
		}
		fixture.Commit(t, tx)
		f.WantMembers(t, flow, map[string]string{want["a"]: "a", want["b"]: "b"})
	}
	flow := f.Draw(t, nil, "a>b")
	f.ClaimAll(t)
	l := f.Lease(t, flow, "a")
	f.SuspendAgain(t, l, ready)
	f.CancelBy(t, flow, state.CancelAll)
	if _, err := f.Engine.Signal(t.Context(), engine.SignalSpec{Execution: l.Execution, Name: "ready"}); !errors.Is(err, fferr.ErrEnded) {
		t.Error(err)
	}
	if n := rows(t, f.Fixture, "ff_waitpoint_pending"); n != 0 {
		t.Errorf("%d waitpoints", n)
	}
}
