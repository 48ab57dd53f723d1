-- name: ScanTimedOut :many
-- ScanTimedOut finds attempts that have run longer than their timeout, oldest first, after a position. over: another
-- program has taken the lease away, so the timeout no longer applies.
--
-- Used by: upkeep.ExpireAttempts.
-- Locks: none. Spans partitions.
SELECT
    a.partition_key,
    a.execution_id,
    a.attempt_index,
    a.ffx_timeout_at_ms::bigint AS timeout_at_ms,
    e.flow_id,
    e.policy,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(e.raw_fields ->> 'retry_count', '')::text AS raw_retry_count,
    ((
        e.lifecycle_phase = 'active'
        AND e.attempt_index = a.attempt_index
        AND a.lease_epoch = e.ffx_lease_epoch
        AND a.lease_expires_at_ms IS NOT NULL
    ) IS NOT TRUE)::boolean AS over
FROM ff_attempt AS a
CROSS JOIN LATERAL (
    -- Looked up one by one, whatever the planner expects.
    SELECT
        t.flow_id,
        t.policy,
        t.ffx_retry_count,
        t.raw_fields,
        t.lifecycle_phase,
        t.attempt_index,
        t.ffx_lease_epoch
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = a.partition_key
        AND t.execution_id = a.execution_id
    LIMIT 1
) AS e
WHERE
    a.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    AND (a.ffx_timeout_at_ms, a.partition_key, a.execution_id, a.attempt_index) > (
        @after_timeout_at_ms::bigint,
        @after_partition_key::smallint,
        @after_execution_id::uuid,
        @after_attempt_index::integer
    )
ORDER BY
    a.ffx_timeout_at_ms,
    a.partition_key,
    a.execution_id,
    a.attempt_index
LIMIT @page_size::integer;

-- name: ForgetTimeouts :execrows
-- ForgetTimeouts clears timeouts of attempts whose lease another program took away, so no scan returns the attempts
-- again. The library clears the timeout when taking a lease away. An attempt leased again has a new timeout.
--
-- Used by: upkeep.ExpireAttempts.
-- Locks: L2 skips (attempt rows FOR UPDATE, then the UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@timeouts_at_ms::bigint[]) AS timeout_at_ms
),
left_over AS (
    SELECT
        a.partition_key,
        a.execution_id,
        a.attempt_index
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id,
            t.attempt_index
        FROM ff_attempt AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.attempt_index = i.attempt_index
            AND (t.ffx_timeout_at_ms = i.timeout_at_ms) IS TRUE
        FOR UPDATE SKIP LOCKED
    ) AS a
)
UPDATE ff_attempt AS a
SET ffx_timeout_at_ms = NULL
FROM left_over AS l
WHERE
    a.partition_key = ANY (ARRAY[l.partition_key])
    AND a.execution_id = l.execution_id
    AND a.attempt_index = l.attempt_index;

-- name: TakeTimedOut :many
-- TakeTimedOut locks the first max_items of the given attempts, with their executions, if still running, leased by the
-- library, overdue, and not locked elsewhere.
--
-- Used by: upkeep.ExpireAttempts.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE); L2 skips (attempt rows FOR UPDATE). Only columns of the locked
-- rows decide.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index
)
SELECT
    t.partition_key,
    t.execution_id,
    t.flow_id,
    t.policy,
    coalesce(t.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(t.raw_fields ->> 'retry_count', '')::text AS raw_retry_count,
    coalesce(t.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    t.attempt_index,
    coalesce(t.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(t.ffx_lease_id::text, '')::text AS lease_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        e.partition_key,
        e.execution_id,
        e.flow_id,
        e.policy,
        e.ffx_retry_count,
        e.raw_fields,
        e.ffx_lease_epoch,
        a.attempt_index,
        a.worker_instance_id,
        a.ffx_lease_id
    FROM ff_exec_core AS e
    JOIN ff_attempt AS a ON a.partition_key = e.partition_key AND a.execution_id = e.execution_id
    WHERE
        e.partition_key = i.partition_key
        AND e.execution_id = i.execution_id
        AND a.attempt_index = i.attempt_index
        AND e.lifecycle_phase = 'active'
        AND e.attempt_index = a.attempt_index
        AND a.lease_epoch = e.ffx_lease_epoch
        AND a.lease_expires_at_ms IS NOT NULL
        AND (a.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS TRUE
    FOR NO KEY UPDATE OF e SKIP LOCKED
    FOR UPDATE OF a SKIP LOCKED
) AS t
LIMIT @max_items::integer;
