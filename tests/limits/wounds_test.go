package limits

import (
	"context"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// These are defects that users of other libraries have met with limits.

// claimedTenants counts what is claimed by tenant.
func claimedTenants(t *testing.T, f *fixture.Fixture, claimed []engine.Claimed) map[string]int {
	t.Helper()
	by := make(map[string]int)
	for _, c := range claimed {
		by[describe(t, f, c.ID).Limits[0].Key]++
	}
	return by
}

// No place stays idle in a burst, whichever tenants the places go to: as long as more wait than there are places, all are taken.
// https://elixirforum.com/t/how-does-oban-pro-burst-mode-allocate-slots-across-partitions-and-priorities/75418
func TestNoPlaceIsIdleInABurst(t *testing.T) {
	f := fixture.NewCloned(t)
	const places = 5
	whole := engine.Concurrency[sync](places).Per("whole", nil)
	kind := kindOf(f, atOnce(3), whole)
	waiting := 0
	var running []engine.Claimed
	for burst, tenants := range []int{2, 3, 1, 4} {
		for n := range 4 * tenants {
			created(t, f.Engine, kind, sync{Tenant: fmt.Sprint(burst, n%tenants)})
		}
		waiting += 4 * tenants
		for waiting > 0 {
			admit(t, f.Engine)
			claimed := claim(t, f, 100)
			running, waiting = append(running, claimed...), waiting-len(claimed)
			left := fixture.Texts(t, f.Pool, `SELECT 'x' FROM ff_exec_core AS e WHERE ffx_gate_id IS NOT NULL AND (
				SELECT count(*) FROM ff_exec_core AS o WHERE o.ffx_admitted AND o.ffx_limit_ids[1] = e.ffx_limit_ids[1]) < 3`)
			if len(running) > places || len(running) < places && len(left) > 0 {
				t.Fatalf("%d run while %d may start, limit %d", len(running), len(left), places)
			}
			complete(t, f, running[0])
			running = running[1:]
		}
	}
}

// A tenant whose limit is full holds back no other one, even if its work is older, more, and more urgent.
// https://elixirforum.com/t/53388
func TestFullTenantHoldsBackNone(t *testing.T) {
	f := fixture.NewCloned(t)
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "tenant", Units: 1}); err != nil {
		t.Fatal(err)
	}
	of := func(tenant string, priority int) func(*engine.ExecutionSpec) {
		return func(s *engine.ExecutionSpec) {
			s.Limits, s.Priority = []engine.LimitKey{{Name: "tenant", Key: tenant}}, priority
		}
	}
	create(t, f, 1_000, of("busy", 9))
	f.Advance(time.Second)
	const others = 30
	for n := range others {
		create(t, f, 2, of(fmt.Sprint(n), 0))
	}
	for round := range 2 {
		claimed := wantClaimable(t, f, 1+others, "one of each tenant")
		if by := claimedTenants(t, f, claimed); len(by) != 1+others {
			t.Errorf("round %d: %v", round, by)
		}
		complete(t, f, claimed...)
	}
	wantClaimable(t, f, 1, "of the busy tenant")
}

// A rate counts starts and not what runs, and a concurrency counts what runs and not starts.
// https://elixirforum.com/t/64201
func TestStartsAreNotRunning(t *testing.T) {
	f := fixture.NewCloned(t)
	rate := engine.Rate[sync](2, 3*time.Second).Per("starts", nil)
	for range 8 {
		created(t, f.Engine, kindOf(f, rate), sync{})
	}
	for n := range 3 {
		wantClaimable(t, f, 2, fmt.Sprintf("in window %d, while %d run", n, 2*n))
		wantClaimable(t, f, 0, "in the same window")
		f.Advance(3 * time.Second)
	}

	g := fixture.Clone(t)
	q := quota(t, g, interop.QuotaPolicySpec{MaxRunning: 2})
	create(t, g, 40, under(q))
	for range 20 { // all at one instant
		complete(t, g, wantClaimable(t, g, 2, "at any time")...)
	}
}

// The room that one key leaves free is not filled by another, and executions created at one instant have one order, in
// every pass and process.
// https://github.com/hatchet-dev/hatchet/pull/1164, https://github.com/hatchet-dev/hatchet/issues/4778
func TestKeysAreNotOverfilled(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(3))
	for tenant, n := range map[string]int{"few": 1, "some": 3, "many": 20} {
		for range n {
			created(t, f.Engine, kind, sync{Tenant: tenant})
		}
	}
	engines := []*engine.Engine{f.Engine, f.Rival(t).Engine, f.Rival(t).Engine}
	for _, e := range engines {
		admit(t, e)
	}
	claimed := claim(t, f, 100)
	if by := claimedTenants(t, f, claimed); by["few"] != 1 || by["some"] != 3 || by["many"] != 3 {
		t.Fatalf("%v run at first", by)
	}
	for n := 0; len(claimed) > 0; n++ {
		complete(t, f, claimed[0])
		admit(t, engines[n%3])
		claimed = append(claimed[1:], claim(t, f, 100)...)
		if by := claimedTenants(t, f, claimed); by["few"] > 1 || by["some"] > 3 || by["many"] > 3 {
			t.Fatalf("%v run after %d ends", by, n+1)
		}
	}
	order := fixture.Texts(t, f.Pool, "SELECT execution_id FROM ff_lease_event WHERE event_type = 'acquired'")
	if len(order) != 24 || len(slices.Compact(slices.Sorted(slices.Values(order)))) != 24 {
		t.Errorf("%d were claimed, want each of 24 once", len(order))
	}
}

// Only the database's clock says when a window is over: processes whose clocks are years behind it, and an hour apart, start no
// more than the rate together. DBOS counts by the clock of the worker that dequeues:
// https://github.com/dbos-inc/dbos-transact-py/pull/119
func TestRateKeepsTheDatabasesTime(t *testing.T) {
	f := fixture.NewCloned(t)
	eng, err := engine.New(f.Pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const rate = 4
	created, err := interop.CreateQuotaPolicy(t.Context(), eng, interop.QuotaPolicySpec{MaxStarts: rate, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * rate {
		if _, err := eng.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", QuotaPolicy: &created.ID}); err != nil {
			t.Fatal(err)
		}
	}
	started := 0
	for round, later := range []time.Duration{0, time.Hour, 2 * time.Hour, 48 * time.Hour} {
		aside(t, f.Url, later, func(ctx context.Context, e *engine.Engine) error {
			for { // until it admits nothing more
				if n, err := upkeep.Of(e).AdmitWaiting(ctx, 100); err != nil || n == 0 {
					break
				}
			}
			spec := f.Worker()
			spec.Instance = id.WorkerInstanceID(fmt.Sprint(f.Name, round))
			claimed, err := e.Claim(ctx, spec, 1+round)
			if started += len(claimed); err != nil {
				return err
			}
			for _, c := range claimed {
				if err := e.CompleteExecution(ctx, c.Lease, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if started != rate {
		t.Errorf("%d started within an hour, limit %d", started, rate)
	}
}

// aside calls fn with an engine of a process whose clock is years behind the database's, and as much later as is given.
func aside(t *testing.T, url string, later time.Duration, fn func(ctx context.Context, eng *engine.Engine) error) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	// Outside of the bubble, since look-ups are shared by the goroutines of a process.
	addresses, err := net.DefaultResolver.LookupHost(t.Context(), config.ConnConfig.Host)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		config.ConnConfig.LookupFunc = func(context.Context, string) ([]string, error) { return addresses, nil }
		time.Sleep(later) // no time passes for the database
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		eng, err := engine.New(pool, engine.Config{NoListener: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := fn(t.Context(), eng); err != nil {
			t.Errorf("%v later: %v", later, err)
		}
		eng.Flush()
		time.Sleep(time.Minute) // until the notifier has ended
	})
}
