-- name: EnsureLanes :exec
-- EnsureLanes registers lanes executions were created on; a known lane stays unchanged.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, operator.Fork,
-- operator.Move, operator.MoveWhere.
-- Locks: lanes waits (for a concurrent insert of the same lane, in array order). The caller sorts.
INSERT INTO ff_lane_registry (lane_id, registered_at_ms, registered_by)
SELECT
    i.lane_id,
    ffx_now_ms(sqlc.narg(now_ms)::bigint),
    'create_execution'
FROM (SELECT unnest(@lane_ids::text[]) AS lane_id) AS i
ON CONFLICT (lane_id) DO NOTHING;

-- name: ListLanes :many
-- ListLanes pages through the lanes, registered or paused, in byte order, from one on. paused_at_ms is 0 unless the
-- lane is paused, and paused_until_ms is NULL unless the pause has an end. waiting counts the entries of the queue up to
-- max_waiting and one more, blocked the blocked executions up to max_blocked and one more. waiting_since_ms is the
-- oldest time of a claimable execution among the first entries of up to max_priorities priorities, 0 if there is none.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions.
WITH RECURSIVE listed AS MATERIALIZED (
    -- The lanes of the page, in the collation of the tables: with another one no index of theirs would serve.
    SELECT (u.lane_id COLLATE "default")::text AS lane_id
    FROM (
        (
            SELECT l.lane_id COLLATE "C" AS lane_id
            FROM ff_lane_registry AS l
            WHERE l.lane_id COLLATE "C" >= @from_lane_id::text
            ORDER BY l.lane_id COLLATE "C"
            LIMIT @page_size::integer
        )
        UNION
        (
            SELECT h.name AS lane_id
            FROM ffx_pause AS h
            WHERE
                h.subject = 'lane'
                AND h.name >= @from_lane_id::text
                AND (h.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
            ORDER BY h.name
            LIMIT @page_size::integer
        )
    ) AS u
    ORDER BY u.lane_id
    LIMIT @page_size::integer
),
firsts AS (
    -- The first queue entry of each priority, for up to max_priorities, after a row for the lane.
    SELECT
        p.lane_id,
        0 AS nth,
        (-9223372036854775808)::bigint AS rank,
        NULL::uuid AS execution_id,
        NULL::smallint AS partition_key
    FROM listed AS p
    UNION ALL
    SELECT
        f.lane_id,
        f.nth + 1,
        q.rank,
        q.execution_id,
        q.partition_key
    FROM firsts AS f
    CROSS JOIN LATERAL (
        SELECT
            r.rank,
            r.execution_id,
            r.partition_key
        FROM ffx_ready AS r
        WHERE
            r.lane_id = f.lane_id
            AND r.rank > f.rank
        ORDER BY
            r.rank,
            r.created_at_ms,
            r.execution_id
        LIMIT 1
    ) AS q
    WHERE f.nth < sqlc.arg(max_priorities)::integer
)
SELECT
    p.lane_id::text AS lane_id,
    coalesce(h.paused_at_ms, 0)::bigint AS paused_at_ms,
    coalesce(h.reason, '')::text AS pause_reason,
    h.until_ms AS paused_until_ms,
    q.n AS waiting,
    coalesce(p.since_ms, 0)::bigint AS waiting_since_ms,
    b.n AS blocked
FROM (
    SELECT
        f.lane_id,
        min(coalesce(e.ffx_last_mutation_at_ms, e.created_at_ms)) AS since_ms
    FROM firsts AS f
    LEFT JOIN LATERAL (
        SELECT
            x.ffx_last_mutation_at_ms,
            x.created_at_ms
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = f.partition_key
            AND x.execution_id = f.execution_id
            AND x.lifecycle_phase = 'runnable'
            AND x.eligibility_state = 'eligible_now'
        LIMIT 1
    ) AS e ON true
    GROUP BY f.lane_id
) AS p
LEFT JOIN LATERAL (
    SELECT
        x.paused_at_ms,
        x.reason,
        x.until_ms
    FROM ffx_pause AS x
    WHERE
        x.subject = 'lane'
        AND x.name = p.lane_id COLLATE "C"
        AND (x.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
    LIMIT 1
) AS h ON true
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
        LIMIT sqlc.arg(max_waiting)::integer + 1
    ) AS counted
) AS q
CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (
        SELECT x.lane_id
        FROM ffx_blocked AS x
        WHERE x.lane_id = p.lane_id COLLATE "C"
        LIMIT sqlc.arg(max_blocked)::integer + 1
    ) AS counted
) AS b
ORDER BY p.lane_id COLLATE "C";

-- name: ListLaneStates :many
-- ListLaneStates counts, for each lane, the delayed and the active executions, the ones waiting for a budget or limit,
-- the suspended ones, and the ones waiting for upstreams or for the member before in a sequence. Of each list the first
-- max_counted and one more over all lanes are examined, and max_looked executions are looked up, evenly from all lists.
-- partial are the states with more of them. Members of flows count only if the last summary of the flow counted such members. There
-- is at least one row, whose lane_id may be empty.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions. Has more than five lists because they share the lookups: a page of a console has few
-- statements, each with a bound.
WITH delayed AS MATERIALIZED (
    -- The delayed executions, the next one first.
    SELECT
        e.partition_key,
        e.execution_id,
        e.lane_id,
        'delayed' AS state
    FROM ff_exec_core AS e
    WHERE e.ffx_delay_until_ms IS NOT NULL AND e.eligibility_state = 'not_eligible_until_time'
    ORDER BY e.ffx_delay_until_ms
    LIMIT sqlc.arg(max_counted)::integer + 1
),
timed AS MATERIALIZED (
    -- The attempts the lease timers list.
    SELECT t.partition_key, t.execution_id
    FROM (
        SELECT unnest(w.partition_keys) AS partition_key, unnest(w.execution_ids) AS execution_id
        FROM ffx_lease_timer AS w
        ORDER BY w.due_at_ms, w.timer_id
    ) AS t
    LIMIT sqlc.arg(max_counted)::integer + 1
),
gated AS MATERIALIZED (
    -- The executions waiting for a budget or limit.
    SELECT w.partition_key, w.execution_id
    FROM ffx_waiting AS w
    ORDER BY
        w.gate_id,
        w.rank,
        w.created_at_ms,
        w.execution_id,
        w.partition_key
    LIMIT sqlc.arg(max_counted)::integer + 1
),
suspended AS MATERIALIZED (
    -- The suspended executions, the longest wait first.
    SELECT s.partition_key, s.execution_id
    FROM ff_suspension_current AS s
    WHERE s.ffx_open_since_ms IS NOT NULL
    ORDER BY
        s.ffx_open_since_ms,
        s.partition_key,
        s.execution_id
    LIMIT sqlc.arg(max_counted)::integer + 1
),
placed AS MATERIALIZED (
    -- The members of sequences, with or without the turn.
    SELECT m.execution_partition_key AS partition_key, m.execution_id
    FROM ffx_sequence_member AS m
    ORDER BY
        m.partition_key,
        m.sequence_id,
        m.place
    LIMIT sqlc.arg(max_counted)::integer + 1
),
members AS MATERIALIZED (
    -- The members of flows whose last summary counted members waiting for upstreams.
    SELECT x.*
    FROM (
        SELECT f.partition_key, f.flow_id
        FROM ff_flow_summary AS f
        WHERE f.members_waiting_children > 0
        ORDER BY f.partition_key, f.flow_id
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS t
    CROSS JOIN LATERAL (
        SELECT
            e.partition_key,
            e.execution_id,
            e.lane_id,
            CASE WHEN e.lifecycle_phase = 'runnable' AND e.eligibility_state = 'blocked_by_dependencies' THEN 'dependent' END AS state
        FROM ff_exec_core AS e
        WHERE e.partition_key = t.partition_key AND e.flow_id = t.flow_id
        OFFSET 0
    ) AS x
    LIMIT sqlc.arg(max_counted)::integer + 1
),
listed AS MATERIALIZED (
    -- All lists, and the turns of the executions without a lane, which are looked up.
    SELECT
        n.*,
        row_number() OVER (PARTITION BY n.lane_id IS NULL ORDER BY n.nth, n.list) AS turn
    FROM (
        SELECT 'delayed' AS list, row_number() OVER () AS nth, d.* FROM delayed AS d
        UNION ALL
        SELECT 'active' AS list, row_number() OVER () AS nth, t.*, NULL::text AS lane_id, NULL::text AS state FROM timed AS t
        UNION ALL
        SELECT 'limited' AS list, row_number() OVER () AS nth, g.*, NULL::text AS lane_id, NULL::text AS state FROM gated AS g
        UNION ALL
        SELECT 'suspended' AS list, row_number() OVER () AS nth, s.*, NULL::text AS lane_id, NULL::text AS state FROM suspended AS s
        UNION ALL
        SELECT 'dependent' AS list, row_number() OVER () AS nth, p.*, NULL::text AS lane_id, NULL::text AS state FROM placed AS p
        UNION ALL
        SELECT 'dependent' AS list, row_number() OVER () AS nth, m.* FROM members AS m
    ) AS n
)
SELECT
    coalesce(l.lane_id, '')::text AS lane_id,
    coalesce(l.delayed, 0)::bigint AS delayed,
    coalesce(l.active, 0)::bigint AS active,
    coalesce(l.limited, 0)::bigint AS limited,
    coalesce(l.suspended, 0)::bigint AS suspended,
    coalesce(l.dependent, 0)::bigint AS dependent,
    coalesce(c.partial, '{}')::text[] AS partial
FROM (
    SELECT array_agg(DISTINCT b.list) AS partial
    FROM listed AS b
    WHERE
        b.nth > sqlc.arg(max_counted)::integer
        OR b.lane_id IS NULL AND b.turn > sqlc.arg(max_looked)::integer
) AS c
LEFT JOIN (
    SELECT
        u.lane_id,
        count(*) FILTER (WHERE u.state = 'delayed') AS delayed,
        count(*) FILTER (WHERE u.state = 'active') AS active,
        count(*) FILTER (WHERE u.state = 'limited') AS limited,
        count(*) FILTER (WHERE u.state = 'suspended') AS suspended,
        count(*) FILTER (WHERE u.state = 'dependent') AS dependent
    FROM (
        SELECT DISTINCT
            i.partition_key,
            i.execution_id,
            coalesce(i.lane_id, e.lane_id) AS lane_id,
            coalesce(i.state, e.state) AS state
        FROM listed AS i
        LEFT JOIN LATERAL (
            SELECT
                x.lane_id,
                CASE
                    WHEN x.lifecycle_phase IN ('active', 'suspended') THEN x.lifecycle_phase
                    WHEN x.lifecycle_phase <> 'runnable' THEN NULL
                    WHEN x.eligibility_state = 'not_eligible_until_time' THEN 'delayed'
                    WHEN x.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota') THEN 'limited'
                    WHEN x.eligibility_state = 'blocked_by_dependencies' THEN 'dependent'
                END AS state
            FROM ff_exec_core AS x
            WHERE
                i.lane_id IS NULL
                AND i.turn <= sqlc.arg(max_looked)::integer
                AND x.partition_key = i.partition_key
                AND x.execution_id = i.execution_id
            LIMIT 1
        ) AS e ON true
    ) AS u
    WHERE u.state IS NOT NULL
    GROUP BY u.lane_id
) AS l ON true
ORDER BY l.lane_id;

-- name: ListEndedLanes :many
-- ListEndedLanes counts, for each lane, the executions ended within the last minute, by the number of whole five
-- seconds since: 0 to 11. Examined are the last max_counted and one more of all lanes. Up to max_looked of them are
-- looked up, at even distances, and each counts as step ends. counted is the number of executions, and span_ms the
-- time between the first end and now; 0 if there is none. There is at least one row, whose lane_id may be empty.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
ended AS MATERIALIZED (
    -- The executions ended within the last minute, the last one first.
    SELECT
        o.partition_key,
        o.execution_id,
        o.occurred_at_ms,
        row_number() OVER (ORDER BY o.event_id DESC) AS nth
    FROM (
        SELECT
            c.event_id,
            c.partition_key,
            c.execution_id,
            c.occurred_at_ms
        FROM ff_completion_event AS c
        ORDER BY c.event_id DESC
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS o
    WHERE o.occurred_at_ms > (SELECT now_ms FROM clock) - 60000
),
summed AS MATERIALIZED (
    -- Their number, the time of the first one, and the distance between looked up ones.
    SELECT
        count(*) AS counted,
        min(d.occurred_at_ms) AS first_at_ms,
        greatest((count(*) + sqlc.arg(max_looked)::integer - 1) / sqlc.arg(max_looked)::integer, 1) AS step
    FROM ended AS d
)
SELECT
    coalesce(l.lane_id, '')::text AS lane_id,
    coalesce(l.age, 0)::integer AS age,
    coalesce(l.n * c.step, 0)::bigint AS n,
    c.counted,
    coalesce((SELECT now_ms FROM clock) - c.first_at_ms, 0)::bigint AS span_ms
FROM summed AS c
LEFT JOIN (
    SELECT
        e.lane_id,
        greatest(((SELECT now_ms FROM clock) - d.occurred_at_ms) / 5000, 0) AS age,
        count(*) AS n
    FROM ended AS d
    CROSS JOIN LATERAL (
        SELECT x.lane_id
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = d.partition_key
            AND x.execution_id = d.execution_id
        LIMIT 1
    ) AS e
    WHERE d.nth % (SELECT step FROM summed) = 0
    GROUP BY
        e.lane_id,
        age
) AS l ON true
ORDER BY
    l.lane_id,
    l.age;
