-- name: EnsureLanes :exec
-- EnsureLanes registers lanes that executions were created on; a known lane stays unchanged.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: lanes waits (for a concurrent insert of the same lane, in array order). The caller sorts.
INSERT INTO ff_lane_registry (
    lane_id,
    registered_at_ms,
    registered_by
)
SELECT
    i.lane_id,
    ffx_now_ms(sqlc.narg(now_ms)::bigint),
    'create_execution'
FROM (SELECT unnest(@lane_ids::text[]) AS lane_id) AS i
ON CONFLICT (lane_id) DO NOTHING;

-- name: ListLanes :many
-- ListLanes pages through the lanes, registered or paused, in byte order, strictly after one, with a row for each
-- fact about them:
--
--   - lane: it exists;
--   - paused: since since_ms, for the reason in note;
--   - waiting: n entries of its queue;
--   - next: n priorities have a claimable execution; one of them since since_ms, none for longer;
--   - blocked, delayed, active: n executions;
--   - ended: n executions within the last minute; without a lane, since_ms is the time between the first of these and now.
--
-- It counts up to max_counted waiting or blocked executions of each lane, and one more. It looks at that many
-- delayed, active or ended executions of all lanes together; a fact without a lane says how many there were. These
-- three facts may name lanes of other pages.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions.
WITH RECURSIVE clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
listed AS MATERIALIZED (
    -- The lanes of the page, in the collation of the tables: with another one no index of theirs would serve.
    SELECT (u.lane_id COLLATE "default")::text AS lane_id
    FROM (
        (
            SELECT l.lane_id COLLATE "C" AS lane_id
            FROM ff_lane_registry AS l
            WHERE l.lane_id COLLATE "C" > @after_lane_id::text
            ORDER BY l.lane_id COLLATE "C"
            LIMIT @page_size::integer
        )
        UNION
        (
            SELECT h.name AS lane_id
            FROM ffx_pause AS h
            WHERE
                h.subject = 'lane'
                AND h.name > @after_lane_id::text
            ORDER BY h.name
            LIMIT @page_size::integer
        )
    ) AS u
    ORDER BY u.lane_id
    LIMIT @page_size::integer
),
firsts AS (
    -- The first queue entry of each priority, of up to 32 of them.
    SELECT
        p.lane_id,
        1 AS nth,
        q.rank,
        q.execution_id,
        q.partition_key
    FROM listed AS p
    CROSS JOIN LATERAL (
        SELECT
            r.rank,
            r.execution_id,
            r.partition_key
        FROM ffx_ready AS r
        WHERE r.lane_id = p.lane_id
        ORDER BY
            r.rank,
            r.created_at_ms,
            r.execution_id
        LIMIT 1
    ) AS q
    UNION ALL
    SELECT
        b.lane_id,
        b.nth + 1,
        q.rank,
        q.execution_id,
        q.partition_key
    FROM firsts AS b
    CROSS JOIN LATERAL (
        SELECT
            r.rank,
            r.execution_id,
            r.partition_key
        FROM ffx_ready AS r
        WHERE
            r.lane_id = b.lane_id
            AND r.rank > b.rank
        ORDER BY
            r.rank,
            r.created_at_ms,
            r.execution_id
        LIMIT 1
    ) AS q
    WHERE b.nth < 32
),
delayed AS MATERIALIZED (
    -- The delayed executions, the next one first.
    SELECT e.lane_id
    FROM ff_exec_core AS e
    WHERE
        e.ffx_delay_until_ms IS NOT NULL
        AND e.eligibility_state = 'not_eligible_until_time'
    ORDER BY e.ffx_delay_until_ms
    LIMIT sqlc.arg(max_counted)::integer + 1
),
timed AS MATERIALIZED (
    -- The attempts that the lease timers list.
    SELECT
        t.partition_key,
        t.execution_id
    FROM (
        SELECT
            unnest(w.partition_keys) AS partition_key,
            unnest(w.execution_ids) AS execution_id
        FROM ffx_lease_timer AS w
        ORDER BY
            w.due_at_ms,
            w.timer_id
    ) AS t
    LIMIT sqlc.arg(max_counted)::integer + 1
),
ended AS MATERIALIZED (
    -- The executions that ended within the last minute, the last one first.
    SELECT
        o.partition_key,
        o.execution_id,
        o.occurred_at_ms
    FROM (
        SELECT
            c.partition_key,
            c.execution_id,
            c.occurred_at_ms
        FROM ff_completion_event AS c
        ORDER BY c.event_id DESC
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS o
    WHERE o.occurred_at_ms > (SELECT now_ms FROM clock) - 60000
)
SELECT
    p.lane_id::text AS lane_id,
    'lane'::text AS fact,
    0::bigint AS n,
    0::bigint AS since_ms,
    ''::text AS note
FROM listed AS p
UNION ALL
SELECT
    p.lane_id,
    'paused',
    0,
    h.paused_at_ms,
    h.reason
FROM listed AS p
CROSS JOIN LATERAL (
    SELECT
        x.paused_at_ms,
        x.reason
    FROM ffx_pause AS x
    WHERE
        x.subject = 'lane'
        AND x.name = p.lane_id COLLATE "C"
    LIMIT 1
) AS h
UNION ALL
SELECT
    p.lane_id,
    'waiting',
    q.n,
    0,
    ''
FROM listed AS p
CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (
        -- From the end, where no claim has left dead entries.
        SELECT r.execution_id
        FROM ffx_ready AS r
        WHERE r.lane_id = p.lane_id
        ORDER BY
            r.rank DESC,
            r.created_at_ms DESC,
            r.execution_id DESC,
            r.partition_key DESC
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS counted
) AS q
WHERE q.n > 0
UNION ALL
SELECT
    f.lane_id,
    'next',
    count(*),
    min(e.since_ms),
    ''
FROM firsts AS f
CROSS JOIN LATERAL (
    SELECT coalesce(x.ffx_last_mutation_at_ms, x.created_at_ms) AS since_ms
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = f.partition_key
        AND x.execution_id = f.execution_id
        AND x.lifecycle_phase = 'runnable'
        AND x.eligibility_state = 'eligible_now'
    LIMIT 1
) AS e
GROUP BY f.lane_id
UNION ALL
SELECT
    p.lane_id,
    'blocked',
    b.n,
    0,
    ''
FROM listed AS p
CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (
        SELECT x.execution_id
        FROM ffx_blocked AS x
        WHERE x.lane_id = p.lane_id COLLATE "C"
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS counted
) AS b
WHERE b.n > 0
UNION ALL
SELECT
    d.lane_id,
    'delayed',
    count(*),
    0,
    ''
FROM delayed AS d
GROUP BY d.lane_id
UNION ALL
SELECT
    '',
    'delayed',
    count(*),
    0,
    ''
FROM delayed
UNION ALL
SELECT
    a.lane_id,
    'active',
    count(*),
    0,
    ''
FROM (
    SELECT DISTINCT
        t.partition_key,
        t.execution_id
    FROM timed AS t
) AS i
CROSS JOIN LATERAL (
    SELECT x.lane_id
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id = i.execution_id
        AND x.lifecycle_phase = 'active'
    LIMIT 1
) AS a
GROUP BY a.lane_id
UNION ALL
SELECT
    '',
    'active',
    count(*),
    0,
    ''
FROM timed
UNION ALL
SELECT
    e.lane_id,
    'ended',
    count(*),
    0,
    ''
FROM ended AS d
CROSS JOIN LATERAL (
    SELECT x.lane_id
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = d.partition_key
        AND x.execution_id = d.execution_id
    LIMIT 1
) AS e
GROUP BY e.lane_id
UNION ALL
SELECT
    '',
    'ended',
    count(*),
    coalesce((SELECT now_ms FROM clock) - min(d.occurred_at_ms), 0),
    ''
FROM ended AS d;
