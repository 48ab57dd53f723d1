-- Each statement that updates ff_exec_core parses the conditions of its triggers anew, whether or not they hold: for a
-- claim of one execution that was a twelfth of the server's time. So one trigger with a short condition keeps both the
-- queue and the list of what is blocked, and its function finds out which of them a row concerns. It is called for some
-- updates more, of executions that are delayed or wait for others, and for a claim, a renewal or an end of this library no
-- more than before.
--
-- A claim by this library takes the queue entry out itself, a cancel the row of ffx_blocked too. Both are told by the time
-- of the last mutation, which no other program writes. Should it be the same, because the execution changed within the same
-- millisecond, the function is called for nothing.
--
-- What the condition leaves out loses nothing. An entry is there only for what is runnable and eligible_now, a row of
-- ffx_blocked only for what is runnable and blocked. As long as the new state is any but not_applicable, the function is
-- called. To not_applicable lead
--   claims, of what is not blocked, and EndCancelled: what there is they delete in the same statement;
--   EndUnsuccessful (failures, deadlines, leases lost too often) and SkipDownstream: they set the phase terminal, and the
--     function is called from every state but not_applicable, in which those are that were leased;
--   completions: from not_applicable, where nothing is to be taken out;
--   HealEnded: for what another program has ended by a write of its own, at which the function was called;
--   other programs: each of their statements leaves the time of the last mutation as it was, whatever this library wrote
--     between two of them, so that the function is called.
-- Adoption, releases, retries, replays and operators lead to other states. A process of before this migration that cancels
-- what is blocked leaves its row of ffx_blocked to the sweep of the queue.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_keep_waiting
CREATE FUNCTION ffx_keep_waiting() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
DECLARE
    claimable boolean := TG_OP = 'UPDATE'
        AND (NEW.lifecycle_phase = 'runnable' AND NEW.eligibility_state = 'eligible_now');
    blocked boolean := TG_OP = 'UPDATE'
        AND NEW.lifecycle_phase = 'runnable'
        AND NEW.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator');
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
    IF blocked THEN
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
    ELSIF OLD.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator') THEN
        DELETE FROM ffx_blocked AS b
        WHERE
            b.partition_key = OLD.partition_key
            AND b.execution_id = OLD.execution_id;
    END IF;
    RETURN NULL;
END;
$$;

COMMENT ON FUNCTION ffx_keep_waiting() IS
    'Trigger: writes and deletes the rows of ffx_ready and ffx_blocked of an execution that changed, by what it was and what it is.';

-- object: one trigger for ffx_ready and ffx_blocked
DROP TRIGGER ffx_ff_exec_core_keep_ready_trg ON ff_exec_core;
DROP TRIGGER ffx_ff_exec_core_keep_blocked_trg ON ff_exec_core;
CREATE TRIGGER ffx_ff_exec_core_keep_waiting_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (
    NEW.eligibility_state <> 'not_applicable'
    OR OLD.eligibility_state <> NEW.eligibility_state
    AND (
        NEW.lifecycle_phase = 'terminal'
        OR NEW.ffx_last_mutation_at_ms IS NOT DISTINCT FROM OLD.ffx_last_mutation_at_ms
    )
)
EXECUTE FUNCTION ffx_keep_waiting();

COMMENT ON TRIGGER ffx_ff_exec_core_keep_waiting_trg ON ff_exec_core IS
    'Keeps the queue entry of an execution, and its row in the list of what is blocked, in step with it: in when it becomes claimable or blocked, out when it no longer is, moved when its lane, priority or age changes. A claim or cancel by this library takes them out itself and does not fire it.';

-- object: one trigger for what is deleted
DROP TRIGGER ffx_ff_exec_core_drop_ready_trg ON ff_exec_core;
DROP TRIGGER ffx_ff_exec_core_drop_blocked_trg ON ff_exec_core;
DROP FUNCTION ffx_keep_ready();
DROP FUNCTION ffx_keep_blocked();
CREATE TRIGGER ffx_ff_exec_core_drop_waiting_trg
AFTER DELETE ON ff_exec_core
FOR EACH ROW
WHEN (OLD.eligibility_state <> 'not_applicable')
EXECUTE FUNCTION ffx_keep_waiting();

COMMENT ON TRIGGER ffx_ff_exec_core_drop_waiting_trg ON ff_exec_core IS
    'Takes the queue entry of a deleted execution out, and its row in the list of what is blocked.';

-- migrate:down

DROP TRIGGER ffx_ff_exec_core_drop_waiting_trg ON ff_exec_core;
DROP TRIGGER ffx_ff_exec_core_keep_waiting_trg ON ff_exec_core;
DROP FUNCTION ffx_keep_waiting();

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

COMMENT ON FUNCTION ffx_keep_ready() IS
    'Trigger: adds, moves or takes out the queue entry of one execution.';

CREATE TRIGGER ffx_ff_exec_core_keep_ready_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (
    NEW.eligibility_state = 'eligible_now'
    OR OLD.eligibility_state = 'eligible_now'
    AND (NEW.lifecycle_phase <> 'active' OR NEW.ffx_lease_epoch IS NOT DISTINCT FROM OLD.ffx_lease_epoch)
    AND (
        NEW.lifecycle_phase <> 'cancelled'
        OR NEW.ffx_last_mutation_at_ms IS NOT DISTINCT FROM OLD.ffx_last_mutation_at_ms
    )
)
EXECUTE FUNCTION ffx_keep_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_keep_ready_trg ON ff_exec_core IS
    'Keeps the queue entry of an execution in step with it: in when it becomes claimable, out when it no longer is, moved when its lane, priority or age changes. A claim or cancel by this library takes its entry out itself and does not fire it.';

CREATE TRIGGER ffx_ff_exec_core_drop_ready_trg
AFTER DELETE ON ff_exec_core
FOR EACH ROW
WHEN (OLD.eligibility_state = 'eligible_now')
EXECUTE FUNCTION ffx_keep_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_drop_ready_trg ON ff_exec_core IS
    'Takes the queue entry of a deleted execution out.';

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
