-- name: RepairQueue :many
-- RepairQueue writes the missing hints of the claimable executions among the first page_size that follow
-- after_execution_id, in the order of the primary key, and watches their leases that ran out more than a
-- minute ago. Returns the lanes that have work now.
--
-- Used by: engine.RepairQueue.
-- Locks: execution rows without a hint FOR NO KEY UPDATE SKIP LOCKED: what changes them meanwhile keeps
-- their hints itself.
WITH page AS MATERIALIZED (
    SELECT
        e.partition_key,
        e.execution_id,
        e.lane_id,
        e.priority,
        e.created_at_ms,
        e.lifecycle_phase = 'active' AS active,
        (e.lifecycle_phase = 'runnable' AND e.eligibility_state = 'eligible_now') AS claimable
    FROM ff_exec_core AS e
    WHERE
        (e.partition_key, e.execution_id) > (@after_partition_key::smallint, @after_execution_id::uuid)
    ORDER BY
        e.partition_key,
        e.execution_id
    LIMIT @page_size::integer
),
unqueued AS MATERIALIZED (
    SELECT
        p.partition_key,
        p.execution_id
    FROM page AS p
    WHERE
        p.claimable
        AND NOT EXISTS (
            SELECT
            FROM ffx_ready AS r
            WHERE
                r.lane_id = p.lane_id
                AND r.rank = - p.priority::bigint
                AND r.created_at_ms = p.created_at_ms
                AND r.execution_id = p.execution_id
                AND r.partition_key = p.partition_key
        )
),
missing AS (
    SELECT
        e.partition_key,
        e.execution_id,
        e.lane_id,
        e.priority,
        e.created_at_ms,
        e.required_capabilities
    FROM unqueued AS u
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.lane_id,
            t.priority,
            t.created_at_ms,
            t.required_capabilities
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = u.partition_key
            AND t.execution_id = u.execution_id
            AND t.lifecycle_phase = 'runnable'
            AND t.eligibility_state = 'eligible_now'
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
),
repaired AS (
    INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities)
    SELECT
        m.lane_id,
        - m.priority::bigint,
        m.created_at_ms,
        m.execution_id,
        m.partition_key,
        m.required_capabilities
    FROM missing AS m
    ON CONFLICT DO NOTHING
    RETURNING
        lane_id,
        partition_key,
        execution_id
),
-- Overdue for so long, nobody looks at them any more.
watched AS (
    INSERT INTO ffx_lease_watch (due_at_ms, watch_id, partition_keys, execution_ids, attempt_indexes)
    SELECT
        min(a.lease_expires_at_ms),
        gen_random_uuid(),
        array_agg(a.partition_key),
        array_agg(a.execution_id),
        array_agg(a.attempt_index)
    FROM page AS p
    -- One by one: a plan made before there were any attempts would read all of them.
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.attempt_index,
            t.lease_expires_at_ms
        FROM ff_attempt AS t
        WHERE
            t.partition_key = p.partition_key
            AND t.execution_id = p.execution_id
            AND t.lease_expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - 60000
        OFFSET 0
    ) AS a
    WHERE p.active
    HAVING count(*) > 0
)
SELECT
    p.partition_key,
    p.execution_id,
    coalesce(r.lane_id, '')::text AS repaired_lane
FROM page AS p
LEFT JOIN repaired AS r ON r.partition_key = p.partition_key AND r.execution_id = p.execution_id
WHERE
    r.lane_id IS NOT NULL
    OR (p.partition_key, p.execution_id) = (
        SELECT
            l.partition_key,
            l.execution_id
        FROM page AS l
        ORDER BY
            l.partition_key DESC,
            l.execution_id DESC
        LIMIT 1
    )
ORDER BY
    p.partition_key,
    p.execution_id;

-- name: SweepQueue :execrows
-- SweepQueue deletes up to max_items hints whose execution is not claimable, or not where they say, or
-- gone. Claims only pass them over.
--
-- Used by: engine.RepairQueue.
-- Locks: the executions FOR NO KEY UPDATE SKIP LOCKED, then their hints (DELETE).
WITH stale AS (
    SELECT r.ctid::tid AS hint_id
    FROM ffx_ready AS r
    JOIN ff_exec_core AS e ON e.partition_key = r.partition_key AND e.execution_id = r.execution_id
    WHERE
        e.lifecycle_phase <> 'runnable'
        OR e.eligibility_state <> 'eligible_now'
        OR (e.lane_id, - e.priority::bigint, e.created_at_ms) <> (r.lane_id, r.rank, r.created_at_ms)
    LIMIT @max_items::integer
    FOR NO KEY UPDATE OF e SKIP LOCKED
),
orphaned AS (
    SELECT r.ctid::tid AS hint_id
    FROM ffx_ready AS r
    WHERE NOT EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = r.partition_key
            AND e.execution_id = r.execution_id
    )
    LIMIT @max_items::integer
)
DELETE FROM ffx_ready AS r
USING (
    SELECT hint_id FROM stale
    UNION ALL
    SELECT hint_id FROM orphaned
) AS s
WHERE r.ctid = s.hint_id;
