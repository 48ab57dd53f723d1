UPDATE ffx_gate_use AS u
SET
    held = n.held,
    started_at_ms = n.started_at_ms,
    settled = n.settled
FROM (
    SELECT
        j.partition_key,
        j.gate_id,
        j.execution_id,
        j.admitted_at_ms,
        j.held,
        j.started_at_ms,
        j.settled
    FROM judged AS j
    WHERE
        (j.held OR j.starts)
        AND (j.held, j.started_at_ms, j.settled) IS DISTINCT FROM (j.was_held, j.was_started_at_ms, false)
    UNION ALL
    SELECT
        x.partition_key,
        x.gate_id,
        x.execution_id,
        x.admitted_at_ms,
        false,
        x.started_at_ms,
        true
    FROM ahead AS x
) AS n
WHERE
    u.partition_key = ANY (ARRAY[n.partition_key])
    AND u.gate_id = n.gate_id
    AND u.execution_id = n.execution_id
    AND u.admitted_at_ms = n.admitted_at_ms
