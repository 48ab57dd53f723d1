WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
page AS MATERIALIZED (
    -- The rows of the page.
    SELECT
        t.ctid::tid AS row_id,
        t.partition_key,
        t.${key}
    FROM ${table} AS t
    WHERE (t.partition_key, t.${key}) > (@after_partition_key::smallint, @after_key::uuid)
    ORDER BY
        t.partition_key,
        t.${key}
    LIMIT @page_size::integer
),
ended AS (
    -- The rows whose executions ended long enough ago, or no longer exist.
    SELECT
        l.row_id,
        p.partition_key,
        p.${key}
    FROM page AS p
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ${table} AS t
        WHERE
            t.ctid = p.row_id
            AND t.partition_key = p.partition_key
            AND t.${key} = p.${key}
            AND (
                SELECT
                    e.lifecycle_phase IN ('terminal', 'cancelled')
                    AND (e.terminal_at_ms <= (SELECT now_ms FROM clock) - ${kept_ms}) IS TRUE
                FROM ff_exec_core AS e
                WHERE
                    e.partition_key = t.partition_key
                    AND e.execution_id = t.execution_id
                LIMIT 1
            ) IS NOT FALSE
        FOR UPDATE SKIP LOCKED
    ) AS l
),
deleted AS (
    -- The rows, deleted.
    DELETE FROM ${table} AS t
    USING ended AS d
    WHERE
        t.ctid = d.row_id
        AND (t.partition_key = d.partition_key) IS TRUE
        AND t.${key} = d.${key}
    RETURNING t.partition_key
)
SELECT
    coalesce(z.partition_key, -1)::smallint AS last_partition_key,
    z.${key}::uuid AS last_key,
    (SELECT count(*) FROM page)::integer AS examined,
    (SELECT count(*) FROM deleted)::integer AS deleted
FROM clock
LEFT JOIN LATERAL (
    SELECT
        p.partition_key,
        p.${key}
    FROM page AS p
    ORDER BY
        p.partition_key DESC,
        p.${key} DESC
    LIMIT 1
) AS z ON true;
