package executions

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// onServerTime gives the fixture an engine that goes by the database's clock, and returns that clock.
func onServerTime(t *testing.T, f *fixture.Fixture) (clock func() time.Time) {
	t.Helper()
	eng, err := engine.New(f.Pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = eng
	return func() time.Time {
		return time.UnixMilli(fixture.Collect(t, pgx.RowTo[int64], f.Pool, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0])
	}
}

// In the reference each node's own clock decides, and the caller's at times. Here the database's does, whichever
// creation time the caller gives.
func TestTimeIsTheDatabases_E41(t *testing.T) {
	f := fixture.New(t)
	clock := onServerTime(t, f)
	before := clock()
	now, err := f.Now(t.Context())
	if err != nil || now.Before(before) || now.After(clock()) {
		t.Errorf("it is %v, %v; the database says %v", now, err, before)
	}

	century := 100 * 365 * 24 * time.Hour
	f.Create(t, func(spec *engine.ExecutionSpec) { spec.CreatedAt = now.Add(century) })
	late := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.CreatedAt, spec.DelayUntil = now.Add(-time.Hour), now.Add(time.Hour)
	})
	f.WantState(t, late, fixture.StateDelayed)
	early := f.Create(t, func(spec *engine.ExecutionSpec) { spec.CreatedAt, spec.DelayUntil = now.Add(-century/10), now })
	f.WantState(t, early, fixture.StateReady)

	before = clock()
	claimed := f.ClaimN(t, 10)
	if len(claimed) != 2 {
		t.Fatalf("claimed %d, want 2: what was created in the past and in the future", len(claimed))
	}
	c := claimed[0]
	if c.ExpiresAt.Before(before.Add(fixture.LeaseTTL)) || c.ExpiresAt.After(clock().Add(fixture.LeaseTTL)) {
		t.Errorf("the lease expires at %v, claimed after %v", c.ExpiresAt, before)
	}
	f.SetAttempt(t, c.ID, 0, "lease_expires_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
	if _, err := f.RenewLease(t.Context(), c.Lease, 0); !errors.Is(err, fferr.ErrLeaseExpired) {
		t.Errorf("got %v, want expired", err)
	}
	f.SetAttempt(t, c.ID, 0, "lease_expires_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3600000")
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Error(err)
	}
	if ended := f.Describe(t, c.ID).EndedAt; ended.Before(before) || ended.After(clock()) {
		t.Errorf("ended at %v", ended)
	}
}

// The same holds for schedulers, operators and the background work: a caller's instant is one of the database's
// clock, and instants of another program's clock delay nothing.
func TestTimeOfJobsAndOperatorsIsTheDatabases_E41(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Signing(t)
	clock := onServerTime(t, f)
	// within fails the test unless at is that long after an instant since before.
	within := func(what string, at, before time.Time, d time.Duration) {
		t.Helper()
		if at.Before(before.Add(d)) || at.After(clock().Add(d)) {
			t.Errorf("%s: %v, want %v after %v", what, at, d, before)
		}
	}

	l := f.Start(t).Lease
	before := clock()
	if outcomes, err := f.DelayExecutions(t.Context(), []engine.Delay{{Lease: l, For: time.Hour}}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	within("a delay", time.UnixMilli(*f.Stored(t, l.Execution).DelayUntilMs), before, time.Hour)
	for _, at := range []struct {
		until time.Time
		state string
	}{{clock().Add(time.Hour), fixture.StateLater}, {clock().Add(-time.Hour), fixture.StateReturned}} {
		if err := operator.Delay(t.Context(), f.Engine, l.Execution, at.until); err != nil {
			t.Fatal(err)
		}
		f.WantState(t, l.Execution, at.state)
	}

	before = clock()
	grant := f.Issue(t, l.Execution)
	within("a grant", grant.ExpiresAt, before, fixture.GrantTTL)
	newest := interop.ClaimGrant{Execution: l.Execution} // regardless of its key
	f.Exec(t, "UPDATE ff_claim_grant SET expires_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint WHERE execution_id = $1", l.Execution.UUID())
	if _, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(newest)); !errors.Is(err, fferr.ErrGrantExpired) {
		t.Errorf("got %v, want expired", err)
	}
	f.Once(t, upkeep.Of(f.Engine).ExpireGrants)
	f.WantState(t, l.Execution, fixture.StateReturned)
	before = clock()
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(f.Issue(t, l.Execution)))
	if err != nil {
		t.Fatal(err)
	}
	within("a lease by a grant", claimed.ExpiresAt, before, fixture.LeaseTTL)
	before = clock()
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
		t.Fatal(err)
	}
	within("a cancellation", f.Describe(t, l.Execution).EndedAt, before, 0)

	x := f.Ended(t, fixture.KeepFor(time.Minute))
	f.Retain(t)
	f.WantKept(t, "kept", x)
	f.SetExecution(t, x, "terminal_at_ms = terminal_at_ms - 120000")
	f.Exec(t, `UPDATE ff_completion_event SET committed_at_ms = committed_at_ms - 120000, occurred_at_ms = occurred_at_ms - 120000
		WHERE execution_id = ANY ($1)`, []id.ExecutionUUID{x.UUID(), l.Execution.UUID()})
	f.Retain(t)
	f.WantKept(t, "gone", x)
}
