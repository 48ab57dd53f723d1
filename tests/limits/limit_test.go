package limits

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Each key has room of its own, and those that wait say for which limit and key, and at which place.
func TestKeysLimitApart(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2))
	var acme []id.ExecutionID
	for range 5 {
		acme = append(acme, created(t, f.Engine, kind, sync{Tenant: "acme"}).ID)
	}
	created(t, f.Engine, kind, sync{Tenant: ""})
	running := wantClaimable(t, f, 3, "two of acme, and one without a tenant")
	for n, x := range acme[2:] {
		s := describe(t, f, x)
		w := s.LimitWait
		if w == nil || w.Name != "sync/tenant" || w.Key != "acme" || w.Ahead != n || w.Since.IsZero() || s.State.Public != state.PublicRateLimited {
			t.Errorf("%d of those that wait: %+v", n, w)
		}
	}
	if w := describe(t, f, acme[0]).LimitWait; w != nil {
		t.Errorf("one that runs waits: %+v", w)
	}
	uses := map[string]limit.Use{}
	for use, err := range limit.Keys(t.Context(), f.Engine, perTenant) {
		if err != nil {
			t.Fatal(err)
		}
		uses[use.Key] = use
	}
	if u := uses["acme"]; len(uses) != 2 || u.InUse != 2 || u.Waiting != 3 || u.WaitingSince.IsZero() || uses[""].InUse != 1 || uses[""].Waiting != 0 {
		t.Errorf("%+v", uses)
	}
	wantInUse(t, f, limit.Total{Name: limit.Name{Namespace: "default", Name: "sync/tenant"}, InUse: 2, Waiting: 3})
	few, err := limit.InUse(t.Context(), f.Engine, 1)
	if err != nil || len(few) != 1 || few[0].InUse != 1 || few[0].Waiting != 3 || !few[0].Partial {
		t.Errorf("one unit and one key: %+v, %v", few, err)
	}
	_, err = limit.InUse(t.Context(), f.Engine, engine.MaxCounted+1)
	fixture.WantInputError(t, err, "counted")
	complete(t, f, running...)
	complete(t, f, wantClaimable(t, f, 2, "after the first have ended")...)
	complete(t, f, wantClaimable(t, f, 1, "the last")...)
	wantInUse(t, f)
}

// wantInUse compares the limits in use.
func wantInUse(t *testing.T, f *fixture.Fixture, want ...limit.Total) {
	t.Helper()
	if got, err := limit.InUse(t.Context(), f.Engine, 0); err != nil || !slices.Equal(got, want) {
		t.Errorf("in use: %+v, %v, want %+v", got, err, want)
	}
}

// An execution may take several units, at most those of the limit.
func TestUnitsCount(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(5).Units(func(a sync) int { return a.Weight }))
	for _, weight := range []int{3, 3, 2} {
		created(t, f.Engine, kind, sync{Tenant: "acme", Weight: weight})
	}
	// The third one would fit, but does not pass the second.
	first := wantClaimable(t, f, 1, "three of five units")
	complete(t, f, first...)
	second := wantClaimable(t, f, 2, "three and two of five units")
	// Fewer units than an execution takes: it runs alone.
	if err := limit.Set(t.Context(), f.Engine, perTenant, limit.Setting{Units: 1}); err != nil {
		t.Fatal(err)
	}
	created(t, f.Engine, kind, sync{Tenant: "acme", Weight: 3})
	wantClaimable(t, f, 0, "while others run")
	complete(t, f, second...)
	wantClaimable(t, f, 1, "alone")
}

// All limits of an execution must have room. It takes nothing before.
func TestSeveralLimitsAllHaveRoom(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1), engine.Concurrency[sync](2))
	tx := f.BeginTx(t) // in which nothing is admitted
	for _, tenant := range []string{"a", "a", "b", "c"} {
		created(t, f.WithTx(tx), kind, sync{Tenant: tenant})
	}
	fixture.Commit(t, tx)
	complete(t, f, wantClaimable(t, f, 2, "the older ones of two tenants")...)
	complete(t, f, wantClaimable(t, f, 2, "the others")...)
	wantClaimable(t, f, 0, "none is left")
}

// A limit changes for executions that wait already.
func TestLimitChangesWhileExecutionsWait(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2))
	set := func(units int) {
		t.Helper()
		if err := limit.Set(t.Context(), f.Engine, perTenant, limit.Setting{Units: units}); err != nil {
			t.Fatal(err)
		}
	}
	created(t, f.Engine, kind, sync{})
	set(0)
	for range 5 {
		created(t, f.Engine, kind, sync{})
	}
	running := claim(t, f, 10)
	wantClaimable(t, f, 0, "with a limit of 0")
	set(4)
	running = append(running, wantClaimable(t, f, 4-len(running), "with a limit of 4")...)
	set(1)
	complete(t, f, running[:3]...)
	wantClaimable(t, f, 0, "one still runs")
	if err := limit.Reset(t.Context(), f.Engine, perTenant, ""); err != nil {
		t.Fatal(err)
	}
	wantClaimable(t, f, 1, "as declared")
}

// A creation in a transaction that stays open makes no other creator of the key wait, and leaves nothing when it is rolled back.
func TestOpenTransactionMakesNoneWait(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2))
	created(t, f.Engine, kind, sync{Tenant: "first"}) // declares the limit
	open := f.BeginTx(t)
	x := created(t, f.WithTx(open), kind, sync{Tenant: "new"}).ID
	other := created(t, f.Engine, kind, sync{Tenant: "new"}).ID
	if claimed := wantClaimable(t, f, 2, "while the transaction is open"); !slicesContain(claimed, other) {
		t.Errorf("%v", claimed)
	}
	if err := open.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(fixture.Texts(t, f.Pool, "SELECT key FROM ffx_gate WHERE key = 'new'")); n != 1 {
		t.Errorf("%d rows of the key", n)
	}
	if _, err := f.DescribeExecution(t.Context(), x); err == nil {
		t.Error("the execution exists")
	}
	// A limit that is declared in a transaction which is rolled back is declared again by the next creation.
	again := f.BeginTx(t)
	created(t, f.WithTx(again), kindOf(f, atOnce(2), engine.Concurrency[sync](9)), sync{Tenant: "new"})
	created(t, f.WithTx(again), kindOf(f, atOnce(2), engine.Concurrency[sync](9)), sync{Tenant: "new"})
	if err := again.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	created(t, f.Engine, kindOf(f, atOnce(2), engine.Concurrency[sync](9)), sync{Tenant: "new"})
	if _, err := limit.Describe(t.Context(), f.Engine, limit.Name{Name: "sync/concurrency"}); err != nil {
		t.Error(err)
	}
}

func slicesContain(claimed []engine.Claimed, x id.ExecutionID) bool {
	for _, c := range claimed {
		if c.ID == x {
			return true
		}
	}
	return false
}

// A key whose row is gone is made again by the next execution that waits for it, also if that was created long before.
func TestForgottenKeyIsMadeAgain(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	spec := kind.Spec(sync{Tenant: `odd "key"\ ` + "\u2028\u00e9'{}"})
	spec.DelayUntil = time.Now().Add(minute)
	x, err := f.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(fixture.Texts(t, f.Pool, "SELECT key FROM ffx_gate")); n != 0 {
		t.Fatalf("%d keys before any execution waits", n)
	}
	if _, err := f.Pool.Exec(t.Context(), "UPDATE ff_exec_core SET ffx_delay_until_ms = 1, deadline_at_ms = 1"); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := upkeep.Of(f.Engine).PromoteDelayed(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	wantClaimable(t, f, 1, "after its delay")
	if keys := fixture.Texts(t, f.Pool, "SELECT key || limit_name FROM ffx_gate"); len(keys) != 1 || keys[0] != spec.Limits[0].Key+"sync/tenant" {
		t.Errorf("%q of %v", keys, x)
	}
}

// A key that was not used for an hour is forgotten with its admissions, unless an execution runs or waits.
func TestIdleKeysAreForgotten(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	for _, tenant := range []string{"ended", "running", "waiting", "waiting"} {
		created(t, f.Engine, kind, sync{Tenant: tenant})
	}
	admit(t, f.Engine)
	for _, c := range claim(t, f, 10) {
		switch {
		case strings.Contains(string(c.Payload), "waiting"):
			f.Fail(t, c.Lease, engine.Failure{Class: policy.Permanent}) // a completion would hand the place over
		case !strings.Contains(string(c.Payload), "running"):
			complete(t, f, c)
		}
	}
	forget := func() int {
		n, err := upkeep.Of(f.Engine).ForgetLimitKeys(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := func() (forgotten int) {
		for range 4 { // pages of two, and a start at the first one
			forgotten += forget()
		}
		return forgotten
	}
	f.Advance(time.Hour - time.Millisecond)
	if n := all(); n != 0 {
		t.Errorf("%d forgotten before the hour is over", n)
	}
	f.Advance(time.Millisecond)
	if n := all(); n != 1 {
		t.Errorf("%d forgotten, want that of the execution that has ended", n)
	}
	if keys := fixture.Texts(t, f.Pool, "SELECT key FROM ffx_gate ORDER BY key"); !slices.Equal(keys, []string{"running", "waiting"}) {
		t.Errorf("left %q", keys)
	}
	if rows := fixture.Texts(t, f.Pool, "SELECT units::text FROM ffx_gate_use"); len(rows) != 1 {
		t.Errorf("%d admissions left, want that of the running one", len(rows))
	}
	wantClaimable(t, f, 1, "the one that waited")
}
