-- The oldest events of an outbox which only the readers need.
SELECT
    c.event_id,
    c.${at_ms} AS at_ms,
    false AS needed
FROM ${table} AS c
WHERE
    c.event_id > @after_event_id::bigint
    AND c.event_id <= least(
        @up_to_event_id::bigint,
        (
            SELECT min(o.event_id)
            FROM ffx_outbox_consumer AS o
            WHERE
                o.outbox = ${outbox}
                AND o.updated_at_ms > ffx_now_ms(sqlc.narg(now_ms)) - 604800000
        )
    )
ORDER BY c.event_id
LIMIT @page_size::integer
