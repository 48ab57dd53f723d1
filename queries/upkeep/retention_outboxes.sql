-- name: ListOutboxPositions :many
-- ListOutboxPositions returns the last values of the sequences of the four outboxes, 0 before their first ids.
-- readable: the role may read the sequence; otherwise last_event_id means nothing.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: none. Spans partitions.
SELECT
    o.outbox::text AS outbox,
    -- Without the right PostgreSQL 18 returns NULL, as for an unused sequence. Older versions fail.
    CASE
        WHEN has_sequence_privilege(o.sequence_id, 'USAGE, SELECT') THEN coalesce(pg_sequence_last_value(o.sequence_id), 0)
        ELSE 0
    END::bigint AS last_event_id,
    has_sequence_privilege(o.sequence_id, 'USAGE, SELECT')::boolean AS readable,
    o.sequence_id::regclass::text AS sequence_name,
    quote_ident(current_user)::text AS role_name
FROM (
    VALUES
        ('completion', to_regclass(pg_get_serial_sequence('ff_completion_event', 'event_id'))::oid),
        ('lease', to_regclass(pg_get_serial_sequence('ff_lease_event', 'event_id'))::oid),
        ('operator', to_regclass(pg_get_serial_sequence('ff_operator_event', 'event_id'))::oid),
        ('signal', to_regclass(pg_get_serial_sequence('ff_signal_event', 'event_id'))::oid)
) AS o (outbox, sequence_id)
ORDER BY o.outbox
LIMIT 4;

-- name: ListOutboxesWriters :many
-- ListOutboxesWriters is ListOutboxWriters for the four outboxes at once.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: none. Spans partitions.
SELECT
    o.outbox::text AS outbox,
    l.virtualtransaction::text AS virtual_transaction,
    (l.pid IS NULL)::boolean AS prepared
FROM (
    VALUES
        ('completion', to_regclass('ff_completion_event')::oid),
        ('lease', to_regclass('ff_lease_event')::oid),
        ('operator', to_regclass('ff_operator_event')::oid),
        ('signal', to_regclass('ff_signal_event')::oid)
) AS o (outbox, relation)
JOIN pg_catalog.pg_locks AS l
    ON l.relation = o.relation
WHERE
    l.locktype = 'relation'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND l.mode = 'RowExclusiveLock'
    AND l.granted
    AND l.pid IS DISTINCT FROM pg_backend_pid();

-- name: TrimCompletionEvents :one
-- TrimCompletionEvents deletes completion events older than before_ms, after after_event_id and at most page_size. The
-- deletion stops at up_to_event_id, since later ids may still be open, and at the first event that is younger, is not
-- dispatched, or was not yet handled by retention or by a named consumer active in the last week. An event dated in the
-- future is as old as the neighbouring events. Returns how many were deleted, and where the next call continues.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: L7 waits (the DELETE; then the floor's row). Spans partitions.
WITH page AS MATERIALIZED (
    -- The oldest events.
    SELECT
        c.event_id,
        c.committed_at_ms AS at_ms,
        (c.dispatched_at_ms IS NULL AND c.flow_id IS NOT NULL) AS needed
    FROM ff_completion_event AS c
    WHERE
        c.event_id > @after_event_id::bigint
        AND c.event_id <= least(
            @up_to_event_id::bigint,
            coalesce((SELECT r.event_id FROM ffx_retention AS r WHERE r.source = 'ends'), 0),
            (
                SELECT min(o.event_id)
                FROM ffx_outbox_consumer AS o
                WHERE
                    o.outbox = 'completion'
                    AND o.updated_at_ms > ffx_now_ms(sqlc.narg(now_ms)) - 604800000
            )
        )
    ORDER BY c.event_id
    LIMIT @page_size::integer
),
behind AS (
    -- include old_event_behind: table = ff_completion_event, at_ms = committed_at_ms, before_ms = @before_ms::bigint, now_ms = ffx_now_ms(sqlc.narg(now_ms))
),
-- include trimmed: table = ff_completion_event

-- name: TrimLeaseEvents :one
-- TrimLeaseEvents is TrimCompletionEvents for lease events, which only their readers need.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: L7 waits (the DELETE; then the floor's row). Spans partitions.
WITH page AS MATERIALIZED (
    -- include trim_page: table = ff_lease_event, at_ms = occurred_at_ms, outbox = 'lease'
),
behind AS (
    -- include old_event_behind: table = ff_lease_event, at_ms = occurred_at_ms, before_ms = @before_ms::bigint, now_ms = ffx_now_ms(sqlc.narg(now_ms))
),
-- include trimmed: table = ff_lease_event

-- name: TrimOperatorEvents :one
-- TrimOperatorEvents is TrimCompletionEvents for operator events, which only their readers need.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: L7 waits (the DELETE; then the floor's row). Spans partitions.
WITH page AS MATERIALIZED (
    -- include trim_page: table = ff_operator_event, at_ms = occurred_at_ms, outbox = 'operator'
),
behind AS (
    -- include old_event_behind: table = ff_operator_event, at_ms = occurred_at_ms, before_ms = @before_ms::bigint, now_ms = ffx_now_ms(sqlc.narg(now_ms))
),
-- include trimmed: table = ff_operator_event

-- name: TrimSignalEvents :one
-- TrimSignalEvents is TrimCompletionEvents for signal events, which only their readers need.
--
-- Used by: upkeep.TrimOutboxes.
-- Locks: L7 waits (the DELETE; then the floor's row). Spans partitions.
WITH page AS MATERIALIZED (
    -- include trim_page: table = ff_signal_event, at_ms = delivered_at_ms, outbox = 'signal'
),
behind AS (
    -- include old_event_behind: table = ff_signal_event, at_ms = delivered_at_ms, before_ms = @before_ms::bigint, now_ms = ffx_now_ms(sqlc.narg(now_ms))
),
-- include trimmed: table = ff_signal_event
