-- The four outboxes. A row is inserted by the transaction that made the change it tells of; readers
-- follow event_id. One sequence serves all partitions of an outbox.
--
-- The key is (event_id, partition_key) where the reference has (partition_key, event_id) or
-- (event_id): one index serves readers in event order, and partition_key in it keeps the tables
-- distributable. The reference's other indexes on completion and lease events are left out, because
-- every claim and every completion would pay for them.
--
-- Operators' events also have the type action, which the reference does not know, and which may be about no execution.
--
-- partition_key is smallint in ff_completion_event and integer in the other three: the reference
-- decodes the exact type.

-- migrate:up

CREATE TABLE ff_completion_event (
    partition_key smallint NOT NULL,
    event_id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    execution_id uuid NOT NULL,
    flow_id uuid,
    outcome text NOT NULL,
    namespace text,
    instance_tag text,
    occurred_at_ms bigint NOT NULL,
    -- The time of the insert, not of the commit.
    committed_at_ms bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    -- NULL: its dependents have not been resolved yet.
    dispatched_at_ms bigint,
    PRIMARY KEY (event_id, partition_key)
)
WITH (
    -- Trimmed by age in id order: without prompt vacuums readers from the start walk over the dead.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);

CREATE TABLE ff_lease_event (
    event_id bigserial NOT NULL,
    -- A bare uuid, as in the two tables below.
    execution_id text NOT NULL,
    lease_id text,
    event_type text NOT NULL,
    occurred_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    PRIMARY KEY (event_id, partition_key)
)
WITH (
    -- As ff_completion_event.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);

CREATE TABLE ff_signal_event (
    event_id bigserial NOT NULL,
    execution_id text NOT NULL,
    signal_id text NOT NULL,
    waitpoint_id text,
    source_identity text,
    delivered_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    PRIMARY KEY (event_id, partition_key)
)
WITH (
    -- As ff_completion_event.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);

CREATE INDEX ff_signal_event_namespace_idx ON ff_signal_event (partition_key, namespace)
WHERE namespace IS NOT NULL;

CREATE INDEX ff_signal_event_instance_tag_idx ON ff_signal_event (partition_key, instance_tag)
WHERE instance_tag IS NOT NULL;

CREATE TABLE ff_operator_event (
    event_id bigserial NOT NULL,
    -- The flow's uuid for flow_cancel_requested.
    execution_id text,
    event_type text NOT NULL,
    details jsonb,
    occurred_at_ms bigint NOT NULL,
    partition_key integer NOT NULL,
    namespace text,
    instance_tag text,
    PRIMARY KEY (event_id, partition_key),
    CONSTRAINT ff_operator_event_event_type_check
    CHECK (event_type IN ('priority_changed', 'replayed', 'flow_cancel_requested', 'action')),
    CONSTRAINT ff_operator_event_execution_id_check
    CHECK (execution_id IS NOT NULL OR event_type = 'action')
)
WITH (
    -- As ff_completion_event.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000
);

CREATE INDEX ff_operator_event_namespace_idx ON ff_operator_event (partition_key, namespace)
WHERE namespace IS NOT NULL;

CREATE INDEX ff_operator_event_instance_tag_idx ON ff_operator_event (partition_key, instance_tag)
WHERE instance_tag IS NOT NULL;

-- The reference's row-level wake-ups. The triggers that call them are left out: 20261101000011
-- installs statement-level ones.
CREATE FUNCTION ff_notify_completion_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_completion', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE FUNCTION ff_notify_lease_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_lease_event', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE FUNCTION ff_notify_signal_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_signal_event', NEW.event_id::text);
    RETURN NEW;
END;
$$;

CREATE FUNCTION ff_notify_operator_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_notify('ff_operator_event', NEW.event_id::text);
    RETURN NEW;
END;
$$;

-- migrate:down

DROP FUNCTION ff_notify_operator_event();

DROP FUNCTION ff_notify_signal_event();

DROP FUNCTION ff_notify_lease_event();

DROP FUNCTION ff_notify_completion_event();

DROP TABLE ff_operator_event;

DROP TABLE ff_signal_event;

DROP TABLE ff_lease_event;

DROP TABLE ff_completion_event;
