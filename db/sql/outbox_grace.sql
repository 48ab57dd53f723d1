-- name: GetOutboxState :one
-- GetOutboxState returns the last value of the sequence of an outbox (0 before the first id), whether the readers can
-- rely on the sequence, whether the server is a standby, and the floor of the outbox. witness names processes of the
-- server that run until the server stops or crashes. readable: the role may read the sequence; otherwise last_event_id
-- means nothing.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none. Spans partitions.
SELECT
    -- Without the right PostgreSQL 18 returns NULL, as for an unused sequence. Older versions fail.
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
    -- The start of the server and the processes that belong to no session: checkpointer, writers, launcher. A crash
    -- ends all these, and others replace them. If none is visible, the present session replaces them.
    (
        ARRAY[extract(EPOCH FROM pg_postmaster_start_time())::text] || (
            SELECT array_agg(a.pid::text || '/' || coalesce(extract(EPOCH FROM a.backend_start)::text, '') ORDER BY a.pid)
            FROM pg_catalog.pg_stat_activity AS a
            WHERE CASE
                WHEN EXISTS (SELECT FROM pg_catalog.pg_stat_activity AS x WHERE x.datid IS NULL AND x.usesysid IS NULL)
                    THEN a.datid IS NULL AND a.usesysid IS NULL
                ELSE a.pid = pg_backend_pid()
            END
        )
    )::text[] AS witness
FROM pg_catalog.pg_sequence AS s
WHERE s.seqrelid = to_regclass(pg_get_serial_sequence(@outbox_table::text, 'event_id'))::oid;

-- name: ListOutboxWriters :many
-- ListOutboxWriters returns the open transactions that may have inserted into an outbox: all holders of the lock an
-- INSERT takes before taking an id, and keeps until the transaction ends. The process id is 0 for a prepared
-- transaction.
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

-- name: GetWitnessRuns :one
-- GetWitnessRuns returns whether the processes GetOutboxState named still run. As long as they do, the server has not
-- crashed and has not been replaced by another one, so no id was assigned twice. Any session may ask.
--
-- Used by: events.Subscribe, events.Handle.
-- Locks: none. Spans partitions.
SELECT (
    @witness::text[] <@ (
        ARRAY[extract(EPOCH FROM pg_postmaster_start_time())::text] || ARRAY(
            -- A role without the right to see the start reads NULL both times; then only the process id is compared.
            SELECT a.pid::text || '/' || coalesce(extract(EPOCH FROM a.backend_start)::text, '')
            FROM pg_catalog.pg_stat_activity AS a
        )
    )
)::boolean AS runs;

-- name: GetLastEvent :one
-- GetLastEvent returns the greatest event id of an outbox up to up_to_event_id, or the floor if greater.
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
