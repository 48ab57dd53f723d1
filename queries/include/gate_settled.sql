UPDATE ffx_gate AS g
SET settled = g.settled + n.units
FROM (
    SELECT
        x.partition_key,
        x.gate_id,
        sum(x.units)::bigint AS units
    FROM (
        SELECT
            j.partition_key,
            j.gate_id,
            j.units
        FROM judged AS j
        WHERE j.settled
        UNION ALL
        SELECT
            x.partition_key,
            x.gate_id,
            - x.units
        FROM expired AS x
    ) AS x
    GROUP BY
        x.partition_key,
        x.gate_id
) AS n
WHERE
    g.partition_key = ANY (ARRAY[n.partition_key])
    AND g.gate_id = n.gate_id
