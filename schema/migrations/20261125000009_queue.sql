-- The queue is a table of its own, so that claims and completions touch no index of ff_exec_core: no index there has a
-- column, in its key or its predicate, that they change. Their updates stay on the row's page (heap-only).
--
-- In exchange, a search by state needs another way. Claimable executions are in ffx_ready, those that wait for a budget or
-- limit in ffx_waiting, and other blocked ones in ffx_blocked, kept by triggers for every writer. Delays and deadlines have columns that few executions set. All other
-- searches follow the primary key.
--
-- usable-from: 20261125000001

-- migrate:up

-- ff_exec_core stays the truth: a row here is a hint, and a claim skips it if its execution is not claimable. The
-- transaction that writes or deletes the hint holds the lock of the execution's row.
CREATE TABLE ffx_ready (
    created_at_ms bigint NOT NULL,
    -- Wider than the priority, whose least value has no counterpart.
    rank bigint NOT NULL,
    execution_id uuid NOT NULL,
    partition_key smallint NOT NULL,
    lane_id text NOT NULL,
    required_capabilities text[] NOT NULL,
    kind text NOT NULL,
    PRIMARY KEY (lane_id, rank, created_at_ms, execution_id, partition_key)
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);

COMMENT ON TABLE ffx_ready IS
    'The queue: a row for every claimable execution, in the order of claims. Kept by triggers on ff_exec_core, which stays the truth: a claim trusts no queue entry without the execution''s row.';
COMMENT ON COLUMN ffx_ready.created_at_ms IS
    'Milliseconds since the Unix epoch: when the execution was created; the older is claimed first.';
COMMENT ON COLUMN ffx_ready.rank IS
    'Minus its priority, so that the key is ascending.';
COMMENT ON COLUMN ffx_ready.execution_id IS
    'The execution: the uuid half of its id {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_ready.partition_key IS
    'Logical shard, 0 to 255: N of the execution id {fp:N}:<uuid>. Leads every key; filter by it.';
COMMENT ON COLUMN ffx_ready.lane_id IS
    'Its lane.';
COMMENT ON COLUMN ffx_ready.required_capabilities IS
    'What a worker must have to claim it, all of them.';
COMMENT ON COLUMN ffx_ready.kind IS
    'Its kind, raw_fields.execution_kind; empty: it has none.';

CREATE TABLE ffx_waiting (
    gate_id uuid NOT NULL,
    rank bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    execution_id uuid NOT NULL,
    partition_key smallint NOT NULL,
    is_budget boolean NOT NULL,
    PRIMARY KEY (gate_id, rank, created_at_ms, execution_id, partition_key)
)
WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 50000
);

COMMENT ON TABLE ffx_waiting IS
    'The executions that wait for a budget or limit, each in the order in which it admits them. Kept by triggers on ff_exec_core, which stays the truth.';
COMMENT ON COLUMN ffx_waiting.gate_id IS
    'The budget or limit: ff_exec_core.ffx_gate_id.';
COMMENT ON COLUMN ffx_waiting.rank IS
    'Minus the execution''s priority, so that the key is ascending.';
COMMENT ON COLUMN ffx_waiting.created_at_ms IS
    'Milliseconds since the Unix epoch: when the execution was created; the older is admitted first.';
COMMENT ON COLUMN ffx_waiting.execution_id IS
    'The uuid half of the execution''s id {fp:N}:<uuid>.';
COMMENT ON COLUMN ffx_waiting.partition_key IS
    'Of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_waiting.is_budget IS
    'Whether gate_id is a budget.';

-- A claim from the head of a lane does not lock rows that others have claimed since it began. The statement sees the
-- queue as of its start. It would follow such a row to its newest version, lock it and only then find it claimed. The
-- lock would stay until the end of the transaction and block the end of the other's work.
--
-- Volatile, so that it sees what was committed since the calling statement began, and so that it is not inlined.
CREATE FUNCTION ffx_claimable_now(partition smallint, execution uuid) RETURNS boolean
LANGUAGE plpgsql
VOLATILE
AS $$
BEGIN
    RETURN EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = partition
            AND e.execution_id = execution
            AND e.lifecycle_phase = 'runnable'
            AND e.eligibility_state = 'eligible_now'
    );
END;
$$;

COMMENT ON FUNCTION ffx_claimable_now(partition smallint, execution uuid) IS
    'Is an execution claimable by what is committed now, rather than when the statement began? Asked by claims of rows that somebody has changed or locked, before they lock them.';

-- An entry may exist already, left by a write that no trigger saw. For a whole batch it first tries the insert that
-- expects none, which takes half the time.
CREATE FUNCTION ffx_fill_ready() RETURNS trigger
LANGUAGE plpgsql
-- The schema of the migration: two engines in two schemas never write to each other.
SET search_path FROM CURRENT
AS $$
BEGIN
    IF EXISTS (SELECT FROM inserted AS i WHERE i.ffx_gate_id IS NOT NULL) THEN
        INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
        SELECT
            i.ffx_gate_id,
            - i.priority::bigint,
            i.created_at_ms,
            i.execution_id,
            i.partition_key,
            i.eligibility_state = 'blocked_by_budget'
        FROM inserted AS i
        WHERE i.ffx_gate_id IS NOT NULL
        ON CONFLICT (gate_id, rank, created_at_ms, execution_id, partition_key) DO NOTHING;
    END IF;
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

COMMENT ON FUNCTION ffx_fill_ready() IS
    'Trigger: puts inserted executions that are claimable into ffx_ready, and those that wait for a budget or limit into ffx_waiting.';

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
    waiting boolean := TG_OP = 'UPDATE'
        AND (NEW.ffx_gate_id IS NOT NULL);
BEGIN
    IF
        OLD.ffx_gate_id IS NOT NULL
        AND (
            NOT waiting
            OR (OLD.ffx_gate_id, OLD.priority, OLD.created_at_ms) <> (NEW.ffx_gate_id, NEW.priority, NEW.created_at_ms)
        )
    THEN
        DELETE FROM ffx_waiting AS w
        WHERE
            w.gate_id = OLD.ffx_gate_id
            AND w.rank = - OLD.priority::bigint
            AND w.created_at_ms = OLD.created_at_ms
            AND w.execution_id = OLD.execution_id
            AND w.partition_key = OLD.partition_key;
    END IF;
    IF waiting THEN
        INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
        VALUES (
            NEW.ffx_gate_id, - NEW.priority::bigint, NEW.created_at_ms, NEW.execution_id, NEW.partition_key,
            NEW.eligibility_state = 'blocked_by_budget'
        )
        ON CONFLICT (gate_id, rank, created_at_ms, execution_id, partition_key) DO NOTHING;
    END IF;
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
            OR r.kind <> excluded.kind;
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
    'Trigger: writes and deletes the rows of ffx_ready, ffx_waiting and ffx_blocked of an execution that changed, by what it was and what it is.';

-- A creation that writes its queue entries itself, in the same statement, skips this trigger. It sets ffx.own_entries
-- to the id of the transaction from the statement's beginning to its end. The setting is local to the transaction, so
-- a rollback takes it back. With any other value of the setting, or none, the trigger fires.
CREATE TRIGGER ffx_ff_exec_core_fill_ready_trg
AFTER INSERT ON ff_exec_core
REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT
WHEN (current_setting('ffx.own_entries', true) IS DISTINCT FROM pg_current_xact_id_if_assigned()::text)
EXECUTE FUNCTION ffx_fill_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_fill_ready_trg ON ff_exec_core IS
    'Puts inserted executions that are claimable into the queue, ffx_ready, and those that wait for a budget or limit into ffx_waiting, a statement at a time. A creation by this library that writes the entries itself, and says so by the id of the transaction in the setting ffx.own_entries, does not fire it.';

-- One trigger with a short condition keeps ffx_ready, ffx_waiting and ffx_blocked: each statement that updates ff_exec_core
-- parses the conditions of its triggers anew, whether or not they hold.
--
-- Claims and cancels of this library delete the entries themselves and do not fire it. The trigger recognises them by
-- the time of the last mutation, which no other program writes. If the time is the same, because the execution changed
-- within the same millisecond, the function is called in vain.
--
-- The condition loses nothing. A queue entry exists only for a row that is runnable and eligible_now, a row of
-- ffx_waiting or ffx_blocked only for one that is runnable and blocked. The function is called for every new state but
-- not_applicable, and these writes lead to not_applicable:
--   claims, of rows that are not blocked: they delete the entries in the same statement;
--   EndCancelled: DropEntriesOf deletes the entries just before it;
--   EndUnsuccessful (failures, deadlines, leases lost too often) and SkipDownstream: they set the phase terminal, which
--     fires the trigger from every state but not_applicable, the state of leased rows;
--   completions: from not_applicable, which has no entries;
--   HealEnded: of rows that another program ended by a write that fired the trigger;
--   other programs: their statements leave the time of the last mutation as it was, so the trigger fires.
-- Adoption, releases, retries, replays and operators lead to other states.
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
    'Keeps the queue entry of an execution, and its row in the lists of what waits and what is blocked, in step with it: in when it becomes claimable or blocked, out when it no longer is, moved when its lane, priority or age changes. A claim or cancel by this library takes them out itself and does not fire it.';

CREATE TRIGGER ffx_ff_exec_core_drop_waiting_trg
AFTER DELETE ON ff_exec_core
FOR EACH ROW
WHEN (OLD.eligibility_state <> 'not_applicable')
EXECUTE FUNCTION ffx_keep_waiting();

COMMENT ON TRIGGER ffx_ff_exec_core_drop_waiting_trg ON ff_exec_core IS
    'Takes the queue entry of a deleted execution out, and its row in the lists of what waits and what is blocked.';

-- migrate:down

DROP TRIGGER ffx_ff_exec_core_drop_waiting_trg ON ff_exec_core;

DROP TRIGGER ffx_ff_exec_core_keep_waiting_trg ON ff_exec_core;

DROP TRIGGER ffx_ff_exec_core_fill_ready_trg ON ff_exec_core;

DROP FUNCTION ffx_keep_waiting();

DROP FUNCTION ffx_fill_ready();

DROP FUNCTION ffx_claimable_now(smallint, uuid);

DROP TABLE ffx_waiting;

DROP TABLE ffx_ready;
