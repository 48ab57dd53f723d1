-- A worker claims only what it has handlers for: the kind stands in the queue, where a claim tests it before
-- it looks at the execution.

-- migrate:up

-- object: ffx_ready.kind
-- NULL: not noted, by an engine that does not know the column or by a row older than it. The execution's row
-- says it then, and the sweep notes it; the rows are left as they are here, so that nobody waits for them.
ALTER TABLE ffx_ready ADD COLUMN kind text;

-- object: ffx_fill_ready with kinds
CREATE OR REPLACE FUNCTION ffx_fill_ready() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT FROM inserted OFFSET 50) THEN
        BEGIN
            INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
            SELECT
                i.lane_id,
                - i.priority::bigint,
                i.created_at_ms,
                i.execution_id,
                i.partition_key,
                i.required_capabilities,
                coalesce(i.raw_fields ->> 'execution_kind', '')
            FROM inserted AS i
            WHERE
                i.lifecycle_phase = 'runnable'
                AND i.eligibility_state = 'eligible_now';
            RETURN NULL;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
    INSERT INTO ffx_ready (lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind)
    SELECT
        i.lane_id,
        - i.priority::bigint,
        i.created_at_ms,
        i.execution_id,
        i.partition_key,
        i.required_capabilities,
        coalesce(i.raw_fields ->> 'execution_kind', '')
    FROM inserted AS i
    WHERE
        i.lifecycle_phase = 'runnable'
        AND i.eligibility_state = 'eligible_now'
    ON CONFLICT (lane_id, rank, created_at_ms, execution_id, partition_key) DO UPDATE SET
        required_capabilities = excluded.required_capabilities,
        kind = excluded.kind;
    RETURN NULL;
END;
$$;

-- object: ffx_keep_ready with kinds
CREATE OR REPLACE FUNCTION ffx_keep_ready() RETURNS trigger
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
            lane_id, rank, created_at_ms, execution_id, partition_key, required_capabilities, kind
        )
        VALUES (
            NEW.lane_id, - NEW.priority::bigint, NEW.created_at_ms, NEW.execution_id, NEW.partition_key,
            NEW.required_capabilities, coalesce(NEW.raw_fields ->> 'execution_kind', '')
        )
        ON CONFLICT (lane_id, rank, created_at_ms, execution_id, partition_key) DO UPDATE SET
            required_capabilities = excluded.required_capabilities,
            kind = excluded.kind
        WHERE
            r.required_capabilities <> excluded.required_capabilities
            OR r.kind IS DISTINCT FROM excluded.kind;
    END IF;
    RETURN NULL;
END;
$$;

-- migrate:down

CREATE OR REPLACE FUNCTION ffx_keep_ready() RETURNS trigger
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

CREATE OR REPLACE FUNCTION ffx_fill_ready() RETURNS trigger
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

ALTER TABLE ffx_ready DROP COLUMN kind;
