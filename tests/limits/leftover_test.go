package limits

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/interop"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// forget lets the job examine all keys, and returns how many it deleted.
func forget(t *testing.T, f *fixture.Fixture) (n int) {
	t.Helper()
	for range 2 { // the second call begins at the first key
		forgotten, err := upkeep.Of(f.Engine).ForgetLimitKeys(t.Context(), core.MaxSweep)
		if err != nil {
			t.Fatal(err)
		}
		n += forgotten
	}
	return n
}

// left are the stored gates and admissions.
func left(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	return fixture.Texts(t, f.Pool, `
		SELECT 'gate ' || gate_id FROM ffx_gate
		UNION ALL SELECT concat_ws(' ', 'admission', gate_id, execution_id) FROM ffx_gate_use
		UNION ALL SELECT 'window ' || quota_policy_id FROM ff_quota_window
		UNION ALL SELECT 'admitted ' || quota_policy_id FROM ff_quota_admitted
		ORDER BY 1`)
}

// Whatever becomes of callers, executions and policies, nothing is left of their admissions. Only a place that is taken stays.
func TestNothingIsLeftOfAdmissions_B26_M30(t *testing.T) {
	f := fixture.NewCloned(t)
	spec := interop.QuotaPolicySpec{MaxRunning: 50, MaxStarts: 50, Window: window}
	policies := []id.QuotaPolicyID{quota(t, f, spec), quota(t, f, spec), quota(t, f, interop.QuotaPolicySpec{MaxRunning: 50})}
	lives := create(t, f, 1)[0]
	released, died, gone := f.Create(t), f.Create(t), f.Create(t)
	for _, q := range policies {
		for _, x := range []id.ExecutionID{released, died, gone} {
			wantAnswer(t, f, q, x, interop.Admitted, 0)
		}
		giveBack(t, f, q, released)
		create(t, f, 2, under(q))
	}
	kept := policies[0]
	wantAnswer(t, f, kept, lives, interop.Admitted, 0)
	admit(t, f.Engine)
	for _, c := range claim(t, f, 100) {
		if c.ID != lives && c.ID != released {
			complete(t, f, c)
		}
	}
	f.Exec(t, "DELETE FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2", gone.Partition(), gone.UUID())
	f.Exec(t, "DELETE FROM ff_quota_policy WHERE quota_policy_id = $1", policies[1].String())
	f.Advance(time.Hour)
	if n := forget(t, f); n != len(policies)-1 {
		t.Errorf("forgot %d policies at the gate", n)
	}
	want := []string{"admission " + kept.String() + " " + lives.UUID().String(), "gate " + kept.String()}
	if got := left(t, f); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	f.Cancel(t, lives)
	if forget(t, f); len(left(t, f)) != 0 {
		t.Errorf("left %q at the end", left(t, f))
	}
}

// Admissions below a wide limit, which never needs a count, don't pile up while the key is in use.
func TestAdmissionsBelowAWideLimitAreCounted(t *testing.T) {
	f := fixture.NewCloned(t)
	q := quota(t, f, interop.QuotaPolicySpec{MaxRunning: 1_000_000})
	x := create(t, f, 2)
	wantAnswer(t, f, q, x[0], interop.Admitted, 0)
	f.Exec(t, `
		INSERT INTO ffx_gate_use (partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held)
		SELECT partition_key, gate_id, gen_random_uuid(), 1, 0, 1, true
		FROM ffx_gate, generate_series(1, 999)`)
	held := func(n string) {
		t.Helper()
		f.Exec(t, "UPDATE ffx_gate SET held = $1::bigint", n)
	}
	held("999")
	if forget(t, f); len(left(t, f)) != 1001 {
		t.Fatalf("%d rows are left of 1,001", len(left(t, f)))
	}
	held("1000")
	if forget(t, f); len(left(t, f)) != 2 {
		t.Errorf("%d rows are left, want the gate and the admission in use", len(left(t, f)))
	}
	if got := fixture.Texts(t, f.Pool, "SELECT held::text FROM ffx_gate"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("%q in use", got)
	}
	wantAnswer(t, f, q, x[1], interop.Admitted, 0)
}

// The database's clock decides which starts are over, whatever the caller's says.
func TestDatabaseClockDecidesOnAdmission_B25(t *testing.T) {
	f := fixture.NewCloned(t)
	eng, err := engine.New(f.Pool, engine.Config{}) // without a fixed clock
	if err != nil {
		t.Fatal(err)
	}
	q := quota(t, f, interop.QuotaPolicySpec{MaxStarts: 1, Window: time.Hour})
	x := create(t, f, 2)
	if got := ask(t, eng, q, x[0]); got.Outcome != interop.Admitted {
		t.Fatal(got)
	}
	if got := ask(t, eng, q, x[1]); got.Outcome != interop.RateExceeded {
		t.Fatal(got)
	}
	f.Exec(t, `
		CREATE OR REPLACE FUNCTION ffx_now_ms(now_ms bigint) RETURNS bigint
		LANGUAGE sql STABLE PARALLEL SAFE
		AS $$ SELECT coalesce(now_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint + 3600000) $$`)
	if got := ask(t, eng, q, x[1]); got.Outcome != interop.Admitted {
		t.Errorf("an hour later by the database's clock: %+v", got)
	}
}
