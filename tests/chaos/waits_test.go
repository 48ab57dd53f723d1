//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// Handlers wait for signals while processes are killed and third parties hold locks. Senders repeat each signal, and an
// operator resumes some executions without one. Each handler gets each of its signals once, and none waits for ever.
func TestWaitsSurviveKillsAndLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), waitTables); err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	executions := soak.Size(t, 120, 2_000)
	specs := make([]engine.ExecutionSpec, executions)
	for i := range specs {
		kind := kindWaits
		if i%4 == 0 {
			kind = kindTimed
		}
		specs[i] = shapeNode("", shapeSpec(kind)).Spec
	}
	created, err := eng.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}

	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: soak.Size(t, 30, 300), maxKills: soak.Size(t, 6, 16), freezeOneIn: soak.Size(t, 80, 800), maxFreezes: soak.Size(t, 2, 6),
		within: 15 * time.Millisecond,
	}}
	for range processes / 2 {
		f.start()
	}
	disturbing, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	var held, resumed int
	// What waits for signals goes on waiting until a lock was held and a wait was resumed.
	var disturbed sync.WaitGroup
	disturbed.Add(2)
	others.Go(func() { held = f.lock(disturbing, waitLocks, disturbed.Done) })
	others.Go(func() { resumed = f.resumeSome(disturbing, eng, disturbed.Done) })
	for n := range 2 {
		others.Go(func() {
			disturbed.Wait()
			f.send(eng, created, n)
		})
	}
	f.awaitNone("executions that have not ended", `SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')`)
	stop()
	others.Wait()
	f.stop()
	t.Logf("%d handlers started, %d processes killed, %d frozen, %d locks held, %d waits resumed, %d outcomes refused",
		f.started, f.kills, f.freezes, held, resumed, f.refused)
	if f.kills < f.maxKills/2 || held == 0 || resumed == 0 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkWaits(t, pool, executions)
}

// waitLocks are locks on rows that waits need.
var waitLocks = thirdParty{`
	SELECT FROM ff_exec_core AS e
	JOIN ff_suspension_current AS s USING (partition_key, execution_id)
	JOIN ff_waitpoint_pending AS w USING (partition_key, execution_id)
	WHERE random() < 0.1 LIMIT 3 FOR UPDATE SKIP LOCKED`, leaseTTL}

// send sends a signal to every execution, twice, in an order of its own. It goes on after a locked row.
func (f *fleet) send(eng *engine.Engine, created []fferr.Outcome[engine.Created], n int) {
	for _, i := range rand.Perm(len(created)) {
		x := created[i].Value.ID
		for range 2 {
			for sent := false; !sent && f.t.Context().Err() == nil; {
				err := goOn.Send(f.t.Context(), eng, x, n, engine.Once(fmt.Sprint("signal ", n)))
				f.tolerate(f.t.Context(), "send", ignore(err, fferr.ErrEnded))
				sent = err == nil || errors.Is(err, fferr.ErrEnded)
			}
		}
		pause(f.t.Context(), rand.N(20*time.Millisecond))
	}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// resumeSome is an operator that ends waits without a signal. It returns how many, and calls first with the first one.
func (f *fleet) resumeSome(ctx context.Context, eng *engine.Engine, first func()) (resumed int) {
	for ctx.Err() == nil {
		var some []id.ExecutionID
		if some = f.executions(ctx, "lifecycle_phase = 'suspended' AND random() < 0.1 LIMIT 3"); len(some) == 0 {
			pause(ctx, 10*time.Millisecond)
			continue
		}
		for _, x := range some {
			err := eng.Resume(ctx, x, rand.N(2*time.Millisecond).Truncate(time.Millisecond))
			if err == nil {
				if resumed++; resumed == 1 {
					first()
				}
			}
			f.tolerate(ctx, "resume", ignore(err, fferr.ErrNotSuspended))
		}
		pause(ctx, rand.N(100*time.Millisecond))
	}
	return resumed
}

// checkWaits: every execution has completed once, with its signals once each, and nothing is left waiting.
func checkWaits(t *testing.T, pool *pgxpool.Pool, total int) {
	t.Helper()
	wantNone(t, pool, "an execution has not completed once", `
		SELECT e.execution_id, e.public_state, s.effects, c.ends
		FROM ff_exec_core AS e
		LEFT JOIN (SELECT execution, count(*) AS effects, max(epoch) AS epoch FROM shape_effect GROUP BY execution) AS s
			ON s.execution = e.execution_id
		LEFT JOIN (
			SELECT execution_id, array_agg(outcome) AS ends FROM ff_completion_event WHERE outcome <> 'resumable' GROUP BY execution_id
		) AS c USING (execution_id)
		WHERE e.public_state <> 'completed' OR s.effects IS DISTINCT FROM 1 OR s.epoch <> e.ffx_lease_epoch
			OR c.ends IS DISTINCT FROM ARRAY['success']`)
	wantNone(t, pool, "a handler has used other signals than its execution accepted", `
		SELECT e.execution_id, e.raw_fields ->> 'execution_kind' AS kind, v.accepted, u.used, p.stored
		FROM ff_exec_core AS e
		LEFT JOIN (SELECT execution_id, array_agg(signal_id::uuid ORDER BY signal_id) AS accepted FROM ff_signal_event GROUP BY execution_id) AS v
			ON v.execution_id = e.execution_id::text
		LEFT JOIN (SELECT execution, array_agg(signal ORDER BY signal) AS used FROM wait_used GROUP BY execution) AS u
			ON u.execution = e.execution_id
		LEFT JOIN (
			SELECT w.execution_id, array_agg((g.signal #>> '{}')::uuid ORDER BY g.signal) AS stored
			FROM ffx_step AS w
			CROSS JOIN LATERAL jsonb_path_query(ffx_read_json(w.result), '$.*[*].signal_id') AS g (signal)
			WHERE w.outcome = 'signal'
			GROUP BY w.execution_id
		) AS p ON p.execution_id = e.execution_id
		WHERE CASE e.raw_fields ->> 'execution_kind'
			WHEN 'waits' THEN cardinality(v.accepted) <> 2 OR u.used IS DISTINCT FROM v.accepted OR p.stored IS DISTINCT FROM v.accepted
			ELSE cardinality(v.accepted) > 2 OR NOT coalesce(u.used, '{}') <@ coalesce(v.accepted, '{}') OR cardinality(u.used) > 1
				OR coalesce(p.stored, '{}') <> coalesce(u.used, '{}')
		END`)
	wantNone(t, pool, "something still waits", `
		SELECT execution_id::text FROM ff_suspension_current WHERE ffx_open_since_ms IS NOT NULL OR timeout_at_ms IS NOT NULL
		UNION ALL SELECT execution_id::text FROM ff_waitpoint_pending WHERE state = 'active'`)
	wantNone(t, pool, "executions are missing", "SELECT count(*) FROM ff_exec_core HAVING count(*) <> $1", total)
}
