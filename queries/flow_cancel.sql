-- name: LockFlowToCancel :many
-- LockFlowToCancel locks the row of a flow whose exclusive lock the caller holds, and returns how it was cancelled before.
-- readable: its document can be added to. No row: the flow does not exist.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L0 waits (the flow row FOR NO KEY UPDATE).
SELECT
    f.public_flow_state,
    coalesce(f.raw_fields ->> 'cancellation_policy', '')::text AS cancellation_policy,
    coalesce(f.raw_fields ->> 'cancel_reason', '')::text AS cancel_reason,
    (jsonb_typeof(f.raw_fields) = 'object')::boolean AS readable
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id
FOR NO KEY UPDATE;

-- name: MarkFlowCancelled :exec
-- MarkFlowCancelled makes a flow cancelled by a policy. The time and the reason of an earlier cancel stand.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L0 held.
UPDATE ff_flow_core AS f
SET
    public_flow_state = 'cancelled',
    terminal_at_ms = coalesce(f.terminal_at_ms, @now_ms::bigint),
    raw_fields = f.raw_fields || jsonb_build_object(
        'cancellation_policy', @cancellation_policy::text,
        'cancel_reason', CASE
            WHEN f.public_flow_state = 'cancelled' THEN coalesce(f.raw_fields ->> 'cancel_reason', @reason::text)
            ELSE @reason::text
        END,
        'last_mutation_at_ms', @now_ms::bigint
    )
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;

-- name: ForgetSiblingCancels :exec
-- ForgetSiblingCancels forgets which upstreams of a flow's groups were to be cancelled: all of them have ended.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L3 waits (group rows, UPDATE; nobody else of this library has one under the flow's exclusive lock); L7 waits
-- (the rows of what is to be cancelled, DELETE, likewise).
WITH forgotten AS (
    DELETE FROM ff_pending_cancel_groups AS p
    WHERE
        p.partition_key = @partition_key
        AND p.flow_id = @flow_id
)
UPDATE ff_edge_group AS g
SET
    cancel_siblings_pending_flag = false,
    cancel_siblings_pending_members = '{}'
WHERE
    g.partition_key = @partition_key
    AND g.flow_id = @flow_id
    AND g.cancel_siblings_pending_flag;

-- name: ListFlowToCancel :many
-- ListFlowToCancel returns the members of a flow that was cancelled, whole ids in order: those that are still to be
-- cancelled or to acknowledge it, all members where there is none.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: none.
SELECT m.execution_id::text AS execution_id
FROM (
    SELECT b.execution_id
    FROM ff_cancel_backlog_member AS b
    WHERE
        b.partition_key = @partition_key
        AND b.flow_id = @flow_id
    UNION ALL
    SELECT '{fp:' || e.partition_key::text || '}:' || e.execution_id::text
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = @partition_key
        AND e.flow_id = @flow_id::uuid
        AND NOT EXISTS (
            SELECT
            FROM ff_cancel_backlog_member AS b
            WHERE
                b.partition_key = @partition_key
                AND b.flow_id = @flow_id
        )
) AS m
ORDER BY m.execution_id COLLATE "C"
LIMIT @page_size::bigint;
