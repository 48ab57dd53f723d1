-- name: InsertBusinessKeys :many
-- InsertBusinessKeys gives business keys to executions and flows about to be created. No row: the key is taken, and
-- ListBusinessKeys returns the holder. The insert waits for a concurrent creator of the same key, and for a concurrent
-- deletion of the holder.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys waits (for a concurrent creator, in array order). The caller sorts by (partition_key, name, value).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@names::text[]) AS name,
        unnest(@key_values::text[]) AS value,
        unnest(@holder_partition_keys::smallint[]) AS holder_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@flow_ids::uuid[]) AS flow_id
)
INSERT INTO ffx_business_key (
    partition_key, name, value, holder_partition_key, execution_id, flow_id
)
SELECT
    i.partition_key,
    i.name,
    i.value,
    i.holder_partition_key,
    i.execution_id,
    i.flow_id
FROM input AS i
ON CONFLICT (partition_key, name, value) DO NOTHING
RETURNING
    name,
    value;

-- name: ListBusinessKeys :many
-- ListBusinessKeys returns the holders of business keys. No row: nothing has the key.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.FindExecutionByKey,
-- engine.FindFlowByKey, engine.GrowFlow.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@names::text[]) AS name,
        unnest(@key_values::text[]) AS value
)
SELECT
    k.name,
    k.value,
    k.holder_partition_key,
    k.execution_id,
    k.flow_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.name,
        t.value,
        t.holder_partition_key,
        t.execution_id,
        t.flow_id
    FROM ffx_business_key AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.name = i.name
        AND t.value = i.value
    LIMIT 1
) AS k;

-- name: ReuseBusinessKeys :exec
-- ReuseBusinessKeys gives business keys the transaction has just inserted to other creations of the batch than the
-- first ones with the key.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys held.
UPDATE ffx_business_key AS k
SET
    holder_partition_key = i.holder_partition_key,
    execution_id = i.execution_id
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@names::text[]) AS name,
        unnest(@key_values::text[]) AS value,
        unnest(@holder_partition_keys::smallint[]) AS holder_partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    k.partition_key = ANY (ARRAY[i.partition_key])
    AND k.name = i.name
    AND k.value = i.value;

-- name: DropBusinessKeys :exec
-- DropBusinessKeys deletes business keys the transaction has just inserted and no creation used.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: keys held.
DELETE FROM ffx_business_key AS k
USING (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@names::text[]) AS name,
        unnest(@key_values::text[]) AS value
) AS i
WHERE
    k.partition_key = ANY (ARRAY[i.partition_key])
    AND k.name = i.name
    AND k.value = i.value;

-- name: DropBusinessKeysOf :exec
-- DropBusinessKeysOf deletes the business keys of executions about to be deleted, by their documents. In practice the
-- statement never waits: only the transaction that creates or deletes the holder locks a key.
--
-- Used by: upkeep.Retain, upkeep.RepairQueue, upkeep.PurgeFlows, operator.DeleteWhere.
-- Locks: keys waits (DELETE). Spans partitions.
-- include dropped_business_keys: table = ff_exec_core, id = execution_id, ids = execution_ids

-- name: DropBusinessKeysOfFlows :exec
-- DropBusinessKeysOfFlows deletes the business keys of flows about to be deleted, by their documents.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: keys waits (DELETE). Spans partitions.
-- include dropped_business_keys: table = ff_flow_core, id = flow_id, ids = flow_ids
