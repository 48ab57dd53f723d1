package tests

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
)

// In the reference each node's own clock decides, and the caller's at times. Here the database's does, whatever the
// caller says about creation.
func TestE41_time_is_the_databases(t *testing.T) {
	f := newFixture(t)
	eng, err := engine.New(f.pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	f.Engine = eng
	clock := func() time.Time {
		return time.UnixMilli(collect(t, pgx.RowTo[int64], f.pool, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0])
	}
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
