-- name: ScanOverdue :many
-- ScanOverdue finds executions whose execution deadline has passed: in the column of this library, or,
-- where that was never written, in deadline_at_ms. Another program keeps the wake-up of a delay there too,
-- unless it is that of a retry, which it keeps in raw_fields. finished: another program ended it.
--
-- Used by: engine.ExpireDeadlines.
-- Locks: none. Spans partitions.
(
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (e.lifecycle_phase IN ('terminal', 'cancelled'))::boolean AS finished
    FROM ff_exec_core AS e
    WHERE
        e.ffx_execution_deadline_ms > 0
        AND e.ffx_execution_deadline_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY e.ffx_execution_deadline_ms
    LIMIT @batch_size::integer
)
UNION ALL
(
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (e.lifecycle_phase IN ('terminal', 'cancelled'))::boolean AS finished
    FROM ff_exec_core AS e
    WHERE
        e.ffx_execution_deadline_ms IS NULL
        AND e.deadline_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
        AND (
            e.lifecycle_phase IN ('terminal', 'cancelled')
            OR e.eligibility_state <> 'not_eligible_until_time'
            OR e.blocking_reason = 'waiting_for_retry_backoff' AND e.raw_fields ->> 'delay_until' ~ '^[0-9]+$'
        )
    ORDER BY e.deadline_at_ms
    LIMIT @batch_size::integer
)
LIMIT @batch_size::integer;

-- name: SettleDeadlines :exec
-- SettleDeadlines negates the deadlines of executions that another program ended, so that no scan meets
-- them again. This library's own ends do it themselves.
--
-- Used by: engine.ExpireDeadlines.
-- Locks: execution rows (UPDATE) in array order: the caller sorts by (partition_key, execution_id).
UPDATE ff_exec_core AS e
SET ffx_execution_deadline_ms = -abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms))
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    e.partition_key = i.partition_key
    AND e.execution_id = i.execution_id
    AND e.lifecycle_phase IN ('terminal', 'cancelled');

-- name: TakeOverdue :many
-- TakeOverdue locks the given executions where they are still unfinished, due and not held by anybody.
--
-- Used by: engine.ExpireDeadlines.
-- Locks: execution rows FOR NO KEY UPDATE SKIP LOCKED in array order (L1): the caller sorts by (partition_key,
-- execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    e.lifecycle_phase
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.ffx_lease_epoch,
        t.lifecycle_phase
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
) AS e;
