-- name: InsertCreationKeys :many
-- InsertCreationKeys claims idempotency keys for executions about to be created; ord (from 0) is the input position. No
-- row: the key is taken, in or out of the window, or a row of the former scope takes the key. TakeCreationKeys and
-- ListFormerKeys return such keys. The insert waits for a concurrent creator of the same key.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys waits (for a concurrent creator, in array order). The caller sorts by (partition_key, namespace, key).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key,
        unnest(@former_keys::text[]) AS former_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@windows_ms::bigint[]) AS window_ms
)
INSERT INTO ffx_create_dedup (
    partition_key, namespace, idempotency_key, execution_id, expires_at_ms
)
SELECT
    i.partition_key,
    i.namespace,
    i.idempotency_key,
    i.execution_id,
    least(ffx_now_ms(sqlc.narg(now_ms))::numeric + i.window_ms, 9223372036854775807)::bigint
FROM input AS i
WHERE NOT EXISTS (
    SELECT
    FROM ffx_create_dedup AS d
    WHERE
        d.partition_key = i.partition_key
        AND d.namespace = i.namespace
        AND d.idempotency_key = i.former_key
        AND d.expires_at_ms > ffx_now_ms(sqlc.narg(now_ms))
    -- Makes the array drive the loop, in array order.
    OFFSET 0
)
ON CONFLICT (partition_key, namespace, idempotency_key) DO NOTHING
RETURNING
    partition_key,
    namespace,
    idempotency_key;

-- name: ListFormerKeys :many
-- ListFormerKeys returns which of the given keys a row of the former scope takes: a key that held in a partition and
-- namespace, for any lane, flow and kind. Creations no longer write such rows. ord counts from 0.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: none. A row can only expire meanwhile.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@former_keys::text[]) AS former_key,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    k.execution_id::uuid AS execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT d.execution_id
    FROM ffx_create_dedup AS d
    WHERE
        d.partition_key = i.partition_key
        AND d.namespace = i.namespace
        AND d.idempotency_key = i.former_key
        AND d.expires_at_ms > ffx_now_ms(sqlc.narg(now_ms))
    LIMIT 1
) AS k;

-- name: TakeCreationKeys :many
-- TakeCreationKeys locks idempotency keys InsertCreationKeys found taken. No row: the key was deleted in the meantime,
-- and the creation starts over.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys waits (FOR UPDATE, in array order).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@namespaces::text[]) AS namespace,
        unnest(@idempotency_keys::text[]) AS idempotency_key
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

-- name: ReadKeyedExecutions :many
-- ReadKeyedExecutions reads the columns of the given executions a repeated creation is compared with. fed says a result
-- may have replaced the payload. No row: the execution no longer exists.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.lane_id,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    coalesce(e.raw_fields ->> 'payload_encoding', '')::text AS payload_encoding,
    encode(sha256(coalesce(e.payload, '')), 'hex')::text AS payload_digest,
    (
        e.flow_id IS NOT NULL
        AND EXISTS (
            SELECT
            FROM ff_edge AS d
            WHERE
                d.downstream_eid = e.execution_id
                AND (d.partition_key = e.partition_key OR d.partition_key IS NULL)
                AND d.flow_id = e.flow_id
                AND d.policy ->> 'data_passing_ref' <> ''
        )
    )::boolean AS fed
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.flow_id,
        t.lane_id,
        t.raw_fields,
        t.payload
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e;

-- name: ReuseCreationKeys :exec
-- ReuseCreationKeys gives keys to new executions: keys whose window has passed, and keys for another creation of the
-- batch than the first one with the key.
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
) AS i
WHERE
    d.partition_key = ANY (ARRAY[i.partition_key])
    AND d.namespace = i.namespace
    AND d.idempotency_key = i.idempotency_key;

-- name: DropCreationKeys :exec
-- DropCreationKeys deletes keys no creation used.
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
) AS i
WHERE
    d.partition_key = ANY (ARRAY[i.partition_key])
    AND d.namespace = i.namespace
    AND d.idempotency_key = i.idempotency_key
    AND d.execution_id = i.execution_id;

-- name: PruneCreationKeys :execrows
-- PruneCreationKeys deletes idempotency keys whose window has passed.
--
-- Used by: upkeep.PruneCreationKeys.
-- Locks: keys skips (FOR UPDATE, then the DELETE). Spans partitions.
DELETE FROM ffx_create_dedup AS k
USING (
    SELECT
        d.ctid::tid AS row_id,
        d.partition_key,
        d.namespace,
        d.idempotency_key
    FROM ffx_create_dedup AS d
    WHERE d.expires_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ORDER BY d.expires_at_ms
    LIMIT @batch_size::integer
    FOR UPDATE SKIP LOCKED
) AS d
WHERE
    k.ctid = d.row_id
    AND (k.partition_key = d.partition_key) IS TRUE
    AND k.namespace = d.namespace
    AND (k.idempotency_key = d.idempotency_key) IS TRUE;
