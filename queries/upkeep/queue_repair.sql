-- name: ScanRepairs :many
-- ScanRepairs examines the first page_size executions after after_execution_id, in the order of the primary key.
-- Returned are the last one, and all in need of a repair. unqueued: claimable without a queue entry. unmet: waits for a
-- budget or limit, but is missing in the list there. unlisted: blocked, but not listed with the present state. untimed:
-- a lease expired more than a minute ago, so no timer lists the lease any more. leaseless: active, but the current
-- attempt has no lease that could expire. ungranted: granted, but without a usable claim grant. overdue: ended and past
-- the retention. No row: nothing follows.
--
-- Used by: upkeep.RepairQueue.
-- Locks: none. Spans partitions.
WITH page AS MATERIALIZED (
    -- The executions of the page, and their needs. All are looked up one by one, by LIMIT: a plan made while a table
    -- was empty would read the whole table.
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (
            e.lifecycle_phase = 'runnable'
            AND e.eligibility_state = 'eligible_now'
            AND (
                SELECT true
                FROM ffx_ready AS q
                WHERE
                    q.lane_id = e.lane_id
                    AND q.rank = - e.priority::bigint
                    AND q.created_at_ms = e.created_at_ms
                    AND q.execution_id = e.execution_id
                    AND q.partition_key = e.partition_key
                LIMIT 1
            ) IS NULL
        ) AS unqueued,
        (
            e.ffx_gate_id IS NOT NULL
            AND (
                SELECT true
                FROM ffx_waiting AS w
                WHERE
                    w.gate_id = e.ffx_gate_id
                    AND w.rank = - e.priority::bigint
                    AND w.created_at_ms = e.created_at_ms
                    AND w.execution_id = e.execution_id
                    AND w.partition_key = e.partition_key
                LIMIT 1
            ) IS NULL
        ) AS unmet,
        (
            e.lifecycle_phase = 'runnable'
            AND e.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')
            AND (
                SELECT
                    l.lane_id = e.lane_id
                    AND l.eligibility_state = e.eligibility_state
                    AND l.required_capabilities = e.required_capabilities
                FROM ffx_blocked AS l
                WHERE
                    l.partition_key = e.partition_key
                    AND l.execution_id = e.execution_id
                LIMIT 1
            ) IS NOT TRUE
        ) AS unlisted,
        (
            e.lifecycle_phase = 'active'
            AND (
                SELECT true
                FROM ff_attempt AS x
                WHERE
                    x.partition_key = e.partition_key
                    AND x.execution_id = e.execution_id
                    AND x.lease_expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - 60000
                LIMIT 1
            ) IS NOT NULL
        ) AS untimed,
        (
            e.lifecycle_phase = 'active'
            AND (
                SELECT x.lease_expires_at_ms
                FROM ff_attempt AS x
                WHERE
                    x.partition_key = e.partition_key
                    AND x.execution_id = e.execution_id
                    AND x.attempt_index <= e.attempt_index
                ORDER BY x.attempt_index DESC
                LIMIT 1
            ) IS NULL
        ) AS leaseless,
        (
            e.eligibility_state = 'pending_claim'
            AND e.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'eligible', 'blocked')
            AND e.ownership_state IN ('unowned', 'released')
            AND (
                SELECT true
                FROM ff_claim_grant AS x
                WHERE
                    x.partition_key = e.partition_key
                    AND x.execution_id = e.execution_id
                    AND x.kind = 'claim'
                    AND x.expires_at_ms > ffx_now_ms(sqlc.narg(now_ms))
                LIMIT 1
            ) IS NULL
        ) AS ungranted,
        (
            e.lifecycle_phase IN ('terminal', 'cancelled')
            AND e.terminal_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - ffx_retention_of(
                e.policy,
                (SELECT l.retention_ms FROM ffx_lane_retention AS l WHERE l.lane_id = e.lane_id),
                @default_ms::bigint
            )
        ) IS TRUE AS overdue
    FROM ff_exec_core AS e
    WHERE (e.partition_key, e.execution_id) > (@after_partition_key::smallint, @after_execution_id::uuid)
    ORDER BY
        e.partition_key,
        e.execution_id
    LIMIT @page_size::integer
)
SELECT
    p.partition_key,
    p.execution_id,
    p.flow_id,
    p.unqueued::boolean AS unqueued,
    p.unmet::boolean AS unmet,
    p.unlisted::boolean AS unlisted,
    p.untimed::boolean AS untimed,
    p.leaseless::boolean AS leaseless,
    p.ungranted::boolean AS ungranted,
    p.overdue::boolean AS overdue
FROM page AS p
WHERE
    (p.unqueued OR p.unmet OR p.unlisted OR p.untimed OR p.leaseless OR p.ungranted OR p.overdue)
    OR (p.partition_key, p.execution_id) = (
        SELECT z.partition_key, z.execution_id
        FROM page AS z
        ORDER BY z.partition_key DESC, z.execution_id DESC
        LIMIT 1
    )
ORDER BY
    p.partition_key,
    p.execution_id;

-- name: QueueUnqueued :many
-- QueueUnqueued inserts queue entries for the given executions that are claimable and not locked elsewhere, and returns
-- the lanes with work to claim now, one per entry. No row: no entry was missing.
--
-- Used by: upkeep.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE); queue held, by the execution's row.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
INSERT INTO ffx_ready AS r (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
SELECT
    e.lane_id,
    - e.priority::bigint,
    e.created_at_ms,
    e.execution_id,
    e.partition_key,
    e.required_capabilities,
    e.kind
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.lane_id,
        t.priority,
        t.created_at_ms,
        t.required_capabilities,
        coalesce(t.raw_fields ->> 'execution_kind', '') AS kind
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lifecycle_phase = 'runnable'
        AND t.eligibility_state = 'eligible_now'
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
ON CONFLICT (lane_id, rank, created_at_ms, execution_id, partition_key) DO NOTHING
RETURNING r.lane_id;

-- name: ListUnmet :execrows
-- ListUnmet inserts rows into ffx_waiting for the given executions that wait for a budget or limit and are not locked
-- elsewhere. Returns how many.
--
-- Used by: upkeep.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE); queue held, by the execution's row.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
SELECT
    e.ffx_gate_id,
    - e.priority::bigint,
    e.created_at_ms,
    e.execution_id,
    e.partition_key,
    e.eligibility_state = 'blocked_by_budget'
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.ffx_gate_id,
        t.priority,
        t.created_at_ms,
        t.eligibility_state
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND num_nulls(t.ffx_gate_id) = 0
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
ON CONFLICT (gate_id, rank, created_at_ms, execution_id, partition_key) DO NOTHING;

-- name: ListUnlisted :execrows
-- ListUnlisted lists the given executions that are blocked and not locked elsewhere, with their present state. Returns
-- how many were listed.
--
-- Used by: upkeep.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE); queue held, by the execution's row.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
INSERT INTO ffx_blocked AS b (
    partition_key, execution_id, lane_id, eligibility_state, required_capabilities, blocked_at_ms
)
SELECT
    e.partition_key,
    e.execution_id,
    e.lane_id,
    e.eligibility_state,
    e.required_capabilities,
    coalesce(e.ffx_last_mutation_at_ms, ffx_now_ms(sqlc.narg(now_ms)))
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.lane_id,
        t.eligibility_state,
        t.required_capabilities,
        t.ffx_last_mutation_at_ms
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lifecycle_phase = 'runnable'
        AND t.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
ON CONFLICT (partition_key, execution_id) DO UPDATE SET
    lane_id = excluded.lane_id,
    eligibility_state = excluded.eligibility_state,
    required_capabilities = excluded.required_capabilities;

-- name: TimeUntimed :exec
-- TimeUntimed sets one lease timer for all leases of the given executions expired more than a minute ago.
--
-- Used by: upkeep.RepairQueue.
-- Locks: timers new.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
INSERT INTO ffx_lease_timer (due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes)
SELECT
    min(a.lease_expires_at_ms),
    gen_random_uuid(),
    array_agg(a.partition_key),
    array_agg(a.execution_id),
    array_agg(a.attempt_index)
FROM input AS i
-- Looked up one by one: a plan made before there were any attempts would read all.
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.attempt_index,
        t.lease_expires_at_ms
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lease_expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - 60000
    OFFSET 0
) AS a
HAVING count(*) > 0;

-- name: TakeLeaseless :many
-- TakeLeaseless locks the given executions that are still active and not locked elsewhere. The caller reads the leases
-- of their attempts afterwards.
--
-- Used by: upkeep.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.attempt_index,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    ffx_lost_too_often(e.lease_reclaim_count, e.policy, @default_cap::integer)::boolean AS lost_too_often
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.attempt_index,
        t.ffx_lease_epoch,
        t.lease_reclaim_count,
        t.policy
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.lifecycle_phase = 'active'
    FOR NO KEY UPDATE SKIP LOCKED
) AS e;

-- name: ListLeased :many
-- ListLeased returns the given executions with a leased attempt, the current one or another.
--
-- Used by: upkeep.RepairQueue.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT a.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT t.execution_id
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        -- Not IS NOT NULL: an index of a shared database contains only leases.
        AND num_nulls(t.lease_expires_at_ms) = 0
    LIMIT 1
) AS a;

-- name: SweepQueue :one
-- SweepQueue deletes up to max_items queue entries whose execution is not claimable, is not where the entry says, or is
-- gone. Up to as many are deleted from the lists of waiting and of blocked executions, if the execution is neither or
-- is gone, and drains of workers older than 30 days and pauses that have ended. Claims and the gate only skip such entries. Returns how many
-- entries of the three lists were deleted.
--
-- Used by: upkeep.RepairQueue.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE); queue skips (FOR UPDATE, then the DELETE); pauses skips (FOR UPDATE,
-- then the DELETE). Spans partitions.
WITH stale AS (
    -- Outdated queue entries.
    SELECT
        r.ctid::tid AS entry_id,
        r.partition_key,
        r.execution_id
    FROM ffx_ready AS r
    JOIN ff_exec_core AS e ON e.partition_key = ANY (ARRAY[r.partition_key]) AND e.execution_id = r.execution_id
    WHERE
        e.lifecycle_phase <> 'runnable'
        OR e.eligibility_state <> 'eligible_now'
        OR (e.lane_id, - e.priority::bigint, e.created_at_ms) <> (r.lane_id, r.rank, r.created_at_ms)
    LIMIT @max_items::integer
    FOR NO KEY UPDATE OF e SKIP LOCKED
    FOR UPDATE OF r SKIP LOCKED
),
orphaned AS (
    -- Queue entries without an execution.
    SELECT
        r.ctid::tid AS entry_id,
        r.partition_key,
        r.execution_id
    FROM ffx_ready AS r
    WHERE NOT EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = r.partition_key
            AND e.execution_id = r.execution_id
    )
    LIMIT @max_items::integer
    FOR UPDATE OF r SKIP LOCKED
),
dequeued AS (
    -- Both, deleted.
    DELETE FROM ffx_ready AS r
    USING (
        SELECT
            entry_id,
            partition_key,
            execution_id
        FROM stale
        UNION ALL
        SELECT
            entry_id,
            partition_key,
            execution_id
        FROM orphaned
    ) AS s
    WHERE
        r.ctid = s.entry_id
        AND (r.partition_key = s.partition_key) IS TRUE
        AND (r.execution_id = s.execution_id) IS TRUE
    RETURNING r.partition_key
),
moved AS (
    -- In the list of a budget or limit their execution does not wait for.
    SELECT
        w.ctid::tid AS entry_id,
        w.gate_id,
        w.rank,
        w.created_at_ms,
        w.partition_key,
        w.execution_id
    FROM ffx_waiting AS w
    JOIN ff_exec_core AS e ON e.partition_key = ANY (ARRAY[w.partition_key]) AND e.execution_id = w.execution_id
    WHERE (e.ffx_gate_id = w.gate_id AND - e.priority::bigint = w.rank AND e.created_at_ms = w.created_at_ms) IS NOT TRUE
    LIMIT @max_items::integer
    FOR NO KEY UPDATE OF e SKIP LOCKED
    FOR UPDATE OF w SKIP LOCKED
),
left_over AS (
    -- In such a list without an execution.
    SELECT
        w.ctid::tid AS entry_id,
        w.gate_id,
        w.rank,
        w.created_at_ms,
        w.partition_key,
        w.execution_id
    FROM ffx_waiting AS w
    WHERE NOT EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = w.partition_key
            AND e.execution_id = w.execution_id
    )
    LIMIT @max_items::integer
    FOR UPDATE OF w SKIP LOCKED
),
unmet AS (
    -- Both, deleted.
    DELETE FROM ffx_waiting AS w
    USING (
        SELECT
            entry_id,
            gate_id,
            rank,
            created_at_ms,
            partition_key,
            execution_id
        FROM moved
        UNION ALL
        SELECT
            entry_id,
            gate_id,
            rank,
            created_at_ms,
            partition_key,
            execution_id
        FROM left_over
    ) AS s
    WHERE
        w.ctid = s.entry_id
        AND (w.gate_id = s.gate_id) IS TRUE
        AND (w.rank = s.rank) IS TRUE
        AND (w.created_at_ms = s.created_at_ms) IS TRUE
        AND (w.partition_key = s.partition_key) IS TRUE
        AND (w.execution_id = s.execution_id) IS TRUE
    RETURNING w.partition_key
),
free AS (
    -- Listed as blocked, but not blocked.
    SELECT
        b.ctid::tid AS entry_id,
        b.partition_key,
        b.execution_id
    FROM ffx_blocked AS b
    JOIN ff_exec_core AS e ON e.partition_key = ANY (ARRAY[b.partition_key]) AND e.execution_id = b.execution_id
    WHERE
        e.lifecycle_phase <> 'runnable'
        OR e.eligibility_state NOT IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')
    LIMIT @max_items::integer
    FOR NO KEY UPDATE OF e SKIP LOCKED
    FOR UPDATE OF b SKIP LOCKED
),
gone AS (
    -- Listed as blocked, but gone.
    SELECT
        b.ctid::tid AS entry_id,
        b.partition_key,
        b.execution_id
    FROM ffx_blocked AS b
    WHERE NOT EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = b.partition_key
            AND e.execution_id = b.execution_id
    )
    LIMIT @max_items::integer
    FOR UPDATE OF b SKIP LOCKED
),
unlisted AS (
    -- Both, deleted.
    DELETE FROM ffx_blocked AS b
    USING (
        SELECT
            entry_id,
            partition_key,
            execution_id
        FROM free
        UNION ALL
        SELECT
            entry_id,
            partition_key,
            execution_id
        FROM gone
    ) AS s
    WHERE
        b.ctid = s.entry_id
        AND (b.partition_key = s.partition_key) IS TRUE
        AND (b.execution_id = s.execution_id) IS TRUE
    RETURNING b.partition_key
),
forgotten AS (
    -- Drains 30 days old, and pauses that have ended.
    DELETE FROM ffx_pause AS p
    USING (
        SELECT
            w.ctid::tid AS pause_id,
            w.name,
            w.subject
        FROM ffx_pause AS w
        WHERE
            w.subject = 'worker'
            AND w.paused_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - 2592000000
            OR w.until_ms <= ffx_now_ms(sqlc.narg(now_ms))
        LIMIT @max_items::integer
        FOR UPDATE SKIP LOCKED
    ) AS o
    WHERE
        p.ctid = o.pause_id
        AND (p.name = o.name) IS TRUE
        AND (p.subject = o.subject) IS TRUE
)
SELECT ((SELECT count(*) FROM dequeued) + (SELECT count(*) FROM unmet) + (SELECT count(*) FROM unlisted))::bigint AS swept;
