//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// Handlers of turns run while processes are killed and frozen: 100,000 turns in a soak. Each turn moves money between two
// rows of a user; some create an execution, send a signal, sleep, wait or complete. In the end the user's tables and
// those of the engine agree about every turn.
func TestTurnsSurviveKills(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), turnTables); err != nil {
		t.Fatal(err)
	}
	turns := soak.Size(t, 400, 100_000)
	createRing(t, pool, turns/turnsPerExecution)
	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: soak.Size(t, 10, 120), maxKills: soak.Size(t, 6, 150), freezeOneIn: soak.Size(t, 30, 1_000), maxFreezes: soak.Size(t, 2, 16),
		within: 60 * time.Millisecond,
	}}
	began := time.Now()
	for range processes / 2 {
		f.start()
	}
	// The sequence counts tries of turns, and is cheap to read until there are enough of them.
	f.awaitNone("turns and executions that are left", `
		SELECT CASE WHEN last_value < $1::bigint THEN $1 - last_value
			ELSE (SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')) END
		FROM turn_done_id_seq`, turns)
	took := time.Since(began)
	f.stop()
	t.Logf("%d turns, %.0f a second; %d handlers started, %d processes killed, %d frozen, %d outcomes refused",
		turns, float64(turns)/took.Seconds(), f.started, f.kills, f.freezes, f.refused)
	if f.kills < f.maxKills/2 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkTurns(t, pool, turns)
}

// createRing creates executions of turns. Each knows the next one.
func createRing(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]id.ExecutionID, n)
	for i := range ids {
		ids[i] = eng.NewExecutionID(lane)
	}
	specs := make([]engine.ExecutionSpec, n)
	for i := range specs {
		specs[i] = kindTurns.Spec(ring{Next: ids[(i+1)%n]})
		specs[i].ID = ids[i]
		// A lock or a lost connection fails an attempt, and a kill never counts as one too many.
		specs[i].Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 100, Backoff: policy.Fixed(10 * time.Millisecond)}, MaxReclaims: 1_000}
	}
	outcomes, err := eng.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
	}
}

// checkTurns: every turn is in the user's tables and in those of the engine, once, with all its parts.
func checkTurns(t *testing.T, pool *pgxpool.Pool, turns int) {
	t.Helper()
	executions := turns / turnsPerExecution
	wantNone(t, pool, "an execution has not completed once", `
		SELECT e.execution_id, e.public_state, c.ends FROM ff_exec_core AS e
		LEFT JOIN (
			SELECT execution_id, array_agg(outcome) AS ends FROM ff_completion_event WHERE outcome <> 'resumable' GROUP BY execution_id
		) AS c USING (execution_id)
		WHERE e.public_state <> 'completed' OR c.ends IS DISTINCT FROM ARRAY['success']`)
	wantNone(t, pool, "executions of turns are missing, or turns", `
		SELECT (SELECT count(*) FROM ff_exec_core WHERE raw_fields ->> 'execution_kind' = 'turns') AS executions, (SELECT count(*) FROM turn_done) AS turns,
			(SELECT count(DISTINCT (execution, turn)) FROM turn_done) AS different
		WHERE (SELECT count(*) FROM ff_exec_core WHERE raw_fields ->> 'execution_kind' = 'turns') <> $1
			OR (SELECT count(*) FROM turn_done) <> $2 OR (SELECT count(DISTINCT (execution, turn)) FROM turn_done) <> $2`, executions, turns)
	wantNone(t, pool, "an account differs from its turns", `
		SELECT l.account, l.balance, m.balance AS moved FROM ledger AS l
		LEFT JOIN (
			SELECT account, sum(change) AS balance FROM (
				SELECT source AS account, -1 AS change FROM turn_done UNION ALL SELECT target, 1 FROM turn_done
			) AS moves GROUP BY account
		) AS m USING (account)
		WHERE l.balance <> coalesce(m.balance, 0)`)
	wantNone(t, pool, "the sum of the ledger is not 0", "SELECT sum(balance) FROM ledger HAVING sum(balance) <> 0")
	wantNone(t, pool, "a turn has no step, or a step no turn, or they are of different attempts", `
		SELECT s.execution_id, s.name, d.execution, d.turn, d.attempt, s.attempt_index FROM turn_done AS d
		FULL JOIN (SELECT * FROM ffx_step WHERE name LIKE 'turn/%') AS s ON s.execution_id = d.execution AND s.name = 'turn/' || d.turn
		WHERE d.attempt IS DISTINCT FROM s.attempt_index
			OR s.outcome <> CASE d.turn WHEN $1::integer THEN 'slept' ELSE 'success' END`, sleeping)
	wantNone(t, pool, "an execution has other steps", `
		SELECT execution_id, array_agg(name ORDER BY seq) AS names FROM ffx_step GROUP BY partition_key, execution_id
		HAVING count(*) <> $1 OR count(DISTINCT seq) <> $1 OR count(*) FILTER (WHERE name = 'signal go on' AND outcome = 'signal') <> 1`, turnsPerExecution+1)
	wantNone(t, pool, "a child has no turn, or a turn not its child", `
		SELECT e.execution_id, d.execution, d.turn FROM turn_done AS d
		FULL JOIN (SELECT execution_id FROM ff_exec_core WHERE raw_fields ->> 'execution_kind' = 'child') AS e ON e.execution_id = d.child
		WHERE (d.child IS NOT NULL OR d.execution IS NULL OR d.turn % $1::integer = 0) AND e.execution_id IS DISTINCT FROM d.child
			OR e.execution_id IS NOT NULL AND d.execution IS NULL`, createsOneIn)
	wantNone(t, pool, "an execution has another signal than that of the previous one", `
		SELECT e.execution_id, s.signals, d.turns FROM ff_exec_core AS e
		LEFT JOIN (SELECT execution_id, count(*) AS signals FROM ff_signal_event GROUP BY execution_id) AS s ON s.execution_id = e.execution_id::text
		LEFT JOIN (SELECT signalled, count(*) AS turns FROM turn_done GROUP BY signalled) AS d ON d.signalled = e.execution_id
		WHERE e.raw_fields ->> 'execution_kind' = 'turns' AND (s.signals IS DISTINCT FROM 1 OR d.turns IS DISTINCT FROM 1)`)
	wantNone(t, pool, "something still waits", `
		SELECT execution_id::text FROM ff_suspension_current WHERE ffx_open_since_ms IS NOT NULL
		UNION ALL SELECT execution_id::text FROM ff_waitpoint_pending WHERE state = 'active'`)
}
