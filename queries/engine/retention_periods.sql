-- name: EnsureRetentionPeriod :exec
-- EnsureRetentionPeriod registers the retention period of a policy if shorter than the known ones.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, operator.Fork.
-- Locks: retention waits (for a concurrent insert of the same period).
INSERT INTO ffx_retention_period (period_ms)
SELECT @period_ms::bigint
WHERE @period_ms::bigint < coalesce((SELECT min(p.period_ms) FROM ffx_retention_period AS p), 9223372036854775807)
ON CONFLICT (period_ms) DO NOTHING;

-- name: SetLaneRetention :one
-- SetLaneRetention sets how long executions of a lane are kept and returns the previous period, 0 for the default.
--
-- Used by: operator.SetLaneRetention.
-- Locks: retention waits (the INSERT, for another one of the same lane).
INSERT INTO ffx_lane_retention AS l (lane_id, retention_ms, set_at_ms)
VALUES (
    @lane_id,
    @retention_ms,
    ffx_now_ms(sqlc.narg(now_ms))
)
ON CONFLICT (lane_id) DO UPDATE SET
    retention_ms = excluded.retention_ms,
    set_at_ms = excluded.set_at_ms
RETURNING
    coalesce((SELECT b.retention_ms FROM ffx_lane_retention AS b WHERE b.lane_id = l.lane_id), 0)::bigint AS before_ms;

-- name: DropLaneRetention :many
-- DropLaneRetention removes the period set by SetLaneRetention and returns the period. No row: none was set.
--
-- Used by: operator.SetLaneRetention.
-- Locks: retention waits (DELETE).
DELETE FROM ffx_lane_retention AS l
WHERE l.lane_id = @lane_id
RETURNING l.retention_ms;

-- name: RestartRetention :exec
-- RestartRetention makes retention start over at the oldest end whose event still exists.
--
-- Used by: operator.SetLaneRetention.
-- Locks: retention waits (UPDATE).
UPDATE ffx_retention
SET event_id = 0
WHERE source = 'ends';

-- name: GetRetention :one
-- GetRetention returns the positions of retention.
--
-- Used by: operator.Retention.
-- Locks: none. Spans partitions.
SELECT
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms,
    least(
        @look_after_ms::bigint,
        (SELECT min(l.retention_ms) FROM ffx_lane_retention AS l),
        (SELECT min(p.period_ms) FROM ffx_retention_period AS p)
    )::bigint AS look_after_ms,
    coalesce((
        -- An event dated in the future has no usable time: the event is as old as the next one with a usable time.
        SELECT coalesce(
            (array_agg(n.committed_at_ms ORDER BY n.event_id) FILTER (WHERE n.committed_at_ms <= ffx_now_ms(sqlc.narg(now_ms))))[1],
            (SELECT least(c.committed_at_ms, ffx_now_ms(sqlc.narg(now_ms))) FROM ff_completion_event AS c ORDER BY c.event_id DESC LIMIT 1)
        )
        FROM (
            SELECT
                c.event_id,
                c.committed_at_ms
            FROM ff_completion_event AS c
            WHERE c.event_id > coalesce((SELECT r.event_id FROM ffx_retention AS r WHERE r.source = 'ends'), 0)
            ORDER BY c.event_id
            LIMIT 1000
        ) AS n
        HAVING count(*) > 0
    ), 0)::bigint AS next_end_ms,
    coalesce(r.deleted, 0)::bigint AS deleted,
    coalesce(r.deleted_lately, 0)::bigint AS deleted_lately,
    coalesce((SELECT f.deleted FROM ffx_retention AS f WHERE f.source = 'flows'), 0)::bigint AS flows_deleted,
    t.waiting::bigint AS waiting,
    coalesce(t.next_due_at_ms, 0)::bigint AS next_due_at_ms
FROM (
    SELECT
        sum(s.deleted) AS deleted,
        sum(CASE ffx_now_ms(sqlc.narg(now_ms)) / 60000 - s.minute
            WHEN 0 THEN s.deleted_in_minute_before
            WHEN 1 THEN s.deleted_in_minute
            ELSE 0
        END) AS deleted_lately
    FROM ffx_retention AS s
    WHERE s.source <> 'flows'
) AS r
CROSS JOIN (
    SELECT
        coalesce(sum(d.items), 0) AS waiting,
        min(d.due_at_ms) AS next_due_at_ms
    FROM ffx_retention_timer AS d
    WHERE d.subject = 'execution'
) AS t;

-- name: ListOutboxAges :many
-- ListOutboxAges returns, for each outbox, what is kept, the floor (0 if no event was deleted) and the time of the oldest
-- event after the floor (0 if there is none). An event dated in the future is as old as the next event with a past date.
--
-- Used by: operator.Retention.
-- Locks: none. Spans partitions.
SELECT
    o.outbox::text AS outbox,
    coalesce((SELECT f.kept FROM ffx_outbox_floor AS f WHERE f.outbox = o.outbox), 'all')::text AS kept,
    coalesce((SELECT f.floor_event_id FROM ffx_outbox_floor AS f WHERE f.outbox = o.outbox), 0)::bigint AS floor_event_id,
    coalesce(o.oldest_at_ms, 0)::bigint AS oldest_at_ms
FROM (
    SELECT
        'completion' AS outbox,
        (
            SELECT coalesce(
                (array_agg(n.at_ms ORDER BY n.event_id) FILTER (WHERE n.at_ms <= ffx_now_ms(sqlc.narg(now_ms))))[1],
                ffx_now_ms(sqlc.narg(now_ms))
            )
            FROM (
                SELECT
                    c.event_id,
                    c.committed_at_ms AS at_ms
                FROM ff_completion_event AS c
                WHERE c.event_id > coalesce((SELECT f.floor_event_id FROM ffx_outbox_floor AS f WHERE f.outbox = 'completion'), 0)
                ORDER BY c.event_id
                LIMIT 1000
            ) AS n
            HAVING count(*) > 0
        ) AS oldest_at_ms
    UNION ALL
    SELECT
        'lease',
        (
            SELECT coalesce(
                (array_agg(n.at_ms ORDER BY n.event_id) FILTER (WHERE n.at_ms <= ffx_now_ms(sqlc.narg(now_ms))))[1],
                ffx_now_ms(sqlc.narg(now_ms))
            )
            FROM (
                SELECT
                    c.event_id,
                    c.occurred_at_ms AS at_ms
                FROM ff_lease_event AS c
                WHERE c.event_id > coalesce((SELECT f.floor_event_id FROM ffx_outbox_floor AS f WHERE f.outbox = 'lease'), 0)
                ORDER BY c.event_id
                LIMIT 1000
            ) AS n
            HAVING count(*) > 0
        )
    UNION ALL
    SELECT
        'operator',
        (
            SELECT coalesce(
                (array_agg(n.at_ms ORDER BY n.event_id) FILTER (WHERE n.at_ms <= ffx_now_ms(sqlc.narg(now_ms))))[1],
                ffx_now_ms(sqlc.narg(now_ms))
            )
            FROM (
                SELECT
                    c.event_id,
                    c.occurred_at_ms AS at_ms
                FROM ff_operator_event AS c
                WHERE c.event_id > coalesce((SELECT f.floor_event_id FROM ffx_outbox_floor AS f WHERE f.outbox = 'operator'), 0)
                ORDER BY c.event_id
                LIMIT 1000
            ) AS n
            HAVING count(*) > 0
        )
    UNION ALL
    SELECT
        'signal',
        (
            SELECT coalesce(
                (array_agg(n.at_ms ORDER BY n.event_id) FILTER (WHERE n.at_ms <= ffx_now_ms(sqlc.narg(now_ms))))[1],
                ffx_now_ms(sqlc.narg(now_ms))
            )
            FROM (
                SELECT
                    c.event_id,
                    c.delivered_at_ms AS at_ms
                FROM ff_signal_event AS c
                WHERE c.event_id > coalesce((SELECT f.floor_event_id FROM ffx_outbox_floor AS f WHERE f.outbox = 'signal'), 0)
                ORDER BY c.event_id
                LIMIT 1000
            ) AS n
            HAVING count(*) > 0
        )
) AS o
ORDER BY o.outbox;

-- name: KeepLeaseEvents :exec
-- KeepLeaseEvents sets which lease events are written from now on. If that is more than before, events are missing: the
-- floor rises to an unused id, and no reader from before can pass it unnoticed.
--
-- Used by: operator.KeepLeaseEvents.
-- Locks: L7 waits (the floor's row).
INSERT INTO ffx_outbox_floor AS o (outbox, floor_event_id, updated_at_ms, kept)
VALUES (
    'lease',
    0,
    ffx_now_ms(sqlc.narg(now_ms)),
    @kept
)
ON CONFLICT (outbox) DO UPDATE SET
    kept = excluded.kept,
    updated_at_ms = excluded.updated_at_ms,
    floor_event_id = CASE
        WHEN excluded.kept <> o.kept AND (excluded.kept = 'all' OR o.kept = 'none')
            THEN greatest(o.floor_event_id, nextval(pg_get_serial_sequence('ff_lease_event', 'event_id')))
        ELSE o.floor_event_id
    END;

-- name: ListLaneRetentions :many
-- ListLaneRetentions returns the lanes with a separate retention, by name.
--
-- Used by: operator.Retention.
-- Locks: none.
SELECT
    l.lane_id,
    l.retention_ms
FROM ffx_lane_retention AS l
ORDER BY l.lane_id COLLATE "C"
LIMIT @page_size::integer;
