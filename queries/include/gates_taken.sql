-- Of asked those that limit running work and whose rows are free, locked.
SELECT
    a.partition_key,
    a.gate_id,
    l.units - g.held AS room
FROM asked AS a
CROSS JOIN LATERAL (
    SELECT
        t.namespace,
        t.limit_name,
        t.held
    FROM ffx_gate AS t
    WHERE
        t.partition_key = a.partition_key
        AND t.gate_id = a.gate_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS g
CROSS JOIN LATERAL (
    SELECT t.units
    FROM ffx_limit AS t
    WHERE
        t.namespace = g.namespace
        AND t.name = g.limit_name
        AND t.window_ms IS NULL
    LIMIT 1
) AS l
