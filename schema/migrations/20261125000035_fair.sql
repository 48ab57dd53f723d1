-- Fair work: the tenants of a lane take turns, in proportion to their weights. A fair execution gets a place in the queue
-- when it is created, and created_at_ms has it: so claims, triggers and repairs are those of all other work. Its
-- creation time is in ffx_created_at_ms.
--
-- Each creation adds a row for each of its tenants and changes none, so creations wait for no open transaction. The
-- greatest place of a tenant counts. A job deletes the other rows.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_fair_place (
    fair_key bigint NOT NULL,
    place_ns bigint NOT NULL,
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    PRIMARY KEY (fair_key, place_ns, partition_key, execution_id)
)
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_fair_place IS
    'The last places that creations of fair work have given to a tenant. The greatest of a tenant is where its next execution follows.';
COMMENT ON COLUMN ffx_fair_place.fair_key IS
    'The tenant in its queue: first 8 bytes of SHA-256 over lane, priority, namespace and tenant.';
COMMENT ON COLUMN ffx_fair_place.place_ns IS
    'The place in the queue, in nanoseconds since the Unix epoch; ff_exec_core.created_at_ms is the same in milliseconds.';
COMMENT ON COLUMN ffx_fair_place.partition_key IS
    'Partition of the execution that has the place, 0 to 255.';
COMMENT ON COLUMN ffx_fair_place.execution_id IS
    'The execution that has the place, the uuid half of its id. It need not exist any longer.';

-- migrate:down

DROP TABLE ffx_fair_place;
