SELECT
    u.partition_key,
    u.gate_id,
    u.execution_id,
    u.admitted_at_ms,
    u.units,
    u.held AS was_held,
    u.started_at_ms AS was_started_at_ms,
    (u.held AND u.again_at_ms IS NULL AND coalesce(e.admitted, false)) AS held,
    ffx_past_ms(coalesce(
        u.started_at_ms,
        -- The execution was admitted in the millisecond of an earlier start, and waits for a claim: the start belongs
        -- to the earlier admission.
        CASE WHEN NOT (a.started_at_ms = u.since_ms AND e.claimable IS TRUE) THEN a.started_at_ms END,
        CASE WHEN e.admitted IS NULL THEN u.admitted_at_ms END
    ), c.now_ms) AS started_at_ms,
    i.has_window,
    i.window_from_ms,
    c.now_ms
FROM clock AS c
CROSS JOIN input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.gate_id,
        t.execution_id,
        t.admitted_at_ms,
        t.execution_partition_key,
        t.units,
        t.held,
        t.started_at_ms,
        t.by_caller,
        -- The clock of the admission was ahead: the start may have another date.
        CASE WHEN t.admitted_at_ms > c.now_ms THEN 0 ELSE t.admitted_at_ms END AS since_ms,
        (
            SELECT min(n.admitted_at_ms)
            FROM ffx_gate_use AS n
            WHERE
                n.partition_key = t.partition_key
                AND n.gate_id = t.gate_id
                AND n.execution_id = t.execution_id
                AND n.admitted_at_ms > t.admitted_at_ms
        ) AS again_at_ms
    FROM ffx_gate_use AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.gate_id = i.gate_id
        AND (t.admitted_at_ms, t.execution_id) > (i.after_ms, i.after_execution_id)
        AND NOT t.settled
    ORDER BY
        t.admitted_at_ms,
        t.execution_id
    LIMIT i.page_size
) AS u
LEFT JOIN LATERAL (
    SELECT
        CASE
            WHEN u.by_caller THEN t.lifecycle_phase NOT IN ('terminal', 'cancelled') AND t.ffx_gate_id IS DISTINCT FROM u.gate_id
            ELSE coalesce(t.ffx_admitted, false)
        END AS admitted,
        (t.ffx_admitted AND t.lifecycle_phase = 'runnable') AS claimable
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = u.execution_partition_key
        AND t.execution_id = u.execution_id
        AND (u.held OR u.started_at_ms IS NULL)
    LIMIT 1
) AS e ON true
