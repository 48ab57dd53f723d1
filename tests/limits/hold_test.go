package limits

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// hold holds a tenant's key for a time, and returns the end in force.
func hold(t *testing.T, f *fixture.Fixture, eng *engine.Engine, tenant string, d time.Duration) time.Time {
	t.Helper()
	until, err := limit.Hold(t.Context(), eng, perTenant, tenant, limit.Holding{Until: f.Time().Add(d), By: "on call"})
	if err != nil {
		t.Fatal(err)
	}
	return until
}

// useOf returns the use of a tenant's key.
func useOf(t *testing.T, f *fixture.Fixture, tenant string) (found limit.Use) {
	t.Helper()
	for _, use := range fixture.Listed(t, limit.Keys(t.Context(), f.Engine, perTenant)) {
		if use.Key == tenant {
			found = use
		}
	}
	return found
}

// While a key is held nothing with the key starts, whatever its limit does when full: executions with a place are put
// back, ends give their places to none, and new executions wait. What runs goes on, and so does work with other keys.
// At the end of the hold the executions start in their order.
func TestHeldKeyStartsNothing(t *testing.T) {
	for name, limited := range map[string]engine.Limit[sync]{
		"wait":           atOnce(2),
		"cancel new":     atOnce(2).WhenFull(engine.CancelNew),
		"cancel running": atOnce(2).WhenFull(engine.CancelRunning),
		"keep newest":    atOnce(2).WhenFull(engine.KeepNewest),
		"rate":           engine.Rate[sync](3, time.Minute).Per("tenant", tenantOf),
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, limited)
			created(t, f.Engine, kind, sync{Tenant: "acme"})
			running := wantClaimable(t, f, 1, "before the hold")
			placed := created(t, f.Engine, kind, sync{Tenant: "acme"}).ID
			admit(t, f.Engine)
			f.WantState(t, placed, fixture.StateReady)
			if until := hold(t, f, f.Engine, "acme", time.Hour); !until.Equal(f.Time().Add(time.Hour)) {
				t.Errorf("held until %v", until)
			}
			late := created(t, f.Engine, kind, sync{Tenant: "acme"}).ID
			other := created(t, f.Engine, kind, sync{Tenant: "other"}).ID
			if got := wantClaimable(t, f, 1, "during the hold"); got[0].ID != other {
				t.Errorf("claimed %v, want the one of another key", got[0].ID)
			}
			for _, x := range []id.ExecutionID{placed, late} {
				if s := describe(t, f, x); s.State.Public != state.PublicRateLimited || s.LimitWait == nil || s.LimitWait.Key != "acme" {
					t.Errorf("during the hold: %s, %+v", s.State.Public, s.LimitWait)
				}
			}
			f.Advance(time.Second)
			if _, err := f.RenewLease(t.Context(), running[0].Lease, 2*time.Hour); err != nil {
				t.Error(err)
			}
			complete(t, f, running...)
			wantClaimable(t, f, 0, "after an end")
			if use := useOf(t, f, "acme"); use.Hold.By != "on call" || !use.Hold.Until.Equal(fixture.Start.Add(time.Hour)) || use.Waiting != 2 {
				t.Errorf("use %+v", use)
			}
			f.Advance(time.Hour - time.Second - time.Millisecond)
			wantClaimable(t, f, 0, "just before the end of the hold")
			f.Advance(time.Millisecond)
			got := wantClaimable(t, f, 2, "at the end of the hold")
			if got[0].ID != placed || got[1].ID != late {
				t.Errorf("claimed %v, want %v and %v", fixture.ExecutionsOf(got), placed, late)
			}
			if use := useOf(t, f, "acme"); use.Hold != (limit.Holding{}) {
				t.Errorf("use after the hold: %+v", use)
			}
		})
	}
}

// A completion that hands its place over finds the hold too.
func TestHeldKeyHandsNoPlaceOver(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	known(t, f, kind, "acme")
	for range 2 {
		created(t, f.Engine, kind, sync{Tenant: "acme"})
	}
	running := wantClaimable(t, f, 1, "before the hold")
	hold(t, f, f.Engine, "acme", time.Minute)
	claimer := f.Claimer(t)
	if _, claimed, err := claimer.CompleteAndClaim(t.Context(), fixture.CompletionsOf(running...), 10); err != nil || len(claimed) != 0 {
		t.Errorf("claimed %d, %v", len(claimed), err)
	}
	wantHeld(t, f, "acme", 0)
	f.Advance(time.Minute)
	wantClaimable(t, f, 1, "after the hold")
}

// The gate looks again at the end of the first hold, without a notification.
func TestGateLooksAtTheEndOfAHold(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	for tenant, d := range map[string]time.Duration{"a": time.Hour, "b": 2 * time.Hour} {
		created(t, f.Engine, kind, sync{Tenant: tenant})
		hold(t, f, f.Engine, tenant, d)
	}
	before := time.Now()
	admit(t, f.Engine)
	after := time.Now()
	if next := upkeep.Of(f.Engine).NextAdmission(); next.Before(before.Add(time.Hour)) || next.After(after.Add(time.Hour)) {
		t.Errorf("next look in %v", next.Sub(before))
	}
}

// Of two ends the later one stays, with its author. A past or zero end ends the hold, and notifies the gate.
func TestLaterEndOfTwoHoldsStays(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	known(t, f, kind, "acme")
	set := func(until time.Time, by string, want time.Time, wantBy string) {
		t.Helper()
		got, err := limit.Hold(t.Context(), f.Engine, perTenant, "acme", limit.Holding{Until: until, By: by})
		if use := useOf(t, f, "acme"); err != nil || !got.Equal(want) || !use.Hold.Until.Equal(want) || use.Hold.By != wantBy {
			t.Errorf("held until %v, %v, and the use is %+v, want %v by %q", got, err, use, want, wantBy)
		}
	}
	in := func(d time.Duration) time.Time { return f.Time().Add(d) }
	set(in(time.Minute), "a", in(time.Minute), "a")
	set(in(time.Second), "b", in(time.Minute), "a")
	set(in(time.Hour), "c", in(time.Hour), "c")
	set(in(-time.Second), "d", time.Time{}, "")
	set(in(time.Second), "e", in(time.Second), "e")
	f.Advance(time.Second)
	set(in(time.Minute), "f", in(time.Minute), "f") // after the end of the hold before
	created(t, f.Engine, kind, sync{Tenant: "acme"})
	wantClaimable(t, f, 0, "during the hold")
	for gateNotified(f) {
	}
	set(time.Time{}, "", time.Time{}, "")
	if !gateNotified(f) {
		t.Error("the end does not notify the gate")
	}
	wantClaimable(t, f, 1, "after the hold")
	set(time.Time{}, "", time.Time{}, "") // nothing to end
	if until, err := limit.Hold(t.Context(), f.Engine, perTenant, "never used", limit.Holding{}); err != nil || !until.IsZero() {
		t.Errorf("ended a hold of a new key: %v, %v", until, err)
	}
	if n := len(fixture.Texts(t, f.Pool, "SELECT key FROM ffx_gate WHERE key = 'never used'")); n != 0 {
		t.Error("the end of no hold has made a key")
	}
}

// Executions that a pass or a creation admits while Hold waits for it are put back before Hold returns.
func TestNothingIsAdmittedAfterAHold(t *testing.T) {
	held := func(t *testing.T, f *fixture.Fixture, finish func()) {
		t.Helper()
		rival := f.Rival(t)
		returned, wait := fixture.Watched(t, func(ctx context.Context) error {
			_, err := limit.Hold(ctx, rival.Engine, perTenant, "", limit.Holding{Until: f.Time().Add(time.Minute)})
			return err
		})
		rival.AwaitBlockedOr(t, f, returned)
		finish()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if n := admittedNow(t, f); n != 0 {
			t.Errorf("%d are admitted when Hold has returned", n)
		}
		wantClaimable(t, f, 0, "during the hold")
		f.Advance(time.Minute)
		wantClaimable(t, f, 1, "after the hold")
	}
	for _, statement := range []string{"TakeWaiting", "AdmitExecutions"} {
		t.Run("pass stopped before "+statement, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1))
			known(t, f, kind, "")
			tx := f.BeginTx(t) // in which nothing is admitted
			created(t, f.WithTx(tx), kind, sync{})
			fixture.Commit(t, tx)
			r := f.StoppedBefore(t, statement)
			pass := passing(t, r.Engine)
			r.AwaitStop(t)
			held(t, f, func() { r.Resume(); pass() })
		})
	}
	t.Run("creation", func(t *testing.T) {
		f := fixture.NewCloned(t)
		kind := kindOf(f, atOnce(1))
		known(t, f, kind, "")
		r := f.StoppedBefore(t, "InsertAlikeAdmitted")
		create := fixture.Async(t, func(ctx context.Context) error {
			_, err := kind.Create(ctx, r.Engine, sync{})
			return err
		})
		r.AwaitStop(t)
		held(t, f, func() {
			r.Resume()
			if err := create(); err != nil {
				t.Error(err)
			}
		})
	})
}

// A hold does not wait for a locked execution, which keeps its place. So it does not wait for claims either.
func TestHoldPassesLockedExecutionsBy(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2))
	known(t, f, kind, "acme")
	locked := created(t, f.Engine, kind, sync{Tenant: "acme"}).ID
	created(t, f.Engine, kind, sync{Tenant: "acme"})
	tx := f.BeginTx(t)
	fixture.LockExecution(t, tx, locked)
	hold(t, f, f.Engine, "acme", time.Hour)
	fixture.Commit(t, tx)
	if got := wantClaimable(t, f, 1, "the locked one"); got[0].ID != locked {
		t.Errorf("claimed %v, want %v", got[0].ID, locked)
	}
}

// Until the commit of a hold in a caller's transaction its key admits nothing, also a new one, and other keys do. After a
// rollback there was no hold.
func TestHoldInATransaction(t *testing.T) {
	for name, commits := range map[string]bool{"commits": true, "rolls back": false} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, atOnce(1))
			known(t, f, kind, "known")
			tx := f.BeginTx(t)
			for _, tenant := range []string{"known", "new"} {
				hold(t, f, f.WithTx(tx), tenant, time.Minute)
				created(t, f.Engine, kind, sync{Tenant: tenant})
			}
			created(t, f.Engine, kind, sync{Tenant: "other"})
			complete(t, f, wantClaimable(t, f, 1, "of another key")...)
			f.End(t, tx, commits)
			if commits {
				wantClaimable(t, f, 0, "during the hold")
				f.Advance(time.Minute)
			}
			wantClaimable(t, f, 2, "at last")
		})
	}
}

// A held key blocks nothing else: schedules tick, executions that share another limit or a budget start, and the
// places of executions that are put back are free for others.
func TestHeldKeyBlocksNoOthers(t *testing.T) {
	f := fixture.NewCloned(t)
	b := budgetOf(t, f, 1)
	kind := kindOf(f, atOnce(1), engine.Concurrency[sync](1))
	known(t, f, kind, "acme")
	placed := created(t, f.Engine, kind, sync{Tenant: "acme"}).ID
	admit(t, f.Engine)
	f.WantState(t, placed, fixture.StateReady) // with the only place of the kind
	hold(t, f, f.Engine, "acme", time.Hour)
	for _, tenant := range []string{"acme", "other"} {
		spec := kind.Spec(sync{Tenant: tenant})
		spec.Priority = map[string]int{"acme": 9}[tenant]
		if err := schedule.Put(t.Context(), f.Engine, schedule.Spec{Name: tenant, Every: time.Minute, Execution: spec}); err != nil {
			t.Fatal(err)
		}
	}
	f.Advance(time.Minute)
	if n, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), 100); n != 2 || err != nil {
		t.Fatalf("ran %d schedules, %v", n, err)
	}
	complete(t, f, wantClaimable(t, f, 1, "of another key, with the place of the kind")...)
	for _, tenant := range []string{"acme", "other"} {
		spec := kind.Spec(sync{Tenant: tenant})
		spec.Budgets = []id.BudgetID{b}
		if _, err := f.CreateExecution(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	complete(t, f, wantClaimable(t, f, 1, "of another key, with the budget")...)
	f.Advance(time.Hour)
	for n := range 3 {
		complete(t, f, wantClaimable(t, f, 1, "after the hold, number "+string(rune('1'+n)))...)
	}
}

// A key is kept while it is held, although nothing uses it.
func TestHeldKeyIsNotForgotten(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	known(t, f, kind, "other") // declares the limit
	hold(t, f, f.Engine, "acme", 3*time.Hour)
	f.Advance(2 * time.Hour)
	forgets(t, f.Engine, 1)
	created(t, f.Engine, kind, sync{Tenant: "acme"})
	wantClaimable(t, f, 0, "during the hold")
	f.Advance(time.Hour)
	complete(t, f, wantClaimable(t, f, 1, "after the hold")...)
	hold(t, f, f.Engine, "acme", time.Millisecond)
	f.Advance(2 * time.Hour)
	forgets(t, f.Engine, 1)
}

// Once a limit is deleted, holds of its keys end.
func TestHoldEndsWithItsLimit(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	known(t, f, kind, "acme")
	hold(t, f, f.Engine, "acme", time.Hour)
	created(t, f.Engine, kind, sync{Tenant: "acme"})
	wantClaimable(t, f, 0, "during the hold")
	if err := limit.Delete(t.Context(), f.Engine, perTenant); err != nil {
		t.Fatal(err)
	}
	wantClaimable(t, f, 1, "without the limit")
}

// More executions than one statement puts back.
func TestHoldPutsManyBack(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(3000))
	known(t, f, kind, "acme")
	specs := make([]engine.ExecutionSpec, engine.MaxBatch)
	for i := range specs {
		specs[i] = kind.Spec(sync{Tenant: "acme"})
	}
	for range 2 {
		if _, err := f.CreateExecutions(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
	}
	if n := admittedNow(t, f); n != 2*engine.MaxBatch {
		t.Fatalf("%d are admitted", n)
	}
	hold(t, f, f.Engine, "acme", time.Hour)
	if n := admittedNow(t, f); n != 0 {
		t.Errorf("%d are admitted during the hold", n)
	}
}

func TestHoldRefuses(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(1))
	known(t, f, kind, "acme")
	in := limit.Holding{Until: f.Time().Add(time.Minute)}
	refused := func(field string, name limit.Name, key string, h limit.Holding) {
		t.Helper()
		_, err := limit.Hold(t.Context(), f.Engine, name, key, h)
		fixture.WantInputError(t, err, field)
	}
	refused("Name", limit.Name{}, "acme", in)
	refused(`limit "sync/tenant" key`, perTenant, strings.Repeat("k", engine.MaxLimitKey+1), in)
	refused("By", perTenant, "acme", limit.Holding{Until: in.Until, By: strings.Repeat("b", 1025)})
	refused(`limit "sync/tenant" until`, perTenant, "acme", limit.Holding{Until: f.Time().Add(limit.MaxHold + time.Millisecond)})
	if _, err := limit.Hold(t.Context(), f.Engine, limit.Name{Name: "sync/nosuch"}, "acme", in); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("an unknown limit: %v", err)
	}
	if use := useOf(t, f, "acme"); use.Hold != (limit.Holding{}) {
		t.Errorf("held by a refused call: %+v", use)
	}
	hold(t, f, f.Engine, "acme", limit.MaxHold)
}
