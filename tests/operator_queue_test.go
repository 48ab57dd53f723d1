package tests

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

func TestChangePriority_moves_an_execution_in_its_queue(t *testing.T) {
	f := newFixture(t)
	early := f.create(t)
	f.advance(time.Second)
	late := f.create(t)
	before, _ := f.storedRows(t, late)
	f.advance(time.Second)
	if err := f.Operator().ChangePriority(t.Context(), late, 12); err != nil {
		t.Fatal(err)
	}
	after, _ := f.storedRows(t, late)
	wantChanged(t, "execution", before, after, columns{"priority": 12, "ffx_last_mutation_at_ms": nowMs(f)})
	if got, want := f.operatorEvents(t, late), []string{`priority_changed {"new_priority": 12, "old_priority": 0}`}; !slices.Equal(got, want) {
		t.Errorf("operator events %q, want %q", got, want)
	}
	if got, want := f.queued(t, late), []string{entry(-12, start.Add(time.Second).UnixMilli())}; !slices.Equal(got, want) {
		t.Errorf("queue entries %q, want %q", got, want)
	}
	if got := executionsOf(f.claimN(t, 2)); !slices.Equal(got, []id.ExecutionID{late, early}) {
		t.Errorf("claimed %v, want %s first", got, late)
	}
}

// The unchanged priority is told of as well, and one beyond the range is clamped as at creation.
func TestChangePriority_tells_of_what_it_stores(t *testing.T) {
	f := newFixture(t)
	x := f.create(t)
	for _, priority := range []int{0, -5, engine.MaxPriority + 1, 1 << 40} {
		if err := f.Operator().ChangePriority(t.Context(), x, priority); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := f.operatorEvents(t, x), []string{
		`priority_changed {"new_priority": 0, "old_priority": 0}`, `priority_changed {"new_priority": 0, "old_priority": 0}`,
		`priority_changed {"new_priority": 9000, "old_priority": 0}`, `priority_changed {"new_priority": 9000, "old_priority": 9000}`,
	}; !slices.Equal(got, want) {
		t.Errorf("operator events %q, want %q", got, want)
	}
}

// What another program created and nobody has taken over yet has a priority too.
func TestChangePriority_of_another_programs_execution(t *testing.T) {
	f := newFixture(t)
	x := f.seed(t, columns{})
	if err := f.Operator().ChangePriority(t.Context(), x, 3); err != nil {
		t.Fatal(err)
	}
	if got := f.stored(t, x); got.Priority != 3 || got.State != "submitted unowned eligible_now waiting pending -" {
		t.Errorf("stored %+v", got)
	}
}

func TestChangePriority_of_what_is_not_ready(t *testing.T) {
	f := newFixture(t)
	for name, x := range notReady(t, f) {
		before := f.dump(t, x)
		err := f.Operator().ChangePriority(t.Context(), x, 3)
		state, ok := errors.AsType[*engine.StateError](err)
		if !ok || !errors.Is(err, engine.ErrNotEligible) || state.Execution != x {
			t.Errorf("%s: got %v, want that it is not eligible", name, err)
		}
		f.wantUnchanged(t, x, before)
		if got := f.operatorEvents(t, x); len(got) > 0 {
			t.Errorf("%s: operator events %q", name, got)
		}
	}
}

// notReady are executions that nobody may claim now.
func notReady(t *testing.T, f *fixture) map[string]id.ExecutionID {
	t.Helper()
	ended := f.start(t)
	f.fail(t, ended.Lease, forGood)
	granted := f.create(t)
	f.setExecution(t, granted, "eligibility_state = 'pending_claim'")
	blocked := f.create(t)
	f.setExecution(t, blocked, "eligibility_state = 'blocked_by_operator', blocking_reason = 'paused_by_operator'")
	suspended := f.start(t).ID
	f.setExecution(t, suspended, `lifecycle_phase = 'suspended', ownership_state = 'released', public_state = 'suspended',
		attempt_state = 'attempt_interrupted'`)
	return map[string]id.ExecutionID{
		"claimed": f.start(t).ID, "granted": granted, "blocked": blocked, "suspended": suspended, "ended": ended.ID,
	}
}

func TestDelayExecution_by_an_operator(t *testing.T) {
	f := newFixture(t)
	deadline := start.Add(time.Hour)
	x := f.create(t, func(spec *engine.ExecutionSpec) { spec.Deadline = deadline })
	before, _ := f.storedRows(t, x)
	until := f.now().Add(time.Minute)
	f.advance(time.Second)
	for range 2 { // a repetition writes the same
		if err := f.Operator().DelayExecution(t.Context(), x, until); err != nil {
			t.Fatal(err)
		}
	}
	after, _ := f.storedRows(t, x)
	wantChanged(t, "execution", before, after, columns{
		"eligibility_state": "not_eligible_until_time", "public_state": "delayed", "blocking_reason": "waiting_for_delay",
		"deadline_at_ms": until.UnixMilli(), "ffx_delay_until_ms": until.UnixMilli(), "ffx_last_mutation_at_ms": nowMs(f),
	})
	if got := f.queued(t, x); len(got) > 0 {
		t.Errorf("queue entries %q", got)
	}
	f.wantNothingClaimable(t)

	// At once: as if it had never been delayed.
	if err := f.Operator().DelayExecution(t.Context(), x, f.now()); err != nil {
		t.Fatal(err)
	}
	after, _ = f.storedRows(t, x)
	wantChanged(t, "execution", before, after, columns{"ffx_last_mutation_at_ms": nowMs(f)})
	ready := f.dump(t, x)
	f.advance(time.Second)
	if err := f.Operator().DelayExecution(t.Context(), x, start); err != nil {
		t.Fatal(err)
	}
	f.wantUnchanged(t, x, ready) // it was ready
	f.wantEvents(t, x)
	if got := f.claim(t); got.ID != x {
		t.Errorf("claimed %s", got.ID)
	}
	if got := f.stored(t, x); *got.LastDeadline != deadline.UnixMilli() || *got.DeadlineAtMs != deadline.UnixMilli() {
		t.Errorf("the deadline became %v", got)
	}
}

// A retry goes on, later or at once, with its number and its count of retries.
func TestDelayExecution_of_a_retry(t *testing.T) {
	f := newFixture(t)
	c := f.start(t, retrying(policy.Retry{Backoff: policy.Fixed(time.Hour)}))
	f.fail(t, c.Lease, engine.Failure{})
	f.wantState(t, c.ID, stateBackoff)
	if err := f.Operator().DelayExecution(t.Context(), c.ID, f.now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.wantState(t, c.ID, "runnable unowned not_eligible_until_time delayed pending_retry_attempt waiting_for_delay")
	f.advance(time.Hour)
	f.wantNothingClaimable(t)
	if err := f.Operator().DelayExecution(t.Context(), c.ID, f.now()); err != nil {
		t.Fatal(err)
	}
	f.wantState(t, c.ID, stateRetry)
	if next := f.claim(t); next.Lease.Attempt != 1 || next.Type != state.RetryAttempt || next.Retries != 1 {
		t.Errorf("claimed %+v", next)
	}
}

// What an interrupted attempt waits for is replaced as well: the same attempt goes on.
func TestDelayExecution_of_an_interrupted_attempt(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t)
	if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil {
		t.Fatal(err)
	}
	if err := f.Operator().DelayExecution(t.Context(), c.ID, f.now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.wantState(t, c.ID, "runnable unowned not_eligible_until_time delayed attempt_interrupted waiting_for_delay")
	f.advance(time.Hour)
	run(t, f.Maintenance().PromoteDelayed, 1)
	if next := f.claim(t); next.ID != c.ID || next.Lease.Attempt != 0 || !next.Resumed {
		t.Errorf("claimed %+v", next)
	}
}

// What a gate admitted is given back by a delay, and asked for again.
func TestDelayExecution_of_what_a_gate_admitted(t *testing.T) {
	f := newFixture(t)
	x := f.create(t)
	quota := id.NewQuotaPolicyID()
	f.attach(t, x, nil, &quota)
	f.admit(t, x)
	if err := f.Operator().DelayExecution(t.Context(), x, f.now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.stored(t, x); got.State != stateDelayed || got.Admitted != nil || got.GateID != nil || f.slots(t, x) != 0 {
		t.Errorf("stored %+v with %d slots", got, f.slots(t, x))
	}
	if err := f.Operator().DelayExecution(t.Context(), x, f.now()); err != nil {
		t.Fatal(err)
	}
	if got := f.stored(t, x); got.State != "runnable unowned blocked_by_quota rate_limited pending_first_attempt waiting_for_quota" || got.GateID == nil {
		t.Errorf("stored %+v", got)
	}
}

// The wake-up of another program's delay gives way, its execution deadline does not.
func TestDelayExecution_of_another_programs_delay(t *testing.T) {
	f := newFixture(t)
	wake, later := start.Add(time.Minute).UnixMilli(), start.Add(time.Hour)
	retry := f.seed(t, columns{
		"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
		"attempt_state": "pending_retry_attempt", "blocking_reason": "waiting_for_retry_backoff", "deadline_at_ms": later.UnixMilli(),
		"raw_fields": `{"namespace":"default","execution_kind":"test","tags":{},"delay_until":"` + later.String() + `"}`,
	})
	delayed := f.seed(t, columns{
		"lifecycle_phase": "runnable", "eligibility_state": "not_eligible_until_time", "public_state": "delayed",
		"attempt_state": "pending_first_attempt", "deadline_at_ms": wake,
	})
	f.setExecution(t, retry, "raw_fields = raw_fields || '{\"delay_until\":\"1800000060000\"}'")
	for _, x := range []id.ExecutionID{retry, delayed} {
		if err := f.Operator().DelayExecution(t.Context(), x, later.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.stored(t, retry); *got.LastDeadline != later.UnixMilli() || *got.DeadlineAtMs != later.UnixMilli() {
		t.Errorf("the retry is stored as %+v", got)
	}
	if got := f.stored(t, delayed); *got.LastDeadline != 0 || *got.DeadlineAtMs != later.Add(time.Hour).UnixMilli() {
		t.Errorf("the delay is stored as %+v", got)
	}
	if got := f.describe(t, retry); !got.DelayUntil.Equal(later.Add(time.Hour)) || !got.Deadline.Equal(later) {
		t.Errorf("described as %+v", got)
	}
}

func TestDelayExecution_of_what_does_not_wait(t *testing.T) {
	f := newFixture(t)
	refused := notReady(t, f)
	refused["not taken over"] = f.seed(t, columns{})
	for name, x := range refused {
		before := f.dump(t, x)
		for _, until := range []time.Time{start, f.now().Add(time.Hour)} {
			if err := f.Operator().DelayExecution(t.Context(), x, until); !errors.Is(err, engine.ErrNotEligible) {
				t.Errorf("%s: got %v, want that it is not eligible", name, err)
			}
		}
		f.wantUnchanged(t, x, before)
	}
	for name, until := range map[string]time.Time{"empty": {}, "before 1970": time.UnixMilli(-1)} {
		if err := f.Operator().DelayExecution(t.Context(), f.create(t), until); !errors.Is(err, engine.ErrInvalidInput) {
			t.Errorf("%s: got %v, want invalid input", name, err)
		}
	}
}

// A claim whose snapshot shows the queue as it was before a change finds the execution no more where it stood then: it
// passes it over, and the next claim takes it. A change that waits for a claim is refused.
func TestInterleaving_change_of_priority_against_a_claim(t *testing.T) {
	for name, change := range map[string]func(context.Context, engine.Operator, id.ExecutionID, time.Time) error{
		"priority": func(ctx context.Context, o engine.Operator, x id.ExecutionID, _ time.Time) error {
			return o.ChangePriority(ctx, x, 5)
		},
		"delay": func(ctx context.Context, o engine.Operator, x id.ExecutionID, now time.Time) error {
			return o.DelayExecution(ctx, x, now.Add(time.Hour))
		},
	} {
		t.Run(name+" first", func(t *testing.T) {
			f := cloneFixture(t)
			first, second := f.create(t), f.create(t)
			held, release := f.holding(t, "ClaimFromHead")
			wait := async(t, func(ctx context.Context) []engine.Claimed {
				claimed, err := held.Claim(ctx, f.worker(), 10)
				if err != nil {
					t.Error(err)
				}
				return claimed
			})
			held.awaitBlocked(t, f) // it holds the first, and is about to take the second
			if err := change(t.Context(), f.Operator(), second, f.now()); err != nil {
				t.Fatal(err)
			}
			before := f.dump(t, second)
			release()
			if got := executionsOf(wait()); !slices.Equal(got, []id.ExecutionID{first}) {
				t.Errorf("claimed %v, want %s alone", got, first)
			}
			f.wantUnchanged(t, second, before)
			f.wantQueue(t, t, name)
		})
		t.Run("the claim first", func(t *testing.T) {
			f := newFixture(t)
			x := f.create(t)
			late := f.rival(t)
			tx := f.begin(t)
			if claimed, err := f.WithTx(tx).Claim(t.Context(), f.worker(), 1); err != nil || len(claimed) != 1 {
				t.Fatalf("claimed %v, %v", claimed, err)
			}
			wait := async(t, func(ctx context.Context) error { return change(ctx, late.Operator(), x, f.now()) })
			late.awaitBlocked(t, f)
			commit(t, tx)
			if err := wait(); !errors.Is(err, engine.ErrNotEligible) {
				t.Errorf("got %v, want that it is not eligible", err)
			}
			f.wantState(t, x, stateRunning)
		})
	}
}
