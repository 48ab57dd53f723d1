//go:build unix

package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
	"github.com/flowfabric/flowfabric-go/worker"
)

// stepTables has the effects of steps, beside those of shapes: of plain ones, by another connection, and of those in
// transactions.
const stepTables = shapeTables + `;
	CREATE TABLE step_effect (execution uuid, step text, epoch bigint);
	CREATE TABLE step_booked (execution uuid, step text, epoch bigint)`

// kindSteps has a plain step, one in a transaction and a nested pair in each of its rounds, and pauses between two of them.
var kindSteps = kindOf("steps")

const stepRounds = 4

// steps runs its steps, and completes with the effect of a shape.
func (s *shapeWorker) steps(ctx context.Context, job worker.Job[struct{}]) (result, error) {
	x := job.ID
	plain := func(ctx context.Context, name string) error {
		_, err := worker.Step(ctx, job, name, func(ctx context.Context) (int64, error) {
			labour()
			_, err := s.pool.Exec(ctx, "INSERT INTO step_effect VALUES ($1, $2, $3)", x.UUID(), name, job.Lease.Epoch)
			return job.Lease.Epoch, err
		})
		return err
	}
	book := func(ctx context.Context, name string) error {
		_, err := worker.StepTx(ctx, job, name, func(ctx context.Context, tx pgx.Tx) (int64, error) {
			_, err := tx.Exec(ctx, "INSERT INTO step_booked VALUES ($1, $2, $3)", x.UUID(), name, job.Lease.Epoch)
			labour()
			return job.Lease.Epoch, err
		})
		return err
	}
	for i := range stepRounds {
		if err := plain(ctx, worker.Key("plain", i)); err != nil {
			return result{}, err
		}
		if err := book(ctx, worker.Key("book", i)); err != nil {
			return result{}, err
		}
		_, err := worker.Step(ctx, job, worker.Key("nested", i), func(ctx context.Context) (int, error) {
			if err := plain(ctx, worker.Key("inner", i)); err != nil {
				return 0, err
			}
			return i, book(ctx, worker.Key("inner-book", i))
		})
		if err != nil {
			return result{}, err
		}
		if i == stepRounds/2 {
			if err := worker.Sleep(ctx, job, "pause", time.Millisecond); err != nil {
				return result{}, err
			}
		}
	}
	return s.exactly(job.Lease, resultOf(job.Lease), nil, nil, job.Delay(0))
}

// Handlers of steps run while processes are killed and frozen, and third parties hold locks. Writes in the transaction of a
// step happen once, by the lease that stored it. A plain step runs at least once, and not by a later lease.
func TestStepsSurviveKillsAndLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), stepTables); err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	executions := soak.Size(t, 60, 8_000)
	specs := make([]engine.ExecutionSpec, executions)
	for i := range specs {
		specs[i] = shapeNode("", shapeSpec(kindSteps)).Spec
		specs[i].Policy.Retry.MaxRetries = 100 // a lock or a lost connection fails an attempt
	}
	if _, err := eng.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: soak.Size(t, 15, 600), maxKills: soak.Size(t, 6, 24), freezeOneIn: soak.Size(t, 40, 1_500), maxFreezes: soak.Size(t, 2, 8),
		within: 60 * time.Millisecond,
	}}
	for range processes / 2 {
		f.start()
	}
	disturbing, stop := context.WithCancel(t.Context())
	held := make(chan int, 1)
	go func() { held <- f.lock(disturbing, stepLocks, func() {}) }()
	f.awaitNone("executions that have not ended", `SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')`)
	stop()
	locks := <-held
	f.stop()
	t.Logf("%d handlers started, %d processes killed, %d frozen, %d locks held, %d outcomes refused", f.started, f.kills, f.freezes, locks, f.refused)
	if f.kills < f.maxKills/2 || locks == 0 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, pool, executions)
	checkFences(t, pool)
}

// stepLocks are locks on rows that steps need.
var stepLocks = thirdParty{`
	SELECT FROM ff_exec_core AS e JOIN ff_attempt AS a USING (partition_key, execution_id, attempt_index)
	WHERE e.lifecycle_phase = 'active' AND random() < 0.2 LIMIT 3 FOR UPDATE SKIP LOCKED`, leaseTTL / 4}

// checkSteps: every execution has completed once, with each of its steps and their effects.
func checkSteps(t *testing.T, pool *pgxpool.Pool, total int) {
	t.Helper()
	wantNone(t, pool, "an execution has not completed once", `
		SELECT e.execution_id, e.public_state, s.effects FROM ff_exec_core AS e
		LEFT JOIN (SELECT execution, count(*) AS effects FROM shape_effect GROUP BY execution) AS s ON s.execution = e.execution_id
		WHERE e.public_state <> 'completed' OR s.effects IS DISTINCT FROM 1`)
	var names []string
	for i := range stepRounds {
		for _, name := range []string{"plain", "book", "nested", "inner", "inner-book"} {
			names = append(names, worker.Key(name, i))
		}
	}
	names = append(names, "pause")
	wantNone(t, pool, "an execution has other steps", `
		SELECT e.execution_id, array_agg(s.name ORDER BY s.seq) FROM ff_exec_core AS e LEFT JOIN ffx_step AS s USING (partition_key, execution_id)
		GROUP BY e.partition_key, e.execution_id
		HAVING count(s.name) FILTER (WHERE s.name = ANY (string_to_array($1, ' '))) <> $2 OR count(*) <> $2 OR count(DISTINCT s.seq) <> $2`,
		strings.Join(names, " "), len(names))
	wantNone(t, pool, "a step has booked otherwise than once, by the lease that stored it", `
		SELECT s.execution_id, s.name, convert_from(s.result, 'UTF8') AS result, array_agg(b.epoch) FROM ffx_step AS s
		FULL JOIN step_booked AS b ON b.execution = s.execution_id AND b.step = s.name
		WHERE b.step IS NOT NULL OR s.name LIKE '%book/%'
		GROUP BY s.execution_id, s.name, s.result
		HAVING array_agg(b.epoch) IS DISTINCT FROM ARRAY[convert_from(s.result, 'UTF8')::bigint]`)
	wantNone(t, pool, "a plain step has no effect by the lease that stored it", `
		SELECT s.execution_id, s.name, convert_from(s.result, 'UTF8') AS result FROM ffx_step AS s
		WHERE s.name ~ '^(plain|inner)/' AND NOT EXISTS (
			SELECT FROM step_effect AS e WHERE e.execution = s.execution_id AND e.step = s.name AND e.epoch = convert_from(s.result, 'UTF8')::bigint)`)
	// A former worker that was frozen may run the step that it was about to begin.
	wantNone(t, pool, "a plain step ran again by a later lease than the one that stored it", `
		SELECT s.execution_id, s.name, convert_from(s.result, 'UTF8') AS result, e.epoch FROM ffx_step AS s
		JOIN step_effect AS e ON e.execution = s.execution_id AND e.step = s.name
		WHERE s.name ~ '^(plain|inner)/' AND e.epoch > convert_from(s.result, 'UTF8')::bigint`)
	wantNone(t, pool, "executions are missing", "SELECT count(*) FROM ff_exec_core HAVING count(*) <> $1", total)
}
