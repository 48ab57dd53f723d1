package executions

import (
	"context"
	"errors"
	"reflect"
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

// Each attempt is returned with the reason of its failure, even if it was retried.
func TestAttempts(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
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
			Worker: id.WorkerID(f.Name), Instance: id.WorkerInstanceID(f.Name), Epoch: c.Lease.Epoch, StartedAt: f.Time(),
		}
	}
	c := f.ClaimOne(t)
	first := attempt(c)
	first.Type, first.TimeoutAt = state.InitialAttempt, f.Time().Add(time.Minute)
	first.Lease = &engine.LeaseSnapshot{
		ID: c.Lease.ID, Epoch: c.Lease.Epoch, Instance: id.WorkerInstanceID(f.Name), ExpiresAt: f.Time().Add(fixture.LeaseTTL),
	}
	wantAttempts(t, attemptsOf(t, f.Engine, x), first)

	failure := engine.Failure{Message: "no route", Class: policy.InfraCrash, Category: "network"}
	f.Advance(time.Second)
	if _, err := f.FailExecution(t.Context(), c.Lease, failure); err != nil {
		t.Fatal(err)
	}
	first.Lease, first.TimeoutAt = nil, time.Time{}
	first.Outcome, first.Failure, first.EndedAt, first.NextAt = state.AttemptOutcomeRetry, &failure, f.Time(), f.Time().Add(time.Second)
	wantAttempts(t, attemptsOf(t, f.Engine, x), first)

	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	c = f.ClaimOne(t)
	second := attempt(c)
	second.Type = state.RetryAttempt
	f.Advance(time.Second)
	if _, err := f.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "again"}); err != nil {
		t.Fatal(err)
	}
	second.Outcome, second.EndedAt, second.NextAt = state.AttemptOutcomeRetry, f.Time(), f.Time().Add(time.Second)
	second.Failure = &engine.Failure{Message: "again", Class: policy.Transient, Category: "transient"}
	f.Advance(time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).PromoteDelayed, 1)
	c = f.ClaimOne(t)
	third := attempt(c)
	third.Type = state.RetryAttempt
	last := engine.Failure{Message: "bad input", Class: policy.Permanent, Category: "payload"}
	if _, err := f.FailExecution(t.Context(), c.Lease, last); err != nil {
		t.Fatal(err)
	}
	third.Outcome, third.Failure, third.EndedAt = state.AttemptOutcomeFailed, &last, f.Time()
	first.Current, second.Current = false, false
	wantAttempts(t, attemptsOf(t, f.Engine, x), first, second, third)

	// A page at a time, and in a transaction.
	tx, err := f.Pool.Begin(t.Context())
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

func attemptIDOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID, index int) id.AttemptID {
	t.Helper()
	return *f.StoredAttempts(t, x)[index].AttemptID
}

// The worker that lost it is not returned, only its outcome.
func TestAttemptsLostAndTimedOut(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{AttemptTimeout: 15 * time.Second, Retry: &policy.Retry{MaxRetries: 1, Backoff: policy.Fixed(time.Second)}}
	})
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	a := attemptsOf(t, f.Engine, c.ID)[0]
	if a.Outcome != state.AttemptOutcomeLeaseExpired || a.Worker != "" || a.Instance != "" || a.Lease != nil || !a.EndedAt.IsZero() ||
		!a.Current || a.Failure != nil || a.Epoch <= c.Lease.Epoch {
		t.Errorf("after its lease ran out: %+v", a)
	}
	again := f.ClaimOne(t)
	if a = attemptsOf(t, f.Engine, c.ID)[0]; a.Outcome != state.AttemptOutcomeNone || a.Lease == nil || a.Lease.Epoch != again.Lease.Epoch {
		t.Errorf("while it goes on: %+v", a)
	}
	f.Advance(5 * time.Second)
	if _, err := f.RenewLease(t.Context(), again.Lease, time.Minute); err != nil {
		t.Fatal(err)
	}
	f.Advance(15 * time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireAttempts, 1)
	a = attemptsOf(t, f.Engine, c.ID)[0]
	want := engine.Failure{Message: "attempt_timeout", Class: policy.TimedOut, Category: "timeout"}
	if a.Outcome != state.AttemptOutcomeInterrupted || !a.EndedAt.Equal(f.Time()) || a.Failure == nil || *a.Failure != want ||
		!a.NextAt.Equal(f.Time().Add(time.Second)) {
		t.Errorf("after it timed out: %+v, failure %+v", a, a.Failure)
	}
}

// An attempt keeps its first start when another lease resumes it, and the start of that lease stands beside it: on the fast
// path, and on the one that judges each row.
func TestAttemptSaysWhenItStartedAndWhenItWasResumed(t *testing.T) {
	for name, resume := range map[string]func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) engine.Lease{
		"fast": func(t *testing.T, f *fixture.Fixture, _ id.ExecutionID) engine.Lease { return f.ClaimOne(t).Lease },
		"slow": func(t *testing.T, f *fixture.Fixture, x id.ExecutionID) engine.Lease {
			f.SetAttempt(t, x, 0, "lease_epoch = lease_epoch + 3") // as another program may leave it
			return f.ClaimOne(t).Lease
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.New(t)
			started := f.Time()
			first := f.Start(t)
			if a := attemptsOf(t, f.Engine, first.ID)[0]; !a.StartedAt.Equal(started) || !a.ResumedAt.IsZero() {
				t.Errorf("started: %+v", a)
			}
			release := func(lease engine.Lease) {
				t.Helper()
				if refused, err := f.ReleaseLeases(t.Context(), []engine.Lease{lease}); err != nil || refused[0] != nil {
					t.Fatal(refused, err)
				}
			}
			release(first.Lease)
			for range 2 {
				f.Advance(time.Second)
				lease := resume(t, f, first.ID)
				if a := attemptsOf(t, f.Engine, first.ID)[0]; !a.StartedAt.Equal(started) || !a.ResumedAt.Equal(f.Time()) || a.Lease == nil {
					t.Errorf("resumed at %s: %+v", f.Time(), a)
				}
				release(lease)
			}
		})
	}
}

// Another program keeps ids in the document, and counts the index on with some claims.
func TestAttemptsWithAPointerAhead_I15(t *testing.T) {
	f := fixture.New(t)
	x := f.Seed(t, fixture.ClaimedByReference)
	f.SetExecution(t, x, "attempt_index = 1")
	attempt, lease := id.NewAttemptID(), id.NewLeaseID()
	f.SeedAttempt(t, x, 0, fixture.Columns{
		"lease_expires_at_ms": fixture.Start.Add(time.Minute).UnixMilli(),
		"raw_fields":          `{"attempt_type":"initial","attempt_id":"` + attempt.String() + `","lease_id":"` + lease.String() + `"}`,
	})
	want := engine.Attempt{
		ID: attempt, Type: state.InitialAttempt, Current: true, Worker: "reference", Instance: "reference-1", Epoch: 1, StartedAt: fixture.Start,
		Lease: &engine.LeaseSnapshot{ID: lease, Epoch: 1, Instance: "reference-1", ExpiresAt: fixture.Start.Add(time.Minute)},
	}
	wantAttempts(t, attemptsOf(t, f.Engine, x), want)
	// Its failure, which it calls so whether a retry follows or not.
	f.SetAttempt(t, x, 0, "outcome = 'failure', terminal_at_ms = 1")
	f.SetExecution(t, x, `lifecycle_phase = 'terminal', ownership_state = 'unowned', attempt_index = 0,
		raw_fields = raw_fields || '{"last_failure_message":"broken"}'`)
	want.Outcome, want.EndedAt, want.Lease = state.AttemptOutcomeFailed, time.UnixMilli(1), nil
	want.Failure = &engine.Failure{Message: "broken"}
	wantAttempts(t, attemptsOf(t, f.Engine, x), want)
	// An unreadable value costs its own attempt only.
	f.SeedAttempt(t, x, 1, fixture.Columns{"outcome": "bogus"})
	got := attemptsOf(t, f.Engine, x)
	if len(got) != 2 || got[0].Err != nil {
		t.Fatalf("%+v", got)
	}
	fixture.WantCorruption(t, got[1].Err, "ff_attempt.outcome")
}

func TestListAttemptsRefusesBadInput(t *testing.T) {
	f := fixture.New(t)
	ctx := t.Context()
	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	_, err := f.ListAttempts(ctx, missing, "", 0)
	fixture.WantNotFound(t, err, "execution", missing.String())
	for _, err := range f.Attempts(ctx, missing) {
		fixture.WantNotFound(t, err, "execution", missing.String())
	}
	c := f.Start(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Retry: &policy.Retry{Backoff: policy.Fixed(0)}}
	})
	other := f.Create(t)
	if _, err := f.FailExecution(ctx, c.Lease, engine.Failure{Message: "x"}); err != nil {
		t.Fatal(err)
	}
	claimAll(t, f)
	page, err := f.ListAttempts(ctx, c.ID, "", 1)
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	_, err = f.ListAttempts(ctx, other, page.Next, 1)
	fixture.WantInputError(t, err, "after")
	_, err = f.ListAttempts(ctx, c.ID, "", -1)
	fixture.WantInputError(t, err, "limit")
	_, err = f.ListAttempts(ctx, id.ExecutionID{}, "", 1)
	fixture.WantInputError(t, err, "execution id")
}

func claimAll(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	if _, err := f.Claim(t.Context(), f.Worker(), 10); err != nil {
		t.Fatal(err)
	}
}

func TestExecutionProgress(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	progress := func(want engine.ProgressReport) {
		t.Helper()
		got, err := f.ExecutionProgress(t.Context(), c.ID)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("progress %+v, %v; want %+v", got, err, want)
		}
	}
	progress(engine.ProgressReport{})
	for _, p := range []engine.Progress{{Percent: new(40)}, {Message: new("halfway")}} {
		f.Advance(time.Second)
		if err := f.ReportProgress(t.Context(), c.Lease, p); err != nil {
			t.Fatal(err)
		}
	}
	want := engine.ProgressReport{Percent: new(40), Message: "halfway", At: f.Time()}
	progress(want)
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
	progress(want)
	// Values that another program stored are read leniently.
	f.SetExecution(t, c.ID, `raw_fields = '{"progress_pct":"255","progress_updated_at":"soon","progress_message":7}'`)
	progress(engine.ProgressReport{Percent: new(100), Message: "7"})
	f.SetExecution(t, c.ID, `raw_fields = '{"progress_pct":-1,"progress_updated_at":5}'`)
	progress(engine.ProgressReport{At: time.UnixMilli(5)})
	f.SetExecution(t, c.ID, `raw_fields = '[]'`)
	progress(engine.ProgressReport{})
	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	if _, err := f.ExecutionProgress(t.Context(), missing); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("of one that is missing: %v", err)
	}
}
