WITH input AS (
    -- The partitions, and the id from which to go on in each. The two comparisons and the order are parameters.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@from_ids::uuid[]) AS from_id
)
SELECT
    e.partition_key,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.execution_id
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = i.partition_key
        AND x.execution_id ${from} i.from_id
        AND x.execution_id ${to} @to_id::uuid
    ORDER BY x.execution_id ${order}
    LIMIT @page_size::integer
) AS e;
