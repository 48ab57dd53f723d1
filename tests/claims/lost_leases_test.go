package claims

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// claimAs claims one execution as a worker instance.
func claimAs(t *testing.T, f *fixture.Fixture, instance string) engine.Claimed {
	t.Helper()
	spec := f.Worker()
	spec.Worker, spec.Instance = id.WorkerID("of "+instance), id.WorkerInstanceID(instance)
	claimed, err := f.Claim(t.Context(), spec, 1)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("%s claimed %+v, %v", instance, claimed, err)
	}
	return claimed[0]
}

func attemptsOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) []engine.Attempt {
	t.Helper()
	page, err := f.ListAttempts(t.Context(), x, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// The worker that lost a lease is listed with the attempt, even after another worker has taken it over: after the
// lease ran out, was revoked, or was reclaimed. A returned lease is not lost.
func TestAttemptsListLostLeases(t *testing.T) {
	f := fixture.GrantFixture(t)
	x := f.Create(t)
	var lost []engine.LostLease
	lose := func(c engine.Claimed, instance string, how state.LeaseEventType) {
		t.Helper()
		lost = append(lost, engine.LostLease{
			Worker: id.WorkerID("of " + instance), Instance: id.WorkerInstanceID(instance), Epoch: c.Lease.Epoch, LostAt: f.Time(), How: how,
		})
	}
	want := func(when string, attempt int, holder string, lost []engine.LostLease) {
		t.Helper()
		a := attemptsOf(t, f, x)[attempt]
		if string(a.Instance) != holder || !reflect.DeepEqual(a.Lost, lost) {
			t.Errorf("%s: attempt %d is held by %q, lost %+v; want %q, %+v", when, attempt, a.Instance, a.Lost, holder, lost)
		}
	}

	c := claimAs(t, f, "frozen")
	want("claimed", 0, "frozen", nil)
	f.Advance(fixture.LeaseTTL + time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	lose(c, "frozen", state.LeaseEventExpired)
	want("run out", 0, "", lost)

	c = claimAs(t, f, "slow")
	want("taken over", 0, "slow", lost)
	if _, err := operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: x, Lease: wire.ExpectedLease(c.Lease.ID.String()), Instance: "slow", Reason: "too slow"}); err != nil {
		t.Fatal(err)
	}
	lose(c, "slow", state.LeaseEventRevoked)
	want("revoked", 0, "", lost)

	c = claimAs(t, f, "honest")
	if errs, err := f.ReleaseLeases(t.Context(), []engine.Lease{c.Lease}); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	c = claimAs(t, f, "cut off")
	want("given back", 0, "cut off", lost)
	f.Advance(fixture.LeaseTTL + time.Second)
	if _, err := interop.ReclaimExecution(t.Context(), f.Engine, f.Reclaiming(f.IssueReclaim(t, x))); err != nil {
		t.Fatal(err)
	}
	lose(c, "cut off", state.LeaseEventReclaimed)
	want("reclaimed", 0, "", lost)
	want("reclaimed", 1, f.Name, nil)
}

// Of an attempt that loses lease after lease the newest 32 are kept.
func TestAttemptsListTheNewestLostLeases(t *testing.T) {
	f := fixture.NewCloned(t)
	x := f.Create(t)
	for n := range 35 {
		claimAs(t, f, fmt.Sprint("worker-", n))
		f.Advance(fixture.LeaseTTL + time.Second)
		fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	}
	lost := attemptsOf(t, f, x)[0].Lost
	if len(lost) != 32 || lost[0].Instance != "worker-3" || lost[31].Instance != "worker-34" {
		t.Errorf("%d lost leases are listed: %+v", len(lost), lost)
	}
}
