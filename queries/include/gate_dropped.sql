DELETE FROM ffx_gate_use AS u
USING (
    SELECT
        x.partition_key,
        x.gate_id,
        x.execution_id,
        x.admitted_at_ms
    FROM expired AS x
    UNION ALL
    SELECT
        j.partition_key,
        j.gate_id,
        j.execution_id,
        j.admitted_at_ms
    FROM judged AS j
    WHERE
        NOT j.held
        AND NOT j.starts
) AS o
WHERE
    u.partition_key = ANY (ARRAY[o.partition_key])
    AND u.gate_id = o.gate_id
    AND u.execution_id = o.execution_id
    AND u.admitted_at_ms = o.admitted_at_ms
