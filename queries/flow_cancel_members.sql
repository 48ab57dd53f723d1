-- name: LockMembers :many
-- LockMembers locks the members of a flow that have not ended, in the order of their ids; with pending_only, those alone
-- that nobody runs and that are not suspended. No row: there is none. Whoever holds the flow exclusively meets all of
-- them: nothing is added to it, or replayed, meanwhile.
--
-- Used by: engine.CancelFlow.
-- Locks: L0 held; L1 waits (execution rows FOR NO KEY UPDATE by (partition_key, execution_id)).
WITH members AS (
    SELECT
        e.partition_key,
        e.execution_id
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = @partition_key
        AND e.flow_id = @flow_id::uuid
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
    ORDER BY
        e.partition_key,
        e.execution_id
    OFFSET 0
)
SELECT
    e.partition_key,
    e.execution_id
FROM members AS m
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = m.partition_key
        AND t.execution_id = m.execution_id
        AND (t.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')) IS TRUE
        AND (
            NOT @pending_only::boolean
            OR t.lifecycle_phase IN ('submitted', 'pending', 'blocked', 'eligible', 'runnable')
            AND t.public_state <> 'resumable'
        ) IS TRUE
    FOR NO KEY UPDATE
) AS e;
