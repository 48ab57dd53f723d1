-- Calls: executions that a handler creates in a step, and waits for without a worker.
--
-- usable-from: 20261125000001

-- migrate:up

ALTER TABLE ff_exec_core
    ADD COLUMN ffx_caller jsonb;

COMMENT ON COLUMN ff_exec_core.ffx_caller IS
    'The call that created the execution: an object with partition_key and execution_id of its caller, and step; NULL: none. Never changed.';

ALTER TABLE ffx_step
    ADD COLUMN called_partition_keys smallint[],
    ADD COLUMN called_execution_ids uuid[];

COMMENT ON TABLE ffx_step IS
    'Steps of executions. Written by the holder of the newest lease alone. A finished step is never changed, except that a replay may ask again for the outcome of a failed call.';
COMMENT ON COLUMN ffx_step.outcome IS
    'success; slept: a pause; signal, timeout: the end of a wait; called: its executions exist, and their results are not stored yet; failure: they have not all succeeded, and the result names those that did not, as JSON.';
COMMENT ON COLUMN ffx_step.called_partition_keys IS
    'Partitions of the executions that the step has called, 0 to 255 each; NULL: it is no call.';
COMMENT ON COLUMN ffx_step.called_execution_ids IS
    'The executions that the step has called, in the order of its inputs; NULL: it is no call.';

CREATE TABLE ffx_call_end (
    id bigint GENERATED ALWAYS AS IDENTITY,
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    step text NOT NULL,
    PRIMARY KEY (id, partition_key)
);

COMMENT ON TABLE ffx_call_end IS
    'Ends of called executions that their callers may wait for. A row is deleted once its caller was looked at.';
COMMENT ON COLUMN ffx_call_end.id IS
    'Place in the order in which the ends were written.';
COMMENT ON COLUMN ffx_call_end.partition_key IS
    'Partition of the caller, 0 to 255.';
COMMENT ON COLUMN ffx_call_end.execution_id IS
    'The caller.';
COMMENT ON COLUMN ffx_call_end.step IS
    'Name of the caller''s step.';

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

-- Each statement that updates ff_exec_core parses the condition anew, so it is as short as can be.
CREATE TRIGGER ffx_ff_exec_core_call_end_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (NEW.ffx_caller IS NOT NULL)
EXECUTE FUNCTION ffx_note_call_end();

COMMENT ON TRIGGER ffx_ff_exec_core_call_end_trg ON ff_exec_core IS
    'Notes the end of a called execution in ffx_call_end, however it ends. Executions that nothing has called do not fire it.';

-- The caller holds the lock of the execution. The lock of an execution is held while its wait is stored, too: so a call
-- whose end was noted before is seen here, and the note of one that ends later is read after the wait is stored.
CREATE FUNCTION ffx_resume_caller(partition smallint, execution uuid, called text, at_ms bigint) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    s record;
BEGIN
    SELECT t.called_partition_keys, t.called_execution_ids
    INTO s
    FROM ffx_step AS t
    WHERE
        t.partition_key = partition
        AND t.execution_id = execution
        AND t.name = called
        AND t.outcome = 'called';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM
    FROM ff_exec_core AS e
    JOIN ff_suspension_current AS c
        ON c.partition_key = partition
        AND c.execution_id = execution
    WHERE
        e.partition_key = partition
        AND e.execution_id = execution
        AND e.lifecycle_phase = 'suspended'
        AND c.ffx_continuation_pointer = 'ffx_call:' || called;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- The last one first: it is likely to be the last to end.
    FOR i IN REVERSE cardinality(s.called_execution_ids)..1 LOOP
        PERFORM
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = s.called_partition_keys[i]
            AND e.execution_id = s.called_execution_ids[i]
            AND e.lifecycle_phase NOT IN ('terminal', 'cancelled');
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END LOOP;
    RETURN coalesce(ffx_resume(partition, execution, NULL, '[]', 'resumable', 0, at_ms), '');
END;
$$;

COMMENT ON FUNCTION ffx_resume_caller(partition smallint, execution uuid, called text, at_ms bigint) IS
    'Lets a caller continue that waits for a call if all called executions have ended. Returns its lane, or an empty text if a worker can''t claim it yet; NULL: it goes on waiting, or does something else.';

-- migrate:down

DROP FUNCTION ffx_resume_caller(smallint, uuid, text, bigint);

DROP TRIGGER ffx_ff_exec_core_call_end_trg ON ff_exec_core;

DROP FUNCTION ffx_note_call_end();

DROP TABLE ffx_call_end;

COMMENT ON TABLE ffx_step IS
    'Finished steps of executions. Written by the holder of the newest lease alone, and never changed.';
COMMENT ON COLUMN ffx_step.outcome IS
    'success; slept: a pause; signal, timeout: the end of a wait.';

ALTER TABLE ffx_step
    DROP COLUMN called_execution_ids,
    DROP COLUMN called_partition_keys;

ALTER TABLE ff_exec_core
    DROP COLUMN ffx_caller;
