-- name: ListEventExecutions :many
-- ListEventExecutions returns the columns of executions carried by events beside their own. No row: the execution does
-- not exist.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    coalesce(e.ffx_namespace, '')::text AS namespace,
    coalesce(e.ffx_instance_tag, '')::text AS instance_tag,
    e.lane_id::text AS lane_id,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS kind,
    coalesce(e.raw_fields ->> 'ffx_node_key', '')::text AS node,
    coalesce(e.raw_fields -> 'tags', '{}')::jsonb AS tags
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.ffx_namespace,
        t.ffx_instance_tag,
        t.lane_id,
        t.raw_fields
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e;

-- name: ListFlowInstances :many
-- ListFlowInstances returns the namespaces and instance tags of flows, for events without either. No row: the flow does
-- not exist.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    coalesce(f.namespace, '')::text AS namespace,
    coalesce(f.instance_tag, '')::text AS instance_tag
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.raw_fields ->> 'namespace' AS namespace,
        t.raw_fields ->> 'cairn.instance_id' AS instance_tag
    FROM ff_flow_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
    LIMIT 1
) AS f;
