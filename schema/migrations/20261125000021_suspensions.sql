-- Suspensions: executions that wait for signals. Signals are delivered by one function, for this library, for triggers
-- and for other languages alike. It locks the execution first; its further statements see what was committed before
-- the lock was granted.
--
-- usable-from: 20261125000001

-- migrate:up

ALTER TABLE ff_suspension_current
    ADD COLUMN ffx_resume_delay_ms bigint,
    ADD COLUMN ffx_requested_by text,
    ADD COLUMN ffx_continuation_pointer text,
    ADD COLUMN ffx_asked text,
    ADD COLUMN ffx_open_since_ms bigint,
    ADD COLUMN ffx_step jsonb;

COMMENT ON COLUMN ff_suspension_current.ffx_resume_delay_ms IS
    'Milliseconds from the signal that satisfies the condition until the execution resumes; NULL: at once.';

COMMENT ON COLUMN ff_suspension_current.ffx_requested_by IS
    'The requester: worker, operator, policy or system_timeout_policy.';

COMMENT ON COLUMN ff_suspension_current.ffx_continuation_pointer IS
    'Free text of the handler for its own continuation.';

COMMENT ON COLUMN ff_suspension_current.ffx_asked IS
    'What people are asked, for lists of open waits; NULL: nothing.';

COMMENT ON COLUMN ff_suspension_current.ffx_open_since_ms IS
    'Milliseconds since the Unix epoch: since when the execution waits; NULL: the wait is over.';

COMMENT ON COLUMN ff_suspension_current.ffx_step IS
    'The step that stores the result of the wait, {"name", "seq"}: see ffx_step; NULL: none.';

-- Open waits, the oldest first. Resolved ones, which outlive their wait, are not in it.
CREATE INDEX ffx_ff_suspension_current_open_idx ON ff_suspension_current (ffx_open_since_ms, partition_key, execution_id)
WHERE ffx_open_since_ms IS NOT NULL;

-- FlowFabric's indexes: nothing reads them, and each would be written by each wait. A plan that was made while the table
-- was empty might prefer one of them to the key.
DROP INDEX ff_suspension_current_suspended_at_idx;

DROP INDEX ff_suspension_current_timeout_idx;

DROP INDEX ff_waitpoint_pending_expires_idx;

-- Timeouts and expiries by time: their scans cover all partitions.
CREATE INDEX ffx_ff_suspension_current_timeout_idx ON ff_suspension_current (timeout_at_ms, partition_key, execution_id)
WHERE timeout_at_ms IS NOT NULL;

CREATE INDEX ffx_ff_waitpoint_pending_expires_idx ON ff_waitpoint_pending (expires_at_ms)
WHERE expires_at_ms IS NOT NULL AND state = 'pending';

-- What makes a repetition of a signal a duplicate, whatever has happened since: small, so that used signals need not be
-- kept for it. Its key is unique at each isolation level, also for a transaction that can't see an earlier signal yet.
CREATE TABLE ffx_signal_key (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    signal_id uuid NOT NULL,
    forget_at_ms bigint,
    PRIMARY KEY (partition_key, execution_id, scope, key)
);

COMMENT ON TABLE ffx_signal_key IS
    'Ids and idempotency keys of the signals that an execution has received, if their senders gave any. A replay deletes those of signals that it drops.';
COMMENT ON COLUMN ffx_signal_key.partition_key IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_signal_key.execution_id IS
    'The execution that received the signal.';
COMMENT ON COLUMN ffx_signal_key.scope IS
    'What the key is unique for: id, for the id of a signal; name:<name of the signal>; waitpoint:<id of the waitpoint> if its token was handed out.';
COMMENT ON COLUMN ffx_signal_key.key IS
    'The id, or the idempotency key.';
COMMENT ON COLUMN ffx_signal_key.signal_id IS
    'Id of the signal.';
COMMENT ON COLUMN ffx_signal_key.forget_at_ms IS
    'Milliseconds since the Unix epoch: from when on the key makes no duplicates; NULL: as long as the execution exists.';

CREATE FUNCTION ffx_read_json(payload bytea) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_read_json(payload bytea) IS 'The JSON in a payload; NULL if it is none that the server can read.';

CREATE FUNCTION ffx_signature(secret bytea, message text) RETURNS text
LANGUAGE plpgsql
IMMUTABLE
STRICT
PARALLEL SAFE
AS $$
DECLARE
    inner_key bytea := secret || decode(repeat('00', 64 - octet_length(secret)), 'hex');
    outer_key bytea := inner_key;
BEGIN
    FOR i IN 0..63 LOOP
        outer_key := set_byte(outer_key, i, get_byte(outer_key, i) # 92);
        inner_key := set_byte(inner_key, i, get_byte(inner_key, i) # 54);
    END LOOP;
    RETURN encode(sha256(outer_key || sha256(inner_key || convert_to(message, 'UTF8'))), 'hex');
END;
$$;

COMMENT ON FUNCTION ffx_signature(secret bytea, message text) IS
    'HMAC-SHA256 of a message under a secret of at most 64 bytes, as hexadecimal digits. Signed here, a token is in no parameter that a log shows.';

CREATE FUNCTION ffx_is_path(path text) RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
AS $$
BEGIN
    -- In its stored form a variable is a $ before a string. The strings are emptied first: they may hold anything.
    RETURN regexp_replace(path::jsonpath::text, '"(\\.|[^"\\])*"', '""', 'g') NOT LIKE '%$""%';
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END;
$$;

COMMENT ON FUNCTION ffx_is_path(path text) IS 'Whether a text is a SQL/JSON path without variables.';

-- Comparisons of times may depend on the time zone of the session.
CREATE FUNCTION ffx_predicates_held(condition jsonb, payload bytea) RETURNS jsonb
LANGUAGE plpgsql
STABLE
PARALLEL SAFE
AS $$
DECLARE
    paths text[] := ARRAY(
        SELECT DISTINCT p.path #>> '{}'
        FROM jsonb_path_query(condition, '$.**.predicate') AS p (path)
        WHERE jsonb_typeof(p.path) = 'string'
    );
    document jsonb;
    path text;
    holds boolean;
    held jsonb := '[]';
BEGIN
    IF cardinality(paths) = 0 THEN
        RETURN NULL;
    END IF;
    document := ffx_read_json(payload);
    FOREACH path IN ARRAY paths LOOP
        BEGIN
            -- A boolean decides, as by @@, and the null of a comparison that is not possible; else a result, as by @?.
            SELECT CASE
                WHEN count(*) = 1 AND bool_and(jsonb_typeof(r.item) IN ('boolean', 'null')) THEN bool_and(r.item = 'true')
                ELSE count(*) > 0
            END
            INTO holds
            FROM jsonb_path_query_tz(document, path::jsonpath) AS r (item);
        EXCEPTION WHEN OTHERS THEN
            holds := false; -- the payload has something else than the path expects
        END;
        IF holds THEN
            held := held || jsonb_build_array(path);
        END IF;
    END LOOP;
    RETURN held;
END;
$$;

COMMENT ON FUNCTION ffx_predicates_held(condition jsonb, payload bytea) IS
    'The predicates of a condition that hold for a payload; NULL if the condition has none. One that fails does not hold.';

-- Recursive over composites. Evaluated anew for each signal, so the order of signals never matters.
CREATE FUNCTION ffx_satisfied_by(condition jsonb, signals jsonb) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
AS $$
DECLARE
    node jsonb := coalesce(condition -> 'Single', condition -> 'Composite');
    keys jsonb;
    found jsonb;
    distinct_count bigint;
    satisfiers jsonb;
    member jsonb;
BEGIN
    IF node ->> 'kind' IN ('AllOf', 'AnyOf') THEN
        FOR member IN SELECT m.value FROM jsonb_array_elements(node -> 'members') AS m LOOP
            found := ffx_satisfied_by(member, signals);
            IF found IS NOT NULL THEN
                satisfiers := coalesce(satisfiers, '[]') || found;
            ELSIF node ->> 'kind' = 'AllOf' THEN
                RETURN NULL;
            END IF;
        END LOOP;
        RETURN (SELECT jsonb_agg(DISTINCT s.id) FROM jsonb_array_elements(satisfiers) AS s (id));
    END IF;
    IF node IS NULL THEN
        RETURN NULL; -- only an operator or the timeout ends it
    END IF;
    keys := CASE
        WHEN condition ? 'Single' THEN jsonb_build_array(node -> 'waitpoint_key')
        ELSE node -> 'waitpoints'
    END;
    SELECT
        jsonb_agg(c.id ORDER BY c.ord),
        count(DISTINCT CASE node ->> 'count_kind'
            WHEN 'DistinctSignals' THEN c.id #>> '{}'
            WHEN 'DistinctSources' THEN c.source
            ELSE c.waitpoint_key
        END)
    INTO found, distinct_count
    FROM (
        SELECT
            g.signal -> 'signal_id' AS id,
            k.waitpoint_key,
            coalesce(g.signal ->> 'source_type', '') || E'\x01' || coalesce(g.signal ->> 'source_identity', '') AS source,
            row_number() OVER (
                ORDER BY coalesce((g.signal ->> 'ffx_place')::bigint, 0), (g.signal ->> 'accepted_at')::numeric, g.place
            ) AS ord
        FROM (SELECT DISTINCT t.waitpoint_key FROM jsonb_array_elements_text(keys) AS t (waitpoint_key)) AS k
        CROSS JOIN LATERAL jsonb_array_elements(coalesce(signals -> k.waitpoint_key, '[]')) WITH ORDINALITY AS g (signal, place)
        WHERE
            g.signal ? 'signal_id'
            AND (
                coalesce(node -> 'matcher', 'null') IN ('null', '"Wildcard"')
                OR node #>> '{matcher,ByName}' = g.signal ->> 'signal_name'
            )
            AND (NOT node ? 'predicate' OR coalesce(g.signal -> 'ffx_holds', '[]') ? (node ->> 'predicate'))
    ) AS c;
    IF condition ? 'Single' THEN
        -- One signal satisfies a wait for one; the others are left for later waits.
        RETURN CASE WHEN found IS NOT NULL THEN jsonb_build_array(found -> 0) END;
    END IF;
    RETURN CASE WHEN distinct_count >= (node ->> 'n')::integer THEN found END;
END;
$$;

COMMENT ON FUNCTION ffx_satisfied_by(condition jsonb, signals jsonb) IS
    'The ids of the signals that satisfy a condition, of those by waitpoint key, in the order of their arrival; NULL while it is not satisfied.';

-- The caller holds the lock of the execution. satisfiers are ids of signals, and [] stands for a timeout.
CREATE FUNCTION ffx_store_wait(
    partition smallint, execution uuid, attempt integer, step jsonb, signals jsonb, satisfiers jsonb, began_ms bigint, at_ms bigint
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO ffx_step (
        partition_key, execution_id, name, seq, attempt_index, form, outcome, result, tries, started_at_ms, ended_at_ms
    )
    SELECT
        partition,
        execution,
        step ->> 'name',
        (step ->> 'seq')::integer,
        attempt,
        'wait',
        CASE WHEN satisfiers = '[]' THEN 'timeout' ELSE 'signal' END,
        convert_to(r.used::text, 'UTF8'),
        1,
        began_ms,
        at_ms
    FROM (
        SELECT CASE
            WHEN satisfiers = '[]'
                THEN jsonb_build_object('__timeout__', jsonb_build_array(signals -> '__timeout__' -> -1))
            ELSE (
                SELECT jsonb_object_agg(k.waitpoint_key, k.used)
                FROM (
                    SELECT
                        h.waitpoint_key,
                        jsonb_agg(m.signal ORDER BY m.place) AS used
                    FROM jsonb_each(signals) AS h (waitpoint_key, list)
                    CROSS JOIN LATERAL jsonb_array_elements(h.list) WITH ORDINALITY AS m (signal, place)
                    WHERE satisfiers ? (m.signal ->> 'signal_id')
                    GROUP BY h.waitpoint_key
                ) AS k
            )
        END AS used
    ) AS r
    ON CONFLICT (partition_key, execution_id, name) DO NOTHING;
END;
$$;

COMMENT ON FUNCTION ffx_store_wait(
    partition smallint, execution uuid, attempt integer, step jsonb, signals jsonb, satisfiers jsonb, began_ms bigint, at_ms bigint
) IS 'Stores the end of a wait as a step, with the signals by waitpoint key that have satisfied it, or with its timeout.';

-- The caller holds the lock of the execution, which is suspended.
CREATE FUNCTION ffx_close_wait(
    partition smallint, execution uuid, signals jsonb, satisfiers jsonb, OUT step jsonb, OUT began_ms bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
BEGIN
    UPDATE ff_suspension_current AS s
    SET
        timeout_at_ms = NULL,
        timeout_behavior = NULL,
        ffx_open_since_ms = NULL,
        satisfied_set = satisfiers,
        member_map = coalesce(signals, s.member_map)
    WHERE
        s.partition_key = partition
        AND s.execution_id = execution
    RETURNING s.ffx_step, s.suspended_at_ms
    INTO step, began_ms;
    DELETE FROM ff_waitpoint_pending AS w
    WHERE
        w.partition_key = partition
        AND w.execution_id = execution
        AND w.state = 'active';
END;
$$;

COMMENT ON FUNCTION ffx_close_wait(
    partition smallint, execution uuid, signals jsonb, satisfiers jsonb, OUT step jsonb, OUT began_ms bigint
) IS 'Closes a wait and its waitpoints for ffx_resume. Returns the step that stores its result, if it has one, and when it began.';

-- The caller holds the lock of the execution, which is suspended. Without signals, as by an operator, the wait has no
-- result.
CREATE FUNCTION ffx_resume(
    partition smallint, execution uuid, signals jsonb, satisfiers jsonb, shown_as text, delay_ms bigint, at_ms bigint
) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    wait record;
    resumed record;
BEGIN
    SELECT c.step, c.began_ms
    INTO wait
    FROM ffx_close_wait(partition, execution, signals, satisfiers) AS c;
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        attempt_state = 'attempt_interrupted',
        eligibility_state = CASE
            WHEN delay_ms > 0 THEN 'not_eligible_until_time'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'eligible_now'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN delay_ms > 0 THEN 'delayed'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN shown_as
            ELSE 'rate_limited'
        END,
        blocking_reason = CASE
            WHEN delay_ms > 0 THEN 'waiting_for_resume_delay'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting_for_worker'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        deadline_at_ms = CASE
            WHEN delay_ms > 0
                THEN least(at_ms + delay_ms, nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0))
            ELSE e.deadline_at_ms
        END,
        ffx_delay_until_ms = CASE WHEN delay_ms > 0 THEN at_ms + delay_ms END,
        ffx_execution_deadline_ms = CASE
            WHEN delay_ms > 0 THEN coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms, 0)
            ELSE e.ffx_execution_deadline_ms
        END,
        ffx_gate_id = CASE WHEN delay_ms > 0 THEN NULL ELSE coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1]) END,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = at_ms
    WHERE
        e.partition_key = partition
        AND e.execution_id = execution
        AND e.lifecycle_phase = 'suspended'
    RETURNING
        e.lane_id,
        e.eligibility_state,
        e.attempt_index,
        e.ffx_namespace,
        e.ffx_instance_tag
    INTO resumed;
    IF signals IS NOT NULL AND wait.step IS NOT NULL THEN
        PERFORM ffx_store_wait(
            partition, execution, resumed.attempt_index, wait.step, signals, satisfiers, wait.began_ms, at_ms
        );
    END IF;
    IF delay_ms > 0 THEN
        RETURN NULL;
    END IF;
    INSERT INTO ff_completion_event (
        partition_key, execution_id, outcome, namespace, instance_tag, occurred_at_ms, dispatched_at_ms
    )
    VALUES (partition, execution, 'resumable', resumed.ffx_namespace, resumed.ffx_instance_tag, at_ms, at_ms);
    RETURN CASE WHEN resumed.eligibility_state = 'eligible_now' THEN resumed.lane_id END;
END;
$$;

COMMENT ON FUNCTION ffx_resume(
    partition smallint, execution uuid, signals jsonb, satisfiers jsonb, shown_as text, delay_ms bigint, at_ms bigint
) IS 'Ends the wait of a suspended execution that the caller has locked. Returns its lane if a worker can claim it now. The library calls it, and so do ffx_deliver and ffx_resume_caller.';

-- The caller holds the lock of the execution. is_open: its wait still receives signals.
CREATE FUNCTION ffx_lock_waitpoint(
    partition smallint, execution uuid, waitpoint uuid, with_token boolean, name text, is_open boolean,
    OUT waitpoint_id uuid, OUT execution_id uuid, OUT waitpoint_key text, OUT state text, OUT expires_at_ms bigint,
    OUT condition jsonb, OUT token text
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
BEGIN
    IF waitpoint IS NOT NULL THEN
        SELECT p.waitpoint_id, p.execution_id, p.waitpoint_key, p.state, p.expires_at_ms, p.condition, p.token
        INTO waitpoint_id, execution_id, waitpoint_key, state, expires_at_ms, condition, token
        FROM ff_waitpoint_pending AS p
        WHERE
            p.partition_key = partition
            AND p.waitpoint_id = waitpoint
            AND (NOT with_token OR p.token <> '') -- one whose time is over may still keep signals
        FOR UPDATE;
    ELSE
        -- One that waits for the name, else the place where signals of this name are kept.
        SELECT p.waitpoint_id, p.execution_id, p.waitpoint_key, p.state, p.expires_at_ms, p.condition, p.token
        INTO waitpoint_id, execution_id, waitpoint_key, state, expires_at_ms, condition, token
        FROM ff_waitpoint_pending AS p
        WHERE
            p.partition_key = partition
            AND p.execution_id = execution
            AND CASE p.state
                WHEN 'active' THEN
                    is_open
                    AND (p.waitpoint_key = name OR p.required_signal_names = '{}' OR name = ANY (p.required_signal_names))
                -- Not where a token was handed out: that place ends with its time, or when its holder closes it.
                ELSE p.waitpoint_key = name AND p.token_kid = ''
            END
        ORDER BY
            p.state,
            (p.waitpoint_key = name) DESC,
            p.waitpoint_id
        LIMIT 1
        FOR UPDATE;
    END IF;
END;
$$;

COMMENT ON FUNCTION ffx_lock_waitpoint(
    partition smallint, execution uuid, waitpoint uuid, with_token boolean, name text, is_open boolean,
    OUT waitpoint_id uuid, OUT execution_id uuid, OUT waitpoint_key text, OUT state text, OUT expires_at_ms bigint,
    OUT condition jsonb, OUT token text
) IS 'Locks the waitpoint that a signal is for, or that its name leads to, and returns it, for ffx_deliver. waitpoint_id is NULL if there is none.';

CREATE FUNCTION ffx_earlier_signal(
    partition smallint, execution uuid, waitpoint uuid, given jsonb, at_ms bigint
) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
BEGIN
    RETURN (
        SELECT k.signal_id::text
        FROM (
            VALUES
                ('id', given ->> 'signal_id'),
                (coalesce('waitpoint:' || waitpoint, 'name:' || (given ->> 'signal_name')), coalesce(given ->> 'idempotency_key', ''))
        ) AS g (scope, key)
        CROSS JOIN LATERAL (
            SELECT t.signal_id
            FROM ffx_signal_key AS t
            WHERE
                t.partition_key = partition
                AND t.execution_id = execution
                AND t.scope = g.scope
                AND t.key = g.key
                AND (t.forget_at_ms > at_ms) IS NOT FALSE
            LIMIT 1
        ) AS k
        LIMIT 1
    );
END;
$$;

COMMENT ON FUNCTION ffx_earlier_signal(partition smallint, execution uuid, waitpoint uuid, given jsonb, at_ms bigint) IS
    'The id of the earlier signal that a signal repeats, for ffx_deliver; NULL: it repeats none.';

-- By token and by name, whichever way the sender repeats it.
CREATE FUNCTION ffx_store_signal_keys(
    partition smallint, execution uuid, waitpoint_with_token uuid, given jsonb, id uuid, until_ms bigint
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    idempotency_key text := nullif(given ->> 'idempotency_key', '');
BEGIN
    INSERT INTO ffx_signal_key AS k (partition_key, execution_id, scope, key, signal_id, forget_at_ms)
    SELECT
        partition,
        execution,
        g.scope,
        g.key,
        id,
        g.forget_at_ms
    FROM (
        VALUES
            ('id', given ->> 'signal_id', NULL),
            ('name:' || (given ->> 'signal_name'), idempotency_key, until_ms),
            ('waitpoint:' || waitpoint_with_token, idempotency_key, until_ms)
    ) AS g (scope, key, forget_at_ms)
    WHERE
        g.scope IS NOT NULL
        AND g.key IS NOT NULL
    ON CONFLICT (partition_key, execution_id, scope, key) DO UPDATE SET
        signal_id = excluded.signal_id,
        forget_at_ms = greatest(k.forget_at_ms, excluded.forget_at_ms);
END;
$$;

COMMENT ON FUNCTION ffx_store_signal_keys(
    partition smallint, execution uuid, waitpoint_with_token uuid, given jsonb, id uuid, until_ms bigint
) IS 'Stores the keys by which a repetition of a signal is found, for ffx_deliver.';

-- Signals of the suspension, and those that are kept for the next one.
CREATE FUNCTION ffx_count_signals(
    partition smallint, execution uuid, received jsonb, satisfiers jsonb, OUT unused bigint, OUT last_place bigint
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
BEGIN
    SELECT
        count(*) FILTER (WHERE NOT coalesce(satisfiers, '[]') ? (r.signal ->> 'signal_id')),
        coalesce(max((r.signal ->> 'ffx_place')::bigint), 0)
    INTO unused, last_place
    FROM (
        SELECT m.signal
        FROM jsonb_each(received) AS k (waitpoint_key, list)
        CROSS JOIN LATERAL jsonb_array_elements(k.list) AS m (signal)
        WHERE k.waitpoint_key <> '__timeout__'
        UNION ALL
        SELECT b.signal
        FROM ff_waitpoint_pending AS p
        CROSS JOIN LATERAL jsonb_array_elements(p.condition -> 'buffered_signals') AS b (signal)
        WHERE
            p.partition_key = partition
            AND p.execution_id = execution
            AND p.condition IS NOT NULL
    ) AS r;
END;
$$;

COMMENT ON FUNCTION ffx_count_signals(
    partition smallint, execution uuid, received jsonb, satisfiers jsonb, OUT unused bigint, OUT last_place bigint
) IS 'Counts the signals of an execution that no wait has used, and returns the last place in their order, for ffx_deliver.';

-- The caller holds the lock of the waitpoint. NULL: the signals would be too large.
CREATE FUNCTION ffx_keep_signal(partition smallint, waitpoint uuid, kept jsonb, signal jsonb) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    signals jsonb := coalesce(kept -> 'buffered_signals', '[]') || jsonb_build_array(signal);
BEGIN
    IF pg_column_size(signals) > 1048576 THEN
        RETURN NULL;
    END IF;
    UPDATE ff_waitpoint_pending AS w
    SET condition = jsonb_build_object('buffered_signals', signals)
    WHERE
        w.partition_key = partition
        AND w.waitpoint_id = waitpoint;
    RETURN 'buffered';
END;
$$;

COMMENT ON FUNCTION ffx_keep_signal(partition smallint, waitpoint uuid, kept jsonb, signal jsonb) IS
    'Adds a signal to those that a waitpoint keeps for a later wait, for ffx_deliver.';

-- The caller holds the lock of the execution, which is suspended. effect: appended, or satisfied, with the lane if a worker
-- can claim the execution now; NULL: the signals would be too large.
CREATE FUNCTION ffx_receive_signal(
    partition smallint, execution uuid, condition jsonb, received jsonb, waitpoint_key text, given jsonb, payload bytea,
    delay_ms bigint, at_ms bigint, OUT effect text, OUT lane text
)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    name text := given ->> 'signal_name';
    signals jsonb;
    satisfiers jsonb;
BEGIN
    IF condition::text LIKE '%"predicate"%' THEN
        given := given || jsonb_strip_nulls(jsonb_build_object('ffx_holds', ffx_predicates_held(condition, payload)));
    END IF;
    signals := received || jsonb_build_object(
        waitpoint_key, coalesce(received -> waitpoint_key, '[]') || jsonb_build_array(given)
    );
    IF pg_column_size(signals) > 16777216 THEN
        RETURN;
    END IF;
    IF condition ? 'Single' AND NOT condition -> 'Single' ? 'predicate' THEN
        -- Only this signal can satisfy it: earlier ones would have done so before.
        satisfiers := CASE
            WHEN
                condition #>> '{Single,waitpoint_key}' = waitpoint_key
                AND coalesce(condition #>> '{Single,matcher,ByName}', name) = name
                THEN jsonb_build_array(given -> 'signal_id')
        END;
    ELSE
        satisfiers := ffx_satisfied_by(condition, signals);
    END IF;
    IF satisfiers IS NULL THEN
        UPDATE ff_suspension_current AS c
        SET member_map = signals
        WHERE
            c.partition_key = partition
            AND c.execution_id = execution;
        effect := 'appended';
    ELSE
        lane := ffx_resume(partition, execution, signals, satisfiers, 'resumable', delay_ms, at_ms);
        effect := 'satisfied';
    END IF;
END;
$$;

COMMENT ON FUNCTION ffx_receive_signal(
    partition smallint, execution uuid, condition jsonb, received jsonb, waitpoint_key text, given jsonb, payload bytea,
    delay_ms bigint, at_ms bigint, OUT effect text, OUT lane text
) IS 'Adds a signal to the wait of an execution, and ends the wait if that satisfies its condition, for ffx_deliver.';

-- The caller holds the locks of the executions, which are sorted. Most signals end a wait for one signal, and one statement
-- for many of them takes a quarter of the time of the statements of ffx_deliver. The function leaves out what ffx_deliver
-- has to decide: other conditions, signals that came before, repetitions, delays, budgets and limits, and the second
-- signal to an execution.
CREATE FUNCTION ffx_end_waits(
    partitions smallint[], executions uuid[], given jsonb[], payloads bytea[], dedup_ttls_ms bigint[], fixed_now_ms bigint
) RETURNS TABLE (place integer, id text, lane text)
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    at_ms bigint := ffx_now_locked_ms(fixed_now_ms);
BEGIN
    RETURN QUERY
    WITH input AS (
        SELECT
            unnest(partitions) AS partition_key,
            unnest(executions) AS execution_id,
            unnest(given) AS given,
            unnest(payloads) AS payload,
            unnest(dedup_ttls_ms) AS dedup_ttl_ms,
            generate_series(0, cardinality(executions) - 1) AS ord
        LIMIT cardinality(executions)
    ),
    waits AS (
        -- The waits that the signals end, with the signals as these receive them.
        SELECT
            i.ord,
            i.partition_key,
            i.execution_id,
            i.signal_id,
            i.given,
            w.waitpoint_id,
            w.token,
            at_ms + i.dedup_ttl_ms AS forget_at_ms,
            jsonb_build_object(
                w.waitpoint_key,
                jsonb_build_array(i.given || jsonb_build_object(
                    'signal_id', i.signal_id,
                    'accepted_at', at_ms,
                    'created_at', at_ms,
                    'waitpoint_id', w.waitpoint_id,
                    'ffx_place', 1,
                    'payload_hex', encode(i.payload, 'hex')
                ))
            ) AS signals
        FROM (
            SELECT
                n.ord,
                n.partition_key,
                n.execution_id,
                n.given,
                n.payload,
                n.dedup_ttl_ms,
                n.given ->> 'signal_name' AS name,
                coalesce(n.given ->> 'signal_id', gen_random_uuid()::text) AS signal_id
            FROM input AS n
            WHERE n.execution_id IS DISTINCT FROM executions[n.ord] -- the first signal to it
            OFFSET 0
        ) AS i
        CROSS JOIN LATERAL (
            SELECT
                t.condition -> 'Single' AS awaited,
                t.member_map
            FROM ff_suspension_current AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.execution_id = i.execution_id
                AND t.condition ? 'Single'
                AND ((t.timeout_at_ms > at_ms) IS NOT FALSE OR t.timeout_behavior = 'escalate')
                AND (t.ffx_resume_delay_ms > 0) IS NOT TRUE
            LIMIT 1
        ) AS s
        CROSS JOIN LATERAL (
            -- The waitpoint as ffx_lock_waitpoint chooses it; the execution's lock is enough for an active one.
            SELECT
                p.waitpoint_id,
                p.waitpoint_key,
                p.token
            FROM ff_waitpoint_pending AS p
            WHERE
                p.partition_key = i.partition_key
                AND p.execution_id = i.execution_id
                AND p.state = 'active'
                AND (p.waitpoint_key = i.name OR p.required_signal_names = '{}' OR i.name = ANY (p.required_signal_names))
            ORDER BY
                (p.waitpoint_key = i.name) DESC,
                p.waitpoint_id
            LIMIT 1
        ) AS w
        WHERE
            NOT s.awaited ? 'predicate'
            AND s.awaited ->> 'waitpoint_key' = w.waitpoint_key
            AND coalesce(s.awaited #>> '{matcher,ByName}', i.name) = i.name
            AND s.member_map IN ('{}', jsonb_build_object(w.waitpoint_key, '[]'::jsonb))
            AND NOT EXISTS (
                SELECT
                FROM ff_waitpoint_pending AS k
                WHERE
                    k.partition_key = i.partition_key
                    AND k.execution_id = i.execution_id
                    AND k.condition IS NOT NULL
            )
            AND (
                NOT i.given ? 'signal_id'
                AND NOT i.given ? 'idempotency_key'
                OR ffx_earlier_signal(i.partition_key, i.execution_id, NULL, i.given, at_ms) IS NULL
            )
    ),
    resumed AS (
        UPDATE ff_exec_core AS e
        SET
            lifecycle_phase = 'runnable',
            ownership_state = 'unowned',
            attempt_state = 'attempt_interrupted',
            eligibility_state = 'eligible_now',
            public_state = 'resumable',
            blocking_reason = 'waiting_for_worker',
            ffx_delay_until_ms = NULL,
            ffx_gate_id = NULL,
            ffx_admitted = NULL,
            ffx_last_mutation_at_ms = at_ms
        FROM waits AS n
        WHERE
            e.partition_key = n.partition_key
            AND e.execution_id = n.execution_id
            AND e.lifecycle_phase = 'suspended'
            AND e.ffx_budget_ids IS NULL
            AND e.ffx_limit_ids IS NULL
        RETURNING
            n.ord,
            n.partition_key,
            n.execution_id,
            n.signal_id,
            n.given,
            n.waitpoint_id,
            n.token,
            n.forget_at_ms,
            n.signals,
            e.lane_id,
            e.attempt_index,
            e.ffx_namespace,
            e.ffx_instance_tag
    ),
    closed AS (
        UPDATE ff_suspension_current AS s
        SET
            timeout_at_ms = NULL,
            timeout_behavior = NULL,
            ffx_open_since_ms = NULL,
            satisfied_set = jsonb_build_array(r.signal_id),
            member_map = r.signals
        FROM resumed AS r
        WHERE
            s.partition_key = r.partition_key
            AND s.execution_id = r.execution_id
        RETURNING
            r.partition_key,
            r.execution_id,
            r.attempt_index,
            r.signals,
            s.ffx_step,
            s.suspended_at_ms
    ),
    closed_waitpoints AS (
        DELETE FROM ff_waitpoint_pending AS w
        USING (
            SELECT
                r.partition_key,
                r.execution_id
            FROM resumed AS r
            OFFSET 0
        ) AS c
        WHERE
            w.partition_key = c.partition_key
            AND w.execution_id = c.execution_id
            AND w.state = 'active'
    ),
    steps AS (
        INSERT INTO ffx_step (
            partition_key, execution_id, name, seq, attempt_index, form, outcome, result, tries, started_at_ms, ended_at_ms
        )
        SELECT
            c.partition_key,
            c.execution_id,
            c.ffx_step ->> 'name',
            (c.ffx_step ->> 'seq')::integer,
            c.attempt_index,
            'wait',
            'signal',
            convert_to(c.signals::text, 'UTF8'),
            1,
            c.suspended_at_ms,
            at_ms
        FROM closed AS c
        WHERE c.ffx_step IS NOT NULL
        ON CONFLICT (partition_key, execution_id, name) DO NOTHING
    ),
    keys AS (
        INSERT INTO ffx_signal_key AS k (partition_key, execution_id, scope, key, signal_id, forget_at_ms)
        SELECT
            r.partition_key,
            r.execution_id,
            g.scope,
            g.key,
            r.signal_id::uuid,
            g.forget_at_ms
        FROM resumed AS r
        CROSS JOIN LATERAL (
            VALUES
                ('id', r.given ->> 'signal_id', NULL),
                ('name:' || (r.given ->> 'signal_name'), nullif(r.given ->> 'idempotency_key', ''), r.forget_at_ms),
                (
                    CASE WHEN r.token <> '' THEN 'waitpoint:' || r.waitpoint_id END,
                    nullif(r.given ->> 'idempotency_key', ''),
                    r.forget_at_ms
                )
        ) AS g (scope, key, forget_at_ms)
        WHERE
            g.scope IS NOT NULL
            AND g.key IS NOT NULL
        ON CONFLICT (partition_key, execution_id, scope, key) DO UPDATE SET
            signal_id = excluded.signal_id,
            forget_at_ms = greatest(k.forget_at_ms, excluded.forget_at_ms)
    ),
    completions AS (
        INSERT INTO ff_completion_event (
            partition_key, execution_id, outcome, namespace, instance_tag, occurred_at_ms, dispatched_at_ms
        )
        SELECT
            r.partition_key,
            r.execution_id,
            'resumable',
            r.ffx_namespace,
            r.ffx_instance_tag,
            at_ms,
            at_ms
        FROM resumed AS r
    ),
    delivered AS (
        INSERT INTO ff_signal_event (
            execution_id, signal_id, waitpoint_id, source_identity, delivered_at_ms, partition_key, namespace, instance_tag,
            ffx_effect
        )
        SELECT
            r.execution_id::text,
            r.signal_id,
            r.waitpoint_id::text,
            r.given ->> 'source_identity',
            at_ms,
            r.partition_key,
            r.ffx_namespace,
            r.ffx_instance_tag,
            'satisfied'
        FROM resumed AS r
    )
    SELECT
        r.ord,
        r.signal_id,
        r.lane_id
    FROM resumed AS r;
END;
$$;

COMMENT ON FUNCTION ffx_end_waits(
    partitions smallint[], executions uuid[], given jsonb[], payloads bytea[], dedup_ttls_ms bigint[], fixed_now_ms bigint
) IS 'Delivers the signals that each end a wait for one signal. Returns their places in the arrays, from 0, their ids, and the lanes with work. ffx_deliver delivers the others.';

CREATE FUNCTION ffx_deliver(
    partition smallint, execution uuid, waitpoint uuid, token_hash bytea,
    given jsonb, payload bytea, dedup_ttl_ms bigint, resume_delay_ms bigint, max_signals bigint, fixed_now_ms bigint
) RETURNS jsonb
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    name text := given ->> 'signal_name';
    idempotency_key text := coalesce(given ->> 'idempotency_key', '');
    id text := coalesce(given ->> 'signal_id', gen_random_uuid()::text);
    at_ms bigint;
    x record; -- the execution
    s record; -- its suspension
    w record; -- the waitpoint
    waits boolean;
    repeatable boolean := given ? 'signal_id' OR idempotency_key <> '';
    held record; -- the signals of the execution
    earlier text;
    effect text;
    signal jsonb;
    lane text;
BEGIN
    SELECT e.lifecycle_phase, e.ffx_namespace, e.ffx_instance_tag, e.policy
    INTO x
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = partition
        AND e.execution_id = execution
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN '{"result": "no execution"}';
    END IF;
    at_ms := ffx_now_locked_ms(fixed_now_ms);
    SELECT c.condition, c.member_map, c.satisfied_set, c.timeout_at_ms, c.timeout_behavior, c.ffx_resume_delay_ms
    INTO s
    FROM ff_suspension_current AS c
    WHERE
        c.partition_key = partition
        AND c.execution_id = execution;
    waits := x.lifecycle_phase = 'suspended' AND FOUND;
    -- A wait that has timed out takes nothing more, even if no scan has found it yet.
    SELECT p.waitpoint_id, p.execution_id, p.waitpoint_key, p.state, p.expires_at_ms, p.condition, p.token
    INTO w
    FROM ffx_lock_waitpoint(
        partition, execution, waitpoint, token_hash IS NOT NULL, name,
        waits AND ((s.timeout_at_ms > at_ms) IS NOT FALSE OR s.timeout_behavior = 'escalate')
    ) AS p;
    IF w.waitpoint_id IS NOT NULL AND token_hash IS NOT NULL AND sha256(convert_to(w.token, 'UTF8')) <> token_hash THEN
        RETURN '{"result": "invalid token"}';
    ELSIF w.execution_id <> execution THEN
        RETURN '{"result": "other execution"}';
    END IF;

    -- A repetition is one, whatever has happened since.
    IF repeatable THEN
        earlier := ffx_earlier_signal(partition, execution, waitpoint, given, at_ms);
    END IF;
    IF earlier IS NOT NULL THEN
        RETURN jsonb_build_object('result', 'duplicate', 'signal_id', earlier);
    ELSIF x.lifecycle_phase IN ('terminal', 'cancelled') THEN
        RETURN '{"result": "ended"}';
    END IF;

    IF w.waitpoint_id IS NULL AND waitpoint IS NOT NULL THEN
        RETURN '{"result": "no waitpoint"}';
    ELSIF w.state = 'pending' AND w.expires_at_ms <= at_ms THEN
        RETURN '{"result": "expired"}';
    ELSIF w.state = 'active' AND NOT waits THEN
        RETURN '{"result": "not waiting"}';
    ELSIF w.state = 'active' AND s.timeout_at_ms <= at_ms AND s.timeout_behavior <> 'escalate' THEN
        RETURN '{"result": "closed"}';
    ELSIF w.waitpoint_id IS NULL THEN
        -- Kept for a later wait for this name.
        INSERT INTO ff_waitpoint_pending (
            partition_key, waitpoint_id, execution_id, token_kid, token, created_at_ms, waitpoint_key, state
        )
        VALUES (partition, gen_random_uuid(), execution, '', '', at_ms, name, 'pending')
        RETURNING waitpoint_id, waitpoint_key, state, NULL::jsonb AS condition, token
        INTO w;
    END IF;
    SELECT c.unused, c.last_place
    INTO held
    FROM ffx_count_signals(partition, execution, s.member_map, s.satisfied_set) AS c;
    IF
        coalesce(
            max_signals,
            CASE WHEN jsonb_typeof(x.policy -> 'max_signals_per_execution') = 'number' THEN (x.policy ->> 'max_signals_per_execution')::numeric END,
            10000
        ) BETWEEN 1 AND held.unused
    THEN
        RETURN '{"result": "too many"}';
    END IF;

    signal := given || jsonb_strip_nulls(jsonb_build_object(
        'signal_id', id,
        'accepted_at', at_ms,
        'created_at', at_ms,
        'waitpoint_id', w.waitpoint_id,
        'ffx_place', held.last_place + 1
    )) || jsonb_build_object('payload_hex', encode(payload, 'hex'));
    IF w.state = 'pending' THEN
        effect := ffx_keep_signal(partition, w.waitpoint_id, w.condition, signal);
    ELSE
        SELECT r.effect, r.lane
        INTO effect, lane
        FROM ffx_receive_signal(
            partition, execution, s.condition, s.member_map, w.waitpoint_key, signal, payload,
            coalesce(resume_delay_ms, s.ffx_resume_delay_ms, 0), at_ms
        ) AS r;
    END IF;
    IF effect IS NULL THEN
        RETURN '{"result": "too large"}';
    END IF;
    IF repeatable THEN
        PERFORM ffx_store_signal_keys(
            partition, execution, CASE WHEN w.token <> '' THEN w.waitpoint_id END, given, id::uuid, at_ms + dedup_ttl_ms
        );
    END IF;
    INSERT INTO ff_signal_event (
        execution_id, signal_id, waitpoint_id, source_identity, delivered_at_ms, partition_key, namespace, instance_tag, ffx_effect
    )
    VALUES (
        execution::text, id, w.waitpoint_id::text, given ->> 'source_identity', at_ms, partition, x.ffx_namespace,
        x.ffx_instance_tag, effect
    );
    RETURN jsonb_strip_nulls(jsonb_build_object('result', 'accepted', 'signal_id', id, 'effect', effect, 'lane', lane));
END;
$$;

COMMENT ON FUNCTION ffx_deliver(
    partition smallint, execution uuid, waitpoint uuid, token_hash bytea,
    given jsonb, payload bytea, dedup_ttl_ms bigint, resume_delay_ms bigint, max_signals bigint, fixed_now_ms bigint
) IS 'Delivers a signal to a waitpoint, or to whatever waits for its name. Returns its outcome. The library calls it, and so does ffx_signal, for SQL and triggers.';

CREATE FUNCTION ffx_signal(
    execution text, name text, payload jsonb DEFAULT NULL, idempotency_key text DEFAULT NULL, source text DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql
SET search_path FROM CURRENT
AS $$
DECLARE
    parts text[] := regexp_match(execution, '^\{fp:(\d{1,3})\}:([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})$');
    delivered jsonb;
BEGIN
    IF parts IS NULL OR parts[1]::integer > 255 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_signal: the execution is not of the form {fp:N}:<uuid>';
    ELSIF coalesce(octet_length(name), 0) NOT BETWEEN 1 AND 256 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_signal: the name has not 1 to 256 bytes';
    ELSIF octet_length(payload::text) > 65536 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_signal: the payload has more than 65536 bytes';
    ELSIF jsonb_path_exists(payload, 'strict $.**{1000} ? (@.type() == "array" || @.type() == "object")') THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_signal: the payload is nested more than 1000 deep';
    ELSIF octet_length(idempotency_key) > 256 OR octet_length(source) > 1024 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'ffx_signal: the idempotency key has more than 256 bytes, or the source more than 1024';
    END IF;
    delivered := ffx_deliver(
        parts[1]::smallint, parts[2]::uuid, NULL, NULL,
        jsonb_strip_nulls(jsonb_build_object(
            'signal_name', name, 'signal_category', 'external', 'source_type', 'sql', 'source_identity', coalesce(source, ''),
            'correlation_id', '', 'idempotency_key', nullif(idempotency_key, ''), 'payload_encoding', 'json',
            'target_scope', 'execution'
        )),
        convert_to(payload::text, 'UTF8'), 86400000, NULL, NULL, NULL
    );
    CASE delivered ->> 'result'
        WHEN 'accepted', 'duplicate' THEN
            NULL;
        WHEN 'no execution' THEN
            RAISE no_data_found USING MESSAGE = 'ffx_signal: the execution does not exist';
        ELSE
            RAISE object_not_in_prerequisite_state USING MESSAGE = 'ffx_signal: the signal is refused: ' || (delivered ->> 'result');
    END CASE;
    -- A commit that notifies holds a lock of the whole cluster. A program of this library wakes workers itself.
    IF delivered ->> 'effect' = 'satisfied' AND current_setting('ffx.defer_notify', true) IS DISTINCT FROM 'on' THEN
        IF delivered ? 'lane' THEN
            PERFORM pg_notify('ffx_resumed', delivered ->> 'lane');
        ELSE
            PERFORM pg_notify('ffx_gate', 'changed'); -- it waits for its delay, or at its gate
        END IF;
    END IF;
    RETURN (delivered ->> 'signal_id')::uuid;
END;
$$;

COMMENT ON FUNCTION ffx_signal(execution text, name text, payload jsonb, idempotency_key text, source text) IS
    'Sends a signal to an execution, in the caller''s transaction. Returns its id, or that of the earlier one with the same idempotency key.';

-- Received, used and kept signals are lists of signals by waitpoint key, in the order of their arrival.
CREATE FUNCTION ffx_unused_signals(received jsonb, used jsonb) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(h.waitpoint_key, h.signals), '{}')
        FROM (
            SELECT
                k.waitpoint_key,
                (
                    SELECT jsonb_agg(m.signal ORDER BY m.place)
                    FROM jsonb_array_elements(k.list) WITH ORDINALITY AS m (signal, place)
                    WHERE NOT used ? (m.signal ->> 'signal_id')
                ) AS signals
            FROM jsonb_each(received) AS k (waitpoint_key, list)
            WHERE k.waitpoint_key <> '__timeout__'
        ) AS h
        WHERE h.signals IS NOT NULL
    );
END;
$$;

COMMENT ON FUNCTION ffx_unused_signals(received jsonb, used jsonb) IS
    'The signals by waitpoint key that a wait received, without those whose ids are among the used ones, for ffx_suspend.';

CREATE FUNCTION ffx_signals_without(signals jsonb, moved jsonb) RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(h.waitpoint_key, h.kept), '{}')
        FROM (
            SELECT
                k.waitpoint_key,
                coalesce(
                    (
                        SELECT jsonb_agg(m.signal)
                        FROM jsonb_array_elements(k.list) AS m (signal)
                        WHERE NOT EXISTS (
                            SELECT
                            FROM jsonb_array_elements(moved) AS o (signal)
                            WHERE o.signal -> 'signal_id' = m.signal -> 'signal_id'
                        )
                    ),
                    '[]'
                ) AS kept
            FROM jsonb_each(signals) AS k (waitpoint_key, list)
        ) AS h
        WHERE h.kept <> '[]'
    );
END;
$$;

COMMENT ON FUNCTION ffx_signals_without(signals jsonb, moved jsonb) IS
    'Signals by waitpoint key, without the moved ones, for ffx_suspend.';

-- The caller holds the lock of the execution.
CREATE FUNCTION ffx_early_signals(
    partition smallint, execution uuid, binding jsonb, held jsonb, condition jsonb
) RETURNS jsonb
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
BEGIN
    RETURN (
        SELECT coalesce(
            jsonb_agg(
                o.signal || jsonb_strip_nulls(jsonb_build_object(
                    'ffx_holds', ffx_predicates_held(condition, decode(o.signal ->> 'payload_hex', 'hex'))
                ))
                ORDER BY coalesce((o.signal ->> 'ffx_place')::bigint, 0), (o.signal ->> 'accepted_at')::numeric, o.place
            ),
            '[]'
        )
        FROM (
            SELECT
                b.signal,
                b.place
            FROM ff_waitpoint_pending AS w
            CROSS JOIN LATERAL jsonb_array_elements(coalesce(w.condition -> 'buffered_signals', '[]')) WITH ORDINALITY AS b (signal, place)
            WHERE
                w.partition_key = partition
                AND w.execution_id = execution
                AND w.state = 'pending'
                AND (
                    w.waitpoint_key = binding ->> 'key'
                    OR w.token_kid = '' AND (binding -> 'names' = '[]' OR binding -> 'names' ? w.waitpoint_key)
                )
            UNION ALL
            -- A signal that an earlier wait received came before those that are kept.
            SELECT
                m.signal,
                m.place - 1000000
            FROM jsonb_each(held) AS h (waitpoint_key, list)
            CROSS JOIN LATERAL jsonb_array_elements(h.list) WITH ORDINALITY AS m (signal, place)
            WHERE
                h.waitpoint_key = binding ->> 'key'
                OR binding -> 'names' = '[]'
                OR binding -> 'names' ? (m.signal ->> 'signal_name')
        ) AS o
    );
END;
$$;

COMMENT ON FUNCTION ffx_early_signals(partition smallint, execution uuid, binding jsonb, held jsonb, condition jsonb) IS
    'The signals that came early for a waitpoint, by its key or for a name that it waits for, with the predicates of the condition that hold for each, for ffx_suspend. held are those that an earlier wait left.';

-- The caller holds the lock of the execution. An open waitpoint with this key is used: its token stays valid.
CREATE FUNCTION ffx_activate_waitpoint(
    partition smallint, execution uuid, binding jsonb, until_ms bigint, at_ms bigint
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    names text[] := ARRAY(SELECT n.name FROM jsonb_array_elements_text(binding -> 'names') AS n (name));
BEGIN
    UPDATE ff_waitpoint_pending AS w
    SET
        state = 'active',
        activated_at_ms = at_ms,
        expires_at_ms = until_ms,
        condition = NULL,
        required_signal_names = names
    WHERE
        w.partition_key = partition
        AND w.execution_id = execution
        AND w.waitpoint_id = (
            SELECT p.waitpoint_id
            FROM ff_waitpoint_pending AS p
            WHERE
                p.partition_key = partition
                AND p.execution_id = execution
                AND p.state = 'pending'
                AND p.waitpoint_key = binding ->> 'key'
                AND (p.expires_at_ms > at_ms) IS NOT FALSE
            ORDER BY
                p.token_kid = '', -- one whose token was handed out comes first
                p.waitpoint_id
            LIMIT 1
        );
    IF NOT FOUND THEN
        INSERT INTO ff_waitpoint_pending (
            partition_key, waitpoint_id, execution_id, token_kid, token, created_at_ms, expires_at_ms, waitpoint_key, state,
            required_signal_names, activated_at_ms
        )
        VALUES (
            partition, (binding ->> 'id')::uuid, execution, '', '', at_ms, until_ms, binding ->> 'key', 'active', names, at_ms
        );
    END IF;
    -- The signals of these are in the suspension now.
    DELETE FROM ff_waitpoint_pending AS w
    WHERE
        w.partition_key = partition
        AND w.execution_id = execution
        AND w.state = 'pending'
        AND (
            w.waitpoint_key = binding ->> 'key'
            OR w.token_kid = '' AND (binding -> 'names' = '[]' OR binding -> 'names' ? w.waitpoint_key)
        );
END;
$$;

COMMENT ON FUNCTION ffx_activate_waitpoint(partition smallint, execution uuid, binding jsonb, until_ms bigint, at_ms bigint) IS
    'Opens a waitpoint of a wait that begins, and deletes the places whose signals the wait has received, for ffx_suspend.';

-- The caller holds the lock of the execution. Without satisfiers the wait is open.
CREATE FUNCTION ffx_store_suspension(
    partition smallint, execution uuid, spec jsonb, signals jsonb, satisfiers jsonb, at_ms bigint
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
BEGIN
    INSERT INTO ff_suspension_current AS c (
        partition_key, execution_id, suspension_id, suspended_at_ms, timeout_at_ms, reason_code, condition, satisfied_set,
        member_map, timeout_behavior, ffx_primary_waitpoint_id, ffx_resume_delay_ms, ffx_requested_by, ffx_continuation_pointer,
        ffx_asked, ffx_open_since_ms, ffx_step
    )
    SELECT
        partition,
        execution,
        (spec ->> 'suspension_id')::uuid,
        at_ms,
        CASE WHEN satisfiers IS NULL THEN (spec ->> 'timeout_at_ms')::bigint END,
        spec ->> 'reason',
        spec -> 'condition',
        coalesce(satisfiers, '[]'),
        signals,
        CASE WHEN satisfiers IS NULL THEN spec ->> 'timeout_behavior' END,
        (
            SELECT w.waitpoint_id
            FROM ff_waitpoint_pending AS w
            WHERE
                w.partition_key = partition
                AND w.execution_id = execution
                AND w.state = 'active'
                AND w.waitpoint_key = spec #>> '{waitpoints,0,key}'
        ),
        (spec ->> 'resume_delay_ms')::bigint,
        spec ->> 'requested_by',
        spec ->> 'pointer',
        spec ->> 'asked',
        CASE WHEN satisfiers IS NULL THEN at_ms END,
        spec -> 'step'
    ON CONFLICT (partition_key, execution_id) DO UPDATE SET
        suspension_id = excluded.suspension_id,
        suspended_at_ms = excluded.suspended_at_ms,
        timeout_at_ms = excluded.timeout_at_ms,
        reason_code = excluded.reason_code,
        condition = excluded.condition,
        satisfied_set = excluded.satisfied_set,
        member_map = excluded.member_map,
        timeout_behavior = excluded.timeout_behavior,
        ffx_primary_waitpoint_id = excluded.ffx_primary_waitpoint_id,
        ffx_resume_delay_ms = excluded.ffx_resume_delay_ms,
        ffx_requested_by = excluded.ffx_requested_by,
        ffx_continuation_pointer = excluded.ffx_continuation_pointer,
        ffx_asked = excluded.ffx_asked,
        ffx_open_since_ms = excluded.ffx_open_since_ms,
        ffx_step = excluded.ffx_step;
END;
$$;

COMMENT ON FUNCTION ffx_store_suspension(
    partition smallint, execution uuid, spec jsonb, signals jsonb, satisfiers jsonb, at_ms bigint
) IS 'Stores the suspension of an execution in place of its last one, for ffx_suspend.';

-- The caller holds the locks of the execution and its attempt.
CREATE FUNCTION ffx_interrupt_attempt(
    partition smallint, execution uuid, attempt integer, spec jsonb, at_ms bigint
) RETURNS void
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    x record;
BEGIN
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'suspended',
        ownership_state = 'unowned',
        eligibility_state = 'not_applicable',
        public_state = 'suspended',
        attempt_state = 'attempt_interrupted',
        blocking_reason = spec ->> 'blocking_reason',
        attempt_index = attempt,
        ffx_lease_epoch = greatest(e.ffx_lease_epoch, (
            SELECT max(a.lease_epoch)
            FROM ff_attempt AS a
            WHERE
                a.partition_key = partition
                AND a.execution_id = execution
                AND a.attempt_index = attempt
        )) + 1,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = at_ms,
        ffx_trace = coalesce(spec ->> 'trace', e.ffx_trace)
    WHERE
        e.partition_key = partition
        AND e.execution_id = execution
    RETURNING e.ffx_lease_epoch, e.ffx_namespace, e.ffx_instance_tag
    INTO x;
    WITH left_attempt AS (
        UPDATE ff_attempt AS a
        SET
            worker_id = NULL,
            worker_instance_id = NULL,
            lease_expires_at_ms = NULL,
            ffx_timeout_at_ms = NULL,
            lease_epoch = x.ffx_lease_epoch,
            outcome = 'attempt_interrupted'
        FROM (
            SELECT
                t.ctid AS row_id,
                t.ffx_lease_id,
                t.worker_instance_id
            FROM ff_attempt AS t
            WHERE
                t.partition_key = partition
                AND t.execution_id = execution
                AND t.attempt_index = attempt
        ) AS o
        WHERE
            a.ctid = o.row_id
            AND a.partition_key = partition
            AND a.execution_id = execution
            AND a.attempt_index = attempt
        RETURNING o.ffx_lease_id, o.worker_instance_id
    )
    INSERT INTO ff_lease_event (
        execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag, ffx_worker_instance_id,
        ffx_revoked_by
    )
    SELECT execution::text, l.ffx_lease_id::text, 'revoked', at_ms, partition, x.ffx_namespace, x.ffx_instance_tag, l.worker_instance_id, 'backend'
    FROM left_attempt AS l
    WHERE coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all') = 'all';
END;
$$;

COMMENT ON FUNCTION ffx_interrupt_attempt(partition smallint, execution uuid, attempt integer, spec jsonb, at_ms bigint) IS
    'Suspends an execution, and ends the lease of its attempt, for ffx_suspend.';

-- The caller holds the locks of the execution and its attempt, and has checked the lease. Each waitpoint receives the signals
-- that those before it left, and the signals decide whether the execution is suspended: one statement can't do that.
CREATE FUNCTION ffx_suspend(
    partition smallint, execution uuid, attempt integer, spec jsonb, at_ms bigint
) RETURNS text
LANGUAGE plpgsql
SET search_path FROM CURRENT
SET enable_seqscan TO off
AS $$
DECLARE
    held jsonb; -- signals that no wait has used, by waitpoint key
    used jsonb;
    latest uuid;
    binding jsonb;
    early jsonb;
    satisfiers jsonb;
BEGIN
    SELECT c.member_map, c.satisfied_set, c.suspension_id
    INTO held, used, latest
    FROM ff_suspension_current AS c
    WHERE
        c.partition_key = partition
        AND c.execution_id = execution;
    IF latest = (spec ->> 'suspension_id')::uuid THEN
        RETURN 'satisfied'; -- by an earlier try of this call, or its lease would be another
    END IF;
    -- The step of the wait before has the signals that ended it.
    held := ffx_unused_signals(held, used);
    DELETE FROM ff_waitpoint_pending AS w
    WHERE
        w.partition_key = partition
        AND w.execution_id = execution
        AND w.state = 'active';
    FOR binding IN SELECT b.value FROM jsonb_array_elements(spec -> 'waitpoints') AS b LOOP
        early := ffx_early_signals(partition, execution, binding, held, spec -> 'condition');
        held := ffx_signals_without(held, early);
        held := held || jsonb_build_object(binding ->> 'key', coalesce(held -> (binding ->> 'key'), '[]') || early);
        PERFORM ffx_activate_waitpoint(partition, execution, binding, (spec ->> 'timeout_at_ms')::bigint, at_ms);
    END LOOP;
    satisfiers := ffx_satisfied_by(spec -> 'condition', held);
    PERFORM ffx_store_suspension(partition, execution, spec, held, satisfiers, at_ms);
    IF satisfiers IS NULL THEN
        PERFORM ffx_interrupt_attempt(partition, execution, attempt, spec, at_ms);
        RETURN 'suspended';
    END IF;
    IF spec ? 'step' THEN
        PERFORM ffx_store_wait(partition, execution, attempt, spec -> 'step', held, satisfiers, at_ms, at_ms);
    END IF;
    DELETE FROM ff_waitpoint_pending AS w
    WHERE
        w.partition_key = partition
        AND w.execution_id = execution
        AND w.state = 'active';
    RETURN 'satisfied';
END;
$$;

COMMENT ON FUNCTION ffx_suspend(partition smallint, execution uuid, attempt integer, spec jsonb, at_ms bigint) IS
    'Lets an execution wait for signals, unless what came early satisfies it. The caller holds its lease, and the locks. Only the library calls it.';

-- The wait of each suspended execution, as the library's reads return it: beside the views of executions and flows, and
-- an interface like them.
CREATE VIEW ffx_wait AS
SELECT
    s.partition_key,
    s.execution_id,
    '{fp:' || s.partition_key || '}:' || s.execution_id AS id,
    e.flow_id,
    e.lane_id,
    coalesce(ffx_read_text(e.raw_fields, 'namespace'), '') AS namespace,
    coalesce(ffx_read_text(e.raw_fields, 'execution_kind'), '') AS kind,
    s.suspension_id,
    ffx_read_instant(s.ffx_open_since_ms) AS since,
    ffx_read_instant(s.timeout_at_ms) AS until,
    s.timeout_behavior AS on_timeout,
    e.blocking_reason AS reason,
    ARRAY(
        SELECT DISTINCT n.name #>> '{}'
        FROM jsonb_path_query(s.condition, '$.**.ByName') AS n (name)
        ORDER BY 1
    ) AS signals,
    s.condition,
    s.ffx_asked AS asked
FROM ff_suspension_current AS s
JOIN ff_exec_core AS e
    ON e.partition_key = s.partition_key
    AND e.execution_id = s.execution_id
WHERE
    s.ffx_open_since_ms IS NOT NULL
    AND e.lifecycle_phase = 'suspended';

COMMENT ON VIEW ffx_wait IS
    'Executions that wait for signals, one row each. An interface: columns keep name, type and meaning, new ones come behind. Find one by (partition_key, execution_id).';
COMMENT ON COLUMN ffx_wait.partition_key IS
    'Logical shard, 0 to 255, N of the id {fp:N}:<uuid>. Filter by (partition_key, execution_id): the key of the tables.';
COMMENT ON COLUMN ffx_wait.execution_id IS
    'The uuid half of the execution''s id.';
COMMENT ON COLUMN ffx_wait.id IS
    'The execution''s id as the library prints it: {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_wait.flow_id IS
    'Flow that the execution is a member of; NULL: none.';
COMMENT ON COLUMN ffx_wait.lane_id IS
    'Lane that the execution is claimed from.';
COMMENT ON COLUMN ffx_wait.namespace IS
    'Namespace of the execution; empty: none.';
COMMENT ON COLUMN ffx_wait.kind IS
    'Kind of the execution; empty: none.';
COMMENT ON COLUMN ffx_wait.suspension_id IS
    'Id of the wait.';
COMMENT ON COLUMN ffx_wait.since IS
    'When the wait began.';
COMMENT ON COLUMN ffx_wait.until IS
    'When the wait times out; NULL: it does not.';
COMMENT ON COLUMN ffx_wait.on_timeout IS
    'Effect of the timeout: fail, cancel, expire, escalate or auto_resume_with_timeout_signal; NULL: there is no timeout.';
COMMENT ON COLUMN ffx_wait.reason IS
    'Reason of the wait, such as waiting_for_signal or waiting_for_approval.';
COMMENT ON COLUMN ffx_wait.signals IS
    'Names of the signals that the condition names; empty: it names none.';
COMMENT ON COLUMN ffx_wait.condition IS
    'The condition that ends the wait, as ff_suspension_current.condition: an object such as {"Single":{waitpoint_key,matcher}}, or "OperatorOnly" or "TimeoutOnly".';
COMMENT ON COLUMN ffx_wait.asked IS
    'What people are asked; NULL: nothing.';

-- migrate:down

DROP VIEW ffx_wait;

DROP FUNCTION ffx_suspend(smallint, uuid, integer, jsonb, bigint);

DROP FUNCTION ffx_interrupt_attempt(smallint, uuid, integer, jsonb, bigint);

DROP FUNCTION ffx_store_suspension(smallint, uuid, jsonb, jsonb, jsonb, bigint);

DROP FUNCTION ffx_activate_waitpoint(smallint, uuid, jsonb, bigint, bigint);

DROP FUNCTION ffx_early_signals(smallint, uuid, jsonb, jsonb, jsonb);

DROP FUNCTION ffx_signals_without(jsonb, jsonb);

DROP FUNCTION ffx_unused_signals(jsonb, jsonb);

DROP FUNCTION ffx_signal(text, text, jsonb, text, text);

DROP FUNCTION ffx_deliver(smallint, uuid, uuid, bytea, jsonb, bytea, bigint, bigint, bigint, bigint);

DROP FUNCTION ffx_end_waits(smallint[], uuid[], jsonb[], bytea[], bigint[], bigint);

DROP FUNCTION ffx_receive_signal(smallint, uuid, jsonb, jsonb, text, jsonb, bytea, bigint, bigint);

DROP FUNCTION ffx_keep_signal(smallint, uuid, jsonb, jsonb);

DROP FUNCTION ffx_count_signals(smallint, uuid, jsonb, jsonb);

DROP FUNCTION ffx_store_signal_keys(smallint, uuid, uuid, jsonb, uuid, bigint);

DROP FUNCTION ffx_earlier_signal(smallint, uuid, uuid, jsonb, bigint);

DROP FUNCTION ffx_lock_waitpoint(smallint, uuid, uuid, boolean, text, boolean);

DROP FUNCTION ffx_resume(smallint, uuid, jsonb, jsonb, text, bigint, bigint);

DROP FUNCTION ffx_close_wait(smallint, uuid, jsonb, jsonb);

DROP FUNCTION ffx_store_wait(smallint, uuid, integer, jsonb, jsonb, jsonb, bigint, bigint);

DROP FUNCTION ffx_satisfied_by(jsonb, jsonb);

DROP FUNCTION ffx_predicates_held(jsonb, bytea);

DROP FUNCTION ffx_is_path(text);

DROP FUNCTION ffx_signature(bytea, text);

DROP FUNCTION ffx_read_json(bytea);

DROP TABLE ffx_signal_key;

DROP INDEX ffx_ff_waitpoint_pending_expires_idx;

DROP INDEX ffx_ff_suspension_current_timeout_idx;

DROP INDEX ffx_ff_suspension_current_open_idx;

CREATE INDEX ff_waitpoint_pending_expires_idx ON ff_waitpoint_pending (partition_key, expires_at_ms)
WHERE expires_at_ms IS NOT NULL;

CREATE INDEX ff_suspension_current_timeout_idx ON ff_suspension_current (partition_key, timeout_at_ms)
WHERE timeout_at_ms IS NOT NULL;

CREATE INDEX ff_suspension_current_suspended_at_idx ON ff_suspension_current (partition_key, suspended_at_ms);

ALTER TABLE ff_suspension_current
    DROP COLUMN ffx_step,
    DROP COLUMN ffx_open_since_ms,
    DROP COLUMN ffx_asked,
    DROP COLUMN ffx_continuation_pointer,
    DROP COLUMN ffx_requested_by,
    DROP COLUMN ffx_resume_delay_ms;
