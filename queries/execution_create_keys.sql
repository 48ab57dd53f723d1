-- name: InsertCreationKeys :many
-- InsertCreationKeys claims idempotency keys for executions about to be created; ord (from 1) is the
-- input position. A key that is taken, in or out of its window, has no row: TakeCreationKeys tells.
-- It waits for a concurrent creator of the same key.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys waits (for a concurrent creator, in array order). The caller sorts by (partition_key, namespace, key).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@windows_ms::bigint[]) AS window_ms
)
INSERT INTO ffx_create_dedup (
    partition_key,
    namespace,
    idempotency_key,
    execution_id,
    expires_at_ms
)
SELECT
    i.partition_key,
    i.namespace,
    i.idempotency_key,
    i.execution_id,
    least(ffx_now_ms(sqlc.narg(now_ms))::numeric + i.window_ms, 9223372036854775807)::bigint
FROM input AS i
ON CONFLICT (partition_key, namespace, idempotency_key) DO NOTHING
RETURNING
    partition_key,
    namespace,
    idempotency_key;

-- name: TakeCreationKeys :many
-- TakeCreationKeys locks idempotency keys that InsertCreationKeys found taken. No row: the key has gone
-- meanwhile, and the creation starts over.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys waits (FOR UPDATE, in array order).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key
    LIMIT cardinality(@partition_keys::smallint[])
)
SELECT
    i.partition_key::smallint AS partition_key,
    i.namespace::text AS namespace,
    i.idempotency_key::text AS idempotency_key,
    k.execution_id::uuid AS execution_id,
    (k.expires_at_ms > ffx_now_ms(sqlc.narg(now_ms)))::boolean AS in_window
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        d.execution_id,
        d.expires_at_ms
    FROM ffx_create_dedup AS d
    WHERE
        d.partition_key = i.partition_key
        AND d.namespace = i.namespace
        AND d.idempotency_key = i.idempotency_key
    FOR UPDATE
) AS k;

-- name: ReuseCreationKeys :exec
-- ReuseCreationKeys gives keys to new executions: those whose window has passed, and those that went to another
-- creation of the batch than the first that asked for them.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys held.
UPDATE ffx_create_dedup AS d
SET
    execution_id = i.execution_id,
    expires_at_ms = least(ffx_now_ms(sqlc.narg(now_ms))::numeric + i.window_ms, 9223372036854775807)::bigint
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@windows_ms::bigint[]) AS window_ms
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    d.partition_key = ANY (ARRAY[i.partition_key])
    AND d.namespace = i.namespace
    AND d.idempotency_key = i.idempotency_key;

-- name: DropCreationKeys :exec
-- DropCreationKeys gives keys back that no creation made use of.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys held.
DELETE FROM ffx_create_dedup AS d
USING (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
) AS i
WHERE
    d.partition_key = i.partition_key
    AND d.namespace = i.namespace
    AND d.idempotency_key = i.idempotency_key
    AND d.execution_id = i.execution_id;

-- name: PruneCreationKeys :execrows
-- PruneCreationKeys deletes idempotency keys whose window has passed.
--
-- Used by: engine.PruneCreationKeys.
-- Locks: keys skips (FOR UPDATE, then the DELETE). Spans partitions.
DELETE FROM ffx_create_dedup
WHERE ctid = ANY (ARRAY(
    SELECT d.ctid
    FROM ffx_create_dedup AS d
    WHERE d.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY d.expires_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
));
