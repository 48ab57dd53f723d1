-- The tables and functions of this library itself. Trigger functions find their table by the schema
-- of the table that fired them: two engines in two schemas never write to each other.

-- migrate:up

-- object: ffx_create_dedup
-- Executions created under an idempotency key.
CREATE TABLE ffx_create_dedup (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    idempotency_key text NOT NULL,
    execution_id uuid NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, idempotency_key)
);

CREATE INDEX ffx_create_dedup_expiry_idx ON ffx_create_dedup (expires_at_ms);

-- object: ffx_outbox_floor
-- Per outbox (completion, lease, signal, operator) the greatest event id that was deleted: a reader
-- that stands below it may have missed something. No row: nothing was ever deleted.
CREATE TABLE ffx_outbox_floor (
    outbox text PRIMARY KEY,
    floor_event_id bigint NOT NULL,
    updated_at_ms bigint NOT NULL
);

-- object: ffx_outbox_consumer
-- Positions of named consumers; trimming stops at the lowest fresh one.
CREATE TABLE ffx_outbox_consumer (
    outbox text NOT NULL,
    consumer text NOT NULL,
    event_id bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (outbox, consumer)
);

-- object: ffx_now_ms
-- The time of a statement: the given instant, else the database's clock. STABLE and without STRICT or
-- SET, so that the planner inlines it and an index on a time column serves a comparison with it.
CREATE FUNCTION ffx_now_ms(now_ms bigint) RETURNS bigint
LANGUAGE sql
STABLE
PARALLEL SAFE
AS $$
    SELECT coalesce(now_ms, (extract(epoch FROM statement_timestamp()) * 1000)::bigint);
$$;

-- object: ffx_flow_key
-- The advisory lock of a flow (level L0 of the lock order).
CREATE FUNCTION ffx_flow_key(flow_id uuid) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT hashtextextended(flow_id::text, 8031);
$$;

-- object: ffx_notify_channel
-- Rings the channel in the trigger's argument. The payload is empty, so that the notifications of a
-- transaction collapse into one; readers re-read from their cursor and need none.
CREATE FUNCTION ffx_notify_channel() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], '');
    RETURN NULL;
END;
$$;

-- object: ffx_notify_stream
-- Rings each stream that the statement appended to.
CREATE FUNCTION ffx_notify_stream() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_stream_' || stream.execution_id::text || '_' || stream.attempt_index::text, '')
    FROM (SELECT DISTINCT execution_id, attempt_index FROM inserted_frames) AS stream;
    RETURN NULL;
END;
$$;

-- object: ffx_record_floor
-- Raises the floor of the outbox in the trigger's argument to the greatest id just deleted. A floor
-- that is high enough is only read: a deletion below it takes no lock.
CREATE FUNCTION ffx_record_floor() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    EXECUTE format(
        $upsert$
            INSERT INTO %1$I.ffx_outbox_floor AS stored (outbox, floor_event_id, updated_at_ms)
            SELECT
                $1,
                deleted.event_id,
                %1$I.ffx_now_ms(NULL)
            FROM (SELECT max(event_id) AS event_id FROM deleted_events) AS deleted
            WHERE deleted.event_id > coalesce(
                (SELECT floor_event_id FROM %1$I.ffx_outbox_floor WHERE outbox = $1),
                0
            )
            ON CONFLICT (outbox) DO UPDATE SET
                floor_event_id = excluded.floor_event_id,
                updated_at_ms = excluded.updated_at_ms
            WHERE stored.floor_event_id < excluded.floor_event_id
        $upsert$,
        TG_TABLE_SCHEMA
    )
    USING TG_ARGV[0];
    RETURN NULL;
END;
$$;

-- object: ffx_record_truncate
-- Raises the floor of the outbox in the trigger's argument to the last id its sequence gave out:
-- TRUNCATE has no transition table to read the ids from.
CREATE FUNCTION ffx_record_truncate() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    last_event_id bigint;
BEGIN
    EXECUTE format(
        'SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM %s',
        pg_get_serial_sequence(format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME), 'event_id')
    )
    INTO last_event_id;
    EXECUTE format(
        $upsert$
            INSERT INTO %1$I.ffx_outbox_floor AS stored (outbox, floor_event_id, updated_at_ms)
            VALUES ($1, $2, %1$I.ffx_now_ms(NULL))
            ON CONFLICT (outbox) DO UPDATE SET
                floor_event_id = excluded.floor_event_id,
                updated_at_ms = excluded.updated_at_ms
            WHERE stored.floor_event_id < excluded.floor_event_id
        $upsert$,
        TG_TABLE_SCHEMA
    )
    USING TG_ARGV[0], last_event_id;
    RETURN NULL;
END;
$$;

-- migrate:down

DROP FUNCTION ffx_record_truncate();

DROP FUNCTION ffx_record_floor();

DROP FUNCTION ffx_notify_stream();

DROP FUNCTION ffx_notify_channel();

DROP FUNCTION ffx_flow_key(uuid);

DROP FUNCTION ffx_now_ms(bigint);

DROP TABLE ffx_outbox_consumer;

DROP TABLE ffx_outbox_floor;

DROP TABLE ffx_create_dedup;
