-- The usage of each budget b, by dimension.
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
