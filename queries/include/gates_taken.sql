-- The limits of asked on running work whose rows and rules are free, locked. A held key has no room.
SELECT
    a.partition_key,
    a.gate_id,
    CASE WHEN g.hold_until_ms > ffx_now_ms(sqlc.narg(now_ms)) THEN 0 ELSE l.units - g.held END AS room
FROM asked AS a
CROSS JOIN LATERAL (
    SELECT
        t.namespace,
        t.limit_name,
        t.held,
        t.hold_until_ms
    FROM ffx_gate AS t
    WHERE
        t.partition_key = a.partition_key
        AND t.gate_id = a.gate_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS g
CROSS JOIN LATERAL ffx_limit_in_force(g.namespace, g.limit_name) AS l
WHERE
    l.units IS NOT NULL
    AND l.window_ms IS NULL
