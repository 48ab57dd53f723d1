//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// The limits of the test: what runs at once, and what starts within a second.
const (
	places, starts = "places", "starts"
	maxPlaces      = 10
)

// intervalTable has the time during which each attempt certainly had its place: from the statement that claimed it, which had
// seen its admission, to the one that ended it, before its commit. The instants that the library stores are the starts of these
// statements, and a statement that is planned first may see commits after its start.
const intervalTable = `
	CREATE TABLE chaos_interval (
		execution_id uuid, attempt_index integer, began timestamptz NOT NULL, ended timestamptz, PRIMARY KEY (execution_id, attempt_index)
	);
	CREATE FUNCTION chaos_begin() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO chaos_interval VALUES (NEW.execution_id, NEW.attempt_index, clock_timestamp());
		RETURN NULL;
	END $$;
	CREATE FUNCTION chaos_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		UPDATE chaos_interval SET ended = clock_timestamp() WHERE execution_id = NEW.execution_id AND attempt_index = NEW.attempt_index;
		RETURN NULL;
	END $$;
	CREATE TRIGGER chaos_begin AFTER INSERT ON ff_attempt FOR EACH ROW EXECUTE FUNCTION chaos_begin();
	CREATE TRIGGER chaos_end AFTER UPDATE OF outcome ON ff_attempt FOR EACH ROW
		WHEN (NEW.outcome IN ('success', 'failed', 'retry')) EXECUTE FUNCTION chaos_end();`

// Limits are exact while worker processes are killed and frozen: by the stored intervals no more than the limit ran at any
// time, and no more started in any second. An execution whose lease is lost keeps its place until it is retried or ends.
func TestLimitsAreExactAmongKills(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), intervalTable); err != nil {
		t.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	placed, rated, rate := soak.Size(t, 300, 30_000), soak.Size(t, 100, 70_000), soak.Size(t, 50, 1_000)
	err = limit.Declare(t.Context(), eng,
		limit.Spec{Name: places, Units: maxPlaces}, limit.Spec{Name: starts, Units: rate, Window: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	createLimited(t, eng, places, placed)
	createLimited(t, eng, starts, rated)

	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: soak.Size(t, 30, 3_000), maxKills: soak.Size(t, 4, 16), freezeOneIn: soak.Size(t, 40, 6_000), maxFreezes: soak.Size(t, 2, 6),
		within: 15 * time.Millisecond,
	}}
	begun := time.Now()
	for range processes / 2 {
		f.start()
	}
	f.awaitEndWithinBounds(t)
	f.stop()
	t.Logf("%d executions in %.1f s; %d handlers started, %d processes killed, %d frozen, %d outcomes refused",
		placed+rated, time.Since(begun).Seconds(), f.started, f.kills, f.freezes, f.refused)
	if f.kills < f.maxKills/2 || f.freezes == 0 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkEnds(t, pool, placed+rated)
	checkFences(t, pool)
	checkPlaces(t, pool, places)
	checkStarts(t, pool, rate)
	checkCounters(t, pool, eng)
}

// createLimited creates executions with a limit, of kinds that end in each way.
func createLimited(t *testing.T, eng *engine.Engine, limit string, n int) {
	t.Helper()
	for left := n; left > 0; {
		specs := make([]engine.ExecutionSpec, min(left, 1_000))
		for i := range specs {
			kind := "plain"
			switch {
			case i%4 == 0:
				kind = "reckless"
			case i%10 == 1:
				kind = "flaky"
			}
			specs[i] = engine.ExecutionSpec{
				Lane: lane, Kind: kind, Limits: []engine.LimitKey{{Name: limit}},
				Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: 10, Backoff: policy.Fixed(10 * time.Millisecond)}},
			}
		}
		outcomes, err := eng.CreateExecutions(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for _, outcome := range outcomes {
			if outcome.Err != nil {
				t.Fatal(outcome.Err)
			}
		}
		left -= len(specs)
	}
}

// awaitEndWithinBounds waits until all have ended, and compares the bounds with the use in between: they are never too low.
func (f *fleet) awaitEndWithinBounds(t *testing.T) {
	t.Helper()
	progress.Wait(t, "all executions to end", func() (int, bool) {
		wantNone(t, f.pool, "a bound is too low, or a limit is exceeded", `
			SELECT g.limit_name, l.units, g.held, g.started, u.held AS counted_held, s.started AS counted_started
			FROM ffx_gate AS g
			JOIN ffx_limit AS l ON l.namespace = g.namespace AND l.name = g.limit_name
			CROSS JOIN LATERAL (
				SELECT count(*) AS held FROM ff_exec_core AS e WHERE e.ffx_admitted AND g.gate_id = ANY (e.ffx_limit_ids)
			) AS u
			CROSS JOIN LATERAL (
				SELECT count(*) AS started FROM ff_attempt AS a
				JOIN ff_exec_core AS e USING (partition_key, execution_id)
				WHERE g.gate_id = ANY (e.ffx_limit_ids) AND a.started_at_ms > ffx_now_ms(NULL) - l.window_ms
			) AS s
			WHERE g.held < u.held OR g.started < s.started OR l.window_ms IS NULL AND u.held > l.units OR s.started > l.units`)
		n := f.count("SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')")
		return n, n == 0 || t.Failed()
	})
}

// checkPlaces: at no time more attempts had a place than there are.
func checkPlaces(t *testing.T, pool *pgxpool.Pool, limit string) {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT max(running) FROM (
			SELECT sum(change) OVER (ORDER BY at, change) AS running
			FROM chaos_interval AS i
			JOIN ff_exec_core AS e USING (execution_id)
			CROSS JOIN LATERAL (VALUES (began, 1), (ended, -1)) AS c (at, change)
			WHERE e.raw_fields -> 'ffx_limits' -> 0 ->> 'name' = $1
		) AS r`, limit)
	if err != nil {
		t.Fatal(err)
	}
	most, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("at most %d had places at once", most); most > maxPlaces {
		t.Errorf("%d had places at once, limit %d", most, maxPlaces)
	}
	wantNone(t, pool, "an attempt has no interval", `
		SELECT execution_id, attempt_index FROM ff_attempt AS a LEFT JOIN chaos_interval AS i USING (execution_id, attempt_index) WHERE i.ended IS NULL`)
}

// checkStarts: in no second more attempts started than may.
func checkStarts(t *testing.T, pool *pgxpool.Pool, rate int) {
	t.Helper()
	rows, err := pool.Query(t.Context(), `
		SELECT count(*) OVER (ORDER BY a.started_at_ms RANGE BETWEEN 999 PRECEDING AND CURRENT ROW) AS n
		FROM ff_attempt AS a JOIN ff_exec_core AS e USING (partition_key, execution_id)
		WHERE e.raw_fields -> 'ffx_limits' -> 0 ->> 'name' = $1
		ORDER BY n`, starts)
	if err != nil {
		t.Fatal(err)
	}
	windows, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	share := func(percent int) int { return windows[(len(windows)-1)*percent/100] }
	t.Logf("starts within a second: at most %d, 90%% %d, half %d, 10%% %d", share(100), share(90), share(50), share(10))
	if most := share(100); most > rate {
		t.Errorf("%d started within a second, limit %d", most, rate)
	}
}

// checkCounters: once a pass has counted, the stored use is that of the rows.
func checkCounters(t *testing.T, pool *pgxpool.Pool, eng *engine.Engine) {
	t.Helper()
	for _, name := range []string{places, starts} {
		// With room for one, an execution is admitted only after a count that finds nothing.
		if err := limit.Set(t.Context(), eng, limit.Name{Name: name}, limit.Setting{Units: 1}); err != nil {
			t.Fatal(err)
		}
		createLimited(t, eng, name, 1)
	}
	progress.Until(t, "both executions to be admitted", func() bool {
		if _, err := upkeep.Of(eng).AdmitWaiting(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		var admitted int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM ff_exec_core WHERE ffx_admitted").Scan(&admitted); err != nil {
			t.Fatal(err)
		}
		return admitted == 2
	})
	wantNone(t, pool, "a counter is not what the rows say", `
		SELECT limit_name, held, started FROM ffx_gate
		WHERE CASE limit_name WHEN 'places' THEN held ELSE started END <> 1`)
}
