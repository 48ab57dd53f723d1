DELETE FROM ${table} AS t
USING (
    -- The rows of the executions the arrays partition_keys and execution_ids name.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
) AS i
WHERE
    t.partition_key = ANY (ARRAY[i.partition_key])
    AND t.execution_id = i.execution_id;
