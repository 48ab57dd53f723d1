-- name: ReadExecutionForecasts :many
-- ReadExecutionForecasts returns the facts for a forecast: whether an operation on executions needs the locks of their
-- flows; ord (from 0) is the input position. The caller decides again under the row locks. No row: the execution does
-- not exist.
--
-- Used by: engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, operator.DeleteWhere,
-- operator.MoveWhere, operator.PrioritizeWhere, operator.Replay, operator.ReplayWhere, interop.ReclaimExecution,
-- upkeep.CancelFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    e.flow_id,
    e.lifecycle_phase,
    ffx_lost_too_often(e.lease_reclaim_count, e.policy, @default_cap::integer)::boolean AS lost_too_often
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.flow_id,
        t.lifecycle_phase,
        t.lease_reclaim_count,
        t.policy
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e;

-- name: LockCurrentAttempts :exec
-- LockCurrentAttempts locks the current attempt of each given execution: the newest up to the pointer. An execution may
-- have none.
--
-- Used by: engine.CancelExecution, operator.Prioritize, operator.Move, operator.Delay, operator.Revoke,
-- operator.Replay, interop.IssueClaimGrant, interop.ClaimExecution, interop.IssueGrantAndClaim,
-- interop.ClaimFromResumeGrant, interop.IssueReclaimGrant, interop.ReclaimExecution, operator.Block,
-- operator.Unblock, engine.Resume, operator.ReissueToken.
-- Locks: L2 waits (attempt rows FOR UPDATE in array order). The executions are locked by the caller.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT 1
FROM input AS i
JOIN ff_exec_core AS e ON e.partition_key = ANY (ARRAY[i.partition_key]) AND e.execution_id = i.execution_id
CROSS JOIN LATERAL (
    SELECT t.attempt_index
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index <= e.attempt_index
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

-- name: ReadHeldExecutions :many
-- ReadHeldExecutions returns the facts an operation decides by, for executions and current attempts locked in earlier
-- statements; ord (from 0) is the input position. No row: the execution does not exist. A negative current_index: there
-- is no attempt up to the pointer. A negative newest_index: the execution has no attempt at all.
--
-- Passages: held_execution, held_attempt.
-- Used by: engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, operator.DeleteWhere,
-- operator.MoveWhere, operator.PrioritizeWhere, operator.Prioritize, operator.Move, operator.Delay,
-- operator.Revoke, operator.Replay, operator.ReplayWhere, interop.IssueClaimGrant, interop.ClaimForWorker,
-- interop.ClaimExecution, interop.IssueGrantAndClaim, interop.ClaimFromResumeGrant, interop.IssueReclaimGrant,
-- interop.ReclaimExecution, operator.Block, operator.Unblock, engine.Resume, operator.ReissueToken,
-- engine.CreateFlow, engine.GrowFlow, engine.AddMembers, engine.StageEdges, engine.ApplyEdges,
-- engine.SetGroupPolicy.
-- Locks: none. The caller has locked the rows read.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    e.flow_id,
    e.lane_id,
    e.required_capabilities,
    e.attempt_index AS pointer,
    e.lifecycle_phase,
    e.ownership_state,
    e.eligibility_state,
    e.public_state,
    e.attempt_state,
    coalesce(e.blocking_reason, '')::text AS blocking_reason,
    e.priority,
    e.created_at_ms,
    e.started_at_ms,
    e.terminal_at_ms,
    e.deadline_at_ms,
    e.ffx_execution_deadline_ms,
    e.ffx_delay_until_ms,
    e.policy,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    e.lease_reclaim_count,
    ffx_lost_too_often(e.lease_reclaim_count, e.policy, @default_cap::integer)::boolean AS lost_too_often,
    coalesce(e.ffx_lease_epoch, 0)::bigint AS highest_epoch,
    coalesce(e.ffx_admitted, false)::boolean AS admitted,
    e.ffx_gate_id,
    (e.ffx_budget_ids IS NOT NULL)::boolean AS has_budgets,
    (e.ffx_limit_ids IS NOT NULL)::boolean AS has_limits,
    e.ffx_sequence,
    coalesce(e.raw_fields ->> 'replay_count', '')::text AS raw_replay_count,
    e.ffx_unique_key,
    coalesce(e.raw_fields ->> 'ffx_unique', '')::text AS unique_lasts,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.attempt_index, -1)::integer AS current_index,
    coalesce(cur.lease_epoch, 0)::bigint AS current_epoch,
    coalesce(cur.outcome, '')::text AS current_outcome,
    cur.terminal_at_ms AS current_terminal_at_ms,
    cur.lease_expires_at_ms,
    cur.ffx_delay_until_ms AS current_delay_until_ms,
    coalesce(cur.worker_id, '')::text AS worker_id,
    coalesce(cur.worker_instance_id, '')::text AS worker_instance_id,
    coalesce(cur.lease_id, '')::text AS lease_id,
    coalesce(cur.attempt_id, '')::text AS attempt_id,
    coalesce(p.outcome, '')::text AS pointer_outcome,
    coalesce(newest.attempt_index, -1)::integer AS newest_index,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM input AS i
CROSS JOIN LATERAL (
    -- The execution e of an item i (partition_key, execution_id). The planner drops unused columns.
    SELECT
        t.ctid::tid AS row_id,
        t.flow_id,
        t.lane_id,
        t.required_capabilities,
        t.attempt_index,
        t.lifecycle_phase,
        t.ownership_state,
        t.eligibility_state,
        t.public_state,
        t.attempt_state,
        t.blocking_reason,
        t.priority,
        t.created_at_ms,
        t.started_at_ms,
        t.terminal_at_ms,
        t.deadline_at_ms,
        t.ffx_execution_deadline_ms,
        t.ffx_delay_until_ms,
        t.policy,
        t.cancellation_reason,
        t.lease_reclaim_count,
        t.ffx_lease_epoch,
        t.ffx_admitted,
        t.ffx_gate_id,
        t.ffx_budget_ids,
        t.ffx_limit_ids,
        t.ffx_unique_key,
        t.ffx_sequence,
        t.raw_fields
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    LIMIT 1
) AS e
LEFT JOIN LATERAL (
    -- The current attempt cur of the execution e of an item i: the newest up to the pointer. The planner drops unused
    -- columns.
    SELECT
        c.ctid::tid AS row_id,
        c.attempt_index,
        c.lease_epoch,
        c.outcome,
        c.terminal_at_ms,
        c.lease_expires_at_ms,
        c.lease_expires_at_ms IS NOT NULL
        AND e.ownership_state IN ('leased', 'lease_expired_reclaimable', 'lease_revoked') AS leased,
        c.ffx_delay_until_ms,
        c.worker_id,
        c.worker_instance_id,
        -- Another program keeps the ids of an attempt and a lease in raw_fields; the library uses the columns.
        CASE
            WHEN c.lease_epoch = e.ffx_lease_epoch THEN c.ffx_lease_id::text
            ELSE c.raw_fields ->> 'lease_id'
        END AS lease_id,
        CASE
            WHEN c.lease_epoch = e.ffx_lease_epoch THEN c.ffx_attempt_id::text
            ELSE c.raw_fields ->> 'attempt_id'
        END AS attempt_id
    FROM ff_attempt AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
LEFT JOIN LATERAL (
    SELECT c.attempt_index
    FROM ff_attempt AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.execution_id = i.execution_id
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS newest ON true;
