package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// meteredPass runs one pass of the gate that admits n executions, and returns how many admissions, executions and attempts it
// reads.
func meteredPass(t *testing.T, f *fixture.Fixture, n int) int64 {
	t.Helper()
	tx := f.BeginTx(t)
	read := func() int64 {
		return fixture.One[struct{ N int64 }](t, tx, `SELECT sum(seq_tup_read + idx_tup_fetch)::bigint AS n FROM pg_stat_xact_user_tables
			WHERE relname IN ('ffx_gate_use', 'ff_exec_core', 'ff_attempt')`).N
	}
	before, begin := read(), time.Now()
	if acted, err := upkeep.Of(f.WithTx(tx)).AdmitWaiting(t.Context(), max(n, 1)); err != nil || acted != n {
		t.Fatalf("a pass admitted %d, want %d: %v", acted, n, err)
	}
	t.Logf("a pass that admits %d takes %v", n, time.Since(begin))
	rows := read() - before
	fixture.Commit(t, tx)
	return rows
}

// fullRate returns a fixture with a rate that is full: stored are starts of SQL, one for each of n, and so many executions wait.
func fullRate(t *testing.T, n, waiting int, starts string) *fixture.Fixture {
	t.Helper()
	f := fixture.NewCloned(t)
	kind := kindOf(f, engine.Rate[sync](n, time.Hour))
	known(t, f, kind, "")
	f.Exec(t, "DELETE FROM ffx_gate_use")
	f.Exec(t, fmt.Sprintf(`
		INSERT INTO ffx_gate_use (partition_key, gate_id, execution_id, admitted_at_ms, execution_partition_key, units, held, started_at_ms)
		SELECT g.partition_key, g.gate_id, gen_random_uuid(), c.now_ms - 1 - n, 0, 1, %[3]s
		FROM ffx_gate AS g, generate_series(1, %[1]d) AS n, (SELECT %[2]d::bigint AS now_ms) AS c`, n, f.Time().UnixMilli(), starts))
	f.Exec(t, "UPDATE ffx_gate SET started = $1, held = $1", n)
	f.Exec(t, "ANALYZE")
	for range waiting {
		created(t, f.Engine, kind, sync{})
	}
	return f
}

// A pass at a full rate does not read the 50,000 starts of the window. L14.
func TestPassAtAFullRateReadsWhatItAdmits_L14(t *testing.T) {
	const starts = 50_000
	// The last one was a millisecond ago, the first 50 seconds.
	f := fullRate(t, starts, 20, "false, c.now_ms - n")
	begin := time.Now()
	if n := admit(t, f.Engine); n != 0 {
		t.Fatalf("%d are admitted at a full rate", n)
	}
	t.Logf("the first count took %v", time.Since(begin))
	f.Advance(time.Hour - starts*time.Millisecond)
	for range 10 {
		if rows := meteredPass(t, f, 1); rows > 100 {
			t.Errorf("a pass that admits one reads %d rows", rows)
		}
		if n := admit(t, f.Engine); n != 0 {
			t.Errorf("%d more are admitted than starts have left the window", n)
		}
		f.Advance(time.Millisecond)
	}
}

// A pass looks at a thousand executions that were admitted and haven't started, and the next one at the next thousand: the place of
// one that was cancelled meanwhile is found, and no pass pays for all. L14.
func TestPassLooksAtAPageOfWhatHasNotStarted_L14(t *testing.T) {
	f := fixture.NewCloned(t)
	const name, units = "calls", 2_500
	if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: name, Units: units, Window: time.Hour}); err != nil {
		t.Fatal(err)
	}
	limited := func(s *engine.ExecutionSpec) { s.Limits = []engine.LimitKey{{Name: name}} }
	create(t, f, 1_000, limited)
	create(t, f, 1_000, limited)
	admitted := create(t, f, 500, limited)
	admit(t, f.Engine)
	f.Advance(time.Second)
	create(t, f, 1, limited)
	f.Exec(t, "ANALYZE")
	for range 4 { // the last one is not at the end of a page
		if rows := meteredPass(t, f, 0); rows > 3_500 {
			t.Errorf("a pass that admits nothing reads %d rows", rows)
		}
	}
	if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: admitted[100]}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range 3 {
		acted, err := upkeep.Of(f.Engine).AdmitWaiting(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		n += acted
	}
	if n != 1 {
		t.Errorf("%d are admitted in the place of one that was cancelled", n)
	}
	wantClaimable(t, f, 1_000, "a part of the others")
}
