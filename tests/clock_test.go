package tests

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// onServerTime gives the fixture an engine that goes by the database's clock, and returns that clock.
func (f *fixture) onServerTime(t *testing.T) (clock func() time.Time) {
	t.Helper()
	eng, err := engine.New(f.pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = eng
	return func() time.Time {
		return time.UnixMilli(collect(t, pgx.RowTo[int64], f.pool, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0])
	}
}

// In the reference each node's own clock decides, and the caller's at times. Here the database's does, whatever the
// caller says about creation.
func TestE41_time_is_the_databases(t *testing.T) {
	f := newFixture(t)
	clock := f.onServerTime(t)
	before := clock()
	now, err := f.Now(t.Context())
	if err != nil || now.Before(before) || now.After(clock()) {
		t.Errorf("it is %v, %v; the database says %v", now, err, before)
	}

	century := 100 * 365 * 24 * time.Hour
	f.create(t, func(spec *engine.ExecutionSpec) { spec.CreatedAt = now.Add(century) })
	late := f.create(t, func(spec *engine.ExecutionSpec) {
		spec.CreatedAt, spec.DelayUntil = now.Add(-time.Hour), now.Add(time.Hour)
	})
	f.wantState(t, late, stateDelayed)
	early := f.create(t, func(spec *engine.ExecutionSpec) { spec.CreatedAt, spec.DelayUntil = now.Add(-century/10), now })
	f.wantState(t, early, stateReady)

	before = clock()
	claimed := f.claimN(t, 10)
	if len(claimed) != 2 {
		t.Fatalf("claimed %d, want 2: what was created in the past and in the future", len(claimed))
	}
	c := claimed[0]
	if c.ExpiresAt.Before(before.Add(leaseTTL)) || c.ExpiresAt.After(clock().Add(leaseTTL)) {
		t.Errorf("the lease expires at %v, claimed after %v", c.ExpiresAt, before)
	}
	f.setAttempt(t, c.ID, 0, "lease_expires_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
	if _, err := f.RenewLease(t.Context(), c.Lease, 0); !errors.Is(err, engine.ErrLeaseExpired) {
		t.Errorf("got %v, want expired", err)
	}
	f.setAttempt(t, c.ID, 0, "lease_expires_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3600000")
	if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Error(err)
	}
	if ended := f.describe(t, c.ID).EndedAt; ended.Before(before) || ended.After(clock()) {
		t.Errorf("ended at %v", ended)
	}
}

// So it is for what schedulers, operators and the background work do: an instant that a caller gives is one of the
// database's clock, and what another program's clock wrote holds up nothing.
func TestE41_time_is_the_databases_beside_the_workers(t *testing.T) {
	f := cloneFixture(t)
	f.signing(t)
	clock := f.onServerTime(t)
	// within fails the test unless at is that long after an instant since before.
	within := func(what string, at, before time.Time, d time.Duration) {
		t.Helper()
		if at.Before(before.Add(d)) || at.After(clock().Add(d)) {
			t.Errorf("%s: %v, want %v after %v", what, at, d, before)
		}
	}

	l := f.start(t).Lease
	before := clock()
	if outcomes, err := f.DelayExecutions(t.Context(), []engine.Delay{{Lease: l, For: time.Hour}}); err != nil || outcomes[0] != nil {
		t.Fatal(outcomes, err)
	}
	within("a delay", time.UnixMilli(*f.stored(t, l.Execution).DelayUntilMs), before, time.Hour)
	for _, at := range []struct {
		until time.Time
		state string
	}{{clock().Add(time.Hour), stateLater}, {clock().Add(-time.Hour), stateReturned}} {
		if err := f.Operator().DelayExecution(t.Context(), l.Execution, at.until); err != nil {
			t.Fatal(err)
		}
		f.wantState(t, l.Execution, at.state)
	}

	before = clock()
	grant := f.issue(t, l.Execution)
	within("a grant", grant.ExpiresAt, before, grantTTL)
	newest := engine.ClaimGrant{Execution: l.Execution} // whatever its key says
	f.exec(t, "UPDATE ff_claim_grant SET expires_at_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint WHERE execution_id = $1", l.Execution.UUID())
	if _, err := f.Grants().ClaimExecution(t.Context(), f.using(newest)); !errors.Is(err, engine.ErrGrantExpired) {
		t.Errorf("got %v, want expired", err)
	}
	f.once(t, f.Maintenance().ExpireGrants)
	f.wantState(t, l.Execution, stateReturned)
	before = clock()
	claimed, err := f.Grants().ClaimExecution(t.Context(), f.using(f.issue(t, l.Execution)))
	if err != nil {
		t.Fatal(err)
	}
	within("a lease by a grant", claimed.ExpiresAt, before, leaseTTL)
	before = clock()
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: l.Execution}); err != nil {
		t.Fatal(err)
	}
	within("a cancellation", f.describe(t, l.Execution).EndedAt, before, 0)

	x := f.ended(t, keepFor(time.Minute))
	f.retain(t)
	f.wantKept(t, "kept", x)
	f.setExecution(t, x, "terminal_at_ms = terminal_at_ms - 120000")
	f.exec(t, `UPDATE ff_completion_event SET committed_at_ms = committed_at_ms - 120000, occurred_at_ms = occurred_at_ms - 120000
		WHERE execution_id = ANY ($1)`, []id.ExecutionUUID{x.UUID(), l.Execution.UUID()})
	f.retain(t)
	f.wantKept(t, "gone", x)

	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		x := f.seed(t, columns{"created_at_ms": clock().Add(ahead).UnixMilli()})
		if n := f.adoptAll(t); n != 1 {
			t.Errorf("adopted %d of what was created in %v", n, ahead)
		}
		f.wantState(t, x, stateReady)
	}
}
