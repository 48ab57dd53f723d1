WITH input AS (
    -- The attempts the arrays partition_keys, execution_ids and attempt_indexes name. The locking clause is a
    -- parameter.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        generate_subscripts(@execution_ids::uuid[], 1) - 1 AS ord
)
SELECT
    i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = i.attempt_index
    ${lock}
) AS a;
