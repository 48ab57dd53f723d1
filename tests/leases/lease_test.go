package leases

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestRenewLease(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	exec := f.Stored(t, c.ID)
	f.Advance(time.Second)
	for _, step := range []struct {
		name string
		ttl  time.Duration
		want time.Duration // after the first second
	}{
		{"by its own TTL", 0, fixture.LeaseTTL},
		{"by a TTL given", time.Minute, time.Minute},
		{"never back", time.Second, time.Minute},
	} {
		expires, err := f.RenewLease(t.Context(), c.Lease, step.ttl)
		if want := fixture.Start.Add(time.Second + step.want); err != nil || !expires.Equal(want) {
			t.Errorf("%s: expires at %v, %v; want %v", step.name, expires, err, want)
		}
		if got := *f.StoredAttempts(t, c.ID)[0].LeaseExpiresAtMs; got != expires.UnixMilli() {
			t.Errorf("%s: stored %d, want %d", step.name, got, expires.UnixMilli())
		}
	}
	if got := f.Stored(t, c.ID); got.LastMutation == nil || *got.LastMutation != *exec.LastMutation || got.State != fixture.StateRunning {
		t.Errorf("a renewal wrote to the execution: %+v", got)
	}
	f.WantEvents(t, c.ID, "lease acquired", "lease renewed", "lease renewed", "lease renewed")
}

func TestRenewLeaseUntilItsLastMillisecond(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	f.Advance(fixture.LeaseTTL - time.Millisecond)
	if _, err := f.RenewLease(t.Context(), c.Lease, 0); err != nil {
		t.Error(err)
	}
	f.Advance(fixture.LeaseTTL)
	_, err := f.RenewLease(t.Context(), c.Lease, 0)
	fixture.WantLeaseError(t, err, fferr.ErrLeaseExpired)
}

func TestRenewLeasesKeepsInputOrder(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 4)
	slices.Reverse(held)
	missing := held[0].Lease
	missing.Execution = id.NewExecutionID(f.Lane, id.Partitions{})
	f.SetAttempt(t, held[2].ID, 0, "lease_epoch = 2")
	f.Advance(time.Second)
	got, err := f.RenewLeases(t.Context(), []engine.Renewal{
		{Lease: held[0].Lease},
		{Lease: missing},
		{Lease: held[1].Lease, TTL: time.Minute},
		{Lease: held[2].Lease},
		{Lease: held[3].Lease, TTL: -time.Second},
		{Lease: held[1].Lease, TTL: time.Hour}, // the same lease again: the longest counts
		{Lease: held[1].Lease, TTL: time.Second},
		{Lease: held[3].Lease},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		expires time.Duration
		err     error
	}{
		{fixture.LeaseTTL, nil},
		{0, fferr.ErrNotFound},
		{time.Hour, nil},
		{0, fferr.ErrStaleLease},
		{0, fferr.ErrInvalidInput},
		{time.Hour, nil},
		{time.Hour, nil},
		{fixture.LeaseTTL, nil},
	} {
		if !errors.Is(got[i].Err, want.err) || want.err == nil && !got[i].Value.Equal(f.Time().Add(want.expires)) {
			t.Errorf("outcome %d is %+v, want %+v", i, got[i], want)
		}
	}
	f.WantEvents(t, held[1].ID, "lease acquired", "lease renewed")
	f.WantEvents(t, held[2].ID, "lease acquired")
}

func TestRenewLeasesAcceptsAnEmptyBatch(t *testing.T) {
	f := fixture.New(t)
	if got, err := f.RenewLeases(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// More leases than one statement renews.
func TestRenewLeasesInSeveralStatements(t *testing.T) {
	f := fixture.New(t)
	var renewals []engine.Renewal
	for _, c := range slices.Concat(f.StartMany(t, engine.MaxBatch), f.StartMany(t, 5)) {
		renewals = append(renewals, engine.Renewal{Lease: c.Lease, TTL: time.Hour})
	}
	got, err := f.RenewLeases(t.Context(), renewals)
	if err != nil || len(got) != len(renewals) {
		t.Fatal(len(got), err)
	}
	for i := range got {
		if got[i].Err != nil || !got[i].Value.Equal(fixture.Start.Add(time.Hour)) {
			t.Fatalf("outcome %d: %+v", i, got[i])
		}
	}
}

// The reference compares the epoch and nothing else, so that a worker whose lease was lost, whose execution was
// cancelled, delayed or taken over still completes, fails and renews. Here each loss is refused, by the first
// of the reasons in the order of the fence, and nothing is written.
func TestLostLeaseIsRefused_E8(t *testing.T) {
	f := fixture.New(t)
	for _, c := range []struct {
		name  string
		lose  func(t *testing.T, x id.ExecutionID)
		want  error
		phase state.LifecyclePhase
		after time.Duration
		how   state.TerminalOutcome
	}{
		{name: "execution gone", want: fferr.ErrNotFound, lose: func(t *testing.T, x id.ExecutionID) {
			f.Exec(t, "DELETE FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID())
		}},
		{name: "attempt gone", want: fferr.ErrNotFound, lose: func(t *testing.T, x id.ExecutionID) {
			f.Exec(t, "DELETE FROM ff_attempt WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID())
		}},
		{name: "epoch raised", want: fferr.ErrStaleLease, phase: state.Active, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetAttempt(t, x, 0, "lease_epoch = 2")
		}},
		{name: "epoch raised before anything else", want: fferr.ErrStaleLease, phase: state.Terminal, how: state.OutcomeCancelled, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetAttempt(t, x, 0, "lease_epoch = 2, lease_expires_at_ms = NULL")
			f.SetExecution(t, x, "lifecycle_phase = 'cancelled', ownership_state = 'lease_revoked'")
		}},
		{name: "revoked", want: fferr.ErrLeaseRevoked, phase: state.Active, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "ownership_state = 'lease_revoked'")
		}},
		{name: "revoked before not active", want: fferr.ErrLeaseRevoked, phase: state.Runnable, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "ownership_state = 'lease_revoked', lifecycle_phase = 'runnable'")
		}},
		{name: "cancelled by the reference", want: fferr.ErrNotActive, phase: state.Terminal, how: state.OutcomeCancelled, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'terminal', public_state = 'cancelled', attempt_state = 'cancelled'")
		}},
		{name: "failed by another", want: fferr.ErrNotActive, phase: state.Terminal, how: state.OutcomeFailed, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'terminal', public_state = 'running', raw_fields = raw_fields || '{\"failure_reason\":\"x\"}'")
		}},
		{name: "delayed by the reference", want: fferr.ErrNotActive, phase: state.Runnable, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'not_eligible_until_time'")
		}},
		{name: "suspended", want: fferr.ErrNotActive, phase: state.Suspended, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'suspended', ownership_state = 'released'")
		}},
		{name: "not active before superseded", want: fferr.ErrNotActive, phase: state.Runnable, lose: func(t *testing.T, x id.ExecutionID) {
			f.SeedAttempt(t, x, 1, nil)
			f.SetExecution(t, x, "attempt_index = 1, lifecycle_phase = 'runnable'")
		}},
		{name: "superseded", want: fferr.ErrStaleLease, phase: state.Active, lose: func(t *testing.T, x id.ExecutionID) {
			f.SeedAttempt(t, x, 1, nil)
			f.SetExecution(t, x, "attempt_index = 1")
		}},
		{name: "superseded before run out", want: fferr.ErrStaleLease, phase: state.Active, after: fixture.LeaseTTL, lose: func(t *testing.T, x id.ExecutionID) {
			f.SeedAttempt(t, x, 1, nil)
			f.SetExecution(t, x, "attempt_index = 1")
		}},
		{name: "run out", want: fferr.ErrLeaseExpired, phase: state.Active, after: fixture.LeaseTTL, lose: func(*testing.T, id.ExecutionID) {}},
		{name: "run out, without an expiry", want: fferr.ErrLeaseExpired, phase: state.Active, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetAttempt(t, x, 0, "lease_expires_at_ms = NULL")
		}},
		{name: "a phase that nobody knows", want: fferr.ErrCorruption, lose: func(t *testing.T, x id.ExecutionID) {
			f.SetExecution(t, x, "lifecycle_phase = 'asleep'")
		}},
	} {
		for call, do := range fixture.HolderCalls {
			t.Run(c.name+"/"+call, func(t *testing.T) {
				lost := f.Start(t)
				c.lose(t, lost.ID)
				f.Advance(c.after)
				before := f.Dump(t, lost.ID)
				err := do(t, f.Engine, lost.Lease)
				if !errors.Is(err, c.want) {
					t.Fatalf("got %v, want %v", err, c.want)
				}
				f.WantUnchanged(t, lost.ID, before)
				refusal, ok := errors.AsType[*fferr.LeaseError](err)
				if c.phase == "" {
					if ok {
						t.Errorf("got a lease error: %v", err)
					}
					return
				}
				how := c.how
				if how == "" {
					how = state.OutcomeNone
				}
				if !ok || refusal.Execution != lost.ID || refusal.Attempt != 0 || refusal.Phase != c.phase || refusal.Outcome != how {
					t.Errorf("got %+v, want phase %s, outcome %s", refusal, c.phase, how)
				}
			})
		}
	}
}

// The same after losses that this library brings about: expiry, a claim by another, a release.
func TestFormerHolderIsRefused_E8(t *testing.T) {
	f := fixture.NewCloned(t)
	for call, do := range fixture.HolderCalls {
		first := f.Start(t)
		f.Advance(fixture.LeaseTTL)
		if n, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		for _, moment := range []string{"after its expiry", "after the next claim", "after the end"} {
			before := f.Dump(t, first.ID)
			fixture.WantLeaseError(t, do(t, f.Engine, first.Lease), fferr.ErrStaleLease)
			f.WantUnchanged(t, first.ID, before)
			switch moment {
			case "after its expiry":
				if next := f.ClaimOne(t); next.Lease.Epoch != 3 || next.Lease.Attempt != first.Lease.Attempt {
					t.Errorf("%s: claimed %+v after %+v", call, next, first)
				}
			case "after the next claim":
				last := first.Lease
				last.Epoch = 3
				if err := f.CompleteExecution(t.Context(), last, nil); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// The reference's claims leave the pointer beside the attempt they lease. The holder of such a lease keeps it.
func TestLeaseBesideThePointerIsKept_E5_M5(t *testing.T) {
	for call, do := range fixture.HolderCalls {
		t.Run(call, func(t *testing.T) {
			f := fixture.New(t)
			c := f.Start(t)
			f.SetExecution(t, c.ID, "attempt_index = 1")
			if got := f.Describe(t, c.ID); got.Attempt == nil || got.Attempt.Index != 0 || got.Lease == nil {
				t.Errorf("attempt %+v, lease %+v; want attempt 0 and its lease", got.Attempt, got.Lease)
			}
			if err := do(t, f.Engine, c.Lease); err != nil {
				t.Error(err)
			}
			if call == "complete" {
				f.WantState(t, c.ID, fixture.StateCompleted)
			}
		})
	}
}

func TestLeaseCrossesProcessesAsAHandle(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	lease, err := engine.LeaseFromHandle(c.Lease.Handle(wire.HandleFresh))
	if err != nil {
		t.Fatal(err)
	}
	if lease != c.Lease {
		t.Errorf("got %+v, want %+v", lease, c.Lease)
	}
	if err := f.CompleteExecution(t.Context(), lease, nil); err != nil {
		t.Error(err)
	}
}

func TestReportProgress(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	f.Advance(time.Second)
	for _, step := range []struct {
		progress         engine.Progress
		percent, message string
	}{
		{engine.Progress{Percent: new(0)}, "0", ""},
		{engine.Progress{Message: new("half\nway")}, "0", "half\nway"},
		{engine.Progress{Percent: new(100)}, "100", "half\nway"},
		{engine.Progress{Message: new("")}, "100", ""},
		{engine.Progress{}, "100", ""},
	} {
		if err := f.ReportProgress(t.Context(), c.Lease, step.progress); err != nil {
			t.Fatal(err)
		}
		got := f.Stored(t, c.ID)
		if p, m := got.Raw(t, "progress_pct"), got.Raw(t, "progress_message"); p != step.percent || m != step.message {
			t.Errorf("progress %q, %q; want %q, %q", p, m, step.percent, step.message)
		}
		if at := fmt.Sprint(f.Time().UnixMilli()); got.Raw(t, "progress_updated_at") != at || got.Raw(t, "last_mutation_at") != at || *got.LastMutation != f.Time().UnixMilli() {
			t.Errorf("updated %q, last mutation %q, %d", got.Raw(t, "progress_updated_at"), got.Raw(t, "last_mutation_at"), *got.LastMutation)
		}
	}
	if got := *f.StoredAttempts(t, c.ID)[0].LeaseExpiresAtMs; got != c.ExpiresAt.UnixMilli() {
		t.Error("progress extended the lease")
	}
	f.WantEvents(t, c.ID, "lease acquired")
}

func TestReleaseLeases(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 3)
	f.SetAttempt(t, held[1].ID, 0, "lease_epoch = 9")
	f.Advance(time.Second)
	release := func() []error {
		got, err := f.ReleaseLeases(t.Context(), []engine.Lease{held[2].Lease, held[1].Lease, held[0].Lease, held[2].Lease})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for range 2 { // the second time is a repetition
		got := release()
		if got[0] != nil || got[2] != nil || got[3] != nil || !errors.Is(got[1], fferr.ErrStaleLease) {
			t.Errorf("outcomes %v, want only the second refused", got)
		}
	}
	for _, c := range []engine.Claimed{held[0], held[2]} {
		stored, attempt := f.Stored(t, c.ID), f.StoredAttempts(t, c.ID)[0]
		if stored.State != fixture.StateReturned || stored.LeaseEpoch != 1 || stored.RetryCount != 0 || stored.ReclaimCount != 0 {
			t.Errorf("stored %+v", stored)
		}
		if attempt.Outcome != "interrupted" || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs != nil || attempt.LeaseEpoch != 1 {
			t.Errorf("attempt %+v", attempt)
		}
		f.WantEvents(t, c.ID, "lease acquired", "lease revoked backend")
	}
	f.WantState(t, held[1].ID, fixture.StateRunning)
	for _, c := range f.ClaimN(t, 10) {
		if !c.Resumed || c.Lease.Attempt != 0 || c.Lease.Epoch != 2 {
			t.Errorf("claimed %+v", c)
		}
	}
	for _, i := range []int{0, 2} {
		fixture.WantLeaseError(t, release()[i], fferr.ErrStaleLease)
	}
}

// An execution that a gate admitted must be admitted again.
func TestReleaseLeasesReturnsAdmissions(t *testing.T) {
	f := fixture.New(t)
	budget, quota := id.NewBudgetID(), id.NewQuotaPolicyID()
	for _, c := range []struct {
		name    string
		budgets []id.BudgetID
		quota   *id.QuotaPolicyID
		state   string
		gate    string
	}{
		{
			"budget",
			[]id.BudgetID{budget},
			nil,
			"runnable unowned blocked_by_budget rate_limited attempt_interrupted waiting_for_budget", budget.String(),
		},
		{
			"quota", nil, &quota,
			"runnable unowned blocked_by_quota rate_limited attempt_interrupted waiting_for_quota", quota.String(),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := f.Create(t)
			f.Attach(t, x, c.budgets, c.quota)
			f.Admit(t, x)
			held := f.ClaimOne(t)
			if outcomes, err := f.ReleaseLeases(t.Context(), []engine.Lease{held.Lease}); err != nil || outcomes[0] != nil {
				t.Fatal(outcomes, err)
			}
			got := f.Stored(t, x)
			if got.State != c.state || got.Admitted != nil || got.GateID == nil || got.GateID.String() != c.gate {
				t.Errorf("stored %+v, want %s at gate %s", got, c.state, c.gate)
			}
			if slots := f.Slots(t, x); slots != 0 {
				t.Errorf("%d quota slots are still held", slots)
			}
		})
	}
}
