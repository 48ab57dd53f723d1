-- name: LockToCancel :exec
-- LockToCancel locks unfinished executions outside flows, to be ended by the statements after it. All or nothing:
-- SQLSTATE 22012 if one of the executions does not exist, has ended, is a member of a flow, or is in an unknown phase.
--
-- Used by: engine.CancelExecution, engine.CancelExecutions.
-- Locks: L1 waits (execution rows FOR NO KEY UPDATE in array order). The caller sorts by (partition_key,
-- execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT 1 / (count(*) = cardinality(@execution_ids::uuid[]))::integer
FROM input AS i
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND (t.flow_id IS NULL) IS TRUE
        AND (t.lifecycle_phase IN ('submitted', 'runnable', 'pending', 'eligible', 'blocked', 'active', 'suspended')) IS TRUE
    FOR NO KEY UPDATE
) AS e;

-- name: DropEntriesOf :exec
-- DropEntriesOf deletes the queue entries of claimable executions, and the rows of ffx_waiting and ffx_blocked of
-- others, which the caller has locked and ends in the next statement, by EndCancelled. The trigger does not delete
-- these rows: for a row that becomes not_applicable with another mutation time, the trigger fires only if the row is
-- terminal.
--
-- Used by: engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, upkeep.CancelSiblings,
-- engine.CancelFlow, engine.RequestFlowCancel, upkeep.CancelFlows, upkeep.ExpireWaits.
-- Locks: L1 held; queue held, by the execution's row.
WITH input AS (
    -- The executions to end.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
listed AS (
    -- The unfinished executions, with their queue entries.
    SELECT
        i.partition_key,
        i.execution_id,
        q.entry_id,
        e.ffx_gate_id,
        - e.priority::bigint AS rank,
        e.created_at_ms,
        e.eligibility_state IN ('blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator') AS blocked
    FROM input AS i
    -- include held_execution
    LEFT JOIN LATERAL (
        SELECT r.ctid::tid AS entry_id
        FROM ffx_ready AS r
        WHERE
            e.lifecycle_phase = 'runnable'
            AND e.eligibility_state = 'eligible_now'
            AND r.lane_id = e.lane_id
            AND r.rank = - e.priority::bigint
            AND r.created_at_ms = e.created_at_ms
            AND r.execution_id = i.execution_id
            AND r.partition_key = i.partition_key
        LIMIT 1
    ) AS q ON true
    WHERE e.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
),
entries AS (
    -- The queue entries, deleted.
    DELETE FROM ffx_ready AS r
    USING listed AS l
    WHERE
        r.ctid = l.entry_id
        AND r.partition_key = l.partition_key
        AND r.execution_id = l.execution_id
),
waiting AS (
    -- Their rows at budgets and limits, deleted.
    DELETE FROM ffx_waiting AS w
    USING listed AS l
    WHERE
        w.gate_id = ANY (ARRAY[l.ffx_gate_id])
        AND w.rank = l.rank
        AND w.created_at_ms = l.created_at_ms
        AND w.execution_id = l.execution_id
        AND w.partition_key = l.partition_key
)
DELETE FROM ffx_blocked AS b
USING listed AS l
WHERE
    l.blocked
    AND b.partition_key = ANY (ARRAY[l.partition_key])
    AND b.execution_id = l.execution_id;

-- name: EndCancelled :many
-- EndCancelled ends executions as cancelled and settles their current attempts, in the state found under the locks. A
-- running or interrupted attempt ends under a raised epoch, written to both rows, so the holder is refused from now on.
-- A failed attempt with a retry to follow only loses its outcome. Returns the ended executions, each with the worker
-- instance that lost a lease and whether another program had replayed the execution. A terminal row stays unchanged.
--
-- Used by: engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, upkeep.CancelSiblings,
-- engine.CancelFlow, engine.RequestFlowCancel, upkeep.CancelFlows, upkeep.ExpireWaits.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The executions to end.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@reasons::text[]) AS reason,
        unnest(@sources::text[]) AS source,
        unnest(@revoked_bys::text[]) AS revoked_by
    LIMIT cardinality(@execution_ids::uuid[])
),
ended AS (
    -- Their rows, ended, with the way in which their attempts end.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'cancelled',
        public_state = 'cancelled',
        attempt_state = 'cancelled',
        -- Another program's pointer may differ from the index of the attempt.
        attempt_index = CASE WHEN i.goes_on THEN i.attempt_index ELSE e.attempt_index END,
        terminal_at_ms = coalesce(e.terminal_at_ms, i.now_ms),
        cancellation_reason = coalesce(e.cancellation_reason, nullif(i.reason, '')),
        cancelled_by = coalesce(e.cancelled_by, i.source),
        ffx_delay_until_ms = NULL,
        ffx_lease_epoch = CASE WHEN i.goes_on THEN i.raised_epoch ELSE e.ffx_lease_epoch END,
        -- Another program's fields about a suspension, which is discarded.
        raw_fields = CASE
            WHEN e.raw_fields ?| ARRAY['current_waitpoint_id', 'current_suspension_id']
                THEN e.raw_fields - ARRAY['current_waitpoint_id', 'current_suspension_id']
            ELSE e.raw_fields
        END,
        -- include set_ended: at_ms = i.now_ms
    FROM (
        SELECT
            i.partition_key,
            i.execution_id,
            e.row_id,
            i.reason,
            i.source,
            i.revoked_by,
            cur.attempt_index,
            cur.row_id AS attempt_row_id,
            cur.leased,
            cur.leased OR NOT coalesce(
                cur.outcome IN (
                    'success', 'failed', 'failure', 'retry', 'interrupted_reclaimed', 'cancelled', 'expired', 'skipped'
                )
                OR cur.outcome = 'interrupted' AND cur.terminal_at_ms IS NOT NULL,
                cur.attempt_index IS NULL
            ) AS goes_on,
            cur.leased OR e.lifecycle_phase IN ('active', 'suspended') OR e.public_state = 'resumable' AS held,
            1 + greatest(e.ffx_lease_epoch, cur.lease_epoch, 0) AS raised_epoch,
            CASE WHEN cur.leased THEN nullif(cur.worker_instance_id, '') END AS worker_instance_id,
            nullif(cur.lease_id, '') AS lease_id,
            ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
        FROM input AS i
        -- include held_execution
        -- include held_attempt
        OFFSET 0
    ) AS i
    WHERE
        -- Found by address: a locked row does not move.
        e.ctid = i.row_id
        AND e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
    RETURNING
        e.partition_key,
        e.execution_id,
        e.flow_id,
        ffx_replayed_elsewhere(e.raw_fields) AS replayed,
        e.attempt_index AS pointer,
        i.attempt_index,
        i.attempt_row_id,
        i.goes_on,
        i.held,
        i.raised_epoch,
        i.leased,
        i.lease_id,
        i.worker_instance_id,
        i.revoked_by,
        i.now_ms,
        (e.ffx_limit_ids IS NOT NULL) AS has_limits,
        CASE WHEN e.ffx_sequence IS NOT NULL THEN e.lane_id END AS sequence_lane,
        e.ffx_namespace,
        e.ffx_instance_tag
),
ended_attempts AS (
    -- Their attempts, ended, or without the outcome of an earlier lease. A finished attempt before the pointer keeps
    -- its outcome.
    UPDATE ff_attempt AS a
    SET
        outcome = CASE WHEN d.goes_on AND d.held THEN 'cancelled' END,
        terminal_at_ms = CASE WHEN d.goes_on AND d.held THEN d.now_ms ELSE a.terminal_at_ms END,
        worker_instance_id = CASE WHEN NOT d.goes_on THEN a.worker_instance_id END,
        lease_expires_at_ms = CASE WHEN NOT d.goes_on THEN a.lease_expires_at_ms END,
        ffx_timeout_at_ms = CASE WHEN NOT d.goes_on THEN a.ffx_timeout_at_ms END,
        lease_epoch = CASE WHEN d.goes_on THEN d.raised_epoch ELSE a.lease_epoch END
    FROM ended AS d
    WHERE
        a.ctid = d.attempt_row_id
        AND a.partition_key = ANY (ARRAY[d.partition_key])
        AND a.execution_id = d.execution_id
        AND a.attempt_index = d.attempt_index
        AND (d.goes_on OR d.attempt_index = d.pointer)
),
lease_events AS (
    -- The lease events.
    -- include lease_events: rows = ended, event_type = 'revoked', at_ms = r.now_ms, revoked_by = r.revoked_by
        AND r.leased
)
SELECT
    d.partition_key,
    d.execution_id,
    d.flow_id,
    d.replayed::boolean AS replayed,
    coalesce(d.leased, false)::boolean AS leased,
    coalesce(d.worker_instance_id, '')::text AS worker_instance_id,
    d.has_limits::boolean AS has_limits,
    coalesce(d.sequence_lane, '')::text AS sequence_lane
FROM ended AS d;
