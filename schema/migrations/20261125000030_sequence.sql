-- Sequences: executions with a common key run one at a time, in order of creation. The statement that ends one lets the
-- next one run. Only executions of sequences fire the trigger's function.
--
-- usable-from: 20261125000001

-- migrate:up

ALTER TABLE ff_exec_core
    ADD COLUMN ffx_sequence uuid;

COMMENT ON COLUMN ff_exec_core.ffx_sequence IS
    'The sequence that the execution belongs to: ffx_sequence.sequence_id; NULL: none. Never changed after the creation.';

CREATE TABLE ffx_sequence (
    partition_key smallint NOT NULL,
    sequence_id uuid NOT NULL,
    namespace text NOT NULL,
    key text NOT NULL,
    last_place bigint NOT NULL,
    stopped_at_ms bigint,
    stopped_partition_key smallint,
    stopped_execution_id uuid,
    PRIMARY KEY (partition_key, sequence_id)
)
WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_sequence IS
    'Sequences that have members. The lock of its row protects places and turns; the end of a member never waits for it.';
COMMENT ON COLUMN ffx_sequence.partition_key IS
    'Logical shard of the sequence, 0 to 255: the first byte of its id.';
COMMENT ON COLUMN ffx_sequence.sequence_id IS
    'The first 16 bytes of SHA-256 over the namespace, a zero byte and the key, in UTF-8.';
COMMENT ON COLUMN ffx_sequence.namespace IS
    'Namespace of the sequence and of its executions.';
COMMENT ON COLUMN ffx_sequence.key IS
    'Key of the sequence, 1 to 512 bytes.';
COMMENT ON COLUMN ffx_sequence.last_place IS
    'The last place that was given to a member, from 1.';
COMMENT ON COLUMN ffx_sequence.stopped_at_ms IS
    'Milliseconds since the Unix epoch: when the sequence stopped at its first member, which had failed; NULL: it goes on.';
COMMENT ON COLUMN ffx_sequence.stopped_partition_key IS
    'Partition of the execution that it stopped at, 0 to 255; NULL: it goes on.';
COMMENT ON COLUMN ffx_sequence.stopped_execution_id IS
    'The execution that it stopped at, the uuid half of its id; NULL: it goes on.';

CREATE TABLE ffx_sequence_member (
    partition_key smallint NOT NULL,
    sequence_id uuid NOT NULL,
    place bigint NOT NULL,
    execution_partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    skips boolean NOT NULL,
    turn_at_ms bigint,
    PRIMARY KEY (partition_key, sequence_id, place)
)
WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

CREATE INDEX ffx_sequence_member_execution_idx ON ffx_sequence_member (partition_key, sequence_id, execution_id);

COMMENT ON TABLE ffx_sequence_member IS
    'Places of executions in sequences. The end of an execution deletes its row, unless the sequence may stop at it.';
COMMENT ON COLUMN ffx_sequence_member.partition_key IS
    'Logical shard of the sequence, 0 to 255.';
COMMENT ON COLUMN ffx_sequence_member.sequence_id IS
    'The sequence.';
COMMENT ON COLUMN ffx_sequence_member.place IS
    'Place in the sequence, from 1; places of members that have ended are left out.';
COMMENT ON COLUMN ffx_sequence_member.execution_partition_key IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_sequence_member.execution_id IS
    'The execution, the uuid half of its id.';
COMMENT ON COLUMN ffx_sequence_member.skips IS
    'true: the sequence goes on if it fails; false: it stops at it.';
COMMENT ON COLUMN ffx_sequence_member.turn_at_ms IS
    'Milliseconds since the Unix epoch: when it got its turn; NULL: it waits for those before it.';

CREATE TABLE ffx_sequence_end (
    id bigint GENERATED ALWAYS AS IDENTITY,
    partition_key smallint NOT NULL,
    sequence_id uuid NOT NULL,
    PRIMARY KEY (id, partition_key)
);

COMMENT ON TABLE ffx_sequence_end IS
    'Ends after which the next member could not get its turn, because another transaction held its row or that of the sequence. A row is deleted once the sequence was looked at.';
COMMENT ON COLUMN ffx_sequence_end.id IS
    'Place in the order in which the ends were written.';
COMMENT ON COLUMN ffx_sequence_end.partition_key IS
    'Logical shard of the sequence, 0 to 255.';
COMMENT ON COLUMN ffx_sequence_end.sequence_id IS
    'The sequence.';

-- The caller holds the locks of the sequence and of the execution, which has not ended.
CREATE FUNCTION ffx_give_turn(
    of_partition smallint, of_sequence uuid, of_place bigint, in_partition smallint, execution uuid, at_ms bigint
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    e record;
BEGIN
    UPDATE ffx_sequence_member AS n
    SET turn_at_ms = at_ms
    WHERE
        n.partition_key = of_partition
        AND n.sequence_id = of_sequence
        AND n.place = of_place;
    UPDATE ff_exec_core AS x
    SET
        eligibility_state = CASE
            WHEN x.ffx_delay_until_ms > at_ms THEN 'not_eligible_until_time'
            WHEN x.ffx_admitted OR (x.ffx_budget_ids IS NULL AND x.ffx_limit_ids IS NULL) THEN 'eligible_now'
            WHEN x.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN x.ffx_delay_until_ms > at_ms THEN 'delayed'
            WHEN x.ffx_admitted OR (x.ffx_budget_ids IS NULL AND x.ffx_limit_ids IS NULL) THEN 'waiting'
            ELSE 'rate_limited'
        END,
        blocking_reason = CASE
            WHEN x.ffx_delay_until_ms > at_ms THEN 'waiting_for_delay'
            WHEN x.ffx_admitted OR (x.ffx_budget_ids IS NULL AND x.ffx_limit_ids IS NULL) THEN 'waiting_for_worker'
            WHEN x.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        ffx_gate_id = CASE
            WHEN (x.ffx_delay_until_ms > at_ms) IS NOT TRUE AND x.ffx_admitted IS NOT TRUE
                THEN coalesce(x.ffx_budget_ids[1], x.ffx_limit_ids[1])
        END,
        deadline_at_ms = CASE
            WHEN x.ffx_delay_until_ms > at_ms
                THEN least(x.ffx_delay_until_ms, CASE WHEN x.ffx_execution_deadline_ms > 0 THEN x.ffx_execution_deadline_ms END)
            ELSE x.deadline_at_ms
        END,
        ffx_delay_until_ms = CASE WHEN x.ffx_delay_until_ms > at_ms THEN x.ffx_delay_until_ms END,
        ffx_last_mutation_at_ms = at_ms
    WHERE
        x.partition_key = in_partition
        AND x.execution_id = execution
        AND x.lifecycle_phase = 'runnable'
        AND x.eligibility_state = 'blocked_by_dependencies'
    RETURNING
        x.lane_id,
        x.eligibility_state,
        x.ffx_gate_id
    INTO e;
    -- Older than what has been claimed since it was created, so the scan positions of workers hide it. A transaction that
    -- defers its notifications sends them after its commit.
    IF FOUND AND current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on' THEN
        IF e.ffx_gate_id IS NOT NULL THEN
            PERFORM pg_notify('ffx_gate', 'changed');
        ELSIF e.eligibility_state = 'eligible_now' THEN
            PERFORM pg_notify('ffx_resumed', e.lane_id);
        END IF;
    END IF;
END;
$$;

COMMENT ON FUNCTION ffx_give_turn(
    of_partition smallint, of_sequence uuid, of_place bigint, in_partition smallint, execution uuid, at_ms bigint
) IS 'Gives a member of a sequence its turn, and wakes workers, for ffx_advance_sequence.';

-- Members that have ended, or were deleted, are passed over. It waits for no lock: an end holds the lock of its own
-- execution, and must not wait for another one.
--
-- Whatever the order, one of two transactions sees what the other did, or leaves a note: each changes a member or adds
-- one, then asks for the lock of the sequence, and holds it until it commits.
CREATE FUNCTION ffx_advance_sequence(of_partition smallint, of_sequence uuid, at_ms bigint) RETURNS boolean
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    s record; -- the sequence
    m record; -- its first member
    e record; -- the execution of that
    locked boolean := false;
BEGIN
    SELECT q.stopped_at_ms
    INTO s
    FROM ffx_sequence AS q
    WHERE
        q.partition_key = of_partition
        AND q.sequence_id = of_sequence
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NOT EXISTS (
            SELECT
            FROM ffx_sequence AS q
            WHERE
                q.partition_key = of_partition
                AND q.sequence_id = of_sequence
        );
    ELSIF s.stopped_at_ms IS NOT NULL THEN
        RETURN true;
    END IF;
    LOOP
        SELECT n.place, n.execution_partition_key, n.execution_id, n.skips, n.turn_at_ms
        INTO m
        FROM ffx_sequence_member AS n
        WHERE
            n.partition_key = of_partition
            AND n.sequence_id = of_sequence
        ORDER BY n.place
        LIMIT 1;
        IF NOT FOUND THEN
            DELETE FROM ffx_sequence AS q
            WHERE
                q.partition_key = of_partition
                AND q.sequence_id = of_sequence;
            RETURN true;
        END IF;
        SELECT
            x.lifecycle_phase IN ('terminal', 'cancelled') AS ended,
            x.public_state IN ('failed', 'expired') AS failed
        INTO e
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = m.execution_partition_key
            AND x.execution_id = m.execution_id;
        IF FOUND AND e.ended AND e.failed AND NOT m.skips THEN
            UPDATE ffx_sequence AS q
            SET
                stopped_at_ms = at_ms,
                stopped_partition_key = m.execution_partition_key,
                stopped_execution_id = m.execution_id
            WHERE
                q.partition_key = of_partition
                AND q.sequence_id = of_sequence;
            RETURN true;
        ELSIF NOT FOUND OR e.ended THEN
            DELETE FROM ffx_sequence_member AS n
            WHERE
                n.partition_key = of_partition
                AND n.sequence_id = of_sequence
                AND n.place = m.place;
            locked := false;
        ELSIF m.turn_at_ms IS NOT NULL THEN
            RETURN true;
        ELSIF NOT locked THEN
            -- Then looked at again: it may have ended meanwhile.
            PERFORM
            FROM ff_exec_core AS x
            WHERE
                x.partition_key = m.execution_partition_key
                AND x.execution_id = m.execution_id
            FOR NO KEY UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                RETURN false;
            END IF;
            locked := true;
        ELSE
            EXIT;
        END IF;
    END LOOP;
    PERFORM ffx_give_turn(of_partition, of_sequence, m.place, m.execution_partition_key, m.execution_id, at_ms);
    RETURN true;
END;
$$;

COMMENT ON FUNCTION ffx_advance_sequence(of_partition smallint, of_sequence uuid, at_ms bigint) IS
    'Gives the first member of a sequence its turn, or stops the sequence at a failed one; deletes a sequence without members. false: another transaction holds a row that it needs, so it has to be called again. The library calls it, and so do the triggers of ends and deletions.';

-- A snapshot taken at the beginning of the transaction could miss what others have committed since, so at a stricter level
-- of isolation the background work looks at the sequence.
CREATE FUNCTION ffx_advance_or_note(of_partition smallint, of_sequence uuid, at_ms bigint) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' AND ffx_advance_sequence(of_partition, of_sequence, at_ms) THEN
        RETURN;
    END IF;
    INSERT INTO ffx_sequence_end (partition_key, sequence_id)
    VALUES (of_partition, of_sequence);
END;
$$;

COMMENT ON FUNCTION ffx_advance_or_note(of_partition smallint, of_sequence uuid, at_ms bigint) IS
    'Advances a sequence after a change, or notes in ffx_sequence_end that this is left to do.';

CREATE FUNCTION ffx_leave_sequence(of_sequence uuid, execution uuid, failed boolean, at_ms bigint) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    of_partition smallint := get_byte(uuid_send(of_sequence), 0)::smallint;
BEGIN
    DELETE FROM ffx_sequence_member AS n
    WHERE
        n.partition_key = of_partition
        AND n.sequence_id = of_sequence
        AND n.execution_id = execution
        AND (NOT failed OR n.skips);
    PERFORM ffx_advance_or_note(of_partition, of_sequence, at_ms);
END;
$$;

COMMENT ON FUNCTION ffx_leave_sequence(of_sequence uuid, execution uuid, failed boolean, at_ms bigint) IS
    'Takes an ended execution out of its sequence, unless the sequence has to stop at it, and lets the next one run.';

DROP TRIGGER ffx_ff_exec_core_call_end_trg ON ff_exec_core;

DROP FUNCTION ffx_note_call_end();

CREATE FUNCTION ffx_note_end() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NEW.lifecycle_phase IN ('terminal', 'cancelled') AND OLD.lifecycle_phase NOT IN ('terminal', 'cancelled') THEN
        IF NEW.ffx_caller IS NOT NULL THEN
            INSERT INTO ffx_call_end (partition_key, execution_id, step)
            VALUES (
                (NEW.ffx_caller ->> 'partition_key')::smallint, (NEW.ffx_caller ->> 'execution_id')::uuid, NEW.ffx_caller ->> 'step'
            );
        END IF;
        IF NEW.ffx_sequence IS NOT NULL THEN
            PERFORM ffx_leave_sequence(
                NEW.ffx_sequence, NEW.execution_id, NEW.public_state IN ('failed', 'expired'),
                coalesce(NEW.ffx_last_mutation_at_ms, ffx_now_ms(NULL))
            );
        END IF;
    END IF;
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_note_end() IS
    'Trigger: notes the end of a called execution for its caller, and lets the next member of its sequence run.';

-- Each statement that updates ff_exec_core parses the condition anew, so there is one trigger with a short condition.
CREATE TRIGGER ffx_ff_exec_core_end_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (NEW.ffx_caller IS NOT NULL OR NEW.ffx_sequence IS NOT NULL)
EXECUTE FUNCTION ffx_note_end();

COMMENT ON TRIGGER ffx_ff_exec_core_end_trg ON ff_exec_core IS
    'Notes the end of a called execution in ffx_call_end, and lets the next member of a sequence run, however an execution ends. Other executions do not fire it.';

-- Retention deletes members that have ended, and so have no place any more, except for one that the sequence stopped at:
-- the sequence stays stopped.
CREATE FUNCTION ffx_drop_member() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    of_partition smallint := get_byte(uuid_send(OLD.ffx_sequence), 0)::smallint;
BEGIN
    DELETE FROM ffx_sequence_member AS n
    WHERE
        n.partition_key = of_partition
        AND n.sequence_id = OLD.ffx_sequence
        AND n.execution_id = OLD.execution_id
        AND NOT EXISTS (
            SELECT
            FROM ffx_sequence AS q
            WHERE
                q.partition_key = of_partition
                AND q.sequence_id = OLD.ffx_sequence
                AND q.stopped_execution_id = OLD.execution_id
        );
    IF FOUND THEN
        PERFORM ffx_advance_or_note(of_partition, OLD.ffx_sequence, ffx_now_ms(NULL));
    END IF;
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_drop_member() IS
    'Trigger: takes a deleted execution out of its sequence.';

CREATE TRIGGER ffx_ff_exec_core_drop_member_trg
AFTER DELETE ON ff_exec_core
FOR EACH ROW
WHEN (OLD.ffx_sequence IS NOT NULL)
EXECUTE FUNCTION ffx_drop_member();

COMMENT ON TRIGGER ffx_ff_exec_core_drop_member_trg ON ff_exec_core IS
    'Takes a deleted execution out of its sequence, so that the others do not wait for it.';

-- migrate:down

DROP TRIGGER ffx_ff_exec_core_drop_member_trg ON ff_exec_core;

DROP FUNCTION ffx_drop_member();

DROP TRIGGER ffx_ff_exec_core_end_trg ON ff_exec_core;

DROP FUNCTION ffx_note_end();

CREATE FUNCTION ffx_note_call_end() RETURNS trigger
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    IF NEW.lifecycle_phase IN ('terminal', 'cancelled') AND OLD.lifecycle_phase NOT IN ('terminal', 'cancelled') THEN
        INSERT INTO ffx_call_end (partition_key, execution_id, step)
        VALUES (
            (NEW.ffx_caller ->> 'partition_key')::smallint, (NEW.ffx_caller ->> 'execution_id')::uuid, NEW.ffx_caller ->> 'step'
        );
    END IF;
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_note_call_end() IS
    'Trigger: notes the end of a called execution for its caller.';

CREATE TRIGGER ffx_ff_exec_core_call_end_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (NEW.ffx_caller IS NOT NULL)
EXECUTE FUNCTION ffx_note_call_end();

COMMENT ON TRIGGER ffx_ff_exec_core_call_end_trg ON ff_exec_core IS
    'Notes the end of a called execution in ffx_call_end, however it ends. Executions that nothing has called do not fire it.';

DROP FUNCTION ffx_leave_sequence(uuid, uuid, boolean, bigint);

DROP FUNCTION ffx_advance_or_note(smallint, uuid, bigint);

DROP FUNCTION ffx_advance_sequence(smallint, uuid, bigint);

DROP FUNCTION ffx_give_turn(smallint, uuid, bigint, smallint, uuid, bigint);

DROP TABLE ffx_sequence_end;

DROP TABLE ffx_sequence_member;

DROP TABLE ffx_sequence;

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_sequence;
