package limits

import (
	"context"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// replaceable is a kind with limits whose creations replace the one that waits, whatever its tenant is.
func replaceable(f *fixture.Fixture, limits ...engine.Limit[sync]) engine.Kind[sync, struct{}] {
	kind := kindOf(f, limits...)
	kind.Name, kind.Unique = "replaced", &engine.Unique{Fields: []string{"Weight"}, IfTaken: engine.ReplaceWaiting}
	return kind
}

// replacing creates an execution for a tenant, which has to be the one that waits, and returns its state.
func replacing(t *testing.T, f *fixture.Fixture, kind engine.Kind[sync, struct{}], tenant string, x engine.Created, options ...engine.CreateOption) *engine.ExecutionSnapshot {
	t.Helper()
	again, err := kind.Create(t.Context(), f.Engine, sync{Tenant: tenant}, options...)
	if err != nil || !again.Replaced || again.ID != x.ID {
		t.Fatalf("%+v, %v, want %s to be replaced", again, err, x.ID)
	}
	return describe(t, f, x.ID)
}

// plainOf is a kind without unique work.
func plainOf(kind engine.Kind[sync, struct{}]) engine.Kind[sync, struct{}] {
	kind.Unique = nil
	return kind
}

func wantKey(t *testing.T, s *engine.ExecutionSnapshot, key string, public state.PublicState) {
	t.Helper()
	if len(s.Limits) != 1 || s.Limits[0].Key != key || s.State.Public != public {
		t.Errorf("%s under %+v, want %s under %s", s.State.Public, s.Limits, public, key)
	}
}

// wantFull fails the test unless each tenant's only place is taken.
func wantFull(t *testing.T, f *fixture.Fixture, kind engine.Kind[sync, struct{}], tenants ...string) {
	t.Helper()
	for _, tenant := range tenants {
		created(t, f.Engine, plainOf(kind), sync{Tenant: tenant})
	}
	wantClaimable(t, f, 0, "while the places are taken")
}

// An execution that waits for a limit counts under the key of the arguments that replace its own.
func TestReplacedExecutionWaitsForItsNewKey(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := replaceable(f, atOnce(1))
	running := created(t, f.Engine, plainOf(kind), sync{Tenant: "a"})
	wantClaimable(t, f, 1, "the first of a")
	x := created(t, f.Engine, kind, sync{Tenant: "a"})
	wantClaimable(t, f, 0, "while a is full")
	wantKey(t, replacing(t, f, kind, "b", x), "b", state.PublicRateLimited)
	if !gateNotified(f) {
		t.Error("did not ring the gate")
	}
	if claimed := wantClaimable(t, f, 1, "under b"); claimed[0].ID != x.ID || string(claimed[0].Payload) != `{"Tenant":"b","Weight":0}` {
		t.Errorf("claimed %+v beside %s", claimed[0], running.ID)
	}
	wantFull(t, f, kind, "a", "b")

	// A delay is over: it goes to its gate.
	f = fixture.Clone(t)
	kind = replaceable(f, atOnce(1))
	created(t, f.Engine, plainOf(kind), sync{Tenant: "b"})
	wantClaimable(t, f, 1, "the first of b")
	x = ok(kind.Create(t.Context(), f.Engine, sync{Tenant: "a"}, engine.After(time.Minute)))(t)
	wantKey(t, replacing(t, f, kind, "b", x, engine.After(time.Minute)), "b", state.PublicDelayed)
	wantKey(t, replacing(t, f, kind, "b", x), "b", state.PublicRateLimited)
	wantClaimable(t, f, 0, "while b is full")
	wantKey(t, replacing(t, f, kind, "a", x), "a", state.PublicRateLimited)
	wantClaimable(t, f, 1, "under a")
	wantFull(t, f, kind, "a", "b")
}

// An execution that has had its place keeps its key: it counts there. A new due time gives the place back until then.
func TestReplacedExecutionKeepsThePlaceItHas(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := replaceable(f, atOnce(1))
	x := created(t, f.Engine, kind, sync{Tenant: "a"})
	admit(t, f.Engine)
	wantKey(t, replacing(t, f, kind, "b", x), "a", state.PublicWaiting)
	plain := plainOf(kind)
	created(t, f.Engine, plain, sync{Tenant: "a"})
	admit(t, f.Engine)
	for gateNotified(f) {
	}
	wantKey(t, replacing(t, f, kind, "b", x, engine.After(time.Minute)), "a", state.PublicDelayed)
	if !gateNotified(f) {
		t.Error("did not ring the gate")
	}
	other := wantClaimable(t, f, 1, "with the place that was given back")
	wantKey(t, replacing(t, f, kind, "b", x), "b", state.PublicRateLimited) // the gate has counted a since
	wantClaimable(t, f, 1, "under b")
	wantFull(t, f, kind, "a", "b")
	complete(t, f, other...)
	wantClaimable(t, f, 1, "of a")
}

// Without a count in between, an execution that gave its place back keeps its key.
func TestReplacedTwiceKeepsTheKeyOfItsPlace(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := replaceable(f, atOnce(1))
	x := created(t, f.Engine, kind, sync{Tenant: "a"})
	admit(t, f.Engine)
	wantKey(t, replacing(t, f, kind, "b", x, engine.After(time.Minute)), "a", state.PublicDelayed)
	wantKey(t, replacing(t, f, kind, "b", x), "a", state.PublicRateLimited)
	wantClaimable(t, f, 1, "under a")
	wantFull(t, f, kind, "a")
	created(t, f.Engine, plainOf(kind), sync{Tenant: "b"})
	wantClaimable(t, f, 1, "of b")
}

// Limits come and go with the kind, and budgets and a quota policy stay.
func TestReplacedExecutionGetsAndLosesLimits(t *testing.T) {
	f := fixture.NewCloned(t)
	with, without := replaceable(f, atOnce(1), engine.Concurrency[sync](2).Units(func(sync) int { return 2 })), replaceable(f)
	x := created(t, f.Engine, without, sync{Tenant: "a"})
	if s := replacing(t, f, with, "a", x); len(s.Limits) != 2 || s.Limits[1].Units != 2 || s.State.Public != state.PublicRateLimited {
		t.Errorf("%s under %+v, want two limits", s.State.Public, s.Limits)
	}
	if s := replacing(t, f, without, "a", x); len(s.Limits) != 0 || s.State.Public != state.PublicWaiting {
		t.Errorf("%s under %+v, want no limit", s.State.Public, s.Limits)
	}
	wantClaimable(t, f, 1, "without limits")

	q, b := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1}), budgetOf(t, f, 1)
	spend(t, f, b, 1)
	spec := with.Spec(sync{Tenant: "a"})
	spec.QuotaPolicy = &q
	x = ok(f.CreateExecution(t.Context(), spec))(t)
	for _, kind := range []engine.Kind[sync, struct{}]{with, without} {
		s := replacing(t, f, kind, "b", x)
		if s.QuotaPolicy == nil || *s.QuotaPolicy != q || s.State.Public != state.PublicRateLimited || len(s.Limits) != len(kind.Limits) {
			t.Errorf("%s under %+v and quota %v", s.State.Public, s.Limits, s.QuotaPolicy)
		}
	}
	create(t, f, 1, under(q))
	wantClaimable(t, f, 1, "under the quota")

	spec = with.Spec(sync{Tenant: "a"})
	spec.Budgets = append(spec.Budgets, b)
	x = ok(f.CreateExecution(t.Context(), spec))(t)
	if s := replacing(t, f, without, "a", x); s.State.Blocking != state.WaitingForBudget || s.State.Public != state.PublicRateLimited {
		t.Errorf("%s for %s, want it to wait for its budget", s.State.Public, s.State.Blocking)
	}
}

// A pass that makes the row of a key makes none for an execution that has left it meanwhile.
func TestReplacedWhileTheGateMakesItsKey(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := replaceable(f, atOnce(1))
	x := created(t, f.Engine, kind, sync{Tenant: "a"})
	r := f.StoppedBefore(t, "EnsureGates")
	done := fixture.Async(t, func(ctx context.Context) error {
		_, err := upkeep.Of(r.Engine).AdmitWaiting(ctx, 100)
		return err
	})
	r.AwaitStop(t)
	wantKey(t, replacing(t, f, kind, "b", x), "b", state.PublicRateLimited)
	r.Resume()
	if err := done(); err != nil {
		t.Fatal(err)
	}
	wantClaimable(t, f, 1, "under b")
	if rows := fixture.Texts(t, f.Pool, "SELECT coalesce(limit_name, 'none') || ' ' || key FROM ffx_gate"); len(rows) != 1 || rows[0] != "replaced/tenant b" {
		t.Errorf("keys %q", rows)
	}
}
