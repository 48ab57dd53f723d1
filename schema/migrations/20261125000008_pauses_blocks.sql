-- Paused lanes, drained workers, and the executions that are blocked by their route, their lane or an operator. The
-- latter have a table of their own because no index of ff_exec_core may name a state. The triggers that keep it are in
-- the file of the queue.
--
-- usable-from: 20261125000001

-- migrate:up

-- Every statement that claims reads it once, by its key.
CREATE TABLE ffx_pause (
    subject text NOT NULL CHECK (subject IN ('lane', 'worker')),
    name text COLLATE "C" NOT NULL,
    paused_at_ms bigint NOT NULL,
    reason text NOT NULL DEFAULT '',
    until_ms bigint,
    PRIMARY KEY (name, subject)
);

COMMENT ON TABLE ffx_pause IS
    'Lanes that are paused, which nobody of this library claims from, and worker instances that are drained, which claim nothing more. Claims read it; what is running goes on. FlowFabric does not know it.';
COMMENT ON COLUMN ffx_pause.subject IS
    'lane or worker: what name is the name of.';
COMMENT ON COLUMN ffx_pause.name IS
    'The lane, or the worker instance.';
COMMENT ON COLUMN ffx_pause.paused_at_ms IS
    'Milliseconds since the Unix epoch: since when. Of a worker, 30 days after it the row goes.';
COMMENT ON COLUMN ffx_pause.reason IS
    'The operator''s text; empty: none given.';
COMMENT ON COLUMN ffx_pause.until_ms IS
    'Milliseconds since the Unix epoch: when the pause of a lane has ended, by the clock of the database, with or without the row. NULL: an operator ends it.';

CREATE TABLE ffx_blocked (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    lane_id text COLLATE "C" NOT NULL,
    eligibility_state text NOT NULL,
    required_capabilities text[] NOT NULL,
    blocked_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id)
);

COMMENT ON TABLE ffx_blocked IS
    'The executions that are blocked by their route, their lane or an operator, one row each, for whoever looks for them. Triggers on ff_exec_core keep it and the sweep of the queue mends it; the execution''s row is the truth. Of what is inserted blocked, the sweep writes the row.';
COMMENT ON COLUMN ffx_blocked.partition_key IS
    'Of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_blocked.execution_id IS
    'The uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_blocked.lane_id IS
    'Its lane.';
COMMENT ON COLUMN ffx_blocked.eligibility_state IS
    'blocked_by_route, blocked_by_lane_state or blocked_by_operator.';
COMMENT ON COLUMN ffx_blocked.required_capabilities IS
    'What a worker must have to claim it, all of them, sorted.';
COMMENT ON COLUMN ffx_blocked.blocked_at_ms IS
    'Milliseconds since the Unix epoch: since when it is blocked that way.';

-- For listings, the longest blocked first. The key is left out: a plan made on an empty table would prefer an index
-- that ends in the key to the primary key.
CREATE INDEX ffx_blocked_lane_idx ON ffx_blocked (lane_id, blocked_at_ms);

-- For executions that wait for a worker with their capabilities.
CREATE INDEX ffx_blocked_route_idx ON ffx_blocked (lane_id, blocked_at_ms)
WHERE eligibility_state = 'blocked_by_route';

-- migrate:down

DROP TABLE ffx_blocked;

DROP TABLE ffx_pause;
