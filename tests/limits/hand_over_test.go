package limits

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// known creates an execution of a tenant and lets the gate admit it and complete it, so that the tenant's key is known.
func known(t *testing.T, f *fixture.Fixture, kind engine.Kind[sync, struct{}], tenant string) {
	t.Helper()
	created(t, f.Engine, kind, sync{Tenant: tenant})
	complete(t, f, wantClaimable(t, f, 1, "the first of its key")...)
}

// wantHeld fails the test unless the bound of a tenant's key is so high.
func wantHeld(t *testing.T, f *fixture.Fixture, tenant string, want int64) {
	t.Helper()
	var held int64
	if err := f.Pool.QueryRow(t.Context(), "SELECT held FROM ffx_gate WHERE key = $1", tenant).Scan(&held); err != nil || held != want {
		t.Errorf("%d units of %s are held, %v, want %d", held, tenant, err, want)
	}
}

// lockKey locks a tenant's key by another session until the test ends or the lock is given back.
func lockKey(t *testing.T, f *fixture.Fixture, tenant string) (unlock func()) {
	t.Helper()
	tx := f.BeginTx(t)
	if _, err := tx.Exec(t.Context(), "SELECT FROM ffx_gate WHERE key = $1 FOR UPDATE", tenant); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// An execution whose limit has room begins with its place. The gate has nothing to do.
func TestCreationTakesAPlace(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2).Units(func(a sync) int { return max(a.Weight, 1) }))
	known(t, f, kind, "acme")
	for n, want := range []state.PublicState{state.PublicWaiting, state.PublicWaiting, state.PublicRateLimited} {
		if x := created(t, f.Engine, kind, sync{Tenant: "acme"}); x.State != want {
			t.Errorf("%d is %s, want %s", n, x.State, want)
		}
	}
	wantHeld(t, f, "acme", 2)
	if n := len(claim(t, f, 10)); n != 2 {
		t.Errorf("claimed %d of two with places", n)
	}
	wantClaimable(t, f, 0, "while both run")
}

// A batch gets as many places as there are, in its order, and its other executions wait.
func TestCreationsShareThePlaces(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(30))
	known(t, f, kind, "acme")
	specs := make([]engine.ExecutionSpec, 100)
	for i := range specs {
		specs[i] = kind.Spec(sync{Tenant: "acme", Weight: i})
	}
	outcomes, err := f.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		want := state.PublicRateLimited
		if i < 30 {
			want = state.PublicWaiting
		}
		if o.Err != nil || o.Value.State != want {
			t.Errorf("%d is %s, %v, want %s", i, o.Value.State, o.Err, want)
		}
	}
	wantClaimable(t, f, 30, "all places")
}

// A creation takes no place before those that wait, in the caller's transaction, or at a key that is locked. It waits for nothing.
func TestCreationLeavesItToTheGate(t *testing.T) {
	for _, c := range []struct {
		name string
		act  func(t *testing.T, f *fixture.Fixture, create func(eng *engine.Engine) engine.Created) engine.Created
	}{
		{"others wait", func(t *testing.T, f *fixture.Fixture, create func(eng *engine.Engine) engine.Created) engine.Created {
			tx := f.BeginTx(t)
			create(f.WithTx(tx))
			fixture.Commit(t, tx)
			return create(f.Engine)
		}},
		{"in a transaction", func(t *testing.T, f *fixture.Fixture, create func(eng *engine.Engine) engine.Created) engine.Created {
			tx := f.BeginTx(t)
			defer fixture.Commit(t, tx)
			return create(f.WithTx(tx))
		}},
		{"a locked key", func(t *testing.T, f *fixture.Fixture, create func(eng *engine.Engine) engine.Created) engine.Created {
			defer lockKey(t, f, "acme")()
			return create(f.Engine)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(5))
			known(t, f, kind, "acme")
			x := c.act(t, f, func(eng *engine.Engine) engine.Created { return created(t, eng, kind, sync{Tenant: "acme"}) })
			if x.State != state.PublicRateLimited {
				t.Errorf("it is %s", x.State)
			}
			if !gateNotified(f) && c.name != "in a transaction" {
				t.Error("the gate was not rung")
			}
			if len(wantClaimableAtLeast(t, f)) == 0 {
				t.Error("the gate admits none")
			}
		})
	}
}

func wantClaimableAtLeast(t *testing.T, f *fixture.Fixture) []engine.Claimed {
	t.Helper()
	admit(t, f.Engine)
	return claim(t, f, 10)
}

// The transaction that completes an execution gives its place to the next one, and claims it.
func TestCompletionHandsItsPlaceOver(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	known(t, f, kind, "acme")
	for range 4 {
		created(t, f.Engine, kind, sync{Tenant: "acme"})
	}
	running := wantClaimable(t, f, 1, "the first")
	gateNotified(f)
	complete(t, f, running...)
	wantHeld(t, f, "acme", 1)
	if gateNotified(f) {
		t.Error("the gate was rung for nothing")
	}
	if running = claim(t, f, 10); len(running) != 1 {
		t.Fatalf("claimed %d without the gate, want the next", len(running))
	}
	outcomes, next, err := f.Claimer(t).CompleteAndClaim(t.Context(), []engine.Completion{{Lease: running[0].Lease}}, 10)
	if err != nil || outcomes[0] != nil || len(next) != 1 {
		t.Fatalf("%v, %v, claimed %d, want the next", outcomes, err, len(next))
	}
	wantHeld(t, f, "acme", 1)
	wantClaimable(t, f, 0, "while it runs")
}

// A place that can't be handed over is left to the gate, which is rung: its key is locked, or the next execution has another
// limit too.
func TestCompletionLeavesItToTheGate(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits func() []engine.Limit[sync]
		locked bool
	}{
		{"a locked key", func() []engine.Limit[sync] { return []engine.Limit[sync]{atOnce(1)} }, true},
		{"two limits", func() []engine.Limit[sync] { return []engine.Limit[sync]{atOnce(1), engine.Concurrency[sync](9)} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, c.limits()...)
			for range 2 {
				created(t, f.Engine, kind, sync{Tenant: "acme"})
			}
			running := wantClaimable(t, f, 1, "the first")
			gateNotified(f)
			unlock := func() {}
			if c.locked {
				unlock = lockKey(t, f, "acme")
			}
			complete(t, f, running...)
			unlock()
			if n := len(claim(t, f, 10)); n != 0 {
				t.Errorf("claimed %d without the gate", n)
			}
			if !gateNotified(f) {
				t.Error("the gate was not rung")
			}
			wantClaimable(t, f, 1, "by the gate")
		})
	}
}
