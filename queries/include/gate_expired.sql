SELECT
    u.partition_key,
    u.gate_id,
    u.execution_id,
    u.admitted_at_ms,
    u.units
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.gate_id,
        t.execution_id,
        t.admitted_at_ms,
        t.units
    FROM ffx_gate_use AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.gate_id = i.gate_id
        AND t.started_at_ms <= i.window_from_ms
        AND t.settled
    ORDER BY t.started_at_ms
    LIMIT i.page_size
) AS u
