-- Lanes that nobody claims from and workers that claim nothing, until a person says otherwise; and what is blocked by
-- its route, its lane or an operator, in a table of its own: no index of ff_exec_core may name a state.
--
-- An engine that does not know ffx_pause claims from paused lanes. It may all the same work on the database.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_pause
-- Read by every statement that claims, once, by its key.
CREATE TABLE ffx_pause (
    subject text NOT NULL CHECK (subject IN ('lane', 'worker')),
    name text COLLATE "C" NOT NULL,
    paused_at_ms bigint NOT NULL,
    reason text NOT NULL DEFAULT '',
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

-- object: ffx_blocked
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

-- object: ffx_blocked_lane_idx
-- Listings, the longest blocked first. Without the key: a plan made in an empty table would take an index that ends in
-- it for the key's.
CREATE INDEX ffx_blocked_lane_idx ON ffx_blocked (lane_id, blocked_at_ms);

-- object: ffx_blocked_route_idx
-- What waits for a worker that can do it.
CREATE INDEX ffx_blocked_route_idx ON ffx_blocked (lane_id, blocked_at_ms)
WHERE eligibility_state = 'blocked_by_route';

-- object: ffx_keep_blocked
CREATE FUNCTION ffx_keep_blocked() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
BEGIN
    IF
        TG_OP = 'UPDATE'
        AND NEW.lifecycle_phase = 'runnable'
        AND NEW.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')
    THEN
        INSERT INTO ffx_blocked AS b (
            partition_key, execution_id, lane_id, eligibility_state, required_capabilities, blocked_at_ms
        )
        VALUES (
            NEW.partition_key, NEW.execution_id, NEW.lane_id, NEW.eligibility_state, NEW.required_capabilities,
            coalesce(NEW.ffx_last_mutation_at_ms, ffx_now_ms(NULL))
        )
        ON CONFLICT (partition_key, execution_id) DO UPDATE SET
            lane_id = excluded.lane_id,
            eligibility_state = excluded.eligibility_state,
            required_capabilities = excluded.required_capabilities,
            blocked_at_ms = CASE
                WHEN b.eligibility_state = excluded.eligibility_state THEN b.blocked_at_ms
                ELSE excluded.blocked_at_ms
            END
        WHERE
            (b.lane_id, b.eligibility_state, b.required_capabilities)
            <> (excluded.lane_id, excluded.eligibility_state, excluded.required_capabilities);
    ELSE
        DELETE FROM ffx_blocked AS b
        WHERE
            b.partition_key = OLD.partition_key
            AND b.execution_id = OLD.execution_id;
    END IF;
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_keep_blocked() IS
    'Trigger: writes the row of ffx_blocked for an execution that is blocked now, and deletes that of one that is no longer.';

-- object: ff_exec_core blocked triggers
-- Neither fires for a claim, a renewal or the end of what was running.
CREATE TRIGGER ffx_ff_exec_core_keep_blocked_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (
    NEW.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')
    OR OLD.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator')
)
EXECUTE FUNCTION ffx_keep_blocked();

COMMENT ON TRIGGER ffx_ff_exec_core_keep_blocked_trg ON ff_exec_core IS
    'Lists executions that become blocked by route, lane or operator in ffx_blocked, and takes out those that no longer are.';

CREATE TRIGGER ffx_ff_exec_core_drop_blocked_trg
AFTER DELETE ON ff_exec_core
FOR EACH ROW
WHEN (OLD.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator'))
EXECUTE FUNCTION ffx_keep_blocked();

COMMENT ON TRIGGER ffx_ff_exec_core_drop_blocked_trg ON ff_exec_core IS
    'Takes deleted executions out of ffx_blocked.';

-- migrate:down

DROP TRIGGER ffx_ff_exec_core_drop_blocked_trg ON ff_exec_core;
DROP TRIGGER ffx_ff_exec_core_keep_blocked_trg ON ff_exec_core;
DROP FUNCTION ffx_keep_blocked();
DROP TABLE ffx_blocked;
DROP TABLE ffx_pause;
