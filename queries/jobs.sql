-- name: LockCurrentAttempts :many
-- LockCurrentAttempts locks the current attempt of each given execution: the newest up to its pointer.
-- An execution without attempts has no row.
--
-- Used by: engine.ExpireLeases, engine.ExpireDeadlines, after their executions are locked.
-- Locks: attempt rows FOR UPDATE in array order (L2): the caller sorts by (partition_key, execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    a.execution_id,
    a.attempt_index,
    a.lease_epoch,
    a.terminal_at_ms,
    a.lease_expires_at_ms,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(a.ffx_lease_id::text, '')::text AS lease_id
FROM input AS i
JOIN ff_exec_core AS e ON e.partition_key = i.partition_key AND e.execution_id = i.execution_id
CROSS JOIN LATERAL (
    SELECT
        t.execution_id,
        t.attempt_index,
        t.lease_epoch,
        t.terminal_at_ms,
        t.lease_expires_at_ms,
        t.worker_instance_id,
        t.ffx_lease_id
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index <= e.attempt_index
    ORDER BY t.attempt_index DESC
    LIMIT 1
    FOR UPDATE
) AS a;

-- name: DiscardWaiting :exec
-- DiscardWaiting removes what could still act on executions that a background job ended: their
-- suspensions, waitpoints and grants.
--
-- Used by: engine.ExpireDeadlines, engine.ExpireAttempts, engine.ExpireLeases.
-- Locks: the deleted rows (L5); the executions are locked by the caller.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
),
grants AS (
    DELETE FROM ff_claim_grant AS g
    USING input AS i
    WHERE
        g.partition_key = i.partition_key
        AND g.execution_id = i.execution_id
),
suspensions AS (
    DELETE FROM ff_suspension_current AS s
    USING input AS i
    WHERE
        s.partition_key = i.partition_key
        AND s.execution_id = i.execution_id
)
DELETE FROM ff_waitpoint_pending AS w
USING input AS i
WHERE
    w.partition_key = i.partition_key
    AND w.execution_id = i.execution_id;
