package claims

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// wantGrantError fails the test where err is another refusal of a grant, or shows the grant's key.
func wantGrantError(t *testing.T, err, want error, reason id.Reason) {
	t.Helper()
	refusal, ok := errors.AsType[*fferr.GrantError](err)
	if !ok || refusal.Err != want || refusal.Reason != reason || !errors.Is(err, want) {
		t.Errorf("got %v, want %v %s", err, want, reason)
	}
}

// wantSilent fails the test where something of a grant's key shows in an error.
func wantSilent(t *testing.T, err error, key wire.GrantKey) {
	t.Helper()
	digest := string(key)[strings.LastIndexByte(string(key), ':')+1:]
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(verb, err); len(digest) > 8 && strings.Contains(text, digest) {
			t.Errorf("the error shows the key: %s", text)
		}
	}
}

// wantLease fails the test where claimed is not the lease that is stored, or cannot be worked with.
func wantLease(t *testing.T, f *fixture.Fixture, claimed engine.Claimed, index int, epoch int64, kind state.AttemptType, resumed bool) {
	t.Helper()
	l := claimed.Lease
	if l.Attempt != index || l.Epoch != epoch || claimed.Type != kind || claimed.Resumed != resumed || claimed.ID != l.Execution || l.Lane != f.Lane {
		t.Errorf("claimed %+v, want attempt %d, epoch %d, %s, resumed %t", claimed, index, epoch, kind, resumed)
	}
	stored := f.Stored(t, claimed.ID)
	if stored.State != fixture.StateRunning || int(stored.AttemptIndex) != index || stored.LeaseEpoch != epoch || stored.StartedAtMs == nil ||
		stored.DelayUntilMs != nil || *stored.LastMutation != f.Time().UnixMilli() {
		t.Errorf("stored %+v", stored)
	}
	attempts := f.StoredAttempts(t, claimed.ID)
	at := slices.IndexFunc(attempts, func(a fixture.StoredAttempt) bool { return int(a.AttemptIndex) == index })
	if at < 0 {
		t.Fatalf("attempts %+v", attempts)
	}
	if a := attempts[at]; a.LeaseEpoch != epoch || a.Outcome != "" || a.TerminalAtMs != nil || a.StartedAtMs == nil || a.LeaseID == nil ||
		*a.LeaseID != l.ID || a.AttemptID == nil || *a.AttemptID != l.AttemptID || a.Type != string(kind) || *a.WorkerInstanceID != string(l.Instance) ||
		*a.LeaseExpiresAtMs != f.Time().Add(fixture.LeaseTTL).UnixMilli() || claimed.ExpiresAt.UnixMilli() != *a.LeaseExpiresAtMs {
		t.Errorf("attempt %+v", a)
	}
	if n := f.CountGrants(t, claimed.ID); n != 0 {
		t.Errorf("%d grants are left", n)
	}
	f.WantTimer(t, t, "a grant")
	if queued := fixture.Texts(t, f.Pool, "SELECT lane_id FROM ffx_ready WHERE execution_id = $1", claimed.ID.UUID()); len(queued) > 0 {
		t.Error("it is still queued")
	}
	// The handle goes to another process, which renews and completes.
	again, err := engine.LeaseFromHandle(l.Handle(wire.HandleFresh))
	if err != nil || again != l {
		t.Errorf("from its handle %+v, %v", again, err)
	}
	if _, err := f.RenewLease(t.Context(), again, 0); err != nil {
		t.Error(err)
	}
	if err := f.ReportProgress(t.Context(), again, engine.Progress{}); err != nil {
		t.Error(err) // judges the fence by the rows
	}
	if err := f.CompleteExecution(t.Context(), again, []byte("out")); err != nil {
		t.Error(err)
	}
}

// The reference's scheduler makes an execution pending_claim, and its claim_execution insists on eligible_now.
func TestGrantedExecutionIsClaimedByItsGrant_E3_I31(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{Capabilities: id.NewCapabilities("b", "a"), AttemptTimeout: time.Minute}
		spec.Payload, spec.Tags, spec.Priority = []byte("in"), map[string]string{"app.k": "v"}, 7
	})
	spec := f.GrantSpec(x)
	spec.Lane, spec.Capabilities = f.Lane, id.Capabilities{"c", "b", "a"}
	spec.CapabilityHash, spec.RouteSnapshot, spec.AdmissionSummary = "hash", `{"route":1}`, "admitted"
	f.Advance(time.Second)
	grant, err := interop.IssueClaimGrant(t.Context(), f.Engine, spec)
	if err != nil {
		t.Fatal(err)
	}
	expires := f.Time().Add(fixture.GrantTTL)
	if grant.Execution != x || grant.Lane != f.Lane || !grant.ExpiresAt.Equal(expires) {
		t.Errorf("granted %v", grant)
	}
	f.WantState(t, x, fixture.StateGranted)
	f.WantEvents(t, x)
	key := grant.Key.ID()
	row := fixture.One[struct {
		GrantID                                              []byte
		Kind, WorkerID, WorkerInstanceID, LaneID, Capability string
		Route, Summary, Hash                                 string
		TTL, Issued, Expires                                 int64
	}](t, f.Pool, `SELECT grant_id, kind, worker_id, worker_instance_id, lane_id, worker_capabilities::text AS capability,
			route_snapshot_json AS route, admission_summary AS summary, capability_hash AS hash, grant_ttl_ms AS ttl, issued_at_ms AS issued,
			expires_at_ms AS expires
		FROM ff_claim_grant WHERE partition_key = $1 AND execution_id = $2`, x.Partition(), x.UUID())
	if !bytes.Equal(row.GrantID, key[:]) || row.Kind != "claim" || row.WorkerID != f.Name || row.WorkerInstanceID != f.Name || row.LaneID != string(f.Lane) ||
		row.Capability != `["a", "b", "c"]` || row.Route != spec.RouteSnapshot || row.Summary != "admitted" || row.Hash != "hash" ||
		row.TTL != fixture.GrantTTL.Milliseconds() || row.Issued != f.Time().UnixMilli() || row.Expires != expires.UnixMilli() {
		t.Errorf("stored %+v", row)
	}
	if claimed, err := f.Claim(t.Context(), f.Worker(), 1); len(claimed) != 0 || err != nil {
		t.Errorf("claimed %v, %v", claimed, err)
	}
	if _, err := interop.IssueClaimGrant(t.Context(), f.Engine, spec); !errors.Is(err, fferr.ErrGrantExists) {
		t.Errorf("granted again: %v", err)
	}
	if err := interop.VerifyGrant(t.Context(), f.Engine, grant); err != nil {
		t.Error(err)
	}
	// On its way to the worker.
	sent, err := json.Marshal(grant)
	if err != nil {
		t.Fatal(err)
	}
	var received interop.ClaimGrant
	if err := json.Unmarshal(sent, &received); err != nil || received.Key != grant.Key || received.Execution != x || !received.ExpiresAt.Equal(expires) {
		t.Errorf("received %v, %v", received, err)
	}
	if shown := fmt.Sprintf("%v %+v", grant, grant); strings.Contains(shown, string(grant.Key)) {
		t.Errorf("it shows its key: %s", shown)
	}
	f.Advance(time.Second)
	using := f.Using(received)
	using.ExpectedAttempt = new(0)
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, using)
	if err != nil {
		t.Fatal(err)
	}
	if string(claimed.Payload) != "in" || claimed.Kind != "test" || claimed.Tags["app.k"] != "v" || claimed.Priority != 7 ||
		!claimed.TimeoutAt.Equal(f.Time().Add(time.Minute)) || !claimed.CreatedAt.Equal(fixture.Start) {
		t.Errorf("claimed %+v", claimed)
	}
	wantLease(t, f, claimed, 0, 1, state.InitialAttempt, false)
	f.WantEvents(t, x, "lease acquired", "lease renewed", "lease revoked backend", "completion success")
	_, err = interop.ClaimExecution(t.Context(), f.Engine, using)
	if !errors.Is(err, fferr.ErrNotLeaseable) {
		t.Errorf("claimed again: %v", err)
	}
	wantGrantError(t, interop.VerifyGrant(t.Context(), f.Engine, grant), fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
}

// The reference's typed claim answers with a handle that has no bytes, and leaves the pointer behind the attempt.
func TestLeaseByGrantIsLikeAnyOther_E5_I13_I15(t *testing.T) {
	f := fixture.GrantFixture(t)
	for _, lease := range []func(x id.ExecutionID) (engine.Claimed, error){
		func(x id.ExecutionID) (engine.Claimed, error) {
			return interop.ClaimExecution(t.Context(), f.Engine, f.Using(f.Issue(t, x)))
		},
		func(x id.ExecutionID) (engine.Claimed, error) {
			return interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "", fixture.LeaseTTL)
		},
	} {
		x := f.Create(t, fixture.Retrying(*policy.ImmediateRetries(0)))
		claimed, err := lease(x)
		if err != nil {
			t.Fatal(err)
		}
		if stored := f.Stored(t, x); stored.AttemptIndex != 0 || stored.AttemptCount != 1 || stored.LeaseEpoch != 1 {
			t.Errorf("stored %+v", stored)
		}
		if failed := f.Fail(t, claimed.Lease, engine.Failure{}); !failed.Retry || failed.NextAttempt != 1 {
			t.Errorf("failed %+v", failed)
		}
		claimed, err = lease(x)
		if err != nil {
			t.Fatal(err)
		}
		wantLease(t, f, claimed, 1, 2, state.RetryAttempt, false)
	}
}

// The worker's options of a claim are stored.
func TestClaimByGrantTakesTheWorkersOptions_E6(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t, func(spec *engine.ExecutionSpec) {
		spec.Policy = &policy.Execution{AttemptTimeout: time.Hour}
		spec.Deadline = fixture.Start.Add(time.Hour)
	})
	using := f.Using(f.Issue(t, x))
	before := f.Dump(t, x)
	using.ExpectedAttempt = new(1)
	if _, err := interop.ClaimExecution(t.Context(), f.Engine, using); !errors.Is(err, fferr.ErrNotLeaseable) {
		t.Errorf("another attempt was expected: %v", err)
	}
	f.WantUnchanged(t, x, before)
	using.ExpectedAttempt = new(0)
	using.LeaseID, using.AttemptID = id.NewLeaseID(), id.NewAttemptID()
	using.AttemptTimeout, using.Deadline = time.Second, fixture.Start.Add(time.Minute)
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, using)
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Lease.ID != using.LeaseID || claimed.Lease.AttemptID != using.AttemptID || !claimed.TimeoutAt.Equal(fixture.Start.Add(time.Second)) {
		t.Errorf("claimed %+v", claimed)
	}
	stored, attempt := f.Stored(t, x), f.StoredAttempts(t, x)[0]
	if *stored.DeadlineAtMs != fixture.Start.Add(time.Minute).UnixMilli() || *stored.LastDeadline != *stored.DeadlineAtMs || stored.AttemptCount != 1 {
		t.Errorf("stored %+v", stored)
	}
	if *attempt.TimeoutAtMs != fixture.Start.Add(time.Second).UnixMilli() || *attempt.LeaseID != using.LeaseID || *attempt.AttemptID != using.AttemptID {
		t.Errorf("attempt %+v", attempt)
	}
}

// The reference's typed claim refuses executions after a lease expiry, though its scheduler grants them.
func TestInterruptedAttemptContinuesByGrant_E51_E48(t *testing.T) {
	f := fixture.GrantFixture(t)
	held := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	f.SetAttempt(t, held.ID, 0, "terminal_at_ms = 1") // as the reference leaves it
	using := f.Using(f.Issue(t, held.ID))
	f.WantState(t, held.ID, "runnable unowned pending_claim waiting attempt_interrupted waiting_for_worker")
	using.ExpectedAttempt = new(5) // of a new one
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, using)
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Lease.AttemptID != held.Lease.AttemptID {
		t.Error("the attempt has another id")
	}
	wantLease(t, f, claimed, 0, 3, state.InitialAttempt, true)
}

// A grant is looked up by its key, and compared with the execution it was issued for; the reference takes the newest
// of the execution, and verifies nothing when it is used.
func TestForgedGrantsAreRefused_I30_E36(t *testing.T) {
	f := fixture.GrantFixture(t)
	f.SeedKey(t, "retired", fixture.Columns{"rotated_at_ms": 0, "active": false, "ffx_verify_until_ms": fixture.Start.UnixMilli()})
	x, other := f.Create(t), f.Create(t)
	good, others := f.Issue(t, x), f.Issue(t, other)
	reclaim := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	reclaimGrant := f.IssueReclaim(t, reclaim.ID)
	sign := func(kid string, secret []byte, expires time.Time) wire.GrantKey {
		return wire.Grant{
			Kind: wire.ClaimGrant, Execution: x, Worker: id.WorkerID(f.Name), WorkerInstance: id.WorkerInstanceID(f.Name),
			ExpiresAtMs: expires.UnixMilli(),
		}.Sign(secret, kid)
	}
	digit := byte('0')
	if good.Key[len(good.Key)-1] == digit {
		digit = '1'
	}
	before := f.Dump(t, x)
	for _, c := range []struct {
		name   string
		change func(*interop.GrantedClaim)
		want   error
		reason id.Reason
	}{
		{"no key at all", func(c *interop.GrantedClaim) { c.Grant.Key = "pg" }, fferr.ErrInvalidGrant, id.ReasonMalformed},
		{"cut off", func(c *interop.GrantedClaim) { c.Grant.Key = good.Key[:len(good.Key)-1] }, fferr.ErrInvalidGrant, id.ReasonMalformed},
		{"another digest", func(c *interop.GrantedClaim) { c.Grant.Key = good.Key[:len(good.Key)-1] + wire.GrantKey(digit) }, fferr.ErrInvalidGrant, id.ReasonUnknownGrant},
		{"of another execution", func(c *interop.GrantedClaim) { c.Grant.Key = others.Key }, fferr.ErrInvalidGrant, id.ReasonMalformed},
		{"to reclaim", func(c *interop.GrantedClaim) { c.Grant.Key = reclaimGrant.Key }, fferr.ErrInvalidGrant, id.ReasonMalformed},
		{"of an unknown key", func(c *interop.GrantedClaim) { c.Grant.Key = sign("k9", fixture.GrantSecret, f.Time().Add(time.Hour)) }, fferr.ErrInvalidGrant, id.ReasonUnknownKid},
		{"of a retired key", func(c *interop.GrantedClaim) {
			c.Grant.Key = sign("retired", fixture.GrantSecret, f.Time().Add(time.Hour))
		}, fferr.ErrInvalidGrant, id.ReasonUnknownKid},
		{"never issued", func(c *interop.GrantedClaim) { c.Grant.Key = sign("k1", fixture.GrantSecret, f.Time().Add(time.Hour)) }, fferr.ErrInvalidGrant, id.ReasonUnknownGrant},
		{"expired", func(c *interop.GrantedClaim) { c.Grant.Key = sign("k1", fixture.GrantSecret, f.Time()) }, fferr.ErrGrantExpired, ""},
		{"shown by another worker", func(c *interop.GrantedClaim) { c.Worker = "somebody" }, fferr.ErrInvalidGrant, id.ReasonUnknownGrant},
		{"shown by another instance", func(c *interop.GrantedClaim) { c.Instance = "somebody" }, fferr.ErrInvalidGrant, id.ReasonUnknownGrant},
	} {
		t.Run(c.name, func(t *testing.T) {
			using := f.Using(good)
			c.change(&using)
			_, err := interop.ClaimExecution(t.Context(), f.Engine, using)
			wantGrantError(t, err, c.want, c.reason)
			wantSilent(t, err, using.Grant.Key)
			resuming := f.Resuming(using.Grant)
			resuming.Worker, resuming.Instance = using.Worker, using.Instance
			if using.Grant.Key.IsSigned() {
				_, err = interop.ClaimFromResumeGrant(t.Context(), f.Engine, resuming)
				wantGrantError(t, err, c.want, c.reason)
			}
			if using.Worker == id.WorkerID(f.Name) && using.Instance == id.WorkerInstanceID(f.Name) {
				wantGrantError(t, interop.VerifyGrant(t.Context(), f.Engine, using.Grant), c.want, c.reason)
			}
			f.WantUnchanged(t, x, before)
		})
	}
	t.Run("signed for another worker than its row says", func(t *testing.T) {
		forged := wire.Grant{Kind: wire.ClaimGrant, Execution: x, Worker: "a", WorkerInstance: "b", ExpiresAtMs: f.Time().Add(time.Hour).UnixMilli()}.Sign(bytes.Repeat([]byte{1}, 32), "k1")
		key := forged.ID()
		f.Insert(t, "ff_claim_grant", fixture.Columns{
			"partition_key": x.Partition(), "grant_id": key[:], "execution_id": x.UUID(), "kind": "claim", "worker_id": f.Name,
			"worker_instance_id": f.Name, "grant_ttl_ms": 1, "issued_at_ms": f.Time().UnixMilli(), "expires_at_ms": f.Time().Add(time.Hour).UnixMilli(),
		}, nil)
		before := f.Dump(t, x)
		_, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(interop.ClaimGrant{Execution: x, Key: forged}))
		wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonSignatureMismatch)
		wantSilent(t, err, forged)
		f.WantUnchanged(t, x, before)
	})
	// A newer grant of the execution does not stand in the way of the one that is shown.
	if err := interop.VerifyGrant(t.Context(), f.Engine, good); err != nil {
		t.Error(err)
	}
	if _, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(good)); err != nil {
		t.Error(err)
	}
	wantGrantError(t, interop.VerifyGrant(t.Context(), f.Engine, good), fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
}

// One boundary: at the instant at which it expires a grant is good for nothing, and a millisecond before it is good.
func TestGrantIsRefusedFromItsExpiryOn_E36(t *testing.T) {
	f := fixture.GrantFixture(t)
	grant := f.Issue(t, f.Create(t))
	keyless := interop.ClaimGrant{Execution: grant.Execution}
	f.Advance(fixture.GrantTTL)
	wantGrantError(t, interop.VerifyGrant(t.Context(), f.Engine, grant), fferr.ErrGrantExpired, "")
	for _, g := range []interop.ClaimGrant{grant, keyless} {
		_, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(g))
		wantGrantError(t, err, fferr.ErrGrantExpired, "")
	}
	_, err := interop.ClaimFromResumeGrant(t.Context(), f.Engine, f.Resuming(grant))
	wantGrantError(t, err, fferr.ErrGrantExpired, "")
	f.Advance(-time.Millisecond)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireGrants, 0)
	if err := interop.VerifyGrant(t.Context(), f.Engine, grant); err != nil {
		t.Error(err)
	}
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(keyless))
	if err != nil {
		t.Fatal(err)
	}
	wantLease(t, f, claimed, 0, 1, state.InitialAttempt, false)
}

// Without a key the newest grant of the worker counts, from any of its instances.
func TestClaimWithoutAKeyUsesTheNewestGrant_E4(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t)
	keyless := f.Using(interop.ClaimGrant{Execution: x})
	_, err := interop.ClaimExecution(t.Context(), f.Engine, keyless)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
	f.SeedGrant(t, x) // another worker's, of the reference
	_, err = interop.ClaimExecution(t.Context(), f.Engine, keyless)
	wantGrantError(t, err, fferr.ErrInvalidGrant, id.ReasonUnknownGrant)
	keyless.Worker, keyless.Instance = "w", "any"
	claimed, err := interop.ClaimExecution(t.Context(), f.Engine, keyless)
	if err != nil {
		t.Fatal(err)
	}
	wantLease(t, f, claimed, 0, 1, state.InitialAttempt, false)
}

// TestGrantRefusesPipesInWorkerIDs_I29: (a|b, c) and (a, b|c) would be signed alike.
func TestGrantRefusesPipesInWorkerIDs_I29(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t)
	before := f.Dump(t, x)
	g := f.Engine
	for _, ids := range [][2]string{{"a|b", "c"}, {"a", "b|c"}, {"", "c"}, {"a", ""}, {"a\n", "c"}} {
		w, i := id.WorkerID(ids[0]), id.WorkerInstanceID(ids[1])
		spec := interop.GrantSpec{Execution: x, Worker: w, Instance: i, TTL: fixture.GrantTTL}
		_, errIssue := interop.IssueClaimGrant(t.Context(), g, spec)
		_, errReclaim := interop.IssueReclaimGrant(t.Context(), g, spec)
		_, _, errWorker := interop.ClaimForWorker(t.Context(), g, interop.WorkerSpec{Lane: f.Lane, Worker: w, Instance: i, TTL: fixture.GrantTTL})
		_, errClaim := interop.ClaimExecution(t.Context(), g, interop.GrantedClaim{Grant: interop.ClaimGrant{Execution: x}, Worker: w, Instance: i, LeaseTTL: fixture.LeaseTTL})
		_, errResume := interop.ClaimFromResumeGrant(t.Context(), g, interop.ResumedClaim{Grant: interop.ResumeGrant{Execution: x}, Worker: w, Instance: i, LeaseTTL: fixture.LeaseTTL})
		_, errTake := interop.ReclaimExecution(t.Context(), g, interop.Reclaim{Grant: interop.ReclaimGrant{Execution: x}, Worker: w, Instance: i, LeaseTTL: fixture.LeaseTTL})
		for n, err := range []error{errIssue, errReclaim, errWorker, errClaim, errResume, errTake} {
			if input, ok := errors.AsType[*fferr.InputError](err); !ok || !strings.HasPrefix(input.Field, "worker") {
				t.Errorf("operation %d as %q: %v", n, ids, err)
			}
		}
	}
	f.WantUnchanged(t, x, before)
}

// The states that an operator's claim and a worker's grant accept.
func TestGrantsAndClaimsByState_E47(t *testing.T) {
	ended := "it has ended"
	for _, c := range []struct {
		name       string
		state      string // assignments
		leaseable  bool
		issueable  bool
		ineligible string
	}{
		{"ready", "priority = priority", true, true, ""},
		{"interrupted", "attempt_state = 'attempt_interrupted'", true, true, ""},
		{"resumable", "attempt_state = 'attempt_interrupted', public_state = 'resumable', ownership_state = 'released'", true, true, ""},
		{"in a spelling of the reference", "lifecycle_phase = 'submitted', attempt_state = 'pending'", true, false, ""},
		{"granted and forgotten", "eligibility_state = 'pending_claim'", true, false, ""},
		{"suspended", "lifecycle_phase = 'suspended', eligibility_state = 'not_applicable', public_state = 'suspended', attempt_state = 'attempt_interrupted'", false, false, "it is not waiting"},
		{"delayed", "eligibility_state = 'not_eligible_until_time', public_state = 'delayed', attempt_state = 'attempt_interrupted'", false, false, "neither"},
		{"waiting for others", "eligibility_state = 'blocked_by_dependencies', public_state = 'waiting_children', attempt_state = 'attempt_interrupted'", false, false, "neither"},
		{"blocked by an operator", "eligibility_state = 'blocked_by_operator', attempt_state = 'attempt_interrupted'", false, false, "neither"},
		{"owned", "ownership_state = 'leased', attempt_state = 'attempt_interrupted'", false, false, "has an owner"},
		{"running", "lifecycle_phase = 'active', ownership_state = 'leased', eligibility_state = 'not_applicable', public_state = 'running', attempt_state = 'running_attempt'", false, false, "it is not waiting"},
		{"completed", "lifecycle_phase = 'terminal', eligibility_state = 'not_applicable', public_state = 'completed', attempt_state = 'attempt_terminal'", false, false, ended},
		{"cancelled by the reference's flow cancel", "lifecycle_phase = 'cancelled', eligibility_state = 'cancelled', public_state = 'cancelled', attempt_state = 'attempt_interrupted'", false, false, ended},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			x := f.Create(t)
			f.SetExecution(t, x, c.state)
			before := f.Dump(t, x)
			refused := func(what string, err error) {
				t.Helper()
				refusal, ok := errors.AsType[*fferr.StateError](err)
				if !ok || refusal.Err != fferr.ErrNotLeaseable || refusal.Execution != x || c.ineligible != "" && what != "issued" && !strings.Contains(refusal.Reason, c.ineligible) {
					t.Errorf("%s: %v", what, err)
				}
				f.WantUnchanged(t, x, before)
			}
			if !c.issueable {
				_, err := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(x))
				refused("issued", err)
			}
			if !c.leaseable {
				_, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, f.Lane, fixture.LeaseTTL)
				refused("claimed by an operator", err)
				f.SeedGrant(t, x)
				before = f.Dump(t, x)
				_, err = interop.ClaimExecution(t.Context(), f.Engine, interop.GrantedClaim{
					Grant: interop.ClaimGrant{Execution: x}, Worker: "w", Instance: "w1", LeaseTTL: fixture.LeaseTTL,
				})
				refused("claimed by a grant", err)
				return
			}
			if c.issueable {
				f.Issue(t, x)
			}
			f.SeedGrant(t, x) // of another path: gone after the next claim
			claimed, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, f.Lane, fixture.LeaseTTL)
			if err != nil {
				t.Fatal(err)
			}
			if claimed.Lease.Instance != id.OperatorWorker {
				t.Errorf("claimed by %s", claimed.Lease.Instance)
			}
			wantLease(t, f, claimed, 0, 1, state.InitialAttempt, false)
		})
	}
}

// An attempt with a live lease stays unchanged, whatever its execution says.
func TestGrantLeavesALiveLeaseAlone_E11(t *testing.T) {
	f := fixture.GrantFixture(t)
	held := f.Start(t)
	f.SetExecution(t, held.ID, "lifecycle_phase = 'runnable', ownership_state = 'unowned', eligibility_state = 'eligible_now', attempt_state = 'attempt_interrupted'")
	before := f.Dump(t, held.ID)
	_, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, held.ID, "", fixture.LeaseTTL)
	if !errors.Is(err, fferr.ErrNotLeaseable) {
		t.Errorf("claimed: %v", err)
	}
	f.WantUnchanged(t, held.ID, before)
}

// An execution with budgets or a quota that no gate admitted is neither granted nor leased.
func TestAttachedExecutionIsNeitherGrantedNorLeased(t *testing.T) {
	for name, attached := range map[string]string{
		"a budget":                          "ffx_budget_ids = ARRAY[gen_random_uuid()]",
		"a quota":                           "ffx_limit_ids = ARRAY[gen_random_uuid()]",
		"budgets, as the reference notes":   `raw_fields = raw_fields || '{"budget_ids":"b1,b2"}'`,
		"a quota, as the reference notes":   `raw_fields = raw_fields || '{"quota_policy_id":"q"}'`,
		"budgets of the reference's policy": `policy = '{"budget_ids":["b"]}'`,
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			f.SeedGrant(t, f.Create(t))
			free, x := f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 0 }), f.Create(t, func(spec *engine.ExecutionSpec) { spec.Priority = 5 })
			f.SetExecution(t, x, attached)
			f.SeedGrant(t, x)
			before := f.Dump(t, x)
			_, errIssue := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(x))
			_, errOperator := interop.IssueGrantAndClaim(t.Context(), f.Engine, x, "", fixture.LeaseTTL)
			_, errClaim := interop.ClaimExecution(t.Context(), f.Engine, interop.GrantedClaim{
				Grant: interop.ClaimGrant{Execution: x}, Worker: "w", Instance: "w1", LeaseTTL: fixture.LeaseTTL,
			})
			for n, err := range []error{errIssue, errOperator, errClaim} {
				if _, ok := errors.AsType[*fferr.StateError](err); !ok || !errors.Is(err, fferr.ErrNotLeaseable) {
					t.Errorf("operation %d: %v", n, err)
				}
			}
			// It hides nothing behind it.
			for range 2 {
				if grant, found, err := interop.ClaimForWorker(t.Context(), f.Engine, f.WorkerSpec()); !found || err != nil || grant.Execution == x {
					t.Errorf("granted %v, %t, %v", grant, found, err)
				}
			}
			f.WantState(t, free, fixture.StateGranted)
			if _, found, err := interop.ClaimForWorker(t.Context(), f.Engine, f.WorkerSpec()); found || err != nil {
				t.Errorf("found %t, %v", found, err)
			}
			f.WantUnchanged(t, x, before)
			f.SetExecution(t, x, "ffx_admitted = true")
			if grant, found, err := interop.ClaimForWorker(t.Context(), f.Engine, f.WorkerSpec()); !found || err != nil || grant.Execution != x {
				t.Errorf("granted %v, %t, %v", grant, found, err)
			}
		})
	}
}

// A paused lane and a drained worker get nothing.
func TestGrantsStopForAPausedLane(t *testing.T) {
	f := fixture.GrantFixture(t)
	lost := f.Start(t)
	f.Advance(fixture.LeaseTTL)
	reclaim := f.IssueReclaim(t, lost.ID)
	x, waiting := f.Create(t), f.Create(t)
	grant := f.Issue(t, x)
	for _, c := range []struct {
		halt state.Halt
		name string
		stop func() error
	}{
		{state.HaltedLane, string(f.Lane), func() error { return operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{}) }},
		{state.HaltedWorker, f.Name, func() error { return operator.DrainWorker(t.Context(), f.Engine, id.WorkerInstanceID(f.Name)) }},
	} {
		t.Run(string(c.halt), func(t *testing.T) {
			if err := c.stop(); err != nil {
				t.Fatal(err)
			}
			_, errIssue := interop.IssueClaimGrant(t.Context(), f.Engine, f.GrantSpec(waiting))
			_, _, errWorker := interop.ClaimForWorker(t.Context(), f.Engine, f.WorkerSpec())
			_, errClaim := interop.ClaimExecution(t.Context(), f.Engine, f.Using(grant))
			_, errIssueReclaim := interop.IssueReclaimGrant(t.Context(), f.Engine, f.GrantSpec(lost.ID))
			_, errReclaim := interop.ReclaimExecution(t.Context(), f.Engine, f.Reclaiming(reclaim))
			_, errResume := interop.ClaimFromResumeGrant(t.Context(), f.Engine, f.Resuming(grant))
			refused := []error{errIssue, errWorker, errClaim, errIssueReclaim, errReclaim, errResume}
			if c.halt == state.HaltedLane {
				_, err := interop.IssueGrantAndClaim(t.Context(), f.Engine, waiting, "", fixture.LeaseTTL)
				refused = append(refused, err)
			}
			for n, err := range refused {
				if halted, ok := errors.AsType[*fferr.HaltedError](err); !ok || halted.Halt != c.halt || halted.Name != c.name || !errors.Is(err, fferr.ErrHalted) {
					t.Errorf("operation %d: %v", n, err)
				}
			}
			if err := errors.Join(operator.ResumeLane(t.Context(), f.Engine, f.Lane), operator.ResumeWorker(t.Context(), f.Engine, id.WorkerInstanceID(f.Name))); err != nil {
				t.Fatal(err)
			}
		})
	}
	if _, err := interop.ClaimExecution(t.Context(), f.Engine, f.Using(grant)); err != nil {
		t.Error(err)
	}
}

// The operations of a scheduler and its workers in a transaction of the caller's: committed, rolled back, and refused.
func TestGrantsInATransaction(t *testing.T) {
	type operation struct {
		name    string
		prepare func(t *testing.T, f *fixture.Fixture) (x id.ExecutionID, call func(context.Context, *engine.Engine) error)
		state   string
		again   error // the error of a repetition
	}
	for _, o := range []operation{
		{"issue", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			x := f.Create(t)
			return x, func(ctx context.Context, g *engine.Engine) error {
				_, err := interop.IssueClaimGrant(ctx, g, f.GrantSpec(x))
				return err
			}
		}, fixture.StateGranted, fferr.ErrGrantExists},
		{"claim for worker", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			return f.Create(t), func(ctx context.Context, g *engine.Engine) error {
				_, found, err := interop.ClaimForWorker(ctx, g, f.WorkerSpec())
				if !found && err == nil {
					err = fferr.ErrNotLeaseable
				}
				return err
			}
		}, fixture.StateGranted, fferr.ErrNotLeaseable},
		{"claim", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			grant := f.Issue(t, f.Create(t))
			return grant.Execution, func(ctx context.Context, g *engine.Engine) error {
				_, err := interop.ClaimExecution(ctx, g, f.Using(grant))
				return err
			}
		}, fixture.StateRunning, fferr.ErrNotLeaseable},
		{"claim by an operator", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			x := f.Create(t)
			return x, func(ctx context.Context, g *engine.Engine) error {
				_, err := interop.IssueGrantAndClaim(ctx, g, x, "", fixture.LeaseTTL)
				return err
			}
		}, fixture.StateRunning, fferr.ErrNotLeaseable},
		{"resume", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			held := f.Start(t)
			f.Advance(fixture.LeaseTTL)
			fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
			grant := f.Issue(t, held.ID)
			return held.ID, func(ctx context.Context, g *engine.Engine) error {
				_, err := interop.ClaimFromResumeGrant(ctx, g, f.Resuming(grant))
				return err
			}
		}, fixture.StateRunning, fferr.ErrInvalidGrant},
		{"reclaim", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			held := f.Start(t)
			f.Advance(fixture.LeaseTTL)
			grant := f.IssueReclaim(t, held.ID)
			return held.ID, func(ctx context.Context, g *engine.Engine) error {
				_, err := interop.ReclaimExecution(ctx, g, f.Reclaiming(grant))
				return err
			}
		}, fixture.StateRunning, fferr.ErrInvalidGrant},
		{"expire", func(t *testing.T, f *fixture.Fixture) (id.ExecutionID, func(context.Context, *engine.Engine) error) {
			grant := f.Issue(t, f.Create(t))
			f.Advance(fixture.GrantTTL)
			return grant.Execution, nil
		}, fixture.StateReady, nil},
	} {
		t.Run(o.name, func(t *testing.T) {
			f := fixture.GrantFixture(t)
			x, call := o.prepare(t, f)
			if call == nil {
				call = func(ctx context.Context, _ *engine.Engine) error { return nil }
			}
			inside := func(tx pgx.Tx) *engine.Engine { return f.WithTx(tx) }
			do := func(tx pgx.Tx) error {
				if o.name == "expire" {
					_, err := upkeep.Of(inside(tx)).ExpireGrants(t.Context(), 10)
					return err
				}
				return call(t.Context(), inside(tx))
			}
			before := f.Dump(t, x)
			tx := f.BeginTx(t)
			if err := do(tx); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.WantUnchanged(t, x, before)
			tx = f.BeginTx(t)
			if err := do(tx); err != nil {
				t.Fatal(err)
			}
			if err := do(tx); o.again != nil && !errors.Is(err, o.again) {
				t.Errorf("again: %v, want %v", err, o.again)
			}
			fixture.ExecIn(t, tx, "SELECT 1") // it goes on
			fixture.Commit(t, tx)
			f.WantState(t, x, o.state)
			f.WantTimer(t, t, o.name)
		})
	}
}
