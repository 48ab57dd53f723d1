-- Worker processes. partition_key is derived from worker_instance_id.

-- migrate:up

-- A worker is alive while last_heartbeat_ms + liveness_ttl_ms lies ahead.
CREATE TABLE ff_worker_registry (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    worker_id text NOT NULL,
    lanes text[] NOT NULL,
    capabilities_csv text NOT NULL,
    last_heartbeat_ms bigint NOT NULL,
    liveness_ttl_ms bigint NOT NULL,
    registered_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, worker_instance_id)
);

CREATE INDEX ff_worker_registry_ns_inst_idx ON ff_worker_registry (namespace, worker_instance_id);

CREATE TABLE ff_worker_registry_event (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    event_kind text NOT NULL,
    event_at_ms bigint NOT NULL,
    reason text,
    CONSTRAINT ff_worker_registry_event_pkey
    PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms, event_kind)
);

-- migrate:down

DROP TABLE ff_worker_registry_event;

DROP TABLE ff_worker_registry;
