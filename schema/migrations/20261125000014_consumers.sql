-- Named consumers of outboxes. The position moves in the transaction that the handler writes in, which locks the row of
-- its consumer, so effects happen once. The holder saves work, as with background jobs: correctness does not depend on
-- it.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_outbox_consumer (
    outbox text NOT NULL,
    consumer text NOT NULL,
    event_id bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    holder text,
    held_until_ms bigint NOT NULL DEFAULT 0,
    failing_event_id bigint,
    tries integer NOT NULL DEFAULT 0,
    failed_at_ms bigint,
    next_try_at_ms bigint,
    last_error text,
    PRIMARY KEY (outbox, consumer)
)
WITH (
    -- Written every second by each consumer that runs, and by each batch.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_outbox_consumer IS
    'Named readers of outboxes: how far each has come, who works for it, and the event that it fails at.';
COMMENT ON COLUMN ffx_outbox_consumer.outbox IS
    'completion, lease, signal or operator.';
COMMENT ON COLUMN ffx_outbox_consumer.consumer IS
    'Name of the reader.';
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

DROP TABLE ffx_outbox_consumer;
