old AS MATERIALIZED (
    -- The last event to delete. Takes page (event_id, at_ms, needed) and behind.
    SELECT max(p.event_id) AS event_id
    FROM page AS p
    WHERE
        (p.at_ms <= @before_ms::bigint OR EXISTS (SELECT FROM behind))
        AND p.event_id < coalesce(
            (
                SELECT min(y.event_id)
                FROM page AS y
                WHERE
                    y.needed
                    OR (y.at_ms > @before_ms::bigint AND y.at_ms <= ffx_now_ms(sqlc.narg(now_ms)))
            ),
            9223372036854775807
        )
),
trimmed AS (
    -- The event and all before, deleted.
    DELETE FROM ${table} AS c
    WHERE
        c.event_id > @after_event_id::bigint
        AND c.event_id <= (SELECT o.event_id FROM old AS o)
    RETURNING 1
)
SELECT
    (SELECT count(*) FROM trimmed)::bigint AS deleted,
    coalesce((SELECT o.event_id FROM old AS o), @after_event_id::bigint)::bigint AS reached;
