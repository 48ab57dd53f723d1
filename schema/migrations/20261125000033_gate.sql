-- Limits: how many units of work run at once, or start within a window, for each key. An execution that names limits waits
-- blocked until the gate admits it. Plain executions touch nothing of this.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_limit (
    namespace text NOT NULL,
    name text NOT NULL,
    units bigint NOT NULL,
    window_ms bigint,
    when_full text NOT NULL,
    declared_units bigint NOT NULL,
    declared_window_ms bigint,
    set_at_ms bigint,
    changed_at_ms bigint NOT NULL,
    changes bigint NOT NULL DEFAULT 1,
    declared_in bigint NOT NULL,
    PRIMARY KEY (namespace, name)
)
WITH (
    fillfactor = 50
);

COMMENT ON TABLE ffx_limit IS
    'Limits: what holds for each key. One is written when a kind that declares it first creates an execution.';
COMMENT ON COLUMN ffx_limit.namespace IS
    'Namespace of the executions.';
COMMENT ON COLUMN ffx_limit.name IS
    'Name of the limit, unique in the namespace: the kind''s name, a slash and the name of the key.';
COMMENT ON COLUMN ffx_limit.units IS
    'Units in force: that are in use at once, or that start within a window; 0: nothing starts.';
COMMENT ON COLUMN ffx_limit.window_ms IS
    'Length of the window in milliseconds; NULL: it limits what is in use at once.';
COMMENT ON COLUMN ffx_limit.when_full IS
    'What happens to an execution whose key is full: wait, cancel_new, cancel_running, or keep_newest.';
COMMENT ON COLUMN ffx_limit.declared_units IS
    'Units that the kind declares; those in force differ while an operator''s are set.';
COMMENT ON COLUMN ffx_limit.declared_window_ms IS
    'Length of the window in milliseconds that the kind declares; NULL: no window.';
COMMENT ON COLUMN ffx_limit.set_at_ms IS
    'Milliseconds since the Unix epoch: when an operator set other units; NULL: those declared are in force.';
COMMENT ON COLUMN ffx_limit.changed_at_ms IS
    'Milliseconds since the Unix epoch: the last change of what is in force.';
COMMENT ON COLUMN ffx_limit.changes IS
    'Number of changes since the first declaration, which is the first.';
COMMENT ON COLUMN ffx_limit.declared_in IS
    'Transaction of the last declaration, a 64-bit number: a creation relies on the limit only if an earlier one has committed it.';

CREATE TABLE ffx_limit_change (
    namespace text NOT NULL,
    name text NOT NULL,
    change bigint NOT NULL,
    changed_at_ms bigint NOT NULL,
    how text NOT NULL,
    units bigint NOT NULL,
    window_ms bigint,
    when_full text NOT NULL,
    changed_by text NOT NULL,
    PRIMARY KEY (namespace, name, change)
);

COMMENT ON TABLE ffx_limit_change IS
    'The last 100 changes of each limit. A change deletes the one that is 100 changes older.';
COMMENT ON COLUMN ffx_limit_change.namespace IS
    'Namespace of the limit.';
COMMENT ON COLUMN ffx_limit_change.name IS
    'Name of the limit: ffx_limit.name.';
COMMENT ON COLUMN ffx_limit_change.change IS
    'Number of the change, from 1: ffx_limit.changes after it.';
COMMENT ON COLUMN ffx_limit_change.changed_at_ms IS
    'Milliseconds since the Unix epoch.';
COMMENT ON COLUMN ffx_limit_change.how IS
    'declared: by a program; set, reset: by an operator.';
COMMENT ON COLUMN ffx_limit_change.units IS
    'Units in force after the change.';
COMMENT ON COLUMN ffx_limit_change.window_ms IS
    'Length of the window in milliseconds in force after the change; NULL: no window.';
COMMENT ON COLUMN ffx_limit_change.when_full IS
    'What happened to an execution whose key is full after the change: ffx_limit.when_full.';
COMMENT ON COLUMN ffx_limit_change.changed_by IS
    'Who set or reset it, as the operator says, at most 1,024 bytes; empty: unknown, or declared.';

CREATE TABLE ffx_gate (
    partition_key smallint NOT NULL,
    gate_id uuid NOT NULL,
    namespace text NOT NULL,
    limit_name text,
    key text NOT NULL,
    held bigint NOT NULL DEFAULT 0,
    started bigint NOT NULL DEFAULT 0,
    next_at_ms bigint,
    used_at_ms bigint NOT NULL,
    settled bigint NOT NULL DEFAULT 0,
    hold_until_ms bigint,
    hold_since_ms bigint,
    hold_by text,
    PRIMARY KEY (partition_key, gate_id)
)
WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_gate IS
    'Keys of limits, and quota policies, that are in use. Its row lock makes admissions exact; nothing waits for it.';
COMMENT ON COLUMN ffx_gate.partition_key IS
    'Logical shard of the key, 0 to 255: the first byte of its id.';
COMMENT ON COLUMN ffx_gate.gate_id IS
    'The first 16 bytes of SHA-256 over namespace, name and key, in UTF-8, each followed by a zero byte; of a quota policy its id.';
COMMENT ON COLUMN ffx_gate.namespace IS
    'Namespace of the limit; empty for a quota policy.';
COMMENT ON COLUMN ffx_gate.limit_name IS
    'The limit: ffx_limit.name; NULL: a quota policy, ff_quota_policy.';
COMMENT ON COLUMN ffx_gate.key IS
    'The key, 0 to 512 bytes; empty for a limit without keys, and for a quota policy.';
COMMENT ON COLUMN ffx_gate.held IS
    'Units in use, a bound: never fewer than the admitted executions hold. Counted again before anything has to wait.';
COMMENT ON COLUMN ffx_gate.started IS
    'Units started within the window, a bound as held is.';
COMMENT ON COLUMN ffx_gate.next_at_ms IS
    'Milliseconds since the Unix epoch: when the window has room again; NULL: unknown, or it has.';
COMMENT ON COLUMN ffx_gate.used_at_ms IS
    'Milliseconds since the Unix epoch: the last admission, or the creation of the row. Idle ones are deleted.';
COMMENT ON COLUMN ffx_gate.settled IS
    'Units of the settled admissions: ffx_gate_use.settled. Only counts change it.';
COMMENT ON COLUMN ffx_gate.hold_until_ms IS
    'Milliseconds since the Unix epoch: nothing is admitted before, by the clock of the database, while the limit exists; NULL: the key is not held.';
COMMENT ON COLUMN ffx_gate.hold_since_ms IS
    'Milliseconds since the Unix epoch: the beginning of the hold; NULL: the key is not held.';
COMMENT ON COLUMN ffx_gate.hold_by IS
    'Who holds the key: an execution, or what an operator says, at most 1,024 bytes; empty: unknown; NULL: the key is not held.';

-- None of its columns changes, so updates of a key stay heap-only.
CREATE INDEX ffx_gate_limit_idx
ON ffx_gate (namespace, limit_name, partition_key, gate_id)
WHERE limit_name IS NOT NULL;

COMMENT ON INDEX ffx_gate_limit_idx IS
    'The keys of a limit.';

CREATE TABLE ffx_gate_use (
    partition_key smallint NOT NULL,
    gate_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    admitted_at_ms bigint NOT NULL,
    execution_partition_key smallint NOT NULL,
    units bigint NOT NULL,
    held boolean NOT NULL,
    started_at_ms bigint,
    by_caller boolean NOT NULL DEFAULT false,
    settled boolean NOT NULL DEFAULT false,
    PRIMARY KEY (partition_key, gate_id, execution_id, admitted_at_ms)
)
WITH (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_gate_use IS
    'Admissions. A row counts as in use while its execution is admitted, and as started until its window is over.';
COMMENT ON COLUMN ffx_gate_use.partition_key IS
    'Logical shard of the key, 0 to 255.';
COMMENT ON COLUMN ffx_gate_use.gate_id IS
    'The key: ffx_gate.gate_id.';
COMMENT ON COLUMN ffx_gate_use.execution_id IS
    'The execution, the uuid half of its id.';
COMMENT ON COLUMN ffx_gate_use.admitted_at_ms IS
    'Milliseconds since the Unix epoch: when it was admitted.';
COMMENT ON COLUMN ffx_gate_use.execution_partition_key IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_gate_use.units IS
    'Units that it takes, from 1.';
COMMENT ON COLUMN ffx_gate_use.held IS
    'Whether it was in use when the key was last counted; it is no longer once its execution has ended or gives its place back.';
COMMENT ON COLUMN ffx_gate_use.started_at_ms IS
    'Milliseconds since the Unix epoch: when it started, as the last count found it; NULL: not yet, so that it stays in the window; 0: its window is over, and it is still in use.';
COMMENT ON COLUMN ffx_gate_use.by_caller IS
    'Whether a call admitted it, not the gate: it is in use until a call releases it or its execution ends.';
COMMENT ON COLUMN ffx_gate_use.settled IS
    'Whether it has started and is no longer in use: a count reads it again once its window is over.';

CREATE INDEX ffx_gate_use_open_idx
ON ffx_gate_use (partition_key, gate_id, admitted_at_ms, execution_id)
WHERE NOT settled;

COMMENT ON INDEX ffx_gate_use_open_idx IS
    'The admissions that a count has to judge.';

CREATE INDEX ffx_gate_use_settled_idx
ON ffx_gate_use (partition_key, gate_id, started_at_ms)
WHERE settled;

COMMENT ON INDEX ffx_gate_use_settled_idx IS
    'The other starts in the order in which their windows end.';

-- A transaction that admits by a rule holds this lock shared until its commit, and an operator's change of the rule takes it
-- alone. A shared lock of the rule's row would do as well, but it writes the row each time, and passes that overlap would keep
-- the operator waiting for ever.
CREATE FUNCTION ffx_limit_key(namespace text, name text) RETURNS bigint
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
AS $$
    SELECT hashtextextended(name, hashtextextended(namespace, 8032));
$$;

COMMENT ON FUNCTION ffx_limit_key(namespace text, name text) IS
    'Key of the advisory transaction lock of a limit''s rule.';

-- Volatile, so that it reads the rule as of its lock rather than as of the calling statement.
CREATE FUNCTION ffx_limit_in_force(of_namespace text, of_name text) RETURNS ffx_limit
LANGUAGE plpgsql
VOLATILE
STRICT
AS $$
DECLARE
    rule ffx_limit;
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(ffx_limit_key(of_namespace, of_name)) THEN
        RETURN NULL;
    END IF;
    SELECT l.*
    INTO rule
    FROM ffx_limit AS l
    WHERE
        l.namespace = of_namespace
        AND l.name = of_name;
    rule.name := of_name;
    RETURN rule;
END;
$$;

COMMENT ON FUNCTION ffx_limit_in_force(of_namespace text, of_name text) IS
    'The rule of a limit by which the caller''s transaction may admit until it ends. NULL while an operator changes the rule; of a limit that does not exist only the name.';

-- A transaction that admits by a quota policy holds the lock of its row in ffx_gate until its commit, and so does a change of the
-- policy. Volatile, so that it reads the policy as of that lock rather than as of the calling statement.
CREATE FUNCTION ffx_quota_in_force(of_partition smallint, of_policy uuid) RETURNS ff_quota_policy
LANGUAGE plpgsql
VOLATILE
STRICT
AS $$
DECLARE
    policy ff_quota_policy;
BEGIN
    SELECT q.*
    INTO policy
    FROM ff_quota_policy AS q
    WHERE
        q.partition_key = of_partition
        AND q.quota_policy_id = of_policy::text;
    RETURN policy;
END;
$$;

COMMENT ON FUNCTION ffx_quota_in_force(of_partition smallint, of_policy uuid) IS
    'A quota policy by which the caller''s transaction may admit until it ends, as it has locked its row in ffx_gate; of one that does not exist NULL.';

-- migrate:down

DROP FUNCTION ffx_quota_in_force(smallint, uuid);

DROP FUNCTION ffx_limit_in_force(text, text);

DROP FUNCTION ffx_limit_key(text, text);

DROP TABLE ffx_gate_use;

DROP TABLE ffx_gate;

DROP TABLE ffx_limit_change;

DROP TABLE ffx_limit;
