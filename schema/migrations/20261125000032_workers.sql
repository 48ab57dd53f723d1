-- Workers report the kinds they handle and their load with their heartbeats. The table stays one row for each process,
-- and no index has a column that a heartbeat changes.
--
-- usable-from: 20261125000001

-- migrate:up

ALTER TABLE ff_worker_registry
ADD COLUMN ffx_kinds text[],
ADD COLUMN ffx_running integer,
ADD COLUMN ffx_concurrency integer,
ADD COLUMN ffx_stopping boolean,
ADD COLUMN ffx_started jsonb,
ADD COLUMN ffx_full_kinds text[],
ADD COLUMN ffx_stuck integer;

COMMENT ON COLUMN ff_worker_registry.ffx_kinds IS
    'Kinds that it has handlers for, sorted; NULL: not reported.';
COMMENT ON COLUMN ff_worker_registry.ffx_running IS
    'Number of executions that it ran at its last heartbeat; NULL: not reported.';
COMMENT ON COLUMN ff_worker_registry.ffx_concurrency IS
    'Number of executions that it runs at once at most; NULL: not reported.';
COMMENT ON COLUMN ff_worker_registry.ffx_stopping IS
    'Whether it is shutting down: it claims no more and finishes its executions; NULL: not reported.';
COMMENT ON COLUMN ff_worker_registry.ffx_started IS
    'Object: of each lane, the number of executions that it claimed in the ten minutes before its last heartbeat; NULL: not reported.';
COMMENT ON COLUMN ff_worker_registry.ffx_full_kinds IS
    'Kinds whose handlers were all taken at its last heartbeat, sorted; NULL: not reported.';
COMMENT ON COLUMN ff_worker_registry.ffx_stuck IS
    'Number of handlers that ran on at its last heartbeat although their context had ended; NULL: not reported.';

-- For the deletion of old events.
CREATE INDEX ffx_ff_worker_registry_event_at_idx ON ff_worker_registry_event (event_at_ms);

-- migrate:down

DROP INDEX ffx_ff_worker_registry_event_at_idx;

ALTER TABLE ff_worker_registry
DROP COLUMN ffx_kinds,
DROP COLUMN ffx_running,
DROP COLUMN ffx_concurrency,
DROP COLUMN ffx_stopping,
DROP COLUMN ffx_started,
DROP COLUMN ffx_full_kinds,
DROP COLUMN ffx_stuck;
