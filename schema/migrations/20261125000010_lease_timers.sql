-- Lease timers are outside the rows of the leases, so that no index of ff_attempt has a column that renewals or the
-- ends of plain work change. Both stay on the row's page (heap-only) and touch no index.
--
-- usable-from: 20261125000001

-- migrate:up

-- A row for each claim, however many leases it took. The job that looks at a due timer deletes it, forgets the leases
-- that were given back, and writes a timer for those that were renewed. An attempt with a lease is in at least one row,
-- due when the lease runs out or before.
CREATE TABLE ffx_lease_timer (
    due_at_ms bigint NOT NULL,
    timer_id uuid NOT NULL,
    partition_keys smallint[] NOT NULL,
    execution_ids uuid[] NOT NULL,
    attempt_indexes integer[] NOT NULL,
    PRIMARY KEY (due_at_ms, timer_id)
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);

-- Identifiers do not compress.
ALTER TABLE ffx_lease_timer ALTER COLUMN execution_ids SET STORAGE EXTERNAL;

COMMENT ON TABLE ffx_lease_timer IS
    'Lease timers: when to look at the leases of one claim. One that was renewed gets a later timer, one that was given back is forgotten.';
COMMENT ON COLUMN ffx_lease_timer.due_at_ms IS
    'Milliseconds since the Unix epoch: when to look.';
COMMENT ON COLUMN ffx_lease_timer.timer_id IS
    'Id of the timer.';
COMMENT ON COLUMN ffx_lease_timer.partition_keys IS
    'Of each attempt of the claim its partition_key; the three arrays go together by position.';
COMMENT ON COLUMN ffx_lease_timer.execution_ids IS
    'Of each its execution_id.';
COMMENT ON COLUMN ffx_lease_timer.attempt_indexes IS
    'Of each its attempt_index.';

-- For leases that another program took.
CREATE FUNCTION ffx_set_lease_timer() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO ffx_lease_timer (due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes)
    VALUES (
        NEW.lease_expires_at_ms,
        gen_random_uuid(),
        ARRAY[NEW.partition_key],
        ARRAY[NEW.execution_id],
        ARRAY[NEW.attempt_index]
    );
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_set_lease_timer() IS
    'Trigger: sets a lease timer for one attempt.';

-- The claims of this library write their timers themselves. They give each lease an id of its own, in a column that
-- other programs do not know.
CREATE TRIGGER ffx_ff_attempt_lease_timer_new_trg
AFTER INSERT ON ff_attempt
FOR EACH ROW
WHEN (NEW.lease_expires_at_ms IS NOT NULL AND NEW.ffx_lease_id IS NULL)
EXECUTE FUNCTION ffx_set_lease_timer();

COMMENT ON TRIGGER ffx_ff_attempt_lease_timer_new_trg ON ff_attempt IS
    'Sets a lease timer for an attempt that another program inserts with a lease; the claims of this library set theirs themselves.';

CREATE TRIGGER ffx_ff_attempt_lease_timer_trg
AFTER UPDATE OF lease_expires_at_ms ON ff_attempt
FOR EACH ROW
WHEN (
    NEW.lease_expires_at_ms IS NOT NULL
    AND (OLD.lease_expires_at_ms IS NULL OR NEW.lease_expires_at_ms < OLD.lease_expires_at_ms)
    AND NEW.ffx_lease_id IS NOT DISTINCT FROM OLD.ffx_lease_id
)
EXECUTE FUNCTION ffx_set_lease_timer();

COMMENT ON TRIGGER ffx_ff_attempt_lease_timer_trg ON ff_attempt IS
    'Sets a lease timer when another program gives an attempt a lease or shortens it.';

-- Running attempts by timeout. Every write that takes the lease away clears the column. The job clears what another
-- program leaves.
CREATE INDEX ffx_ff_attempt_timeout_idx ON ff_attempt (ffx_timeout_at_ms)
WHERE ffx_timeout_at_ms IS NOT NULL;

-- migrate:down

DROP INDEX ffx_ff_attempt_timeout_idx;

DROP TRIGGER ffx_ff_attempt_lease_timer_trg ON ff_attempt;

DROP TRIGGER ffx_ff_attempt_lease_timer_new_trg ON ff_attempt;

DROP FUNCTION ffx_set_lease_timer();

DROP TABLE ffx_lease_timer;
