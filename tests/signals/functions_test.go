package signals

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The statements inside the functions find their rows by keys, however many others there are and whatever the statistics
// say: no table is read whole, and no index is walked. The plans are those of a new session, with the settings of a
// program that calls the functions itself.
func TestFunctionsLookUpTheirRows(t *testing.T) {
	const most = 40 // rows that the calls below may fetch from one table
	f := fixture.NewCloned(t)
	analyze := func() { f.Exec(t, "ANALYZE") }
	pattern := f.Suspend(t, ready)
	fill := func(from, to int) func() {
		return func() { copyWaits(t, f, pattern, from, to) }
	}
	for _, c := range []struct {
		situation string
		prepare   func()
	}{
		{"never analysed, one wait", func() {}},
		{"never analysed, 1,000 waits", fill(1, 1_000)},
		{"analysed", analyze},
		{"analysed with half of the waits", fill(1_001, 2_000)},
		{"analysed when all had ended", func() {
			f.Exec(t, "UPDATE ff_exec_core SET lifecycle_phase = 'terminal' WHERE lifecycle_phase = 'suspended'")
			analyze()
			f.Exec(t, "UPDATE ff_exec_core SET lifecycle_phase = 'suspended' WHERE lifecycle_phase = 'terminal'")
		}},
		{"analysed when empty", func() {
			f.Exec(t, "CREATE TABLE kept AS TABLE ff_waitpoint_pending; DELETE FROM ff_waitpoint_pending")
			analyze()
			f.Exec(t, "INSERT INTO ff_waitpoint_pending TABLE kept; DROP TABLE kept")
		}},
	} {
		c.prepare()
		step := func(s *engine.SuspendSpec) { s.Step = "signal ready" }
		running, waiting, bySQL, asked := f.Start(t).Lease, f.Suspend(t, ready, step), f.Suspend(t, ready), f.Suspend(t, ready)
		tx := fixture.BeginWith(t, f.Rival(t).Pool, pgx.TxOptions{})
		fixture.ExecIn(t, tx, "SET LOCAL plan_cache_mode = force_generic_plan")
		before := read(t, tx)
		e := f.WithTx(tx)
		_, suspended := e.Suspend(t.Context(), engine.SuspendSpec{Lease: running, Condition: ready, Step: "signal ready"})
		_, buffered := e.Signal(t.Context(), engine.SignalSpec{Execution: running.Execution, Name: "other", IdempotencyKey: "once"})
		satisfied, signalled := e.SignalEach(t.Context(), []engine.SignalSpec{
			{Execution: running.Execution, Name: "ready"}, {Execution: waiting.Execution, Name: "ready"},
		})
		fixture.ExecIn(t, tx, "SELECT ffx_signal($1, 'ready')", bySQL.Execution.String())
		resumed := e.Resume(t.Context(), asked.Execution, 0)
		if err := errors.Join(suspended, buffered, signalled, resumed, satisfied[0].Err, satisfied[1].Err); err != nil {
			t.Fatal(c.situation, err)
		}
		for table, after := range read(t, tx) {
			if scanned, fetched := after.Scanned-before[table].Scanned, after.Fetched-before[table].Fetched; scanned > 0 || fetched > most {
				t.Errorf("%s: %d rows of %s are scanned, %d fetched by indexes", c.situation, scanned, table, fetched)
			}
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// rowsRead are rows of a table that a session has read.
type rowsRead struct{ Scanned, Fetched int64 }

// read returns the counters of a session. They include its earlier transactions, unless the server has collected those.
func read(t *testing.T, tx pgx.Tx) map[string]rowsRead {
	t.Helper()
	tables := map[string]rowsRead{}
	rows, _ := tx.Query(t.Context(), "SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables")
	var table string
	var r rowsRead
	if _, err := pgx.ForEachRow(rows, []any{&table, &r.Scanned, &r.Fetched}, func() error {
		tables[table] = r
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return tables
}

// copyWaits adds waits like the pattern, in its partition.
func copyWaits(t *testing.T, f *fixture.Fixture, pattern engine.Lease, from, to int) {
	t.Helper()
	for _, table := range []string{"ff_exec_core", "ff_attempt", "ff_suspension_current", "ff_waitpoint_pending"} {
		f.Exec(t, fmt.Sprintf(`
			INSERT INTO %[1]s
			SELECT (jsonb_populate_record(NULL::%[1]s, to_jsonb(t) || jsonb_build_object(
				'execution_id', md5(n::text)::uuid, 'waitpoint_id', md5(n::text)::uuid
			))).*
			FROM %[1]s AS t, generate_series($2::integer, $3) AS n
			WHERE t.execution_id = $1`, table), pattern.Execution.UUID(), from, to)
	}
}
