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
-- ListLanes pages through the lanes, registered or paused, in byte order, strictly after one. paused_at_ms is 0 unless
-- the lane is paused, and paused_until_ms is NULL unless the pause has an end. waiting counts the entries of the queue and blocked the blocked executions, each up to
-- max_counted and one more. waiting_since_ms is the oldest time of a claimable execution among the first entries of up
-- to 32 priorities, 0 if there is none.
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
                AND (h.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
            ORDER BY h.name
            LIMIT @page_size::integer
        )
    ) AS u
    ORDER BY u.lane_id
    LIMIT @page_size::integer
),
firsts AS (
    -- The first queue entry of each priority, for up to 32 priorities, after a row for the lane.
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
    WHERE f.nth < 32
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
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS counted
) AS q
CROSS JOIN LATERAL (
    SELECT count(*) AS n
    FROM (
        SELECT x.execution_id
        FROM ffx_blocked AS x
        WHERE x.lane_id = p.lane_id COLLATE "C"
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS counted
) AS b
ORDER BY p.lane_id COLLATE "C";

-- name: ListDelayedLanes :many
-- ListDelayedLanes counts the delayed executions of each lane, among the next max_counted and one more of all lanes.
-- counted is the number of executions, with lanes or without. There is at least one row, whose lane_id may be empty.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions.
WITH delayed AS MATERIALIZED (
    -- The delayed executions, the next one first.
    SELECT e.lane_id
    FROM ff_exec_core AS e
    WHERE
        e.ffx_delay_until_ms IS NOT NULL
        AND e.eligibility_state = 'not_eligible_until_time'
    ORDER BY e.ffx_delay_until_ms
    LIMIT sqlc.arg(max_counted)::integer + 1
)
SELECT
    coalesce(l.lane_id, '')::text AS lane_id,
    coalesce(l.n, 0)::bigint AS n,
    c.counted
FROM (SELECT count(*) AS counted FROM delayed) AS c
LEFT JOIN (
    SELECT
        d.lane_id,
        count(*) AS n
    FROM delayed AS d
    GROUP BY d.lane_id
) AS l ON true
ORDER BY l.lane_id;

-- name: ListActiveLanes :many
-- ListActiveLanes counts the active executions of each lane, among the first max_counted and one more the lease timers
-- list. counted is the number of executions, active or not. There is at least one row, whose lane_id may be empty.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions.
WITH timed AS MATERIALIZED (
    -- The attempts the lease timers list.
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
)
SELECT
    coalesce(l.lane_id, '')::text AS lane_id,
    coalesce(l.n, 0)::bigint AS n,
    c.counted
FROM (SELECT count(*) AS counted FROM timed) AS c
LEFT JOIN (
    SELECT
        a.lane_id,
        count(*) AS n
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
) AS l ON true
ORDER BY l.lane_id;

-- name: ListHeldLanes :many
-- ListHeldLanes counts, for each lane, the executions waiting for a budget or limit, the suspended ones, and the ones
-- waiting for upstreams or for the member before in a sequence. Of each list the first max_counted and one more over
-- all lanes are examined: partial says there are more. Members of flows count only if the last summary of the flow
-- counted such members. There is at least one row, whose lane_id may be empty.
--
-- Used by: engine.ListLanes.
-- Locks: none. Spans partitions.
WITH gated AS MATERIALIZED (
    -- The executions waiting for a budget or limit.
    SELECT
        w.partition_key,
        w.execution_id
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
    SELECT
        s.partition_key,
        s.execution_id
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
    SELECT
        m.execution_partition_key AS partition_key,
        m.execution_id
    FROM ffx_sequence_member AS m
    ORDER BY
        m.partition_key,
        m.sequence_id,
        m.place
    LIMIT sqlc.arg(max_counted)::integer + 1
),
members AS MATERIALIZED (
    -- The members of flows whose last summary counted members waiting for upstreams.
    SELECT
        x.partition_key,
        x.execution_id
    FROM (
        SELECT
            f.partition_key,
            f.flow_id
        FROM ff_flow_summary AS f
        WHERE f.members_waiting_children > 0
        ORDER BY
            f.partition_key,
            f.flow_id
        LIMIT sqlc.arg(max_counted)::integer + 1
    ) AS t
    CROSS JOIN LATERAL (
        SELECT
            e.partition_key,
            e.execution_id
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = t.partition_key
            AND e.flow_id = t.flow_id
        OFFSET 0
    ) AS x
    LIMIT sqlc.arg(max_counted)::integer + 1
)
SELECT
    coalesce(l.lane_id, '')::text AS lane_id,
    coalesce(l.limited, 0)::bigint AS limited,
    coalesce(l.suspended, 0)::bigint AS suspended,
    coalesce(l.dependent, 0)::bigint AS dependent,
    (c.gated > sqlc.arg(max_counted)::integer)::boolean AS limited_partial,
    (c.suspended > sqlc.arg(max_counted)::integer)::boolean AS suspended_partial,
    (c.placed > sqlc.arg(max_counted)::integer OR c.members > sqlc.arg(max_counted)::integer)::boolean AS dependent_partial
FROM (
    SELECT
        (SELECT count(*) FROM gated) AS gated,
        (SELECT count(*) FROM suspended) AS suspended,
        (SELECT count(*) FROM placed) AS placed,
        (SELECT count(*) FROM members) AS members
) AS c
LEFT JOIN (
    SELECT
        e.lane_id,
        count(*) FILTER (WHERE e.held = 'limited') AS limited,
        count(*) FILTER (WHERE e.held = 'suspended') AS suspended,
        count(*) FILTER (WHERE e.held = 'dependent') AS dependent
    FROM (
        SELECT partition_key, execution_id FROM gated
        UNION
        SELECT partition_key, execution_id FROM suspended
        UNION
        SELECT partition_key, execution_id FROM placed
        UNION
        SELECT partition_key, execution_id FROM members
    ) AS u
    CROSS JOIN LATERAL (
        SELECT
            x.lane_id,
            CASE
                WHEN x.lifecycle_phase = 'suspended' THEN 'suspended'
                WHEN x.lifecycle_phase <> 'runnable' THEN NULL
                WHEN x.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota') THEN 'limited'
                WHEN x.eligibility_state = 'blocked_by_dependencies' THEN 'dependent'
            END AS held
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = u.partition_key
            AND x.execution_id = u.execution_id
        LIMIT 1
    ) AS e
    WHERE e.held IS NOT NULL
    GROUP BY e.lane_id
) AS l ON true
ORDER BY l.lane_id;

-- name: ListEndedLanes :many
-- ListEndedLanes counts, for each lane, the executions ended within the last minute, among the last max_counted and one
-- more of all lanes. counted is the number of executions, and span_ms the time between the first end and now; 0 if
-- there is none. There is at least one row, whose lane_id may be empty.
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
    coalesce(l.lane_id, '')::text AS lane_id,
    coalesce(l.n, 0)::bigint AS n,
    c.counted,
    coalesce((SELECT now_ms FROM clock) - c.first_at_ms, 0)::bigint AS span_ms
FROM (
    SELECT
        count(*) AS counted,
        min(d.occurred_at_ms) AS first_at_ms
    FROM ended AS d
) AS c
LEFT JOIN (
    SELECT
        e.lane_id,
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
    GROUP BY e.lane_id
) AS l ON true
ORDER BY l.lane_id;
