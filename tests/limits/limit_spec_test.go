package limits

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A mistake names the limit, and creates nothing.
func TestMistakesNameTheLimit(t *testing.T) {
	f := fixture.NewCloned(t)
	units := func(n int) engine.Limit[sync] { return atOnce(5).Units(func(sync) int { return n }) }
	for _, c := range []struct {
		name, want string
		limits     []engine.Limit[sync]
	}{
		{"zero value", "made by Concurrency or Rate", []engine.Limit[sync]{{}}},
		{"no units", `"tenant": has 0 units`, []engine.Limit[sync]{atOnce(0)}},
		{"too many units", "not 1 to 1000000000", []engine.Limit[sync]{atOnce(engine.MaxLimitUnits + 1)}},
		{"no name", "empty name", []engine.Limit[sync]{atOnce(1).Per("", tenantOf)}},
		{"a slash", "slash", []engine.Limit[sync]{atOnce(1).Per("a/b", tenantOf)}},
		{"a long name", "256 bytes, limit 255", []engine.Limit[sync]{atOnce(1).Per(strings.Repeat("n", 256), tenantOf)}},
		{"twice", "declared twice", []engine.Limit[sync]{atOnce(1), atOnce(2)}},
		{"five", "are 5, limit 4", []engine.Limit[sync]{
			atOnce(1), atOnce(1).Per("b", nil), atOnce(1).Per("c", nil), atOnce(1).Per("d", nil), atOnce(1).Per("e", nil),
		}},
		{"short window", "window", []engine.Limit[sync]{engine.Rate[sync](1, time.Millisecond)}},
		{"long window", "window", []engine.Limit[sync]{engine.Rate[sync](1, engine.MaxLimitWindow+time.Second)}},
		{"no window", "window", []engine.Limit[sync]{engine.Rate[sync](1, 0)}},
		{"fraction", "fraction of a millisecond", []engine.Limit[sync]{engine.Rate[sync](1, time.Second+1)}},
		{"unknown policy", `is "burn" when full`, []engine.Limit[sync]{atOnce(1).WhenFull("burn")}},
		{"no room by cancelling", "no more room", []engine.Limit[sync]{engine.Rate[sync](1, minute).WhenFull(engine.CancelRunning)}},
		{"units of nothing", "units: are 0", []engine.Limit[sync]{units(0)}},
		{"negative units", "units: are 0", []engine.Limit[sync]{units(-3)}},
		{"never fits", "units: are 6, but the limit has 5", []engine.Limit[sync]{units(6)}},
		{"long key", "513 bytes, limit 512", []engine.Limit[sync]{atOnce(1).Per("t", func(sync) string { return strings.Repeat("k", 513) })}},
		{"zero byte", "key", []engine.Limit[sync]{atOnce(1).Per("t", func(sync) string { return "a\x00b" })}},
		{"not UTF-8", "key", []engine.Limit[sync]{atOnce(1).Per("t", func(sync) string { return "\xff" })}},
	} {
		_, err := kindOf(f, c.limits...).Create(t.Context(), f.Engine, sync{Tenant: "acme"})
		if !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for limit, err := range limit.All(t.Context(), f.Engine) {
		t.Errorf("%+v, %v", limit, err)
	}
}

// A limit without a kind must exist, and its units count.
func TestDeclaredLimitsMustExist(t *testing.T) {
	f := fixture.NewCloned(t)
	spec := engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Limits: []engine.LimitKey{{Name: "database", Units: 3}}}
	_, err := f.CreateExecution(t.Context(), spec)
	if !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), `"database": does not exist`) {
		t.Fatal(err)
	}
	declare := func(units int) {
		t.Helper()
		if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "database", Units: units}); err != nil {
			t.Fatal(err)
		}
	}
	declare(2)
	if _, err := f.CreateExecution(t.Context(), spec); !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), "are 3, but the limit has 2") {
		t.Error(err)
	}
	declare(3)
	x, err := f.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if s := describe(t, f, x.ID); len(s.Limits) != 1 || s.Limits[0].Name != "database" || s.Limits[0].Units != 3 {
		t.Errorf("%+v", s.Limits)
	}
}

// A declaration is written when a process first uses it, and when it has changed. What an operator sets stays in force.
func TestOperatorsSettingStays(t *testing.T) {
	f := fixture.NewCloned(t)
	ctx := t.Context()
	if _, err := limit.Describe(ctx, f.Engine, perTenant); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("before the first creation: %v", err)
	}
	if err := limit.Set(ctx, f.Engine, perTenant, limit.Setting{Units: 1}); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("before the first creation: %v", err)
	}
	want := func(units, declared, changes int) limit.State {
		t.Helper()
		l, err := limit.Describe(ctx, f.Engine, perTenant)
		if err != nil {
			t.Fatal(err)
		}
		if l.Units != units || l.DeclaredUnits != declared || len(l.Changes) != changes {
			t.Fatalf("%+v, want %d of %d units and %d changes", l, units, declared, changes)
		}
		return l
	}
	created(t, f.Engine, kindOf(f, atOnce(5)), sync{Tenant: "acme"})
	want(5, 5, 1)
	created(t, f.Engine, kindOf(f, atOnce(5)), sync{Tenant: "acme"})
	want(5, 5, 1)
	created(t, f.Engine, kindOf(f, atOnce(6)), sync{Tenant: "acme"})
	want(6, 6, 2)
	if err := limit.Set(ctx, f.Engine, perTenant, limit.Setting{Units: 0, By: "on call"}); err != nil {
		t.Fatal(err)
	}
	if l := want(0, 6, 3); l.SetAt.IsZero() || l.Changes[0].How != limit.HowSet || l.Changes[0].By != "on call" || l.Changes[1].Units != 6 {
		t.Errorf("%+v", l)
	}
	created(t, f.Engine, kindOf(f, atOnce(7).WhenFull(engine.CancelNew)), sync{Tenant: "acme"})
	if l := want(0, 7, 4); l.WhenFull != engine.CancelNew {
		t.Errorf("%+v", l)
	}
	if err := limit.Set(ctx, f.Engine, perTenant, limit.Setting{Units: 1, Window: minute}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("a window for what runs at once: %v", err)
	}
	want(0, 7, 4)
	if err := limit.Reset(ctx, f.Engine, perTenant, ""); err != nil {
		t.Fatal(err)
	}
	if l := want(7, 7, 5); !l.SetAt.IsZero() || l.Changes[0].How != limit.HowReset {
		t.Errorf("%+v", l)
	}
	// What it counts changes: the operator's units mean nothing any more.
	if err := limit.Set(ctx, f.Engine, perTenant, limit.Setting{Units: 3}); err != nil {
		t.Fatal(err)
	}
	created(t, f.Engine, kindOf(f, engine.Rate[sync](9, minute).Per("tenant", tenantOf)), sync{Tenant: "acme"})
	if l := want(9, 9, 7); l.Window != minute || !l.SetAt.IsZero() {
		t.Errorf("%+v", l)
	}
	if err := limit.Set(ctx, f.Engine, perTenant, limit.Setting{Units: 3, Window: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if l := want(3, 9, 8); l.Window != time.Hour || l.DeclaredWindow != minute {
		t.Errorf("%+v", l)
	}
}

// The last 100 changes are kept.
func TestChangesAreKeptBounded(t *testing.T) {
	f := fixture.NewCloned(t)
	created(t, f.Engine, kindOf(f, atOnce(5)), sync{Tenant: "acme"})
	for n := range 110 {
		if err := limit.Set(t.Context(), f.Engine, perTenant, limit.Setting{Units: n}); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := f.Pool.QueryRow(t.Context(), "SELECT count(*) FROM ffx_limit_change").Scan(&n); err != nil || n != 100 {
		t.Errorf("%d changes are kept, %v", n, err)
	}
}
