package operators

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
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestChangePriorityMovesTheQueueEntry(t *testing.T) {
	f := fixture.New(t)
	early := f.Create(t)
	f.Advance(time.Second)
	late := f.Create(t)
	before, _ := storedRows(t, f, late)
	f.Advance(time.Second)
	if err := operator.Prioritize(t.Context(), f.Engine, late, 12); err != nil {
		t.Fatal(err)
	}
	after, _ := storedRows(t, f, late)
	wantChanged(t, "execution", before, after, fixture.Columns{"priority": 12, "ffx_last_mutation_at_ms": nowMs(f)})
	if got, want := operatorEvents(t, f, late), []string{`priority_changed {"new_priority": 12, "old_priority": 0}`}; !slices.Equal(got, want) {
		t.Errorf("operator events %q, want %q", got, want)
	}
	if got, want := queued(t, f, late), []string{entry(-12, fixture.Start.Add(time.Second).UnixMilli())}; !slices.Equal(got, want) {
		t.Errorf("queue entries %q, want %q", got, want)
	}
	if got := fixture.ExecutionsOf(f.ClaimN(t, 2)); !slices.Equal(got, []id.ExecutionID{late, early}) {
		t.Errorf("claimed %v, want %s first", got, late)
	}
}

// An unchanged priority has an event as well, and one beyond the range is clamped as at creation.
func TestChangePriorityWritesAnEvent(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	for _, priority := range []int{0, -5, engine.MaxPriority + 1, 1 << 40} {
		if err := operator.Prioritize(t.Context(), f.Engine, x, priority); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := operatorEvents(t, f, x), []string{
		`priority_changed {"new_priority": 0, "old_priority": 0}`, `priority_changed {"new_priority": 0, "old_priority": 0}`,
		`priority_changed {"new_priority": 9000, "old_priority": 0}`, `priority_changed {"new_priority": 9000, "old_priority": 9000}`,
	}; !slices.Equal(got, want) {
		t.Errorf("operator events %q, want %q", got, want)
	}
}

// An execution of another program that is not adopted yet has a priority too.
func TestChangePriorityOfAForeignExecution(t *testing.T) {
	f := fixture.New(t)
	x := f.Seed(t, fixture.Columns{})
	if err := operator.Prioritize(t.Context(), f.Engine, x, 3); err != nil {
		t.Fatal(err)
	}
	if got := f.Stored(t, x); got.Priority != 3 || got.State != "submitted unowned eligible_now waiting pending -" {
		t.Errorf("stored %+v", got)
	}
}

func TestChangePriorityRefusesUnreadyExecutions(t *testing.T) {
	f := fixture.New(t)
	for name, x := range notReady(t, f) {
		before := f.Dump(t, x)
		err := operator.Prioritize(t.Context(), f.Engine, x, 3)
		state, ok := errors.AsType[*fferr.StateError](err)
		if !ok || !errors.Is(err, fferr.ErrNotEligible) || state.Execution != x {
			t.Errorf("%s: got %v, want that it is not eligible", name, err)
		}
		f.WantUnchanged(t, x, before)
		if got := operatorEvents(t, f, x); len(got) > 0 {
			t.Errorf("%s: operator events %q", name, got)
		}
	}
}

// notReady are executions that cannot be claimed now.
func notReady(t *testing.T, f *fixture.Fixture) map[string]id.ExecutionID {
	t.Helper()
	ended := f.Start(t)
	f.Fail(t, ended.Lease, fixture.ForGood)
	granted := f.Create(t)
	f.SetExecution(t, granted, "eligibility_state = 'pending_claim'")
	blocked := f.Create(t)
	f.SetExecution(t, blocked, "eligibility_state = 'blocked_by_operator', blocking_reason = 'paused_by_operator'")
	suspended := f.Start(t).ID
	f.SetExecution(t, suspended, `lifecycle_phase = 'suspended', ownership_state = 'released', public_state = 'suspended',
		attempt_state = 'attempt_interrupted'`)
	return map[string]id.ExecutionID{
		"claimed": f.Start(t).ID, "granted": granted, "blocked": blocked, "suspended": suspended, "ended": ended.ID,
	}
}

func TestOperatorDelaysAnExecution(t *testing.T) {
	f := fixture.New(t)
	deadline := fixture.Start.Add(time.Hour)
	x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = deadline })
	before, _ := storedRows(t, f, x)
	until := f.Time().Add(time.Minute)
	f.Advance(time.Second)
	for range 2 { // a repetition writes the same
		if err := operator.Delay(t.Context(), f.Engine, x, until); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := storedRows(t, f, x)
	wantChanged(t, "execution", before, after, fixture.Columns{
		"eligibility_state": "not_eligible_until_time", "public_state": "delayed", "blocking_reason": "waiting_for_delay",
		"deadline_at_ms": until.UnixMilli(), "ffx_delay_until_ms": until.UnixMilli(), "ffx_last_mutation_at_ms": nowMs(f),
	})
	if got := queued(t, f, x); len(got) > 0 {
		t.Errorf("queue entries %q", got)
	}
	f.WantNothingClaimable(t)

	// At once: as if it had never been delayed.
	if err := operator.Delay(t.Context(), f.Engine, x, f.Time()); err != nil {
		t.Fatal(err)
	}
	after, _ = storedRows(t, f, x)
	wantChanged(t, "execution", before, after, fixture.Columns{"ffx_last_mutation_at_ms": nowMs(f)})
	ready := f.Dump(t, x)
	f.Advance(time.Second)
	if err := operator.Delay(t.Context(), f.Engine, x, fixture.Start); err != nil {
		t.Fatal(err)
	}
	f.WantUnchanged(t, x, ready) // it was ready
	f.WantEvents(t, x)
	if got := f.ClaimOne(t); got.ID != x {
		t.Errorf("claimed %s", got.ID)
	}
	if got := f.Stored(t, x); *got.LastDeadline != deadline.UnixMilli() || *got.DeadlineAtMs != deadline.UnixMilli() {
		t.Errorf("the deadline became %v", got)
	}
}

// A retry goes on, later or at once, with its number and its count of retries.
func TestOperatorDelaysARetry(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t, fixture.Retrying(policy.Retry{Backoff: policy.Fixed(time.Hour)}))
	f.Fail(t, c.Lease, engine.Failure{})
	f.WantState(t, c.ID, fixture.StateBackoff)
	if err := operator.Delay(t.Context(), f.Engine, c.ID, f.Time().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, c.ID, "runnable unowned not_eligible_until_time delayed pending_retry_attempt waiting_for_delay")
	f.Advance(time.Hour)
	f.WantNothingClaimable(t)
	if err := operator.Delay(t.Context(), f.Engine, c.ID, f.Time()); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, c.ID, fixture.StateRetry)
	if next := f.ClaimOne(t); next.Lease.Attempt != 1 || next.Type != state.RetryAttempt || next.Retries != 1 {
		t.Errorf("claimed %+v", next)
	}
}

// The delay of an interrupted attempt is replaced as well: the same attempt goes on.
func TestOperatorDelaysAnInterruptedAttempt(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
		t.Fatal(err)
	}
	if err := operator.Delay(t.Context(), f.Engine, c.ID, f.Time().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.WantState(t, c.ID, "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_delay")
	f.Advance(time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	if next := f.ClaimOne(t); next.ID != c.ID || next.Lease.Attempt != 0 || !next.Resumed {
		t.Errorf("claimed %+v", next)
	}
}

// A delay withdraws the admission of a gate, which is asked again.
func TestOperatorDelayReturnsAdmissions(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	quota := id.NewQuotaPolicyID()
	f.Attach(t, x, nil, &quota)
	f.Admit(t, x)
	if err := operator.Delay(t.Context(), f.Engine, x, f.Time().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.Stored(t, x); got.State != fixture.StateDelayed || got.Admitted != nil || got.GateID != nil || f.Slots(t, x) != 0 {
		t.Errorf("stored %+v with %d slots", got, f.Slots(t, x))
	}
	if err := operator.Delay(t.Context(), f.Engine, x, f.Time()); err != nil {
		t.Fatal(err)
	}
	if got := f.Stored(t, x); got.State != "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota" || got.GateID == nil {
		t.Errorf("stored %+v", got)
	}
}

// The wake-up of another program's delay gives way, its execution deadline does not.
func TestOperatorReplacesAForeignDelay(t *testing.T) {
	f := fixture.New(t)
	wake, later := fixture.Start.Add(time.Minute).UnixMilli(), fixture.Start.Add(time.Hour)
	retry := f.Seed(t, fixture.Columns{
		"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
		"attempt_state": "pending_retry_attempt", "blocking_reason": "waiting_for_retry_backoff", "deadline_at_ms": later.UnixMilli(),
		"raw_fields": `{"namespace":"default","execution_kind":"test","tags":{},"delay_until":"` + later.String() + `"}`,
	})
	delayed := f.Seed(t, fixture.Columns{
		"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
		"attempt_state": "pending_first_attempt", "deadline_at_ms": wake,
	})
	f.SetExecution(t, retry, "raw_fields = raw_fields || '{\"delay_until\":\"1800000060000\"}'")
	for _, x := range []id.ExecutionID{retry, delayed} {
		if err := operator.Delay(t.Context(), f.Engine, x, later.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.Stored(t, retry); *got.LastDeadline != later.UnixMilli() || *got.DeadlineAtMs != later.UnixMilli() {
		t.Errorf("the retry is stored as %+v", got)
	}
	if got := f.Stored(t, delayed); *got.LastDeadline != 0 || *got.DeadlineAtMs != later.Add(time.Hour).UnixMilli() {
		t.Errorf("the delay is stored as %+v", got)
	}
	if got := f.Describe(t, retry); !got.DelayUntil.Equal(later.Add(time.Hour)) || !got.Deadline.Equal(later) {
		t.Errorf("described as %+v", got)
	}
}

func TestOperatorDelayRefusesRunningExecutions(t *testing.T) {
	f := fixture.New(t)
	refused := notReady(t, f)
	refused["not taken over"] = f.Seed(t, fixture.Columns{})
	for name, x := range refused {
		before := f.Dump(t, x)
		for _, until := range []time.Time{fixture.Start, f.Time().Add(time.Hour)} {
			if err := operator.Delay(t.Context(), f.Engine, x, until); !errors.Is(err, fferr.ErrNotEligible) {
				t.Errorf("%s: got %v, want that it is not eligible", name, err)
			}
		}
		f.WantUnchanged(t, x, before)
	}
	for name, until := range map[string]time.Time{"empty": {}, "before 1970": time.UnixMilli(-1)} {
		if err := operator.Delay(t.Context(), f.Engine, f.Create(t), until); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: got %v, want invalid input", name, err)
		}
	}
}

// A claim whose snapshot shows the queue as it was before a change finds the execution no more where it stood then: it
// passes it over, and the next claim takes it. A change that waits for a claim is refused.
func TestChangePriorityRacesAClaim(t *testing.T) {
	for name, change := range map[string]func(context.Context, *engine.Engine, id.ExecutionID, time.Time) error{
		"priority": func(ctx context.Context, o *engine.Engine, x id.ExecutionID, _ time.Time) error {
			return operator.Prioritize(ctx, o, x, 5)
		},
		"delay": func(ctx context.Context, o *engine.Engine, x id.ExecutionID, now time.Time) error {
			return operator.Delay(ctx, o, x, now.Add(time.Hour))
		},
		"move": func(ctx context.Context, o *engine.Engine, x id.ExecutionID, _ time.Time) error {
			return operator.Move(ctx, o, x, "moved")
		},
	} {
		t.Run(name+" first", func(t *testing.T) {
			f := fixture.NewCloned(t)
			first, second := f.Create(t), f.Create(t)
			held, release := f.Holding(t, "ClaimFromHead")
			wait := fixture.Async(t, func(ctx context.Context) []engine.Claimed {
				claimed, err := held.Claim(ctx, f.Worker(), 10)
				if err != nil {
					t.Error(err)
				}
				return claimed
			})
			held.AwaitBlocked(t, f) // it holds the first, and is about to take the second
			if err := change(t.Context(), f.Engine, second, f.Time()); err != nil {
				t.Fatal(err)
			}
			before := f.Dump(t, second)
			release()
			if got := fixture.ExecutionsOf(wait()); !slices.Equal(got, []id.ExecutionID{first}) {
				t.Errorf("claimed %v, want %s alone", got, first)
			}
			f.WantUnchanged(t, second, before)
			f.WantQueue(t, t, name)
		})
		t.Run("the claim first", func(t *testing.T) {
			f := fixture.New(t)
			x := f.Create(t)
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if claimed, err := f.WithTx(tx).Claim(t.Context(), f.Worker(), 1); err != nil || len(claimed) != 1 {
				t.Fatalf("claimed %v, %v", claimed, err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error { return change(ctx, late.Engine, x, f.Time()) })
			late.AwaitBlocked(t, f)
			fixture.Commit(t, tx)
			if err := wait(); !errors.Is(err, fferr.ErrNotEligible) {
				t.Errorf("got %v, want that it is not eligible", err)
			}
			f.WantState(t, x, fixture.StateRunning)
		})
	}
}
