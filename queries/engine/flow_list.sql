-- name: ListFlowKeys :many
-- ListFlowKeys pages through the ids of the flows by primary key, strictly after one, up to a last partition.
--
-- Used by: engine.ListFlows.
-- Locks: none.
SELECT
    f.partition_key,
    f.flow_id
FROM ff_flow_core AS f
WHERE
    (f.partition_key, f.flow_id) > (@after_partition_key::smallint, @after_flow_id::uuid)
    AND f.partition_key <= @last_partition_key::smallint
ORDER BY
    f.partition_key,
    f.flow_id
LIMIT @page_size::integer;

-- name: ListNewestFlowKeys :many
-- ListNewestFlowKeys returns up to page_size ids of flows of each given partition, downwards from one, which is
-- included, to a least one. The rows come by partition in the order of the input, then downwards.
--
-- Used by: engine.ListFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@from_ids::uuid[]) AS from_id
)
SELECT
    e.partition_key,
    e.flow_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.flow_id
    FROM ff_flow_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.flow_id <= i.from_id
        AND x.flow_id >= @to_id::uuid
    ORDER BY x.flow_id DESC
    LIMIT @page_size::integer
) AS e;

-- name: ListOldestFlowKeys :many
-- ListOldestFlowKeys is ListNewestFlowKeys upwards, not above a greatest id.
--
-- Used by: engine.ListFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@from_ids::uuid[]) AS from_id
)
SELECT
    e.partition_key,
    e.flow_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.flow_id
    FROM ff_flow_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.flow_id >= i.from_id
        AND x.flow_id <= @to_id::uuid
    ORDER BY x.flow_id
    LIMIT @page_size::integer
) AS e;

-- name: ListNamedFlows :many
-- ListNamedFlows returns the named flows that match a filter, with their last stored summaries, in no order. An empty
-- text or a NULL in the filter matches all.
--
-- Used by: engine.ListFlows.
-- Locks: none. Spans partitions.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT
    f.partition_key,
    f.flow_id,
    f.graph_revision,
    f.public_flow_state,
    f.created_at_ms,
    f.terminal_at_ms,
    f.raw_fields,
    coalesce(s.public_flow_state, '')::text AS summary_state,
    coalesce(s.last_summary_update_at, 0)::bigint AS summary_at_ms
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.flow_id,
        x.graph_revision,
        x.public_flow_state,
        x.created_at_ms,
        x.terminal_at_ms,
        x.raw_fields
    FROM ff_flow_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.flow_id = i.flow_id
    LIMIT 1
) AS f
LEFT JOIN LATERAL (
    SELECT
        t.public_flow_state,
        t.last_summary_update_at
    FROM ff_flow_summary AS t
    WHERE
        t.partition_key = f.partition_key
        AND t.flow_id = f.flow_id
    LIMIT 1
) AS s ON true
WHERE
    (@flow_kind::text = '' OR f.raw_fields ->> 'flow_kind' = @flow_kind::text)
    AND (@namespace::text = '' OR coalesce(f.raw_fields ->> 'namespace', 'default') = @namespace::text)
    AND (@tag_key::text = '' OR f.raw_fields ->> @tag_key::text = @tag_value::text)
    AND (sqlc.narg(created_from_ms)::bigint IS NULL OR f.created_at_ms >= sqlc.narg(created_from_ms)::bigint)
    AND (sqlc.narg(created_before_ms)::bigint IS NULL OR f.created_at_ms < sqlc.narg(created_before_ms)::bigint);
