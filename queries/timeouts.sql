-- name: ScanTimedOut :many
-- ScanTimedOut finds attempts that have taken longer than their timeout. over: another program has taken
-- the lease away, so the timeout means nothing any more.
--
-- Used by: engine.ExpireAttempts.
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
    -- One by one, whatever the planner expects.
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
WHERE a.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
ORDER BY a.ffx_timeout_at_ms
LIMIT @batch_size::integer;

-- name: ForgetTimeouts :exec
-- ForgetTimeouts clears timeouts of attempts whose lease another program took away, so that no scan meets
-- them again. This library clears them itself. An attempt that was leased again has another timeout.
--
-- Used by: engine.ExpireAttempts.
-- Locks: attempt rows (UPDATE), in array order: the caller sorts by (partition_key, execution_id,
-- attempt_index). Nothing else.
UPDATE ff_attempt AS a
SET ffx_timeout_at_ms = NULL
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@timeouts_at_ms::bigint[]) AS timeout_at_ms
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    a.partition_key = i.partition_key
    AND a.execution_id = i.execution_id
    AND a.attempt_index = i.attempt_index
    AND (a.ffx_timeout_at_ms = i.timeout_at_ms) IS TRUE;

-- name: TakeTimedOut :many
-- TakeTimedOut locks the given attempts and their executions where the attempt is still running, ours,
-- overdue, and not held by anybody.
--
-- Used by: engine.ExpireAttempts.
-- Locks: execution rows FOR NO KEY UPDATE SKIP LOCKED (L1) and attempt rows FOR UPDATE SKIP LOCKED (L2):
-- it decides from nothing but their own columns.
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.policy,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(e.raw_fields ->> 'retry_count', '')::text AS raw_retry_count,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    a.attempt_index,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(a.ffx_lease_id::text, '')::text AS lease_id
FROM ff_exec_core AS e
JOIN ff_attempt AS a ON a.partition_key = e.partition_key AND a.execution_id = e.execution_id
WHERE
    (e.partition_key, e.execution_id, a.attempt_index) IN (
        SELECT
            unnest(@partition_keys::smallint[]),
            unnest(@execution_ids::uuid[]),
            unnest(@attempt_indexes::integer[])
        LIMIT cardinality(@execution_ids::uuid[])
    )
    AND e.lifecycle_phase = 'active'
    AND (e.attempt_index = a.attempt_index) IS TRUE
    AND (a.lease_epoch = e.ffx_lease_epoch) IS TRUE
    AND (a.lease_expires_at_ms IS NOT NULL) IS TRUE
    AND (a.ffx_timeout_at_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS TRUE
FOR NO KEY UPDATE OF e SKIP LOCKED
FOR UPDATE OF a SKIP LOCKED;
