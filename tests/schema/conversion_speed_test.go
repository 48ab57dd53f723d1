package schema_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// A quarter of the rows are executions; nine of ten have ended, each with an attempt, a completion and a lease event.
// The figure is for a person: make soak prints it for a million rows in 256 partitions.
func TestAdoptSpeed(t *testing.T) {
	t.Parallel()
	n := soak.Size(t, 1_000, 250_000)
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	// The tables first, then the partitions of each in a transaction: those of all would take too many locks.
	tables, _, _ := strings.Cut(referenceSQL(t, partitioned), "-- The reference makes 256 children")
	exec(t, conn, tables)
	for _, parent := range lines(t, conn, "SELECT relname::text FROM pg_class WHERE relkind = 'p' AND relnamespace = current_schema()::regnamespace") {
		exec(t, conn, fmt.Sprintf(`
			DO $$
			BEGIN
				FOR i IN 0..%[2]d - 1 LOOP
					EXECUTE format('CREATE TABLE %[1]s_p%%s PARTITION OF %[1]s FOR VALUES WITH (MODULUS %[2]d, REMAINDER %%s)', i, i);
				END LOOP;
			END;
			$$`, parent, soak.Size(t, 4, 256)))
	}
	exec(t, conn, fmt.Sprintf(`
		SET synchronous_commit = off;
		SET session_replication_role = replica;
		CREATE TEMPORARY TABLE made AS
		SELECT gen_random_uuid() AS x, (i %% 256)::smallint AS p, i %% 10 <> 0 AS ended, i FROM generate_series(1, %d) AS i;
		INSERT INTO ff_exec_core (
			partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state,
			created_at_ms, terminal_at_ms, payload, result, policy, raw_fields, started_at_ms
		)
		SELECT
			p, x, 'lane', CASE WHEN ended THEN 'terminal' ELSE 'submitted' END, 'unowned',
			CASE WHEN ended THEN 'not_applicable' ELSE 'eligible_now' END, CASE WHEN ended THEN 'running' ELSE 'waiting' END,
			CASE WHEN ended THEN 'attempt_terminal' ELSE 'pending' END, i, CASE WHEN ended THEN i + 5 END, '{"order":17}', '{"ok":true}',
			'{"priority":0,"max_reclaim_count":100,"max_replay_count":10,"budget_ids":[],"max_signals_per_execution":10000}',
			'{"namespace":"n","execution_kind":"k","creator_identity":"","last_mutation_at":"5","total_attempt_count":"0","tags":{}}',
			CASE WHEN ended THEN i END
		FROM made;
		INSERT INTO ff_attempt (partition_key, execution_id, attempt_index, worker_id, lease_epoch, started_at_ms, terminal_at_ms, outcome)
		SELECT p, x, 0, 'w', 1, i, i + 5, CASE WHEN ended THEN 'success' END FROM made;
		INSERT INTO ff_completion_event (partition_key, execution_id, outcome, occurred_at_ms, dispatched_at_ms)
		SELECT p, x, 'success', i, i FROM made;
		INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
		SELECT x::text, 'acquired', i, p FROM made`, n))
	exec(t, conn, "CHECKPOINT")
	begun := time.Now()
	result := adopt(t, databaseURL)
	took := time.Since(begun)
	var copied int64
	for _, table := range result.Tables {
		copied += table.Copied
	}
	if copied < int64(4*n) {
		t.Errorf("copied %d rows of %d", copied, 4*n)
	}
	t.Logf("%d rows in %s, %.0f a second", copied, took.Round(time.Millisecond), float64(copied)/took.Seconds())
	if completed := scalar[int](t, conn, "SELECT count(*) FROM ff_exec_core WHERE public_state = 'completed'"); completed != n-n/10 {
		t.Errorf("%d executions have completed, want %d", completed, n-n/10)
	}
}
