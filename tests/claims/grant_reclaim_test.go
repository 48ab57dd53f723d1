package claims

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The reference's reclaim leaves the superseded attempt its lease and epoch, no longer takes swept executions, and
// does not count there.
func TestReclaimOfALostLease_E9_E12(t *testing.T) {
	for _, c := range []struct {
		name    string
		lose    func(t *testing.T, f *fixture.Fixture, held engine.Claimed)
		events  []string
		counted int32
		epoch   int64
		old     int64 // epoch that the old attempt shows in the end
	}{
		{"before it is swept", func(*testing.T, *fixture.Fixture, engine.Claimed) {}, []string{"lease acquired", "lease reclaimed"}, 1, 2, 2},
		{
			"swept", func(t *testing.T, f *fixture.Fixture, _ engine.Claimed) {
				fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			},
			[]string{"lease acquired", "lease expired", "lease reclaimed"},
			1, 3, 3,
		},
		{"swept by the reference, which counts nothing", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.SetExecution(t, held.ID, "lease_reclaim_count = 0")
		}, []string{"lease acquired", "lease expired", "lease reclaimed"}, 1, 3, 3},
		{"revoked by the reference", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			f.SetExecution(t, held.ID, "ownership_state = 'lease_revoked'")
		}, []string{"lease acquired", "lease reclaimed"}, 1, 2, 2},
		{"its attempt leased again by the reference, and lost", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			f.SetAttempt(t, held.ID, 0, "lease_epoch = 7")
		}, []string{"lease acquired", "lease reclaimed"}, 1, 8, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			held := f.Start(t)
			f.Advance(fixture.LeaseTTL)
			c.lose(t, f, held)
			before := f.Dump(t, held.ID)
			grant := f.IssueReclaim(t, held.ID)
			row := fixture.Texts(t, f.Pool, "SELECT kind || ' ' || lane_id FROM ff_claim_grant WHERE execution_id = $1", held.ID.UUID())
			if len(row) != 1 || row[0] != "reclaim "+string(f.Lane) || grant.Lane != f.Lane || !grant.ExpiresAt.Equal(f.Time().Add(fixture.GrantTTL)) {
				t.Errorf("granted %v, stored %q", grant, row)
			}
			f.Exec(t, "DELETE FROM ff_claim_grant")
			f.WantUnchanged(t, held.ID, before) // the execution's row is as it was
			grant = f.IssueReclaim(t, held.ID)
			spec := f.Reclaiming(grant)
			spec.LeaseID, spec.AttemptID = id.NewLeaseID(), id.NewAttemptID()
			claimed, err := interop.ReclaimExecution(t.Context(), f.Engine, spec)
			if err != nil {
				t.Fatal(err)
			}
			if claimed.Lease.ID != spec.LeaseID || claimed.Lease.AttemptID != spec.AttemptID {
				t.Errorf("claimed %+v", claimed)
			}
			f.WantEvents(t, held.ID, c.events...)
			stored, attempts := f.Stored(t, held.ID), f.StoredAttempts(t, held.ID)
			if stored.ReclaimCount != c.counted || stored.AttemptCount != 2 || len(attempts) != 2 {
				t.Errorf("stored %+v, attempts %+v", stored, attempts)
			}
			if old := attempts[0]; old.Outcome != "interrupted_reclaimed" || old.TerminalAtMs == nil || old.LeaseExpiresAtMs != nil ||
				old.WorkerID != nil || old.WorkerInstanceID != nil || old.LeaseEpoch != c.old || old.TimeoutAtMs != nil {
				t.Errorf("the old attempt: %+v", old)
			}
			for _, err := range []error{f.CompleteExecution(t.Context(), held.Lease, nil), f.ReportProgress(t.Context(), held.Lease, engine.Progress{})} {
				fixture.WantLeaseError(t, err, fferr.ErrStaleLease)
			}
			_, err = interop.ReclaimExecution(t.Context(), f.Engine, spec)
			wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
			wantLease(t, f, claimed, 1, c.epoch, state.ReclaimAttempt, false)
		})
	}
}

// The reference checks only that it has not ended, and steals a lease that was renewed.
func TestReclaimRefusesALiveLease_E11(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(t *testing.T, f *fixture.Fixture, held engine.Claimed)
	}{
		{"claimed again", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.ClaimOne(t)
		}},
		{"leased again by the reference", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			f.SetAttempt(t, held.ID, 0, fmt.Sprintf("lease_epoch = 5, lease_expires_at_ms = %d", f.Time().Add(time.Hour).UnixMilli()))
		}},
		{"suspended", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			f.SetExecution(t, held.ID, "lifecycle_phase = 'suspended', ownership_state = 'unowned', eligibility_state = 'not_applicable', public_state = 'suspended', attempt_state = 'attempt_interrupted'")
		}},
		{"cancelled", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			f.SetExecution(t, held.ID, fixture.ForeignCancel)
		}},
		{"granted to somebody", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			f.Issue(t, held.ID)
		}},
		{"given back, not lost", func(t *testing.T, f *fixture.Fixture, held engine.Claimed) {
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			again := f.ClaimOne(t)
			if _, err := f.ReleaseLeases(t.Context(), []engine.Lease{again.Lease}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			held := f.Start(t)
			f.Advance(fixture.LeaseTTL)
			grant := f.IssueReclaim(t, held.ID)
			c.then(t, f, held)
			setGrants(t, f, held.ID, grant)
			before := f.Dump(t, held.ID)
			_, err := interop.ReclaimExecution(t.Context(), f.Engine, f.Reclaiming(grant))
			if refusal, ok := errors.AsType[*fferr.StateError](err); !ok || refusal.Err != fferr.ErrNotReclaimable {
				t.Errorf("reclaimed: %v", err)
			}
			if _, err := interop.IssueReclaimGrant(t.Context(), f.Engine, f.GrantSpec(held.ID)); !errors.Is(err, fferr.ErrNotReclaimable) {
				t.Errorf("granted: %v", err)
			}
			f.WantUnchanged(t, held.ID, before)
		})
	}
}

// setGrants puts a reclaim grant back that something has deleted.
func setGrants(t *testing.T, f *fixture.Fixture, x id.ExecutionID, grant interop.ReclaimGrant) {
	t.Helper()
	key := grant.Key.ID()
	f.Exec(t, `INSERT INTO ff_claim_grant (partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, grant_ttl_ms, issued_at_ms, expires_at_ms)
		VALUES ($1, $2, $3, 'reclaim', $4, $4, 1, 1, $5) ON CONFLICT DO NOTHING`, x.Partition(), key[:], x.UUID(), f.Name, grant.ExpiresAt.UnixMilli())
}

// After the sweep the reference's crash loops are without a bound.
func TestReclaimsEndAtTheLimit_E12(t *testing.T) {
	for _, c := range []struct {
		name   string
		limit  *int   // of the call
		count  int32  // before
		policy string // its cap
		swept  bool
		ends   bool
		after  int32
	}{
		{"below", nil, 1, `{"max_reclaim_count":2}`, false, false, 2},
		{"at the cap", nil, 2, `{"max_reclaim_count":2}`, false, true, 3},
		{"swept, at the cap", nil, 2, `{"max_reclaim_count":2}`, true, false, 2},
		{"swept, above the cap", nil, 3, `{"max_reclaim_count":2}`, true, true, 3},
		{"at the smaller of both", nil, 1, `{"max_reclaim_count":5,"timeout_policy":{"max_reclaim_count":1}}`, false, true, 2},
		{"at a cap of nothing", nil, 0, `{"max_reclaim_count":0}`, false, true, 1},
		{"below the worker's", new(3), 2, `{"max_reclaim_count":0}`, false, false, 3},
		{"at the worker's", new(3), 3, `{"max_reclaim_count":50}`, false, true, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.FlowsOn(fixture.GrantFixture(t))
			flow := f.Draw(t, nil, "a>b")
			f.Lease(t, flow, "a")
			x := f.NodeID(flow, "a")
			f.Advance(fixture.LeaseTTL)
			if c.swept {
				fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			}
			grant := f.IssueReclaim(t, x)
			f.Exec(t, fixture.UpdateExecution("lease_reclaim_count = $3, policy = $4"), x.Partition(), x.UUID(), c.count, c.policy)
			f.SeedGrant(t, x)
			spec := f.Reclaiming(grant)
			spec.MaxReclaims = c.limit
			_, err := interop.ReclaimExecution(t.Context(), f.Fixture.Engine, spec)
			stored := f.Stored(t, x)
			if stored.ReclaimCount != c.after || f.CountGrants(t, x) != 0 {
				t.Errorf("%d reclaims, %d grants", stored.ReclaimCount, f.CountGrants(t, x))
			}
			if !c.ends {
				if err != nil || stored.State != fixture.StateRunning {
					t.Errorf("%v, stored %+v", err, stored)
				}
				return
			}
			if full, ok := errors.AsType[*fferr.ReclaimCapError](err); !ok || full.Reclaims != int(c.after) || !errors.Is(err, fferr.ErrReclaimCapExceeded) {
				t.Errorf("got %v", err)
			}
			if stored.State != fixture.StateFailed || *stored.CancelReason != "reclaim_cap_exceeded" || *stored.TerminalAtMs != f.Time().UnixMilli() ||
				stored.Raw(t, "last_failure_message") != "lease_reclaim_cap_exceeded" {
				t.Errorf("stored %+v", stored)
			}
			if a := f.StoredAttempts(t, x)[0]; a.Outcome != "failed" || a.TerminalAtMs == nil || a.LeaseExpiresAtMs != nil || a.LeaseEpoch != stored.LeaseEpoch {
				t.Errorf("attempt %+v", a)
			}
			f.WantState(t, f.NodeID(flow, "b"), fixture.StateSkipped)
			if c.swept {
				f.WantEvents(t, x, "lease acquired", "lease expired", "completion failed")
			} else {
				f.WantEvents(t, x, "lease acquired", "lease revoked reconciler", "completion failed")
			}
		})
	}
	t.Run("no grant at the cap", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		held := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Policy = &policy.Execution{MaxReclaims: policy.NoReclaims} })
		f.Advance(fixture.LeaseTTL)
		before := f.Dump(t, held.ID)
		_, err := interop.IssueReclaimGrant(t.Context(), f.Engine, f.GrantSpec(held.ID))
		if full, ok := errors.AsType[*fferr.ReclaimCapError](err); !ok || full.Reclaims != 0 {
			t.Errorf("got %v", err)
		}
		f.WantUnchanged(t, held.ID, before)
	})
	t.Run("in a transaction", func(t *testing.T) {
		f := fixture.GrantFixture(t)
		held := f.Start(t)
		f.Advance(fixture.LeaseTTL)
		spec := f.Reclaiming(f.IssueReclaim(t, held.ID))
		spec.MaxReclaims = new(0)
		tx := f.BeginTx(t)
		if _, err := interop.ReclaimExecution(t.Context(), f.WithTx(tx), spec); !errors.Is(err, fferr.ErrReclaimCapExceeded) {
			t.Errorf("got %v", err)
		}
		fixture.Commit(t, tx)
		f.WantState(t, held.ID, fixture.StateFailed)
	})
}

// Without a key the newest reclaim grant counts.
func TestReclaimVerifiesItsGrant_E36(t *testing.T) {
	f := fixture.GrantFixture(t)
	held := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	keyless := f.Reclaiming(interop.ReclaimGrant{Execution: held.ID})
	before := f.Dump(t, held.ID)
	_, err := interop.ReclaimExecution(t.Context(), f.Engine, keyless)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
	f.WantUnchanged(t, held.ID, before)
	grant := f.IssueReclaim(t, held.ID)
	if again := f.IssueReclaim(t, held.ID); again.Key != grant.Key || f.CountGrants(t, held.ID) != 1 {
		t.Error("a repetition in the same millisecond is another grant")
	}
	stranger := keyless
	stranger.Worker = "somebody"
	_, err = interop.ReclaimExecution(t.Context(), f.Engine, stranger)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
	wrong := f.Reclaiming(grant)
	wrong.Instance = "somebody"
	_, err = interop.ReclaimExecution(t.Context(), f.Engine, wrong)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
	f.Advance(fixture.GrantTTL)
	for _, spec := range []interop.Reclaim{keyless, f.Reclaiming(grant)} {
		_, err = interop.ReclaimExecution(t.Context(), f.Engine, spec)
		wantGrantError(t, err, fferr.ErrGrantExpired, "")
	}
	f.IssueReclaim(t, held.ID)
	keyless.Instance = "another"
	claimed, err := interop.ReclaimExecution(t.Context(), f.Engine, keyless)
	if err != nil {
		t.Fatal(err)
	}
	wantLease(t, f, claimed, 1, 2, state.ReclaimAttempt, false)
}

// Attempts that another program left above the pointer are history.
func TestReclaimOverwritesNoAttempt_E5(t *testing.T) {
	f := fixture.GrantFixture(t)
	held := f.Start(t)
	f.SeedAttempt(t, held.ID, 1, fixture.Columns{"outcome": "failed", "terminal_at_ms": 1})
	f.Advance(fixture.LeaseTTL)
	claimed, err := interop.ReclaimExecution(t.Context(), f.Engine, f.Reclaiming(f.IssueReclaim(t, held.ID)))
	if err != nil {
		t.Fatal(err)
	}
	if attempts := f.StoredAttempts(t, held.ID); len(attempts) != 3 || attempts[1].Outcome != "failed" {
		t.Errorf("attempts %+v", attempts)
	}
	wantLease(t, f, claimed, 2, 2, state.ReclaimAttempt, false)
}

// The reference asks only whether the newest attempt has a live lease: ended, suspended, delayed and blocked
// executions run again, and the outcome of a finished attempt is erased.
func TestResumeGrantsByState_E46(t *testing.T) {
	suspended := "lifecycle_phase = 'suspended', ownership_state = 'unowned', eligibility_state = 'not_applicable', public_state = 'suspended', attempt_state = 'attempt_interrupted'"
	runnable := "lifecycle_phase = 'runnable', ownership_state = 'released', public_state = 'waiting', attempt_state = 'attempt_interrupted', "
	for _, c := range []struct {
		name      string
		execution string
		attempt   string
		want      error // nil: it goes on
		epoch     int64
		counted   int32
	}{
		{"running, its lease lost", "priority = priority", "outcome = outcome", nil, 2, 1},
		{"running, without a lease", "ownership_state = 'lease_expired_reclaimable'", "lease_expires_at_ms = NULL", nil, 2, 1},
		{"revoked", "ownership_state = 'lease_revoked'", "lease_expires_at_ms = NULL", nil, 2, 0},
		{"swept", runnable + "eligibility_state = 'eligible_now', lease_reclaim_count = 1", "lease_expires_at_ms = NULL, outcome = 'lease_expired_reclaimable'", nil, 2, 1},
		{"its suspension satisfied", runnable + "eligibility_state = 'eligible_now'", "lease_expires_at_ms = NULL, outcome = 'attempt_interrupted', terminal_at_ms = 1", nil, 2, 0},
		{"its attempt leased by the reference, and lost", "priority = priority", "lease_epoch = 6", nil, 7, 1},
		{"its lease is live", "priority = priority", "lease_expires_at_ms = 1900000000000", fferr.ErrNotLeaseable, 0, 0},
		{"lost too often", `policy = '{"max_reclaim_count":0}'`, "outcome = outcome", fferr.ErrReclaimCapExceeded, 0, 0},
		{"suspended", suspended, "lease_expires_at_ms = NULL", fferr.ErrNotLeaseable, 0, 0},
		{"delayed", runnable + "eligibility_state = 'not_eligible_until_time'", "lease_expires_at_ms = NULL", fferr.ErrNotLeaseable, 0, 0},
		{"blocked", runnable + "eligibility_state = 'blocked_by_dependencies'", "lease_expires_at_ms = NULL", fferr.ErrNotLeaseable, 0, 0},
		{"granted to somebody", runnable + "eligibility_state = 'pending_claim'", "lease_expires_at_ms = NULL", fferr.ErrInvalidGrant, 0, 0},
		{"retried", "lifecycle_phase = 'runnable', ownership_state = 'unowned', public_state = 'waiting', eligibility_state = 'eligible_now', " +
			"attempt_index = 1, attempt_state = 'pending_retry_attempt'", "lease_expires_at_ms = NULL, outcome = 'retry', terminal_at_ms = 1", fferr.ErrNotLeaseable, 0, 0},
		{"cancelled", fixture.ForeignCancel, "lease_expires_at_ms = NULL", fferr.ErrNotLeaseable, 0, 0},
		{
			"completed", "lifecycle_phase = 'terminal', ownership_state = 'unowned', public_state = 'completed', attempt_state = 'attempt_terminal'",
			"lease_expires_at_ms = NULL, outcome = 'success', terminal_at_ms = 1", fferr.ErrNotLeaseable, 0, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			f.Engine = f.EngineOn(t, f.Pool, engine.Config{UnsignedResumeGrants: true})
			held := f.Start(t)
			f.Advance(fixture.LeaseTTL)
			f.SetAttempt(t, held.ID, 0, c.attempt)
			f.SetExecution(t, held.ID, c.execution)
			f.Exec(t, "DELETE FROM ffx_lease_timer")
			f.Exec(t, `INSERT INTO ff_claim_grant (partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, grant_ttl_ms, issued_at_ms, expires_at_ms)
				VALUES ($1, '\x01', $2, 'claim', 'w', 'w', 1, 1, $3)`, held.ID.Partition(), held.ID.UUID(), f.Time().Add(time.Hour).UnixMilli())
			before := f.Dump(t, held.ID)
			spec := f.Resuming(interop.ClaimGrant{Execution: held.ID, Lane: f.Lane, Key: "theirs", ExpiresAt: f.Time().Add(time.Second)})
			claimed, err := interop.ClaimFromResumeGrant(t.Context(), f.Engine, spec)
			if c.want != nil {
				if !errors.Is(err, c.want) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				f.WantUnchanged(t, held.ID, before)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if claimed.Lease.AttemptID != held.Lease.AttemptID || f.Stored(t, held.ID).ReclaimCount != c.counted || len(f.StoredAttempts(t, held.ID)) != 1 {
				t.Errorf("claimed %+v, stored %+v", claimed, f.Stored(t, held.ID))
			}
			f.WantEvents(t, held.ID, "lease acquired", "lease reclaimed")
			wantLease(t, f, claimed, 0, c.epoch, state.InitialAttempt, true)
		})
	}
}

// A grant whose key cannot be verified is refused unless the engine is configured otherwise.
func TestUnsignedResumeGrants_E36(t *testing.T) {
	f := fixture.GrantFixture(t)
	held := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	theirs := f.Resuming(interop.ClaimGrant{Execution: held.ID, Key: "theirs", ExpiresAt: f.Time().Add(time.Second)})
	before := f.Dump(t, held.ID)
	_, err := interop.ClaimFromResumeGrant(t.Context(), f.Engine, theirs)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonMalformed)
	lenient := f.EngineOn(t, f.Pool, engine.Config{UnsignedResumeGrants: true})
	none := theirs
	none.Grant.Key = ""
	_, err = interop.ClaimFromResumeGrant(t.Context(), lenient, none)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonMalformed)
	late := theirs
	late.Grant.ExpiresAt = f.Time()
	_, err = interop.ClaimFromResumeGrant(t.Context(), lenient, late)
	wantGrantError(t, err, fferr.ErrGrantExpired, "")
	f.WantUnchanged(t, held.ID, before)
	unstarted := theirs
	unstarted.Grant.Execution = f.Create(t)
	if _, err := interop.ClaimFromResumeGrant(t.Context(), lenient, unstarted); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("never started: %v", err)
	}
	if _, err := interop.ClaimFromResumeGrant(t.Context(), lenient, theirs); err != nil {
		t.Error(err)
	}
}
