-- The usage u and the reservations v of each budget b, by dimension.
CROSS JOIN LATERAL (
    SELECT
        coalesce(array_agg(t.dimensions_key), '{}') AS dimensions,
        coalesce(array_agg(t.current_value), '{}') AS amounts
    FROM ff_budget_usage AS t
    WHERE
        t.partition_key = b.partition_key
        AND t.budget_id = b.budget_id
        AND t.dimensions_key <> '_init'
) AS u
CROSS JOIN LATERAL (
    SELECT
        coalesce(array_agg(x.dimensions_key), '{}') AS dimensions,
        coalesce(array_agg(x.amount), '{}') AS amounts
    FROM (
        SELECT
            t.dimensions_key,
            least(sum(t.amount), 9223372036854775807)::bigint AS amount
        FROM ffx_budget_reservation AS t
        WHERE
            t.partition_key = b.partition_key
            AND t.budget_id = b.budget_id
        GROUP BY t.dimensions_key
    ) AS x
) AS v
