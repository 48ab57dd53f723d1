-- Fair work: the tenants of a lane take turns, in proportion to their weights. A fair execution gets a place in the queue
-- when it is created, and created_at_ms has it: so claims, triggers and repairs are those of all other work. Its
-- creation time is in ffx_created_at_ms.
--
-- No row records where a tenant stands. The greatest place of its executions tells, and creations lock nothing for it.
--
-- usable-from: 20261125000020

-- migrate:up

ALTER TABLE ff_exec_core
    ADD COLUMN ffx_fair_key bigint,
    ADD COLUMN ffx_place_ns bigint;

COMMENT ON COLUMN ff_exec_core.ffx_fair_key IS
    'Of fair work: first 8 bytes of SHA-256 over lane, priority, namespace and tenant; NULL: not fair. Never changed. raw_fields.ffx_fair has tenant and weight.';
COMMENT ON COLUMN ff_exec_core.ffx_place_ns IS
    'Of fair work: its place in the queue, in nanoseconds since the Unix epoch; created_at_ms is the same in milliseconds. NULL: not fair. Never changed.';

-- Neither column changes after the insert, so updates of fair work stay heap-only, and other work has no entry.
CREATE INDEX ffx_ff_exec_core_fair_idx ON ff_exec_core (ffx_fair_key, ffx_place_ns) WHERE ffx_fair_key IS NOT NULL;

-- migrate:down

DROP INDEX ffx_ff_exec_core_fair_idx;

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_fair_key,
    DROP COLUMN ffx_place_ns;
