package tests

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// attemptsOf goes through the attempts of an execution.
func attemptsOf(t *testing.T, eng *engine.Engine, x id.ExecutionID) []engine.Attempt {
	t.Helper()
	var attempts []engine.Attempt
	for a, err := range eng.Attempts(t.Context(), x) {
		if err != nil {
			t.Fatal(err)
		}
		attempts = append(attempts, a)
	}
	return attempts
}

func wantAttempts(t *testing.T, got []engine.Attempt, want ...engine.Attempt) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d attempts, want %d: %+v", len(got), len(want), got)
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("attempt %d is\n\t%+v, failure %+v, lease %+v, want\n\t%+v, failure %+v, lease %+v",
				i, got[i], got[i].Failure, got[i].Lease, want[i], want[i].Failure, want[i].Lease)
		}
	}
}

// Each try is told of with why it failed, also when it was retried.
func TestAttempts(t *testing.T) {
	f := cloneFixture(t)
	x := f.create(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{
			AttemptTimeout: time.Minute,
			Retry:          &policy.Retry{MaxRetries: 2, Backoff: policy.Fixed(time.Second)},
		}
	})
	if got := attemptsOf(t, f.Engine, x); got != nil {
		t.Errorf("before the first claim there are %+v", got)
	}
	attempt := func(c engine.Claimed) engine.Attempt {
		return engine.Attempt{
			Index: c.Lease.Attempt, ID: attemptIDOf(t, f, x, c.Lease.Attempt), Current: true,
			Worker: id.WorkerID(f.name), Instance: id.WorkerInstanceID(f.name), Epoch: c.Lease.Epoch, StartedAt: f.now(),
		}
	}
	c := f.claim(t)
	first := attempt(c)
	first.Type, first.TimeoutAt = state.InitialAttempt, f.now().Add(time.Minute)
	first.Lease = &engine.LeaseSnapshot{
		ID: c.Lease.ID, Epoch: c.Lease.Epoch, Instance: id.WorkerInstanceID(f.name), ExpiresAt: f.now().Add(leaseTTL),
	}
	wantAttempts(t, attemptsOf(t, f.Engine, x), first)

	failure := engine.Failure{Message: "no route", Class: policy.InfraCrash, Category: "network"}
	f.advance(time.Second)
	if _, err := f.FailExecution(t.Context(), c.Lease, failure); err != nil {
		t.Fatal(err)
	}
	first.Lease, first.TimeoutAt = nil, time.Time{}
	first.Outcome, first.Failure, first.EndedAt, first.NextAt = state.AttemptOutcomeRetry, &failure, f.now(), f.now().Add(time.Second)
	wantAttempts(t, attemptsOf(t, f.Engine, x), first)

	f.advance(time.Second)
	run(t, f.Maintenance().PromoteDelayed, 1)
	c = f.claim(t)
	second := attempt(c)
	second.Type = state.RetryAttempt
	f.advance(time.Second)
	if _, err := f.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "again"}); err != nil {
		t.Fatal(err)
	}
	second.Outcome, second.EndedAt, second.NextAt = state.AttemptOutcomeRetry, f.now(), f.now().Add(time.Second)
	second.Failure = &engine.Failure{Message: "again", Class: policy.Transient, Category: "transient"}
	f.advance(time.Second)
	run(t, f.Maintenance().PromoteDelayed, 1)
	c = f.claim(t)
	third := attempt(c)
	third.Type = state.RetryAttempt
	last := engine.Failure{Message: "bad input", Class: policy.Permanent, Category: "payload"}
	if _, err := f.FailExecution(t.Context(), c.Lease, last); err != nil {
		t.Fatal(err)
	}
	third.Outcome, third.Failure, third.EndedAt = state.AttemptOutcomeFailed, &last, f.now()
	first.Current, second.Current = false, false
	wantAttempts(t, attemptsOf(t, f.Engine, x), first, second, third)

	// A page at a time, and in a transaction.
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for _, eng := range []*engine.Engine{f.Engine, f.WithTx(tx)} {
		var got []engine.Attempt
		for after := ""; ; {
			page, err := eng.ListAttempts(t.Context(), x, after, 2)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, page.Items...)
			if after = page.Next; after == "" {
				break
			}
			if len(page.Items) != 2 {
				t.Errorf("a page of %d, and another", len(page.Items))
			}
		}
		wantAttempts(t, got, first, second, third)
	}
}

func attemptIDOf(t *testing.T, f *fixture, x id.ExecutionID, index int) id.AttemptID {
	t.Helper()
	return *f.attempts(t, x)[index].AttemptID
}

// Who has lost it is not told, only what became of it.
func TestAttempts_lost_and_timed_out(t *testing.T) {
	f := cloneFixture(t)
	c := f.start(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{AttemptTimeout: 15 * time.Second, Retry: &policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(time.Second)}}
	})
	f.advance(leaseTTL)
	run(t, f.Maintenance().ExpireLeases, 1)
	a := attemptsOf(t, f.Engine, c.ID)[0]
	if a.Outcome != state.AttemptOutcomeLeaseExpired || a.Worker != "" || a.Instance != "" || a.Lease != nil || !a.EndedAt.IsZero() ||
		!a.Current || a.Failure != nil || a.Epoch <= c.Lease.Epoch {
		t.Errorf("after its lease ran out: %+v", a)
	}
	again := f.claim(t)
	if a = attemptsOf(t, f.Engine, c.ID)[0]; a.Outcome != state.AttemptOutcomeNone || a.Lease == nil || a.Lease.Epoch != again.Lease.Epoch {
		t.Errorf("while it goes on: %+v", a)
	}
	f.advance(5 * time.Second)
	if _, err := f.RenewLease(t.Context(), again.Lease, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.advance(15 * time.Second)
	run(t, f.Maintenance().ExpireAttempts, 1)
	a = attemptsOf(t, f.Engine, c.ID)[0]
	want := engine.Failure{Message: "attempt_timeout", Class: policy.TimedOut, Category: "timeout"}
	if a.Outcome != state.AttemptOutcomeInterrupted || !a.EndedAt.Equal(f.now()) || a.Failure == nil || *a.Failure != want ||
		!a.NextAt.Equal(f.now().Add(time.Second)) {
		t.Errorf("after it timed out: %+v, failure %+v", a, a.Failure)
	}
}

// Another program keeps ids in the document, and counts the index on with some claims.
func TestI15_attempts_where_the_pointer_is_ahead(t *testing.T) {
	f := newFixture(t)
	x := f.seed(t, claimedByReference)
	f.setExecution(t, x, "attempt_index = 1")
	attempt, lease := id.NewAttemptID(), id.NewLeaseID()
	f.seedAttempt(t, x, 0, columns{
		"lease_expires_at_ms": start.Add(time.Minute).UnixMilli(),
		"raw_fields":          `{"attempt_type":"initial","attempt_id":"` + attempt.String() + `","lease_id":"` + lease.String() + `"}`,
	})
	want := engine.Attempt{
		ID: attempt, Type: state.InitialAttempt, Current: true, Worker: "reference", Instance: "reference-1", Epoch: 1, StartedAt: start,
		Lease: &engine.LeaseSnapshot{ID: lease, Epoch: 1, Instance: "reference-1", ExpiresAt: start.Add(time.Minute)},
	}
	wantAttempts(t, attemptsOf(t, f.Engine, x), want)
	// Its failure, which it calls so whether a retry follows or not.
	f.setAttempt(t, x, 0, "outcome = 'failure', terminal_at_ms = 1")
	f.setExecution(t, x, `lifecycle_phase = 'terminal', ownership_state = 'unowned', attempt_index = 0,
		raw_fields = raw_fields || '{"last_failure_message":"broken"}'`)
	want.Outcome, want.EndedAt, want.Lease = state.AttemptOutcomeFailed, time.UnixMilli(1), nil
	want.Failure = &engine.Failure{Message: "broken"}
	wantAttempts(t, attemptsOf(t, f.Engine, x), want)
	// What nobody can read costs its own attempt only.
	f.seedAttempt(t, x, 1, columns{"outcome": "bogus"})
	got := attemptsOf(t, f.Engine, x)
	if len(got) != 2 || got[0].Err != nil {
		t.Fatalf("%+v", got)
	}
	wantCorruption(t, got[1].Err, "ff_attempt.outcome")
}

func TestListAttempts_refuses(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	missing := id.NewExecutionID(f.lane, id.Partitions{})
	_, err := f.ListAttempts(ctx, missing, "", 0)
	wantNotFound(t, err, "execution", missing.String())
	for _, err := range f.Attempts(ctx, missing) {
		wantNotFound(t, err, "execution", missing.String())
	}
	c := f.start(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(0)}}
	})
	other := f.create(t)
	if _, err := f.FailExecution(ctx, c.Lease, engine.Failure{Message: "x"}); err != nil {
		t.Fatal(err)
	}
	f.claimAll(t)
	page, err := f.ListAttempts(ctx, c.ID, "", 1)
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	_, err = f.ListAttempts(ctx, other, page.Next, 1)
	wantInputError(t, err, "after")
	_, err = f.ListAttempts(ctx, c.ID, "", -1)
	wantInputError(t, err, "limit")
	_, err = f.ListAttempts(ctx, id.ExecutionID{}, "", 1)
	wantInputError(t, err, "execution id")
}

func (f *fixture) claimAll(t *testing.T) {
	t.Helper()
	if _, err := f.Claim(t.Context(), f.worker(), 10); err != nil {
		t.Fatal(err)
	}
}

func TestExecutionProgress(t *testing.T) {
	f := newFixture(t)
	c := f.start(t)
	progress := func(want engine.ProgressReport) {
		t.Helper()
		got, err := f.ExecutionProgress(t.Context(), c.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("progress %+v, %v; want %+v", got, err, want)
		}
	}
	progress(engine.ProgressReport{})
	for _, p := range []engine.Progress{{Percent: new(40)}, {Message: new("halfway")}} {
		f.advance(time.Second)
		if err := f.ReportProgress(t.Context(), c.Lease, p); err != nil {
			t.Fatal(err)
		}
	}
	want := engine.ProgressReport{Percent: new(40), Message: "halfway", At: f.now()}
	progress(want)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	progress(want)
	// Lenient: what another program stored.
	f.setExecution(t, c.ID, `raw_fields = '{"progress_pct":"255","progress_updated_at":"soon","progress_message":7}'`)
	progress(engine.ProgressReport{Percent: new(100), Message: "7"})
	f.setExecution(t, c.ID, `raw_fields = '{"progress_pct":-1,"progress_updated_at":5}'`)
	progress(engine.ProgressReport{At: time.UnixMilli(5)})
	f.setExecution(t, c.ID, `raw_fields = '[]'`)
	progress(engine.ProgressReport{})
	missing := id.NewExecutionID(f.lane, id.Partitions{})
	if _, err := f.ExecutionProgress(t.Context(), missing); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("of one that is missing: %v", err)
	}
}
