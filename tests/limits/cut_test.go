package limits

import (
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// gateRows are all rows that the gate writes.
func gateRows(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, `
		SELECT to_jsonb(g)::text FROM ffx_gate AS g
		UNION ALL SELECT to_jsonb(u)::text FROM ffx_gate_use AS u
		UNION ALL SELECT concat_ws(' ', execution_id, eligibility_state, ffx_gate_id, ffx_admitted) FROM ff_exec_core
		ORDER BY 1`)
}

// A process may die before or after each round trip of the gate. Its pass took place as a whole or not at all, and the next one
// of another process goes on.
func TestPassesAreCutAnywhere(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, atOnce(2), engine.Rate[sync](3, minute).Per("starts", tenantOf))
	b := budgetOf(t, f, 10)
	known(t, f, kind, "acme") // the rows of new keys are made in a transaction of its own
	f.Advance(minute)
	undone, done := 0, 0
	for moment := 1; ; moment++ {
		tx := f.BeginTx(t) // in which nothing is admitted
		for range 4 {
			created(t, f.WithTx(tx), kind, sync{Tenant: "acme"})
		}
		if _, err := f.WithTx(tx).CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test", Budgets: []id.BudgetID{b}}); err != nil {
			t.Fatal(err)
		}
		fixture.Commit(t, tx)
		before := gateRows(t, f)

		proxy := fixture.NewCuttingProxy(t, f.Url, moment, func() {})
		pool := fixture.OpenPool(t, proxy.URL, nil)
		_, err := upkeep.Of(f.EngineOn(t, pool, engine.Config{NoListener: true})).AdmitWaiting(t.Context(), 100)
		cut := proxy.Cut() // during the pass, and not while the pool is closed
		pool.Close()
		if cut == (err == nil) {
			t.Fatalf("moment %d: cut %v, %v", moment, cut, err)
		}
		proxy.AwaitSessions()
		switch admitted := len(fixture.Texts(t, f.Pool, "SELECT 'x' FROM ff_exec_core WHERE ffx_admitted")); {
		case admitted == 0 && slices.Equal(gateRows(t, f), before):
			undone++
		case admitted == 3:
			done++
		default:
			t.Fatalf("moment %d: %d are admitted, or other rows have changed:\n%q\nbefore\n%q", moment, admitted, gateRows(t, f), before)
		}
		complete(t, f, wantClaimable(t, f, 3, "after the next pass")...)
		complete(t, f, wantClaimable(t, f, 1, "the last start of the window")...)
		f.Advance(minute)
		complete(t, f, wantClaimable(t, f, 1, "in the next window")...)
		f.Advance(minute)
		if err == nil {
			break
		}
	}
	if t.Logf("%d passes were undone, %d took place", undone, done); undone == 0 || done < 2 {
		t.Error("the moments don't include the commit")
	}
}
