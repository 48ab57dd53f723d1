-- Leases are watched from outside their rows, so that no index of ff_attempt has a column that renewals or
-- the ends of plain work change: both stay on the row's page (heap-only) and touch no index at all.

-- migrate:up

-- object: ffx_lease_watch
-- When to look at leases: a row for each claim, however many leases it took. Whoever looks at a row that
-- is due deletes it, forgets the leases that were given back, and writes a row for those that were renewed.
--
-- An attempt with a lease is in at least one row, due when the lease runs out or before.
CREATE TABLE ffx_lease_watch (
    due_at_ms bigint NOT NULL,
    watch_id uuid NOT NULL,
    partition_keys smallint[] NOT NULL,
    execution_ids uuid[] NOT NULL,
    attempt_indexes integer[] NOT NULL,
    PRIMARY KEY (due_at_ms, watch_id)
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);

-- Identifiers do not compress.
ALTER TABLE ffx_lease_watch ALTER COLUMN execution_ids SET STORAGE EXTERNAL;

-- object: ffx_watch_lease
-- Watches a lease that was not taken by this library.
CREATE FUNCTION ffx_watch_lease() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO ffx_lease_watch (due_at_ms, watch_id, partition_keys, execution_ids, attempt_indexes)
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

-- object: ff_attempt watch triggers
-- This library's claims write the watch themselves. They give each lease an id of its own, in a column that
-- other programs do not know.
CREATE TRIGGER ffx_ff_attempt_watch_new_trg
AFTER INSERT ON ff_attempt
FOR EACH ROW
WHEN (NEW.lease_expires_at_ms IS NOT NULL AND NEW.ffx_lease_id IS NULL)
EXECUTE FUNCTION ffx_watch_lease();

CREATE TRIGGER ffx_ff_attempt_watch_trg
AFTER UPDATE OF lease_expires_at_ms ON ff_attempt
FOR EACH ROW
WHEN (
    NEW.lease_expires_at_ms IS NOT NULL
    AND (OLD.lease_expires_at_ms IS NULL OR NEW.lease_expires_at_ms < OLD.lease_expires_at_ms)
    AND NEW.ffx_lease_id IS NOT DISTINCT FROM OLD.ffx_lease_id
)
EXECUTE FUNCTION ffx_watch_lease();

-- object: ffx_lease_watch rows
-- The leases held already. After the triggers, so that nothing slips between.
INSERT INTO ffx_lease_watch (due_at_ms, watch_id, partition_keys, execution_ids, attempt_indexes)
SELECT
    a.lease_expires_at_ms,
    gen_random_uuid(),
    ARRAY[a.partition_key],
    ARRAY[a.execution_id],
    ARRAY[a.attempt_index]
FROM ff_attempt AS a
WHERE a.lease_expires_at_ms IS NOT NULL;

-- object: finished timeouts
UPDATE ff_attempt
SET ffx_timeout_at_ms = NULL
WHERE
    ffx_timeout_at_ms IS NOT NULL
    AND lease_expires_at_ms IS NULL;

-- object: ffx_ff_attempt_lease_idx replaced
DROP INDEX ffx_ff_attempt_lease_idx;

-- object: ffx_ff_attempt_timeout_idx whether leased or not
-- Running attempts by timeout. Whatever takes the lease away clears it; what another program leaves, the
-- scan clears when it meets it.
DROP INDEX ffx_ff_attempt_timeout_idx;

CREATE INDEX ffx_ff_attempt_timeout_idx ON ff_attempt (ffx_timeout_at_ms)
WHERE ffx_timeout_at_ms IS NOT NULL;

-- object: ff_attempt fillfactor
-- Most rows are updated once, with the others of their batch: each page keeps room for that. The tables of a
-- database that the reference made stay as they are: its own indexes make every update a cold one.
DO $$
BEGIN
    IF (SELECT c.reloptions @> '{fillfactor=80}' FROM pg_class AS c WHERE c.oid = 'ff_attempt'::regclass) THEN
        ALTER TABLE ff_attempt SET (fillfactor = 50);
    END IF;
END;
$$;

-- migrate:down

ALTER TABLE ff_attempt SET (fillfactor = 80);

DROP INDEX ffx_ff_attempt_timeout_idx;

CREATE INDEX ffx_ff_attempt_timeout_idx ON ff_attempt (ffx_timeout_at_ms)
WHERE ffx_timeout_at_ms IS NOT NULL AND lease_expires_at_ms IS NOT NULL;

CREATE INDEX ffx_ff_attempt_lease_idx ON ff_attempt (lease_expires_at_ms, execution_id)
WHERE lease_expires_at_ms IS NOT NULL;

DROP TRIGGER ffx_ff_attempt_watch_trg ON ff_attempt;

DROP TRIGGER ffx_ff_attempt_watch_new_trg ON ff_attempt;

DROP FUNCTION ffx_watch_lease();

DROP TABLE ffx_lease_watch;
