WITH input AS (
    -- The executions the arrays partition_keys and execution_ids name. The locking clause is a parameter.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        generate_subscripts(@execution_ids::uuid[], 1) - 1 AS ord
)
SELECT
    i.ord::integer AS ord,
    e.flow_id,
    e.lane_id,
    e.policy,
    coalesce(e.ffx_retry_count, 0)::integer AS retry_count,
    coalesce(e.raw_fields ->> 'retry_count', '')::text AS raw_retry_count,
    (e.ffx_limit_ids IS NOT NULL)::boolean AS has_limits,
    (e.ffx_sequence IS NOT NULL)::boolean AS in_sequence
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.flow_id,
        t.lane_id,
        t.policy,
        t.ffx_retry_count,
        t.raw_fields,
        t.ffx_limit_ids,
        t.ffx_sequence
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    ${lock}
) AS e;
