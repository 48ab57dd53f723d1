-- name: ScanOverdue :many
-- ScanOverdue finds executions whose execution deadline has passed, oldest first, after a position. Reads the column of
-- the library, or deadline_at_ms if the column was never written. Another program also keeps the end of a delay in
-- deadline_at_ms, except for a retry, whose delay is in raw_fields. finished: another program ended the execution.
--
-- Used by: upkeep.ExpireDeadlines.
-- Locks: none. Spans partitions.
SELECT
    d.deadline_at_ms::bigint AS deadline_at_ms,
    d.partition_key,
    d.execution_id,
    d.flow_id,
    d.finished::boolean AS finished
FROM (
    (
        SELECT
            e.ffx_execution_deadline_ms AS deadline_at_ms,
            e.partition_key,
            e.execution_id,
            e.flow_id,
            e.lifecycle_phase IN ('terminal', 'cancelled') AS finished
        FROM ff_exec_core AS e
        WHERE
            e.ffx_execution_deadline_ms > 0
            AND e.ffx_execution_deadline_ms <= ffx_now_ms(sqlc.narg(now_ms))
            AND (e.ffx_execution_deadline_ms, e.partition_key, e.execution_id)
            > (@after_deadline_at_ms::bigint, @after_partition_key::smallint, @after_execution_id::uuid)
        ORDER BY
            e.ffx_execution_deadline_ms,
            e.partition_key,
            e.execution_id
        LIMIT @page_size::integer
    )
    UNION ALL
    (
        SELECT
            e.deadline_at_ms,
            e.partition_key,
            e.execution_id,
            e.flow_id,
            e.lifecycle_phase IN ('terminal', 'cancelled') AS finished
        FROM ff_exec_core AS e
        WHERE
            e.ffx_execution_deadline_ms IS NULL
            AND e.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
            AND (e.deadline_at_ms, e.partition_key, e.execution_id)
            > (@after_deadline_at_ms::bigint, @after_partition_key::smallint, @after_execution_id::uuid)
            AND (
                e.lifecycle_phase IN ('terminal', 'cancelled')
                OR e.eligibility_state <> 'not_eligible_until_time'
                OR e.blocking_reason = 'waiting_for_retry_backoff' AND e.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
            )
        ORDER BY
            e.deadline_at_ms,
            e.partition_key,
            e.execution_id
        LIMIT @page_size::integer
    )
) AS d
ORDER BY
    d.deadline_at_ms,
    d.partition_key,
    d.execution_id
LIMIT @page_size::integer;

-- name: SettleDeadlines :execrows
-- SettleDeadlines negates the deadlines of executions another program ended, so no scan returns the executions again.
-- The library negates the deadline when ending an execution.
--
-- Used by: upkeep.ExpireDeadlines.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, then the UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
finished AS (
    SELECT
        e.partition_key,
        e.execution_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.lifecycle_phase IN ('terminal', 'cancelled')
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
)
UPDATE ff_exec_core AS e
SET ffx_execution_deadline_ms = -abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms))
FROM finished AS f
WHERE
    e.partition_key = ANY (ARRAY[f.partition_key])
    AND e.execution_id = f.execution_id;

-- name: TakeOverdue :many
-- TakeOverdue locks the first max_items of the given executions that are unfinished, overdue and not locked elsewhere.
--
-- Used by: upkeep.ExpireDeadlines.
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
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.ffx_lease_epoch
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND (
            t.ffx_execution_deadline_ms > 0 AND t.ffx_execution_deadline_ms <= ffx_now_ms(sqlc.narg(now_ms))
            OR t.ffx_execution_deadline_ms IS NULL
            AND t.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
            AND (
                t.eligibility_state <> 'not_eligible_until_time'
                OR t.blocking_reason = 'waiting_for_retry_backoff' AND t.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
            )
        ) IS TRUE
        AND t.lifecycle_phase NOT IN ('terminal', 'cancelled')
    FOR NO KEY UPDATE SKIP LOCKED
) AS e
LIMIT @max_items::integer;
