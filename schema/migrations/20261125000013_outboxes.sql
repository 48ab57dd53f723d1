-- Notifications and floors of the outboxes. Trigger functions find their tables by the schema of the table that fired
-- them: two engines in two schemas never write to each other.
--
-- The notify triggers have FlowFabric's names and replace its row-level ones. A commit that notifies holds one lock of
-- the whole cluster until it is flushed. So a transaction notifies at most once per channel, and a connection with
-- ffx.defer_notify = on, as this library's have, not at all: its process notifies after the commit.
--
-- usable-from: 20261125000001

-- migrate:up

-- The payload is empty, so that the notifications of a transaction collapse into one. Readers continue from their
-- cursor and need none.
CREATE FUNCTION ffx_notify_channel() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], '');
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_notify_channel() IS
    'Trigger: notifies the channel that its argument names, with an empty payload.';

CREATE FUNCTION ffx_notify_stream() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_stream_' || stream.execution_id::text || '_' || stream.attempt_index::text, '')
    FROM (SELECT DISTINCT execution_id, attempt_index FROM inserted_frames) AS stream;
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_notify_stream() IS
    'Trigger: notifies the channel of each stream that frames were inserted into.';

CREATE TRIGGER ff_completion_event_notify_trg
AFTER INSERT ON ff_completion_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_completion');

COMMENT ON TRIGGER ff_completion_event_notify_trg ON ff_completion_event IS
    'Notifies channel ff_completion once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';

CREATE TRIGGER ff_lease_event_notify_trg
AFTER INSERT ON ff_lease_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_lease_event');

COMMENT ON TRIGGER ff_lease_event_notify_trg ON ff_lease_event IS
    'Notifies channel ff_lease_event once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';

CREATE TRIGGER ff_signal_event_notify_trg
AFTER INSERT ON ff_signal_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_signal_event');

COMMENT ON TRIGGER ff_signal_event_notify_trg ON ff_signal_event IS
    'Notifies channel ff_signal_event once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';

CREATE TRIGGER ff_operator_event_notify_trg
AFTER INSERT ON ff_operator_event
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_channel('ff_operator_event');

COMMENT ON TRIGGER ff_operator_event_notify_trg ON ff_operator_event IS
    'Notifies channel ff_operator_event once a statement, with an empty payload; not where the setting ffx.defer_notify is on, whose transaction notifies by itself after its commit.';

CREATE TRIGGER ff_stream_frame_notify_trg
AFTER INSERT ON ff_stream_frame
REFERENCING NEW TABLE AS inserted_frames
FOR EACH STATEMENT
WHEN (current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on')
EXECUTE FUNCTION ffx_notify_stream();

COMMENT ON TRIGGER ff_stream_frame_notify_trg ON ff_stream_frame IS
    'Notifies channel ff_stream_<execution uuid>_<attempt_index> of each stream once a statement, with an empty payload; not where the setting ffx.defer_notify is on.';

-- No row: no event was ever deleted, and all are kept.
CREATE TABLE ffx_outbox_floor (
    outbox text PRIMARY KEY,
    floor_event_id bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    kept text NOT NULL DEFAULT 'all',
    CONSTRAINT ffx_outbox_floor_kept_check CHECK (kept = 'all' OR outbox = 'lease' AND kept IN ('lost', 'none'))
);

COMMENT ON TABLE ffx_outbox_floor IS
    'How far each outbox was purged: a reader whose cursor is below has missed events. Kept by triggers.';
COMMENT ON COLUMN ffx_outbox_floor.outbox IS
    'completion, lease, signal or operator.';
COMMENT ON COLUMN ffx_outbox_floor.floor_event_id IS
    'The greatest event_id that was deleted, or an unused one before which events were not kept.';
COMMENT ON COLUMN ffx_outbox_floor.updated_at_ms IS
    'Milliseconds since the Unix epoch: when it rose, or what is kept was set.';
COMMENT ON COLUMN ffx_outbox_floor.kept IS
    'Which events are written: all; of lease events also lost (the holder did not end the lease) or none.';

-- A floor that is high enough is only read: a deletion below it takes no lock.
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

COMMENT ON FUNCTION ffx_record_floor() IS
    'Trigger: notes the greatest deleted event_id of the outbox that its argument names.';

-- TRUNCATE has no transition table with the ids, so the sequence gives the last one.
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

COMMENT ON FUNCTION ffx_record_truncate() IS
    'Trigger: raises the floor of the outbox that its argument names to the last event_id given out.';

CREATE TRIGGER ffx_ff_completion_event_floor_trg
AFTER DELETE ON ff_completion_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('completion');

COMMENT ON TRIGGER ffx_ff_completion_event_floor_trg ON ff_completion_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';

CREATE TRIGGER ffx_ff_completion_event_truncate_trg
BEFORE TRUNCATE ON ff_completion_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('completion');

COMMENT ON TRIGGER ffx_ff_completion_event_truncate_trg ON ff_completion_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

CREATE TRIGGER ffx_ff_lease_event_floor_trg
AFTER DELETE ON ff_lease_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('lease');

COMMENT ON TRIGGER ffx_ff_lease_event_floor_trg ON ff_lease_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';

CREATE TRIGGER ffx_ff_lease_event_truncate_trg
BEFORE TRUNCATE ON ff_lease_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('lease');

COMMENT ON TRIGGER ffx_ff_lease_event_truncate_trg ON ff_lease_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

CREATE TRIGGER ffx_ff_signal_event_floor_trg
AFTER DELETE ON ff_signal_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('signal');

COMMENT ON TRIGGER ffx_ff_signal_event_floor_trg ON ff_signal_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';

CREATE TRIGGER ffx_ff_signal_event_truncate_trg
BEFORE TRUNCATE ON ff_signal_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('signal');

COMMENT ON TRIGGER ffx_ff_signal_event_truncate_trg ON ff_signal_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

CREATE TRIGGER ffx_ff_operator_event_floor_trg
AFTER DELETE ON ff_operator_event
REFERENCING OLD TABLE AS deleted_events
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_floor('operator');

COMMENT ON TRIGGER ffx_ff_operator_event_floor_trg ON ff_operator_event IS
    'After rows are deleted, notes the greatest deleted event_id in ffx_outbox_floor.';

CREATE TRIGGER ffx_ff_operator_event_truncate_trg
BEFORE TRUNCATE ON ff_operator_event
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_record_truncate('operator');

COMMENT ON TRIGGER ffx_ff_operator_event_truncate_trg ON ff_operator_event IS
    'Before a truncation, raises the floor in ffx_outbox_floor to the last event_id given out.';

-- Completions whose dependents have not been resolved: those of FlowFabric.
CREATE INDEX ffx_ff_completion_event_undispatched_idx ON ff_completion_event (event_id)
WHERE dispatched_at_ms IS NULL;

-- migrate:down

DROP INDEX ffx_ff_completion_event_undispatched_idx;

DROP TRIGGER ffx_ff_operator_event_truncate_trg ON ff_operator_event;

DROP TRIGGER ffx_ff_operator_event_floor_trg ON ff_operator_event;

DROP TRIGGER ffx_ff_signal_event_truncate_trg ON ff_signal_event;

DROP TRIGGER ffx_ff_signal_event_floor_trg ON ff_signal_event;

DROP TRIGGER ffx_ff_lease_event_truncate_trg ON ff_lease_event;

DROP TRIGGER ffx_ff_lease_event_floor_trg ON ff_lease_event;

DROP TRIGGER ffx_ff_completion_event_truncate_trg ON ff_completion_event;

DROP TRIGGER ffx_ff_completion_event_floor_trg ON ff_completion_event;

DROP FUNCTION ffx_record_truncate();

DROP FUNCTION ffx_record_floor();

DROP TABLE ffx_outbox_floor;

DROP TRIGGER ff_stream_frame_notify_trg ON ff_stream_frame;

DROP TRIGGER ff_operator_event_notify_trg ON ff_operator_event;

DROP TRIGGER ff_signal_event_notify_trg ON ff_signal_event;

DROP TRIGGER ff_lease_event_notify_trg ON ff_lease_event;

DROP TRIGGER ff_completion_event_notify_trg ON ff_completion_event;

DROP FUNCTION ffx_notify_stream();

DROP FUNCTION ffx_notify_channel();
