-- Steps: the parts of a handler that have finished, with their results. A handler that runs again skips them.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_step (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    name text NOT NULL,
    seq integer NOT NULL,
    attempt_index integer NOT NULL,
    form text NOT NULL,
    outcome text NOT NULL,
    result bytea,
    taken jsonb,
    error text,
    tries integer NOT NULL,
    started_at_ms bigint NOT NULL,
    ended_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, name)
);

COMMENT ON TABLE ffx_step IS
    'Finished steps of executions. Written by the holder of the newest lease alone, or by the transaction that ends a wait; never changed.';
COMMENT ON COLUMN ffx_step.partition_key IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_step.execution_id IS
    'The execution that the step belongs to.';
COMMENT ON COLUMN ffx_step.name IS
    'Name of the step, unique within its execution; 1 to 256 bytes.';
COMMENT ON COLUMN ffx_step.seq IS
    'Place of the step in the order in which the steps and waits began, from 0. A replay from a step deletes it and later ones.';
COMMENT ON COLUMN ffx_step.attempt_index IS
    'Attempt in which the step finished.';
COMMENT ON COLUMN ffx_step.form IS
    'What the code called: step, sleep, turn, call, call all, or wait. Code that calls another form by the same name is refused.';
COMMENT ON COLUMN ffx_step.outcome IS
    'success; slept: a pause; signal, timeout: the end of a wait.';
COMMENT ON COLUMN ffx_step.result IS
    'Result, encoded by the codec of the kind; NULL: none. Of a pause: until when, in milliseconds since the Unix epoch. Of a wait: its signals by waitpoint key, as in ff_suspension_current.member_map.';
COMMENT ON COLUMN ffx_step.taken IS
    'Signals that a turn has taken, by their names, each an array as in ff_suspension_current.member_map; NULL: none.';
COMMENT ON COLUMN ffx_step.error IS
    'Text of the error of its last failed try, cut at 16 KiB; NULL: the first try succeeded.';
COMMENT ON COLUMN ffx_step.tries IS
    'Number of tries in the attempt in which it finished.';
COMMENT ON COLUMN ffx_step.started_at_ms IS
    'Milliseconds since the Unix epoch: start of its first try, or of the wait.';
COMMENT ON COLUMN ffx_step.ended_at_ms IS
    'Milliseconds since the Unix epoch: when it was stored.';

-- The caller holds the lock of the execution, so no signal is delivered meanwhile and no other call takes one. The job
-- that expires waitpoints may hold one of them, but leaves the signals there. That job may also take the token away while
-- the update waits for it, so the deletion is a statement of its own.
CREATE FUNCTION ffx_take_signal(partition smallint, execution uuid, wanted text) RETURNS jsonb
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    k record; -- the oldest signal of the name, and where it is kept
    others jsonb; -- that are kept there
BEGIN
    SELECT
        o.waitpoint_id,
        o.waitpoint_key,
        o.signals,
        o.signal
    INTO k
    FROM (
        SELECT
            w.waitpoint_id,
            w.waitpoint_key,
            w.condition -> 'buffered_signals' AS signals,
            b.signal,
            b.place
        FROM ff_waitpoint_pending AS w
        CROSS JOIN LATERAL jsonb_array_elements(w.condition -> 'buffered_signals') WITH ORDINALITY AS b (signal, place)
        WHERE
            w.partition_key = partition
            AND w.execution_id = execution
            AND w.waitpoint_key = wanted
            AND w.state = 'pending'
        UNION ALL
        -- A signal that an earlier wait received and did not use came before those that are kept.
        SELECT
            NULL,
            h.waitpoint_key,
            h.list,
            m.signal,
            m.place - 1000000
        FROM ff_suspension_current AS s
        CROSS JOIN LATERAL jsonb_each(s.member_map) AS h (waitpoint_key, list)
        CROSS JOIN LATERAL jsonb_array_elements(
            CASE jsonb_typeof(h.list) WHEN 'array' THEN h.list ELSE '[]' END
        ) WITH ORDINALITY AS m (signal, place)
        WHERE
            s.partition_key = partition
            AND s.execution_id = execution
            AND h.waitpoint_key <> '__timeout__'
            AND NOT s.satisfied_set ? (m.signal ->> 'signal_id')
    ) AS o
    WHERE o.signal ->> 'signal_name' = wanted
    ORDER BY
        coalesce((o.signal ->> 'ffx_place')::bigint, 0),
        (o.signal ->> 'accepted_at')::numeric,
        o.place
    LIMIT 1;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT jsonb_agg(e.signal ORDER BY e.place)
    INTO others
    FROM jsonb_array_elements(k.signals) WITH ORDINALITY AS e (signal, place)
    WHERE e.signal -> 'signal_id' <> k.signal -> 'signal_id';
    IF k.waitpoint_id IS NULL THEN
        UPDATE ff_suspension_current AS s
        SET member_map = CASE
            WHEN others IS NULL THEN s.member_map - k.waitpoint_key
            ELSE s.member_map || jsonb_build_object(k.waitpoint_key, others)
        END
        WHERE
            s.partition_key = partition
            AND s.execution_id = execution;
    ELSE
        -- A place whose token was handed out stays open.
        UPDATE ff_waitpoint_pending AS w
        SET condition = CASE WHEN others IS NOT NULL THEN jsonb_build_object('buffered_signals', others) END
        WHERE
            w.partition_key = partition
            AND w.waitpoint_id = k.waitpoint_id;
        DELETE FROM ff_waitpoint_pending AS w
        WHERE
            w.partition_key = partition
            AND w.waitpoint_id = k.waitpoint_id
            AND w.condition IS NULL
            AND w.token_kid = '';
    END IF;
    RETURN k.signal;
END;
$$;

COMMENT ON FUNCTION ffx_take_signal(partition smallint, execution uuid, wanted text) IS
    'Takes the oldest signal of a name that is kept for a later wait of an execution, and returns it; NULL: none is kept. Only the library calls it.';

-- The steps as people read them: beside the views of executions, attempts, flows and waits, and an interface like them.
CREATE VIEW ffx_steps AS
SELECT
    s.partition_key,
    s.execution_id,
    '{fp:' || s.partition_key || '}:' || s.execution_id AS id,
    s.seq,
    s.name,
    CASE s.outcome
        WHEN 'success' THEN 'succeeded'
        WHEN 'slept' THEN 'paused'
        WHEN 'signal' THEN 'signalled'
        WHEN 'timeout' THEN 'timed out'
        WHEN 'called' THEN 'calling'
        WHEN 'failure' THEN 'failed'
    END AS outcome,
    s.attempt_index AS attempt,
    s.tries,
    s.error,
    ffx_read_instant(s.started_at_ms) AS started_at,
    ffx_read_instant(s.ended_at_ms) AS ended_at
FROM ffx_step AS s;

COMMENT ON VIEW ffx_steps IS
    'Finished steps of executions, waits that are over, and calls, one row each, without results. An interface: columns keep name, type and meaning, new ones come behind. Find those of an execution by (partition_key, execution_id).';
COMMENT ON COLUMN ffx_steps.partition_key IS
    'Logical shard, 0 to 255, N of the id {fp:N}:<uuid>. Filter by (partition_key, execution_id): the key of the table.';
COMMENT ON COLUMN ffx_steps.execution_id IS
    'The uuid half of the execution''s id.';
COMMENT ON COLUMN ffx_steps.id IS
    'The execution''s id as the library prints it: {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_steps.seq IS
    'Place of the step in the order in which the steps and waits began, from 0.';
COMMENT ON COLUMN ffx_steps.name IS
    'Name of the step, unique within its execution.';
COMMENT ON COLUMN ffx_steps.outcome IS
    'succeeded; paused: a pause began; signalled: a wait got its signals; timed out: a wait did not get them; calling: the called executions exist, and their results are not stored yet; failed: a call whose executions did not all succeed. NULL: another program stored another word.';
COMMENT ON COLUMN ffx_steps.attempt IS
    'Attempt in which the step finished, from 0.';
COMMENT ON COLUMN ffx_steps.tries IS
    'Number of tries in that attempt.';
COMMENT ON COLUMN ffx_steps.error IS
    'Text of the error of its last failed try; NULL: the first try succeeded.';
COMMENT ON COLUMN ffx_steps.started_at IS
    'Start of its first try, or of the wait.';
COMMENT ON COLUMN ffx_steps.ended_at IS
    'When it was stored; of a call whose results are not: when its executions were created.';

-- migrate:down

DROP VIEW ffx_steps;

DROP FUNCTION ffx_take_signal(smallint, uuid, text);

DROP TABLE ffx_step;
