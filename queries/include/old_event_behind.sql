-- If the whole page is dated in the future: whether an old event follows. Takes page (event_id, at_ms). Looks among the
-- next thousand, then at growing distances from the first of the page and from the newest event. A following event was
-- written later, so the page is older.
SELECT
FROM (
    SELECT
        min(p.event_id) AS first,
        (SELECT c.event_id FROM ${table} AS c WHERE c.event_id > @after_event_id::bigint ORDER BY c.event_id DESC LIMIT 1) AS newest
    FROM page AS p
    HAVING min(p.at_ms) > ${now_ms}
) AS f
WHERE
    EXISTS (
        SELECT
        FROM (
            SELECT c.${at_ms} AS at_ms
            FROM ${table} AS c
            WHERE c.event_id > f.first
            ORDER BY c.event_id
            LIMIT 1000
        ) AS n
        WHERE n.at_ms <= ${before_ms}
    )
    OR EXISTS (
        SELECT
        FROM generate_series(-40, 40) AS k (step)
        CROSS JOIN LATERAL (
            SELECT c.${at_ms} AS at_ms
            FROM ${table} AS c
            WHERE c.event_id >= CASE
                WHEN k.step < 0 THEN greatest(f.first, f.newest + 1 - (1::bigint << (- k.step - 1)))
                ELSE f.first + (1::bigint << k.step)
            END
            ORDER BY c.event_id
            LIMIT 1
        ) AS e
        WHERE e.at_ms <= ${before_ms}
    )
