-- name: LockFlowToCancel :many
-- LockFlowToCancel locks the row of a flow whose exclusive lock the caller holds, and returns how the flow was
-- cancelled before. readable: fields can be added to the flow's document. No row: the flow does not exist.
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
-- MarkFlowCancelled marks a flow as cancelled by a policy. The time and the reason of an earlier cancel stay.
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
-- ForgetSiblingCancels clears the lists of upstreams to cancel of a flow's groups: all have ended.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: L3 waits (group rows, UPDATE; under the flow's exclusive lock no other caller of the library has one); L7
-- waits (rows of the list of pending cancels, DELETE, likewise).
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
-- ListFlowToCancel returns the members of a cancelled flow still to be cancelled or to acknowledge the cancel, or all
-- members if there is none. The ids are whole and sorted.
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
