-- The queue as a table of its own, so that claims and completions leave the indexes of ff_exec_core
-- alone: no index there has a column, in its key or its predicate, that they change. Their updates stay
-- on the row's page (heap-only) and touch no index at all.
--
-- The price: whoever looks for executions by their state needs another way. The queue has ffx_ready,
-- kept by triggers, so that no writer can forget it; delays and deadlines have columns that are set for
-- the few executions that have any; the rest is walked in the order of the primary key.

-- migrate:up

-- object: ffx_ready
-- The claimable executions in claim order: by lane, highest priority, age. ff_exec_core stays the truth:
-- a row here is a hint, and a claim that does not find its execution claimable passes it over.
--
-- The hint of an execution is written and deleted by transactions that hold its row's lock.
CREATE TABLE ffx_ready (
    created_at_ms bigint NOT NULL,
    -- The priority, negated: claim order is ascending throughout. Wider than the priority, whose least
    -- value has no counterpart.
    rank bigint NOT NULL,
    execution_id uuid NOT NULL,
    partition_key smallint NOT NULL,
    lane_id text NOT NULL,
    required_capabilities text[] NOT NULL,
    PRIMARY KEY (lane_id, rank, created_at_ms, execution_id, partition_key)
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);

-- object: ffx_fill_ready
-- Queues the claimable rows of an insert. A hint that is there already was left by a write that no trigger
-- saw; for a whole batch the insert that expects none is tried first, as it takes half the time.
CREATE FUNCTION ffx_fill_ready() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT FROM inserted OFFSET 50) THEN
        BEGIN
            INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities)
            SELECT
                i.lane_id,
                - i.priority::bigint,
                i.created_at_ms,
                i.execution_id,
                i.partition_key,
                i.required_capabilities
            FROM inserted AS i
            WHERE
                i.lifecycle_phase = 'runnable'
                AND i.eligibility_state = 'eligible_now';
            RETURN NULL;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
    INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities)
    SELECT
        i.lane_id,
        - i.priority::bigint,
        i.created_at_ms,
        i.execution_id,
        i.partition_key,
        i.required_capabilities
    FROM inserted AS i
    WHERE
        i.lifecycle_phase = 'runnable'
        AND i.eligibility_state = 'eligible_now'
    ON CONFLICT (lane_id, rank, created_at_ms, execution_id, partition_key) DO UPDATE SET
        required_capabilities = excluded.required_capabilities;
    RETURN NULL;
END;
$$;

-- object: ffx_keep_ready
-- Queues a row that became claimable, and takes one out that is no longer, or stands elsewhere now.
CREATE FUNCTION ffx_keep_ready() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    claimable boolean := TG_OP = 'UPDATE'
        AND (NEW.lifecycle_phase = 'runnable' AND NEW.eligibility_state = 'eligible_now');
BEGIN
    IF
        OLD.lifecycle_phase = 'runnable'
        AND OLD.eligibility_state = 'eligible_now'
        AND (
            NOT claimable
            OR (OLD.lane_id, OLD.priority, OLD.created_at_ms) <> (NEW.lane_id, NEW.priority, NEW.created_at_ms)
        )
    THEN
        DELETE FROM ffx_ready AS r
        WHERE
            r.lane_id = OLD.lane_id
            AND r.rank = - OLD.priority::bigint
            AND r.created_at_ms = OLD.created_at_ms
            AND r.execution_id = OLD.execution_id
            AND r.partition_key = OLD.partition_key;
    END IF;
    IF claimable THEN
        INSERT INTO ffx_ready AS r (
            lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities
        )
        VALUES (
            NEW.lane_id, - NEW.priority::bigint, NEW.created_at_ms, NEW.execution_id, NEW.partition_key,
            NEW.required_capabilities
        )
        ON CONFLICT (lane_id, rank, created_at_ms, execution_id, partition_key) DO UPDATE SET
            required_capabilities = excluded.required_capabilities
        WHERE r.required_capabilities <> excluded.required_capabilities;
    END IF;
    RETURN NULL;
END;
$$;

-- object: ff_exec_core queue triggers
CREATE TRIGGER ffx_ff_exec_core_fill_ready_trg
AFTER INSERT ON ff_exec_core
REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT
EXECUTE FUNCTION ffx_fill_ready();

-- Fires for whatever makes a row claimable or changes one that is, and for what takes one away, save
-- this library's claims: they raise the epoch, and delete the hint themselves. So neither a claim nor a
-- completion calls the function.
CREATE TRIGGER ffx_ff_exec_core_keep_ready_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (
    NEW.eligibility_state = 'eligible_now'
    OR OLD.eligibility_state = 'eligible_now'
    AND (NEW.lifecycle_phase <> 'active' OR NEW.ffx_lease_epoch IS NOT DISTINCT FROM OLD.ffx_lease_epoch)
)
EXECUTE FUNCTION ffx_keep_ready();

CREATE TRIGGER ffx_ff_exec_core_drop_ready_trg
AFTER DELETE ON ff_exec_core
FOR EACH ROW
WHEN (OLD.eligibility_state = 'eligible_now')
EXECUTE FUNCTION ffx_keep_ready();

-- object: ffx_ready rows
-- What is claimable already. After the triggers, so that nothing slips between.
INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities)
SELECT
    e.lane_id,
    - e.priority::bigint,
    e.created_at_ms,
    e.execution_id,
    e.partition_key,
    e.required_capabilities
FROM ff_exec_core AS e
WHERE
    e.lifecycle_phase = 'runnable'
    AND e.eligibility_state = 'eligible_now'
ON CONFLICT DO NOTHING;

-- object: ff_exec_core indexes of the queue and of states
DROP INDEX
    ffx_ff_exec_core_claim_idx,
    ffx_ff_exec_core_granted_idx,
    ffx_ff_exec_core_route_idx,
    ffx_ff_exec_core_adopt_phase_idx,
    ffx_ff_exec_core_adopt_public_state_idx,
    ffx_ff_exec_core_retention_idx;

-- object: ffx_ff_exec_core_promotion_idx by delay
-- Delayed executions by the time they are due. A claim or promotion clears the column; what is left in a
-- row that is not delayed, the promotion clears when it meets it.
DROP INDEX ffx_ff_exec_core_promotion_idx;

CREATE INDEX ffx_ff_exec_core_promotion_idx ON ff_exec_core (ffx_delay_until_ms)
WHERE ffx_delay_until_ms IS NOT NULL;

-- object: ffx_ff_exec_core_execution_deadline_idx by its sign
-- Deadlines of this library's rows. The end of an execution negates its deadline, so that a finished row
-- is not met again.
DROP INDEX ffx_ff_exec_core_execution_deadline_idx;

CREATE INDEX ffx_ff_exec_core_execution_deadline_idx ON ff_exec_core (ffx_execution_deadline_ms)
WHERE ffx_execution_deadline_ms > 0;

-- object: ffx_ff_exec_core_deadline_idx of every phase
-- Deadlines of rows only the reference wrote. One that is finished gets a negated deadline of this
-- library's when the scan meets it.
DROP INDEX ffx_ff_exec_core_deadline_idx;

CREATE INDEX ffx_ff_exec_core_deadline_idx ON ff_exec_core (deadline_at_ms)
WHERE deadline_at_ms IS NOT NULL AND ffx_execution_deadline_ms IS NULL;

-- object: finished deadlines
UPDATE ff_exec_core
SET ffx_execution_deadline_ms = -ffx_execution_deadline_ms
WHERE
    ffx_execution_deadline_ms > 0
    AND lifecycle_phase IN ('terminal', 'cancelled');

-- object: ff_exec_core fillfactor
-- A row is updated twice in its life, by neighbours of the same batch: each page keeps room for that.
-- The tables of a database that the reference made stay as they are: its own indexes make every update a
-- cold one.
DO $$
BEGIN
    IF (SELECT c.reloptions @> '{fillfactor=80}' FROM pg_class AS c WHERE c.oid = 'ff_exec_core'::regclass) THEN
        ALTER TABLE ff_exec_core SET (fillfactor = 45);
    END IF;
END;
$$;

-- migrate:down

ALTER TABLE ff_exec_core SET (fillfactor = 80);

DROP TRIGGER ffx_ff_exec_core_drop_ready_trg ON ff_exec_core;

DROP TRIGGER ffx_ff_exec_core_keep_ready_trg ON ff_exec_core;

DROP TRIGGER ffx_ff_exec_core_fill_ready_trg ON ff_exec_core;

DROP FUNCTION ffx_keep_ready();

DROP FUNCTION ffx_fill_ready();

DROP TABLE ffx_ready;

UPDATE ff_exec_core
SET ffx_execution_deadline_ms = -ffx_execution_deadline_ms
WHERE ffx_execution_deadline_ms < 0;

DROP INDEX ffx_ff_exec_core_deadline_idx;

CREATE INDEX ffx_ff_exec_core_deadline_idx ON ff_exec_core (deadline_at_ms)
WHERE
    deadline_at_ms IS NOT NULL
    AND ffx_execution_deadline_ms IS NULL
    AND lifecycle_phase NOT IN ('terminal', 'cancelled');

DROP INDEX ffx_ff_exec_core_execution_deadline_idx;

CREATE INDEX ffx_ff_exec_core_execution_deadline_idx ON ff_exec_core (ffx_execution_deadline_ms)
WHERE ffx_execution_deadline_ms > 0 AND lifecycle_phase NOT IN ('terminal', 'cancelled');

DROP INDEX ffx_ff_exec_core_promotion_idx;

CREATE INDEX ffx_ff_exec_core_promotion_idx ON ff_exec_core (deadline_at_ms)
WHERE eligibility_state = 'not_eligible_until_time';

CREATE INDEX ffx_ff_exec_core_retention_idx ON ff_exec_core (terminal_at_ms, execution_id)
WHERE terminal_at_ms IS NOT NULL;

CREATE INDEX ffx_ff_exec_core_adopt_public_state_idx ON ff_exec_core (terminal_at_ms)
WHERE
    lifecycle_phase IN ('terminal', 'cancelled')
    AND public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped');

CREATE INDEX ffx_ff_exec_core_adopt_phase_idx ON ff_exec_core (created_at_ms)
WHERE lifecycle_phase NOT IN ('runnable', 'active', 'suspended', 'terminal', 'cancelled');

CREATE INDEX ffx_ff_exec_core_route_idx ON ff_exec_core (lane_id)
WHERE eligibility_state = 'blocked_by_route';

CREATE INDEX ffx_ff_exec_core_granted_idx ON ff_exec_core (execution_id)
WHERE eligibility_state = 'pending_claim';

CREATE INDEX ffx_ff_exec_core_claim_idx ON ff_exec_core (lane_id, priority DESC, created_at_ms, execution_id)
WHERE lifecycle_phase = 'runnable' AND eligibility_state = 'eligible_now';
