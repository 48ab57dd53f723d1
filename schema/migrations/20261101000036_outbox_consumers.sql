-- Named consumers of outboxes: besides the position, who works for one, for how long, and the event that its handler fails
-- at; and the events that were set aside because the handler never got through with them.
--
-- The position moves in the transaction that the handler writes in, which locks the row of its consumer: that is what
-- makes effects happen once. Who works is economy, as with background jobs.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: columns of ffx_outbox_consumer
-- review: allow lock-without-timeout until 2027-11-20: Migrate sets lock_timeout, and tries again
ALTER TABLE ffx_outbox_consumer
    ADD COLUMN holder text,
    ADD COLUMN held_until_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN failing_event_id bigint,
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN failed_at_ms bigint,
    ADD COLUMN next_try_at_ms bigint,
    ADD COLUMN last_error text;

-- Written every second by each consumer that runs, and by each batch.
ALTER TABLE ffx_outbox_consumer SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_outbox_consumer IS
    'Named readers of outboxes: how far each has come, who works for it, and the event that it fails at.';
COMMENT ON COLUMN ffx_outbox_consumer.event_id IS
    'Every event up to this one has been handled, set aside or left out by the filter. Moves in the transaction that the handler writes in.';
COMMENT ON COLUMN ffx_outbox_consumer.updated_at_ms IS
    'Milliseconds since the Unix epoch: when a process last worked for it. After seven days trimming no longer stops at event_id.';
COMMENT ON COLUMN ffx_outbox_consumer.holder IS
    'Who works for it: one call of the handler''s loop in one process. NULL: nobody does.';
COMMENT ON COLUMN ffx_outbox_consumer.held_until_ms IS
    'When others may take it over, in milliseconds since the Unix epoch. The holder moves it on as long as it lives; 0: at once.';
COMMENT ON COLUMN ffx_outbox_consumer.failing_event_id IS
    'The event that its handler fails at, alone. Without meaning once event_id has come to it. NULL: none.';
COMMENT ON COLUMN ffx_outbox_consumer.tries IS
    'How often the handler has failed at failing_event_id, alone.';
COMMENT ON COLUMN ffx_outbox_consumer.failed_at_ms IS
    'Milliseconds since the Unix epoch: when it last did.';
COMMENT ON COLUMN ffx_outbox_consumer.next_try_at_ms IS
    'Milliseconds since the Unix epoch: not to be tried again before.';
COMMENT ON COLUMN ffx_outbox_consumer.last_error IS
    'What the handler returned then, cut at 16 KiB.';

-- object: ffx_outbox_set_aside
CREATE TABLE ffx_outbox_set_aside (
    outbox text NOT NULL,
    consumer text NOT NULL,
    event_id bigint NOT NULL,
    event jsonb NOT NULL,
    tries integer NOT NULL,
    last_error text NOT NULL,
    set_aside_at_ms bigint NOT NULL,
    PRIMARY KEY (outbox, consumer, event_id)
);

COMMENT ON TABLE ffx_outbox_set_aside IS
    'Events that a named consumer has gone past without having handled them, for a person to look at. No job deletes them.';
COMMENT ON COLUMN ffx_outbox_set_aside.outbox IS
    'completion, lease, signal or operator.';
COMMENT ON COLUMN ffx_outbox_set_aside.consumer IS
    'Name of the reader.';
COMMENT ON COLUMN ffx_outbox_set_aside.event_id IS
    'The event. Its row may have left the outbox.';
COMMENT ON COLUMN ffx_outbox_set_aside.event IS
    'Object. The event as it was read: the columns of its outbox that hold something, by name.';
COMMENT ON COLUMN ffx_outbox_set_aside.tries IS
    'How often the handler failed at it, alone. 0: the event could not be read.';
COMMENT ON COLUMN ffx_outbox_set_aside.last_error IS
    'What the handler returned last, cut at 16 KiB; or why the event could not be read.';
COMMENT ON COLUMN ffx_outbox_set_aside.set_aside_at_ms IS
    'Milliseconds since the Unix epoch: when the consumer went past it.';

-- migrate:down

DROP TABLE ffx_outbox_set_aside;

ALTER TABLE ffx_outbox_consumer RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold);

ALTER TABLE ffx_outbox_consumer
    DROP COLUMN last_error,
    DROP COLUMN next_try_at_ms,
    DROP COLUMN failed_at_ms,
    DROP COLUMN tries,
    DROP COLUMN failing_event_id,
    DROP COLUMN held_until_ms,
    DROP COLUMN holder;

COMMENT ON TABLE ffx_outbox_consumer IS
    'Cursors of named readers of outboxes.';
COMMENT ON COLUMN ffx_outbox_consumer.event_id IS
    'The last event it has handled, exclusive.';
COMMENT ON COLUMN ffx_outbox_consumer.updated_at_ms IS
    'Milliseconds since the Unix epoch: when it was stored.';
