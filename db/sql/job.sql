-- name: TakeCurrentAttempts :many
-- TakeCurrentAttempts locks the current attempt of each given execution: the newest up to the pointer. busy: another
-- transaction holds the attempt, and the other columns of the row mean nothing. An execution without attempts has no
-- row.
--
-- Used by: upkeep.ExpireLeases, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecutions, operator.CancelWhere, operator.DeleteWhere, operator.MoveWhere, operator.PrioritizeWhere,
-- operator.ReplayWhere, interop.ClaimForWorker, upkeep.CancelSiblings, upkeep.CancelFlows.
-- Locks: L2 skips (attempt rows FOR UPDATE). The executions are locked by the caller.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    e.execution_id,
    n.attempt_index,
    (a.lease_epoch IS NULL)::boolean AS busy,
    coalesce(a.lease_epoch, 0)::bigint AS lease_epoch,
    a.terminal_at_ms,
    a.lease_expires_at_ms,
    coalesce(a.worker_instance_id, '')::text AS worker_instance_id,
    -- Another program keeps the id of a lease in raw_fields; the library uses the column.
    coalesce(CASE
        WHEN a.lease_epoch = e.ffx_lease_epoch THEN a.ffx_lease_id::text
        ELSE a.raw_fields ->> 'lease_id'
    END, '')::text AS lease_id
FROM input AS i
JOIN ff_exec_core AS e ON e.partition_key = ANY (ARRAY[i.partition_key]) AND e.execution_id = i.execution_id
CROSS JOIN LATERAL (
    -- Found before the lock: with SKIP LOCKED in the sub-select, the next older attempt would be taken instead.
    SELECT t.attempt_index
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index <= e.attempt_index
    ORDER BY t.attempt_index DESC
    LIMIT 1
) AS n
LEFT JOIN LATERAL (
    SELECT
        t.lease_epoch,
        t.terminal_at_ms,
        t.lease_expires_at_ms,
        t.worker_instance_id,
        t.ffx_lease_id,
        t.raw_fields
    FROM ff_attempt AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.attempt_index = n.attempt_index
    FOR UPDATE SKIP LOCKED
) AS a ON true;

-- name: DiscardWaiting :exec
-- DiscardWaiting deletes the suspensions, waitpoints and grants of ended executions, so none acts on an execution
-- later.
--
-- Used by: upkeep.ExpireLeases, upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits,
-- upkeep.RepairQueue, engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, operator.Replay,
-- operator.ReplayWhere, interop.ReclaimExecution, upkeep.CancelSiblings, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L5 waits (DELETE). The executions are locked by the caller.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
),
grants AS (
    DELETE FROM ff_claim_grant AS g
    USING input AS i
    WHERE
        g.partition_key = i.partition_key
        AND g.execution_id = i.execution_id
),
suspensions AS (
    DELETE FROM ff_suspension_current AS s
    USING input AS i
    WHERE
        s.partition_key = i.partition_key
        AND s.execution_id = i.execution_id
)
DELETE FROM ff_waitpoint_pending AS w
USING input AS i
WHERE
    w.partition_key = i.partition_key
    AND w.execution_id = i.execution_id;
