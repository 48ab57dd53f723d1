-- name: LockMembers :many
-- LockMembers locks the unfinished members of a flow, by id. With pending_only running and suspended members are
-- skipped; with noted_only, so are members no request to cancel the flow lists. The given clean-ups are skipped. No
-- row: there is none. The caller holds the flow's exclusive lock, so no member is missed: none is added or replayed in
-- the meantime. attempt_index: the pointer of the locked row.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L0 held; L1 waits (execution rows FOR NO KEY UPDATE by (partition_key, execution_id)).
WITH members AS (
    -- Found before the sort: the primary key has the order, but not the flow.
    SELECT
        f.partition_key,
        f.execution_id
    FROM (
        SELECT
            e.partition_key,
            e.execution_id
        FROM ff_exec_core AS e
        LEFT JOIN LATERAL (
            SELECT true AS noted
            FROM ff_cancel_backlog_member AS t
            WHERE
                t.partition_key = e.partition_key
                AND t.flow_id = e.flow_id
                AND t.execution_id = '{fp:' || e.partition_key::text || '}:' || e.execution_id::text
            LIMIT 1
        ) AS b ON @noted_only::boolean
        WHERE
            e.partition_key = @partition_key
            AND e.flow_id = @flow_id::uuid
            AND e.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
            AND e.execution_id NOT IN (SELECT unnest(@clean_ups::uuid[]))
            AND (NOT @noted_only::boolean OR b.noted)
        OFFSET 0
    ) AS f
    ORDER BY
        f.partition_key,
        f.execution_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.attempt_index
FROM members AS m
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.attempt_index
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = m.partition_key
        AND t.execution_id = m.execution_id
        AND t.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
        AND (
            NOT @pending_only::boolean
            OR t.lifecycle_phase IN ('submitted', 'pending', 'blocked', 'eligible', 'runnable')
            AND t.public_state <> 'resumable'
        ) IS TRUE
    FOR NO KEY UPDATE
) AS e;

-- name: LockMemberAttempts :exec
-- LockMemberAttempts locks the current attempt of each given execution: the newest up to the pointer, as read when the
-- caller locked the execution. An execution may have none.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L2 waits (attempt rows FOR UPDATE in array order). The executions are locked by the caller.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index
)
SELECT 1
FROM input AS i
CROSS JOIN LATERAL (
    SELECT t.attempt_index
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index <= i.attempt_index
    ORDER BY t.attempt_index DESC
    LIMIT 1
) AS n
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = n.attempt_index
    FOR UPDATE
) AS a;

-- name: ListPendingAmong :many
-- ListPendingAmong returns the given executions, locked by the caller, without the running and suspended ones, in array
-- order.
--
-- Used by: engine.RequestFlowCancel.
-- Locks: none. The caller has locked the rows read.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.partition_key,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.lifecycle_phase,
        t.public_state
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
WHERE
    e.lifecycle_phase IN ('submitted', 'pending', 'blocked', 'eligible', 'runnable')
    AND e.public_state <> 'resumable';
