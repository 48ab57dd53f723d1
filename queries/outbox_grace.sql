-- name: GetOutboxState :one
-- GetOutboxState returns how far the sequence of an outbox has come, 0 before its first id, whether that is what its readers
-- rely on, whether the server is a standby, and the floor of the outbox. The process id and its start, in microseconds,
-- are those of the session that was asked. readable tells whether the role may ask the sequence at all; last_event_id means
-- nothing otherwise.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none. Spans partitions.
SELECT
    -- Without the right PostgreSQL 18 returns NULL, as for a sequence that has given out nothing. Older ones fail.
    CASE
        WHEN has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') THEN coalesce(pg_sequence_last_value(s.seqrelid), 0)
        ELSE 0
    END::bigint AS last_event_id,
    has_sequence_privilege(s.seqrelid, 'USAGE, SELECT')::boolean AS readable,
    s.seqrelid::regclass::text AS sequence_name,
    quote_ident(current_user)::text AS role_name,
    (s.seqcache = 1 AND s.seqincrement = 1 AND NOT s.seqcycle)::boolean AS dense,
    pg_is_in_recovery()::boolean AS standby,
    coalesce(
        (SELECT o.floor_event_id FROM ffx_outbox_floor AS o WHERE o.outbox = @outbox::text),
        0
    )::bigint AS floor_event_id,
    pg_backend_pid()::integer AS process_id,
    coalesce((
        SELECT (extract(EPOCH FROM a.backend_start) * 1000000)::bigint
        FROM pg_catalog.pg_stat_activity AS a
        WHERE a.pid = pg_backend_pid()
    ), 0)::bigint AS process_began_us
FROM pg_catalog.pg_sequence AS s
WHERE s.seqrelid = to_regclass(pg_get_serial_sequence(@outbox_table::text, 'event_id'))::oid;

-- name: ListOutboxWriters :many
-- ListOutboxWriters returns the transactions that may have inserted into an outbox and have not ended: all that hold the lock
-- that an INSERT takes before it takes an id, and keeps to the end of the transaction. The process id is 0 for one that is
-- prepared.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none. Spans partitions.
SELECT
    l.virtualtransaction::text AS virtual_transaction,
    coalesce(l.pid, 0)::integer AS process_id
FROM pg_catalog.pg_locks AS l
WHERE
    l.locktype = 'relation'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND l.relation = to_regclass(@outbox_table::text)::oid
    AND l.mode = 'RowExclusiveLock'
    AND l.granted
    AND l.pid IS DISTINCT FROM pg_backend_pid();

-- name: GetSessionExists :one
-- GetSessionExists tells whether a session is still there that GetOutboxState was asked in. While it is, the server has
-- not crashed, nor another taken its place: no id was given out twice.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none. Spans partitions.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_stat_activity AS a
    WHERE
        a.pid = @process_id::integer
        -- Its start is hidden from a role that is not the session's; then it goes by the process id alone.
        AND coalesce((extract(EPOCH FROM a.backend_start) * 1000000)::bigint, 0) = @process_began_us::bigint
)::boolean AS found;

-- name: GetLastEvent :one
-- GetLastEvent returns the greatest event id of an outbox up to up_to_event_id, or its floor where that is greater.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none; one snapshot. Spans partitions.
SELECT greatest(
    CASE @outbox::text
        WHEN 'completion' THEN (
            SELECT max(e.event_id) FROM ff_completion_event AS e WHERE e.event_id <= @up_to_event_id::bigint
        )
        WHEN 'lease' THEN (
            SELECT max(e.event_id) FROM ff_lease_event AS e WHERE e.event_id <= @up_to_event_id::bigint
        )
        WHEN 'signal' THEN (
            SELECT max(e.event_id) FROM ff_signal_event AS e WHERE e.event_id <= @up_to_event_id::bigint
        )
        WHEN 'operator' THEN (
            SELECT max(e.event_id) FROM ff_operator_event AS e WHERE e.event_id <= @up_to_event_id::bigint
        )
    END,
    (SELECT o.floor_event_id FROM ffx_outbox_floor AS o WHERE o.outbox = @outbox::text),
    0
)::bigint AS event_id;
