package executions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The reference's cancel by handle has no fence, leaves the lease to its owner, which works on, and emits no event;
// and its reader takes a cancelled execution for a failed one.
func TestCancelEndsEveryPhase_E25(t *testing.T) {
	f := fixture.New(t)
	type attempt struct {
		outcome string
		epoch   int64
		kept    bool // as it was
	}
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T) id.ExecutionID
		pointer int32
		epoch   int64
		last    *attempt
		events  []string
	}{
		{"waiting", func(t *testing.T) id.ExecutionID { return f.Create(t) }, 0, 0, nil, []string{"completion cancelled"}},
		{"delayed", func(t *testing.T) id.ExecutionID {
			return f.Create(t, func(s *engine.ExecutionSpec) {
				s.DelayUntil, s.Deadline = fixture.Start.Add(time.Hour), fixture.Start.Add(2*time.Hour)
			})
		}, 0, 0, nil, []string{"completion cancelled"}},
		{"blocked by an operator", func(t *testing.T) id.ExecutionID {
			return blocked(t, f, state.PausedByOperator)
		}, 0, 0, nil, []string{"completion cancelled"}},
		{"blocked by a lane", func(t *testing.T) id.ExecutionID {
			return blocked(t, f, state.PausedByPolicy)
		}, 0, 0, nil, []string{"completion cancelled"}},
		{"blocked for want of a worker", func(t *testing.T) id.ExecutionID {
			return blocked(t, f, state.WaitingForCapableWorker)
		}, 0, 0, nil, []string{"completion cancelled"}},
		{"before its gate", func(t *testing.T) id.ExecutionID {
			x := f.Create(t)
			f.Attach(t, x, []id.BudgetID{id.NewBudgetID()}, nil)
			return x
		}, 0, 0, nil, []string{"completion cancelled"}},
		{
			"running", func(t *testing.T) id.ExecutionID { return f.Start(t).ID }, 0, 2, &attempt{"cancelled", 2, false},
			[]string{"lease acquired", "lease revoked operator", "completion cancelled"},
		},
		{"running on an admission", func(t *testing.T) id.ExecutionID {
			x, quota := f.Create(t), id.NewQuotaPolicyID()
			f.Attach(t, x, nil, &quota)
			f.Admit(t, x)
			return f.ClaimOne(t).ID
		}, 0, 2, &attempt{"cancelled", 2, false}, []string{"lease acquired", "lease revoked operator", "completion cancelled"}},
		{"running out", func(t *testing.T) id.ExecutionID {
			x := f.Start(t).ID
			f.SetAttempt(t, x, 0, "lease_expires_at_ms = 1")
			return x
		}, 0, 2, &attempt{"cancelled", 2, false}, []string{"lease acquired", "lease revoked operator", "completion cancelled"}},
		{"given back", func(t *testing.T) id.ExecutionID {
			c := f.Start(t)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
				t.Fatal(err)
			}
			return c.ID
		}, 0, 2, &attempt{"", 2, false}, []string{"lease acquired", "lease revoked backend", "completion cancelled"}},
		{"suspended", func(t *testing.T) id.ExecutionID {
			x := f.Start(t).ID
			f.SeedSuspension(t, x)
			return x
		}, 0, 3, &attempt{"cancelled", 3, false}, []string{"lease acquired", "completion cancelled"}},
		{"resumable", func(t *testing.T) id.ExecutionID {
			x := f.Start(t).ID
			f.SeedSuspension(t, x)
			f.SetExecution(t, x, "lifecycle_phase = 'runnable', eligibility_state = 'eligible_now', public_state = 'resumable'")
			return x
		}, 0, 3, &attempt{"cancelled", 3, false}, []string{"lease acquired", "completion cancelled"}},
		{"between two attempts", func(t *testing.T) id.ExecutionID {
			c := f.Start(t, func(s *engine.ExecutionSpec) {
				s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(time.Minute)}}
			})
			f.Fail(t, c.Lease, engine.Failure{})
			return c.ID
		}, 1, 1, &attempt{"retry", 1, true}, []string{"lease acquired", "lease revoked backend", "completion cancelled"}},
		{"as the reference creates", func(t *testing.T) id.ExecutionID { return f.Seed(t, nil) }, 0, 0, nil, []string{"completion cancelled"}},
		{"as the reference claims by a grant", func(t *testing.T) id.ExecutionID {
			x := f.Seed(t, fixture.ClaimedByReference)
			f.SetExecution(t, x, "attempt_index = 1, public_state = 'active'")
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 4, "lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
			return x
		}, 0, 5, &attempt{"cancelled", 5, false}, []string{"lease revoked operator", "completion cancelled"}},
		{"as the reference's typed fail leaves it", func(t *testing.T) id.ExecutionID {
			x := f.Seed(t, fixture.Columns{
				"lifecycle_phase": "runnable", "attempt_state": "pending_retry_attempt",
				"eligibility_state": "not_eligible_until_time", "public_state": "running",
			})
			f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 4, "outcome": "failure", "terminal_at_ms": fixture.Start.UnixMilli()})
			return x
		}, 0, 0, &attempt{"", 4, true}, []string{"completion cancelled"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := c.arrange(t)
			f.SeedGrant(t, x)
			var before fixture.StoredAttempt
			for _, a := range f.StoredAttempts(t, x) {
				before = a
			}
			f.Advance(time.Second)
			f.Cancel(t, x)

			got := f.Stored(t, x)
			if got.State != fixture.StateCancelled || got.AttemptIndex != c.pointer || got.LeaseEpoch != c.epoch || *got.TerminalAtMs != f.Time().UnixMilli() ||
				*got.CancelReason != "not needed" || *got.LastMutation != f.Time().UnixMilli() {
				t.Errorf("stored %+v", got)
			}
			if got.GateID != nil || got.Admitted != nil || got.DelayUntilMs != nil || f.Slots(t, x) != 0 || got.LastDeadline != nil && *got.LastDeadline > 0 {
				t.Errorf("left on it: %+v", got)
			}
			attempts := f.StoredAttempts(t, x)
			if (len(attempts) == 0) != (c.last == nil) {
				t.Fatalf("attempts %+v", attempts)
			}
			if c.last != nil {
				a := attempts[len(attempts)-1]
				if a.Outcome != c.last.outcome || a.LeaseEpoch != c.last.epoch {
					t.Errorf("attempt %+v", a)
				}
				switch {
				case c.last.kept:
					before.Outcome = c.last.outcome
					if fmt.Sprint(deref(a.WorkerInstanceID), deref(a.TerminalAtMs), deref(a.WorkerID)) != fmt.Sprint(deref(before.WorkerInstanceID), deref(before.TerminalAtMs), deref(before.WorkerID)) {
						t.Errorf("attempt %+v, was %+v", a, before)
					}
				case a.LeaseExpiresAtMs != nil || a.WorkerInstanceID != nil || a.TimeoutAtMs != nil || a.WorkerID == nil ||
					(a.TerminalAtMs != nil) != (a.Outcome == "cancelled"):
					t.Errorf("attempt %+v", a)
				}
			}
			f.WantEvents(t, x, c.events...)
			if f.CountGrants(t, x) != 0 {
				t.Error("a grant was left")
			}
			if f.IsListed(t, x) {
				t.Error("it is still listed as blocked")
			}
			snapshot := f.Describe(t, x)
			if snapshot.State.Outcome != state.OutcomeCancelled || snapshot.State.Public != state.PublicCancelled || !snapshot.State.Consistent() ||
				snapshot.CancelledBy != engine.CancelledByOperator || snapshot.Lease != nil {
				t.Errorf("described as %+v", snapshot)
			}
			if claimed, err := f.Claim(t.Context(), f.Worker(), 10); err != nil || len(claimed) != 0 {
				t.Errorf("claimed %v, %v", claimed, err)
			}

			// Cancelled again by another caller: the first reason stands, and nothing is written.
			done := f.Dump(t, x)
			f.Advance(time.Second)
			if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: x, Reason: "a whim", Source: "billing"}); err != nil {
				t.Errorf("again: %v", err)
			}
			f.WantUnchanged(t, x, done)
		})
	}
}

// blocked creates an execution and blocks it.
func blocked(t *testing.T, f *fixture.Fixture, reason state.BlockingReason) id.ExecutionID {
	t.Helper()
	x := f.Create(t)
	f.Block(t, x, reason, "")
	if !f.IsListed(t, x) {
		t.Errorf("%s is not listed as blocked", x)
	}
	return x
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Any worker cancels at the reference, with any handle it still has.
func TestCancelByAHolderIsFenced_E25(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		name    string
		arrange func(t *testing.T, l *engine.Lease)
		want    error
	}{
		{"the holder", func(*testing.T, *engine.Lease) {}, nil},
		{"an older lease", func(_ *testing.T, l *engine.Lease) { l.Epoch-- }, fferr.ErrStaleLease},
		{"another attempt", func(_ *testing.T, l *engine.Lease) { l.Attempt++ }, fferr.ErrStaleLease},
		{"a lease that ran out", func(t *testing.T, l *engine.Lease) { f.SetAttempt(t, l.Execution, 0, "lease_expires_at_ms = 1") }, fferr.ErrLeaseExpired},
		{"the last holder of what was given back", func(t *testing.T, l *engine.Lease) {
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{*l}); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"the last holder of what was suspended", func(t *testing.T, l *engine.Lease) { f.SeedSuspension(t, l.Execution) }, nil},
		{"the holder of an attempt that was retried", func(t *testing.T, l *engine.Lease) {
			f.RetryAtOnce(t, l.Execution)
			f.Fail(t, *l, engine.Failure{})
			f.ClaimOne(t)
		}, fferr.ErrStaleLease},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := f.Start(t).Lease
			c.arrange(t, &l)
			before := f.Dump(t, l.Execution)
			err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution, Fence: &l.Fence})
			if c.want != nil {
				fixture.WantLeaseError(t, err, c.want)
				f.WantUnchanged(t, l.Execution, before)
				f.Cancel(t, l.Execution)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			f.WantState(t, l.Execution, fixture.StateCancelled)
			if got := f.Describe(t, l.Execution); got.CancelledBy != engine.CancelledByWorker || got.CancellationReason != "" {
				t.Errorf("described as %+v", got)
			}
			for _, event := range f.Events(t, l.Execution) {
				if strings.Contains(event, "operator") {
					t.Errorf("event %q", event)
				}
			}
		})
	}
}

// Every call of the former holder is refused.
func TestCancelledHolderIsRefused_E8_E25(t *testing.T) {
	for name, call := range fixture.HolderCalls {
		f := fixture.Another(t)
		l := f.Start(t).Lease
		f.Cancel(t, l.Execution)
		before := f.Dump(t, l.Execution)
		if err := call(t, f.Engine, l); !errors.Is(err, fferr.ErrStaleLease) {
			t.Errorf("%s: got %v", name, err)
		}
		f.WantUnchanged(t, l.Execution, before)
	}
}

// An ended execution is not cancelled, and the error says how it ended.
func TestCancelExecutionReportsAnEndedExecution(t *testing.T) {
	f := fixture.New(t)
	completed, failed := f.Start(t).Lease, engine.Lease{}
	if err := f.CompleteExecution(t.Context(), completed, nil); err != nil {
		t.Fatal(err)
	}
	failed = f.Start(t).Lease
	f.Fail(t, failed, fixture.ForGood)
	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	byReference := f.Seed(t, fixture.Columns{"lifecycle_phase": "terminal", "public_state": "cancelled"})
	odd := f.Seed(t, fixture.Columns{"lifecycle_phase": "hibernating"})
	for _, c := range []struct {
		x    id.ExecutionID
		want *fferr.EndedError
		is   error
	}{
		{completed.Execution, &fferr.EndedError{Execution: completed.Execution, Outcome: state.OutcomeSuccess}, fferr.ErrEnded},
		{failed.Execution, &fferr.EndedError{Execution: failed.Execution, Outcome: state.OutcomeFailed, Failure: "broken"}, fferr.ErrEnded},
		{missing, nil, fferr.ErrNotFound},
		{byReference, nil, nil},
		{odd, nil, fferr.ErrCorruption},
	} {
		before := f.Dump(t, c.x)
		err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: c.x})
		if !errors.Is(err, c.is) {
			t.Errorf("got %v, want %v", err, c.is)
		}
		if ended, ok := errors.AsType[*fferr.EndedError](err); ok != (c.want != nil) || ok && *ended != *c.want {
			t.Errorf("got %v, want %v", err, c.want)
		}
		f.WantUnchanged(t, c.x, before)
	}
}

func TestCancelExecutionRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	before := f.Dump(t, l.Execution)
	for field, spec := range map[string]engine.CancelSpec{
		"execution id": {},
		"reason":       {ID: l.Execution, Reason: strings.Repeat("r", engine.MaxCancelReason+1)},
		"source":       {ID: l.Execution, Source: "nul\x00"},
		"fence":        {ID: l.Execution, Source: engine.CancelledByHolder},
		"fence ":       {ID: l.Execution, Fence: &id.Fence{Execution: id.NewExecutionID(f.Lane, id.Partitions{})}},
	} {
		input, ok := errors.AsType[*fferr.InputError](f.CancelExecution(t.Context(), spec))
		if !ok || input.Field != strings.TrimSpace(field) {
			t.Errorf("%s: got %v", field, input)
		}
	}
	f.WantUnchanged(t, l.Execution, before)
}

// Neither cancel of the reference notifies the dependents, which wait for ever.
func TestCancelResolvesDependents_E26(t *testing.T) {
	f := fixture.NewFlows(t)
	flow := f.Draw(t, fixture.When{"d": policy.AnyOf(policy.LetRun)}, "a>c", "b>c", "a>d", "b>d", "c>e")
	f.Succeed(t, flow, "b")
	a := f.Lease(t, flow, "a").Execution
	f.Cancel(t, a)
	f.WantMembers(t, flow, map[string]string{
		fixture.StateCancelled: "a", fixture.StateCompleted: "b", fixture.StateSkipped: "c e", fixture.StateReady: "d",
	})
	f.WantEvents(t, a, "lease acquired", "lease revoked operator", "completion cancelled")
	f.WantEvents(t, f.NodeID(flow, "c"), "completion skipped")
	f.WantEvents(t, f.NodeID(flow, "e"), "completion skipped")
	for _, event := range f.Fixture.CompletionEvents(t, a) {
		if event.DispatchedAtMs == nil {
			t.Errorf("event %+v is left to others", event)
		}
	}
}

// A suspension that the reference's cancel leaves behind makes a cancelled execution runnable again, or ends it twice.
func TestCancelDiscardsSuspensionsAndGrants_E50(t *testing.T) {
	f := fixture.New(t)
	x := f.Start(t).ID
	f.SeedSuspension(t, x)
	f.SetExecution(t, x, `raw_fields = raw_fields || '{"current_waitpoint_id":"w","current_suspension_id":"s"}'`)
	f.SeedGrant(t, x)
	f.Cancel(t, x)
	for _, table := range []string{"ff_suspension_current", "ff_waitpoint_pending", "ff_claim_grant"} {
		if left := fixture.Texts(t, f.Pool, "SELECT to_jsonb(t)::text FROM "+table+" AS t WHERE partition_key = $1::smallint AND execution_id = $2::uuid",
			x.Partition(), x.UUID()); len(left) > 0 {
			t.Errorf("left in %s: %q", table, left)
		}
	}
	if got := f.Stored(t, x); got.Raw(t, "current_waitpoint_id")+got.Raw(t, "current_suspension_id") != "" || got.Raw(t, "namespace") == "" {
		t.Errorf("raw fields %s", got.RawFields)
	}
}

// The reference cancels at SERIALIZABLE, with three tries: renewals of the very lease make it give up.
func TestCancelSurvivesRenewals_E53(t *testing.T) {
	f := fixture.New(t)
	log := new(fixture.StatementLog)
	operator := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	l := f.Start(t).Lease
	for range 5 { // one after the other, each uncommitted when the cancel comes to it
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).RenewLease(t.Context(), l, time.Minute); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error {
			return operator.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
		})
		operator.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantState(t, l.Execution, fixture.StateCancelled)
		l = f.Start(t).Lease
	}
	if aborted := log.Aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q", aborted)
	}
}

// One transaction for all of it, a constant number of statements, each item for itself.
func TestCancelExecutions(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	specs := func(n int) (specs []engine.CancelSpec) {
		for _, c := range f.StartMany(t, n) {
			specs = append(specs, engine.CancelSpec{ID: c.ID, Reason: "all of them"})
		}
		return specs
	}
	cancel := func(specs []engine.CancelSpec) (outcomes []error) {
		t.Helper()
		outcomes, err := f.CancelExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		return outcomes
	}
	few, many := specs(3), specs(200)
	sentFew := log.During(func() { cancel(few) })
	sentMany := log.During(func() { cancel(many) })
	if len(sentFew) != len(sentMany) {
		t.Errorf("%d statements for 3, %d for 200: %q", len(sentFew), len(sentMany), fixture.Names(sentMany))
	}
	for _, spec := range append(few, many...) {
		f.WantState(t, spec.ID, fixture.StateCancelled)
	}

	mixed := specs(4)
	ended := f.Start(t).Lease
	if err := f.CompleteExecution(t.Context(), ended, nil); err != nil {
		t.Fatal(err)
	}
	mixed = append(mixed, engine.CancelSpec{ID: ended.Execution}, engine.CancelSpec{}, mixed[0], mixed[1])
	mixed[6].Reason = "too late"
	mixed[7].Fence = &id.Fence{Execution: mixed[7].ID, Attempt: 7} // the first one has ended it
	got := cancel(mixed)
	for i, want := range []error{nil, nil, nil, nil, fferr.ErrEnded, fferr.ErrInvalidInput, nil, nil} {
		if !errors.Is(got[i], want) {
			t.Errorf("%d: got %v, want %v", i, got[i], want)
		}
	}
	if reason := *f.Stored(t, mixed[0].ID).CancelReason; reason != "all of them" {
		t.Errorf("reason %q", reason)
	}
	if outcomes, err := f.CancelExecutions(t.Context(), nil); err != nil || len(outcomes) != 0 {
		t.Errorf("of none: %v, %v", outcomes, err)
	}
}

// Members of more flows than a transaction locks.
func TestCancelExecutionsOfManyFlows(t *testing.T) {
	f := fixture.NewFlows(t)
	const flows = 600
	specs := make([]engine.CancelSpec, flows)
	for i := range specs {
		flow := f.Draw(t, nil, "a>b")
		specs[i].ID = f.NodeID(flow, "a")
	}
	outcomes, err := f.CancelExecutions(t.Context(), specs)
	if err := errors.Join(append(outcomes, err)...); err != nil {
		t.Fatal(err)
	}
	got := fixture.Texts(t, f.Pool, "SELECT public_state || ' ' || count(*) FROM ff_exec_core WHERE lane_id = $1 GROUP BY public_state ORDER BY 1", f.Lane)
	if want := []string{"cancelled 600", "skipped 600"}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A batch refuses rows that are locked for a minute, and does the rest; a call for one waits for its turn, and then
// reports it.
func TestCancelExecutionsRefusesLockedRowsAlone(t *testing.T) {
	for name, hold := range map[string]func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID){
		"its execution": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockExecution(t, tx, f.NodeID(flow, "a"))
		},
		"its attempt": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockAttempt(t, tx, f.NodeID(flow, "a"), 0)
		},
		"the lock of its flow": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow)
		},
		"the row of its flow": func(t *testing.T, _ *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT FROM ff_flow_core WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
		},
		"what depends on it": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.LockExecution(t, tx, f.NodeID(flow, "c"))
		},
		"a group": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			fixture.ExecIn(t, tx, "SELECT FROM ff_edge_group WHERE partition_key = $1::smallint AND flow_id = $2 FOR UPDATE", fixture.PartitionOf(flow), flow)
		},
		"its grant": func(t *testing.T, f *fixture.Flows, tx pgx.Tx, flow id.FlowID) {
			x := f.NodeID(flow, "a")
			fixture.ExecIn(t, tx, "SELECT FROM ff_claim_grant WHERE partition_key = $1::smallint AND execution_id = $2 FOR UPDATE", x.Partition(), x.UUID())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>c")
			held := f.Lease(t, flow, "a").Execution
			f.SeedGrant(t, held)
			free := []id.ExecutionID{f.Start(t).ID, f.Start(t).ID, f.Start(t).ID}
			before := f.Dump(t, held)
			tx := f.BeginTx(t)
			hold(t, f, tx, flow)
			late, log := f.ShortWaitRival(t)
			var outcomes []error
			var err error
			begun := fixture.Names(log.During(func() {
				outcomes, err = late.CancelExecutions(t.Context(), []engine.CancelSpec{{ID: free[0]}, {ID: held}, {ID: free[1]}, {ID: free[2]}})
			}))
			begun = slices.DeleteFunc(begun, func(name string) bool { return !fixture.IsSettings(name) })
			// The first is the one without locks of flows, which finds a member.
			if first := strings.Fields(name)[0]; len(begun) > 2 && (first == "its" && name != "its grant" || first == "the") {
				t.Errorf("%d transactions, though it can be passed over", len(begun))
			}
			if err != nil || outcomes[0] != nil || outcomes[2] != nil || outcomes[3] != nil || !errors.Is(outcomes[1], fferr.ErrBusy) {
				t.Fatalf("got %v, %v", outcomes, err)
			}
			for _, x := range free {
				f.WantState(t, x, fixture.StateCancelled)
			}
			f.WantUnchanged(t, held, before)

			sent := fixture.Names(log.During(func() {
				if err := late.CancelExecution(t.Context(), engine.CancelSpec{ID: held}); !errors.Is(err, fferr.ErrContention) {
					t.Errorf("got %v, want contention", err)
				}
			}))
			if tries := fixture.CountTries(sent); tries != 3 {
				t.Errorf("%d tries: %q", tries, sent)
			}
			f.WantUnchanged(t, held, before)
			fixture.Commit(t, tx)
			f.Cancel(t, held)
			f.WantState(t, held, fixture.StateCancelled)
		})
	}
}

// A refusal in a caller's transaction keeps no lock.
func TestRefusedCancelLeavesNoLock(t *testing.T) {
	f := fixture.NewFlows(t)
	flow, other := f.Draw(t, nil, "a>c"), f.Draw(t, nil, "a>c")
	l, good := f.Lease(t, flow, "a"), f.Lease(t, other, "a")
	l.Epoch--
	tx := f.BeginTx(t)
	fixture.WantLeaseError(t, f.WithTx(tx).CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution, Fence: &l.Fence}), fferr.ErrStaleLease)
	outcomes, err := f.WithTx(tx).CancelExecutions(t.Context(), []engine.CancelSpec{{ID: l.Execution, Fence: &l.Fence}, {ID: good.Execution}})
	if err != nil || outcomes[1] != nil {
		t.Fatal(outcomes, err)
	}
	fixture.WantLeaseError(t, outcomes[0], fferr.ErrStaleLease)
	if held := f.HeldLocks(t, flow, l.Execution, f.NodeID(flow, "c")); len(held) > 0 {
		t.Errorf("the refusal holds %q", held)
	}
	if held := f.HeldLocks(t, other, good.Execution, f.NodeID(other, "c")); len(held) == 0 {
		t.Error("what was cancelled is not held")
	}
	f.Succeed(t, flow, "a")
	fixture.Commit(t, tx)
	f.WantMembers(t, other, map[string]string{fixture.StateCancelled: "a", fixture.StateSkipped: "c"})
}

// A completion and a cancel of one execution: the first decides, and the other reports that. Neither waits for a lock
// before it has its snapshot.
func TestCompletionRacesCancel(t *testing.T) {
	// Completed alone, or with another, which is completed in any case.
	for statement, n := range map[string]int{"CompleteOne": 1, "CompleteExecutions": 2} {
		completing := func(t *testing.T) (f *fixture.Fixture, l engine.Lease, release func() error) {
			f = fixture.NewCloned(t)
			leased := f.StartMany(t, n)
			held, unlock := f.Holding(t, statement)
			wait := fixture.Async(t, func(ctx context.Context) error {
				outcomes, err := held.CompleteExecutions(ctx, fixture.CompletionsOf(leased...))
				return errors.Join(append(outcomes, err)...)
			})
			held.AwaitBlocked(t, f)
			return f, leased[0].Lease, func() error {
				unlock()
				err := wait()
				for _, other := range leased[1:] {
					f.WantState(t, other.ID, fixture.StateCompleted)
				}
				return err
			}
		}
		t.Run(statement+" is held after its snapshot", func(t *testing.T) {
			f, l, release := completing(t)
			f.Cancel(t, l.Execution)
			fixture.WantLeaseError(t, release(), fferr.ErrStaleLease)
			f.WantState(t, l.Execution, fixture.StateCancelled)
			f.WantEvents(t, l.Execution, "lease acquired", "lease revoked operator", "completion cancelled")
		})
		t.Run(statement+" is held, and another program has cancelled and left the attempt", func(t *testing.T) {
			f, l, release := completing(t)
			f.SetExecution(t, l.Execution, "lifecycle_phase = 'cancelled', public_state = 'cancelled', eligibility_state = 'cancelled', attempt_state = 'cancelled'")
			fixture.WantLeaseError(t, release(), fferr.ErrNotActive)
			if got := f.Stored(t, l.Execution); !strings.HasPrefix(got.State, "cancelled ") || got.Result != nil {
				t.Errorf("stored %+v", got)
			}
			before := f.Dump(t, l.Execution)
			f.Cancel(t, l.Execution) // cancelled already
			f.WantUnchanged(t, l.Execution, before)
		})
	}
	t.Run("the cancel has foreseen what has ended since", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		operator := f.StoppedBefore(t, "LockExecutions")
		wait := fixture.Async(t, func(ctx context.Context) error {
			return operator.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution, Fence: &l.Fence})
		})
		operator.AwaitStop(t)
		if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		operator.Resume()
		if err := wait(); !errors.Is(err, fferr.ErrEnded) {
			t.Errorf("got %v", err)
		}
		f.WantState(t, l.Execution, fixture.StateCompleted)
	})
	t.Run("the cancel waits for the rows of an uncommitted completion", func(t *testing.T) {
		f := fixture.New(t)
		l := f.Start(t).Lease
		operator := f.Rival(t)
		tx := f.BeginTx(t)
		if err := f.WithTx(tx).CompleteExecution(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error {
			return operator.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
		})
		operator.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if err := wait(); !errors.Is(err, fferr.ErrEnded) {
			t.Errorf("got %v", err)
		}
		f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend", "completion success")
	})
}

// A cancel decides by rows read under its locks: another attempt may have begun since the forecast.
func TestCancelRacesClaim(t *testing.T) {
	f := fixture.New(t)
	first := f.Start(t, fixture.Retrying(*policy.ImmediateRetries(0))).Lease
	operator, tx := f.Rival(t), f.BeginTx(t)
	if _, err := f.WithTx(tx).FailExecution(t.Context(), first, engine.Failure{}); err != nil {
		t.Fatal(err)
	}
	claimed, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 1)
	if err != nil || len(claimed) != 1 {
		t.Fatal(claimed, err)
	}
	second := claimed[0].Lease
	wait := fixture.Async(t, func(ctx context.Context) error {
		return operator.CancelExecution(ctx, engine.CancelSpec{ID: first.Execution})
	})
	operator.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	attempts := f.StoredAttempts(t, first.Execution)
	if len(attempts) != 2 || attempts[0].Outcome != "retry" || attempts[0].LeaseEpoch != first.Epoch || attempts[1].Outcome != "cancelled" ||
		attempts[1].LeaseEpoch != second.Epoch+1 || f.Stored(t, first.Execution).LeaseEpoch != second.Epoch+1 {
		t.Errorf("attempts %+v", attempts)
	}
}

// A renewal that is held after its snapshot extends no lease that was cancelled since.
func TestRenewalRacesCancel(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	held, release := f.Holding(t, "RenewLeases")
	wait := fixture.Async(t, func(ctx context.Context) error {
		_, err := held.RenewLease(ctx, l, time.Hour)
		return err
	})
	held.AwaitBlocked(t, f)
	f.Cancel(t, l.Execution)
	release()
	fixture.WantLeaseError(t, wait(), fferr.ErrStaleLease)
	if a := f.StoredAttempts(t, l.Execution)[0]; a.LeaseExpiresAtMs != nil {
		t.Errorf("attempt %+v", a)
	}
}

// An execution that joins a flow after the cancel has looked is ended with the flow's lock, or the join finds it ended.
func TestCancelRacesJoiningAFlow(t *testing.T) {
	for name, fenced := range map[string]bool{"before it locks": true, "while it waits for the lock": false} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewFlows(t)
			flow := f.Draw(t, nil, "a>c")
			l := f.Lease(t, flow, "a")
			a := l.Execution
			f.SetExecution(t, a, "flow_id = NULL")
			operator := f.StoppedBefore(t, "LockExecutions")
			spec := engine.CancelSpec{ID: a}
			if fenced {
				spec.Fence = &l.Fence
			}
			join := f.BeginTx(t)
			if !fenced {
				fixture.ExecIn(t, join, fixture.UpdateExecution("flow_id = $3"), a.Partition(), a.UUID(), flow)
			}
			wait := fixture.Async(t, func(ctx context.Context) error { return operator.CancelExecution(ctx, spec) })
			if fenced {
				operator.AwaitStop(t)
				fixture.ExecIn(t, join, fixture.UpdateExecution("flow_id = $3"), a.Partition(), a.UUID(), flow)
			} else {
				operator.AwaitBlocked(t, f.Fixture)
			}
			tx := f.BeginTx(t)
			fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock_shared(ffx_flow_key($1))", flow) // as a completion of another member does
			fixture.Commit(t, join)
			operator.Resume()
			operator.AwaitBlocked(t, f.Fixture)
			fixture.Commit(t, tx)
			if err := wait(); err != nil {
				t.Fatal(err)
			}
			f.WantMembers(t, flow, map[string]string{fixture.StateCancelled: "a", fixture.StateSkipped: "c"})
		})
	}
}
