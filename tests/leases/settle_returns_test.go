package leases

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The same attempt goes on when its time has come, and no retry is used up.
func TestDelayExecution(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t, func(s *engine.ExecutionSpec) {
		s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}, AttemptTimeout: time.Minute}
	}).Lease
	f.Advance(time.Second)
	until := f.Time().Add(time.Hour)
	for range 2 { // the second time is a repetition
		if err := f.DelayExecution(t.Context(), l, until); err != nil {
			t.Fatal(err)
		}
	}
	stored, attempt := f.Stored(t, l.Execution), f.StoredAttempts(t, l.Execution)[0]
	if stored.State != fixture.StateLater || *stored.DelayUntilMs != until.UnixMilli() || *stored.DeadlineAtMs != until.UnixMilli() || stored.RetryCount != 0 ||
		stored.AttemptCount != 1 || stored.LeaseEpoch != 1 {
		t.Errorf("stored %+v", stored)
	}
	if attempt.Outcome != "interrupted" || attempt.LeaseExpiresAtMs != nil || attempt.TerminalAtMs != nil || attempt.TimeoutAtMs != nil ||
		*attempt.DelayUntilMs != until.UnixMilli() || attempt.LeaseEpoch != 1 {
		t.Errorf("attempt %+v", attempt)
	}
	f.WantEvents(t, l.Execution, "lease acquired", "lease revoked backend")
	if err := f.DelayExecution(t.Context(), l, until.Add(time.Millisecond)); !errors.Is(err, fferr.ErrNotActive) {
		t.Errorf("another delay: %v", err)
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 0)
	f.Advance(time.Hour - time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 0)
	f.Advance(time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	f.WantState(t, l.Execution, fixture.StateReturned)
	if err := f.DelayExecution(t.Context(), l, until); err != nil {
		t.Errorf("repeated after its time has come: %v", err)
	}
	again := f.ClaimOne(t)
	if !again.Resumed || again.Lease.Attempt != 0 || again.Lease.Epoch != 2 || again.Lease.AttemptID != l.AttemptID {
		t.Errorf("claimed %+v", again)
	}
	fixture.WantLeaseError(t, f.DelayExecution(t.Context(), l, until), fferr.ErrStaleLease)
	if got := f.Stored(t, l.Execution); got.DelayUntilMs != nil || got.DeadlineAtMs != nil || got.AttemptCount != 1 || got.RetryCount != 0 {
		t.Errorf("stored %+v", got)
	}
	if err := f.CompleteExecution(t.Context(), again.Lease, nil); err != nil {
		t.Fatal(err)
	}
}

// The reference's delay overwrites the deadline, and its promotion clears it: the deadline is lost, or the delayed row
// looks overdue.
func TestDelayKeepsTheDeadline_E17(t *testing.T) {
	deadline := fixture.Start.Add(2 * time.Hour)
	for name, c := range map[string]struct {
		until  time.Time
		column time.Time // deadline_at_ms: the earlier one
	}{
		"delayed until before it": {fixture.Start.Add(time.Hour), fixture.Start.Add(time.Hour)},
		"delayed until after it":  {fixture.Start.Add(3 * time.Hour), deadline},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := f.Start(t, func(s *engine.ExecutionSpec) { s.Deadline = deadline }).Lease
			if err := f.DelayExecution(t.Context(), l, c.until); err != nil {
				t.Fatal(err)
			}
			if got := f.Stored(t, l.Execution); *got.DeadlineAtMs != c.column.UnixMilli() || *got.LastDeadline != deadline.UnixMilli() {
				t.Errorf("stored %+v", got)
			}
			f.Advance(time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 0)
			if c.until.Before(deadline) {
				fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
				if got := f.Stored(t, l.Execution); *got.DeadlineAtMs != deadline.UnixMilli() || got.DelayUntilMs != nil {
					t.Errorf("promoted: %+v", got)
				}
				f.ClaimOne(t)
			}
			f.Advance(time.Hour)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireDeadlines, 1)
			f.WantState(t, l.Execution, fixture.StateExpired)
		})
	}
}

// A delay that has passed, or none at all, is immediate, and the admission is given back in any case.
func TestDelayExecutions(t *testing.T) {
	f := fixture.New(t)
	held := f.StartMany(t, 6)
	f.SetAttempt(t, held[4].ID, 0, "lease_epoch = 9")
	delays := []engine.Delay{
		{Lease: held[3].Lease, For: time.Minute},
		{Lease: held[0].Lease, Until: fixture.Start.Add(time.Minute)},
		{Lease: held[1].Lease, Until: fixture.Start.Add(-time.Minute)},
		{Lease: held[2].Lease},
		{Lease: held[4].Lease, For: time.Minute},
		{Lease: held[5].Lease, For: -1},
		{Lease: held[5].Lease, For: time.Minute, Until: fixture.Start},
		{Lease: held[5].Lease, Until: time.Unix(-1, 0)},
		{Lease: held[3].Lease, For: time.Minute},
		{},
	}
	want := []error{
		nil, nil, nil, nil, fferr.ErrStaleLease, fferr.ErrInvalidInput, fferr.ErrInvalidInput, fferr.ErrInvalidInput, nil, fferr.ErrInvalidInput,
	}
	for range 2 { // the second time is a repetition
		got, err := f.DelayExecutions(t.Context(), delays)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if !errors.Is(got[i], want[i]) {
				t.Errorf("%d: got %v, want %v", i, got[i], want[i])
			}
		}
		f.Advance(time.Second)
	}
	for i, state := range []string{fixture.StateLater, fixture.StateReturned, fixture.StateReturned, fixture.StateLater, fixture.StateRunning, fixture.StateRunning} {
		f.WantState(t, held[i].ID, state)
	}
	if got := f.Stored(t, held[3].ID); *got.DelayUntilMs != fixture.Start.Add(time.Minute).UnixMilli() {
		t.Errorf("delayed until %d", *got.DelayUntilMs)
	}
}

func TestDelayExecutionReturnsAdmissions(t *testing.T) {
	f := fixture.New(t)
	budget, quota := id.NewBudgetID(), id.NewQuotaPolicyID()
	x := f.Create(t)
	f.Attach(t, x, []id.BudgetID{budget}, &quota)
	f.Admit(t, x)
	if err := f.DelayExecution(t.Context(), f.ClaimOne(t).Lease, fixture.Start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.Stored(t, x); got.State != fixture.StateLater || got.Admitted != nil || got.GateID != nil || f.Slots(t, x) != 0 {
		t.Errorf("stored %+v", got)
	}
}

// A delay that waits for a row has its lease judged after that.
func TestDelayRacesAnExpiry(t *testing.T) {
	f := fixture.NewCloned(t)
	l := f.Start(t).Lease
	late := f.StoppedBefore(t, "LockExecutions")
	wait := fixture.Async(t, func(ctx context.Context) error { return late.DelayExecution(ctx, l, fixture.Start.Add(time.Hour)) })
	late.AwaitStop(t)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	late.Resume()
	fixture.WantLeaseError(t, wait(), fferr.ErrStaleLease)
	f.WantState(t, l.Execution, fixture.StateReturned)
}

// Delays of many take as many statements as those of few.
func TestDelayExecutionsStatementsAreConstant(t *testing.T) {
	f, log := fixture.LoggedFixture(t)
	delay := func(n int) []string {
		var delays []engine.Delay
		for _, c := range f.StartMany(t, n) {
			delays = append(delays, engine.Delay{Lease: c.Lease, For: time.Hour})
		}
		return fixture.Names(log.During(func() {
			outcomes, err := f.DelayExecutions(t.Context(), delays)
			if err := errors.Join(append(outcomes, err)...); err != nil {
				t.Error(err)
			}
		}))
	}
	if few, many := delay(2), delay(200); !slices.Equal(few, many) {
		t.Errorf("%q for 2, %q for 200", few, many)
	}
}
