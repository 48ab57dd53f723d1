-- The limits of an input (gate_partition_key, gate_id) with waiting executions, each once.
SELECT
    i.gate_partition_key AS partition_key,
    i.gate_id
FROM (
    SELECT DISTINCT
        x.gate_partition_key,
        x.gate_id
    FROM input AS x
) AS i
WHERE
    EXISTS (
        SELECT
        FROM ffx_waiting AS w
        WHERE w.gate_id = i.gate_id
        OFFSET 0
    )
ORDER BY
    i.gate_partition_key,
    i.gate_id
