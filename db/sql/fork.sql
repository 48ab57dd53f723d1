-- name: GetOrigin :one
-- GetOrigin reads the columns of an execution a fork copies. No row: the execution does not exist.
--
-- Used by: operator.Fork.
-- Locks: none. Except for tags, the columns never change.
SELECT
    e.flow_id,
    e.lane_id,
    array_to_string(e.required_capabilities, ',')::text AS required_capabilities,
    e.priority,
    e.payload,
    coalesce(e.policy::text, '')::text AS policy,
    e.ffx_budget_ids,
    e.ffx_quota_policy_id,
    coalesce((e.raw_fields -> 'ffx_limits')::text, '')::text AS limits,
    coalesce(e.raw_fields ->> 'namespace', '')::text AS namespace,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS kind,
    coalesce(e.raw_fields ->> 'creator_identity', '')::text AS creator,
    coalesce(e.raw_fields ->> 'payload_encoding', '')::text AS payload_encoding,
    (e.raw_fields -> 'tags')::jsonb AS tags
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: CopySteps :one
-- CopySteps copies the finished steps of an execution to a new one: the ones begun before a named step, or all. The new
-- execution begins as after a replay, so the first run reads the steps. origin_exists, step_exists: whether the
-- execution and the named step do; nothing else is copied.
--
-- Nothing of the origin is locked. A finished step never changes, and one snapshot reads all steps, so the deletions of
-- a replay or of retention are seen whole or not at all.
--
-- Used by: operator.Fork.
-- Locks: L1 held (UPDATE; the execution is new); L2 new.
WITH origin AS MATERIALIZED (
    -- The place of the named step.
    SELECT (
        SELECT f.seq
        FROM ffx_step AS f
        WHERE
            f.partition_key = e.partition_key
            AND f.execution_id = e.execution_id
            AND f.name = @before::text
    ) AS cut
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = @partition_key
        AND e.execution_id = @execution_id
),
copied AS (
    -- The steps, under the new execution.
    INSERT INTO ffx_step (
        partition_key, execution_id, name, seq, attempt_index, form, outcome, result, taken, error, tries, started_at_ms, ended_at_ms,
        called_partition_keys, called_execution_ids
    )
    SELECT
        @fork_partition_key::smallint,
        @fork_execution_id::uuid,
        s.name,
        s.seq,
        0,
        s.form,
        s.outcome,
        s.result,
        s.taken,
        s.error,
        s.tries,
        s.started_at_ms,
        s.ended_at_ms,
        s.called_partition_keys,
        s.called_execution_ids
    FROM origin AS o
    CROSS JOIN ffx_step AS s
    WHERE
        s.partition_key = @partition_key
        AND s.execution_id = @execution_id
        AND s.outcome <> 'called'
        AND (@before::text = '' OR s.seq < o.cut)
),
begun AS (
    -- The new execution.
    UPDATE ff_exec_core AS e
    SET attempt_state = 'pending_replay_attempt'
    WHERE
        e.partition_key = @fork_partition_key::smallint
        AND e.execution_id = @fork_execution_id::uuid
)
SELECT
    EXISTS (SELECT FROM origin)::boolean AS origin_exists,
    EXISTS (SELECT FROM origin AS o WHERE o.cut IS NOT NULL)::boolean AS step_exists;
