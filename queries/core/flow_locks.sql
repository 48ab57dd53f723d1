-- name: LockFlowsShared :exec
-- LockFlowsShared takes the shared form of the locks of flows, ascending by key. Successes of members hold the shared
-- form, so several members may end at once while no structure change runs. Waiting transactions queue in order of
-- arrival.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- upkeep.DispatchCompletions, engine.WaitForChildren, engine.RecordStep, engine.TakeSignal.
-- Locks: L0 waits (transaction-level advisory locks, shared, ascending).
SELECT pg_advisory_xact_lock_shared(k.key)
FROM (
    SELECT DISTINCT ffx_flow_key(f.flow_id) AS key
    FROM (SELECT unnest(@flow_ids::uuid[]) AS flow_id) AS f
    ORDER BY 1
) AS k;

-- name: LockFlowsExclusive :exec
-- LockFlowsExclusive takes the exclusive form of the locks of flows, ascending by key. Every operation that ends a
-- member without success, or changes a flow's structure, holds the exclusive form.
--
-- Used by: engine.FailExecution, engine.CreateExecution, engine.CreateExecutions, upkeep.DispatchCompletions,
-- upkeep.ExpireLeases, upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits,
-- engine.CancelExecution, engine.WaitForChildren, operator.Replay, interop.ReclaimExecution,
-- engine.CreateFlow, engine.GrowFlow, engine.AddMembers, engine.StageEdges, engine.ApplyEdges,
-- engine.SetGroupPolicy, engine.LockFlows, upkeep.CancelSiblings, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L0 waits (transaction-level advisory locks, exclusive, ascending).
SELECT pg_advisory_xact_lock(k.key)
FROM (
    SELECT DISTINCT ffx_flow_key(f.flow_id) AS key
    FROM (SELECT unnest(@flow_ids::uuid[]) AS flow_id) AS f
    ORDER BY 1
) AS k;

-- name: LockFlowRows :many
-- LockFlowRows locks the rows of flows whose exclusive lock the caller holds. A missing flow has no row.
--
-- Used by: engine.FailExecution, engine.CreateExecution, engine.CreateExecutions, upkeep.DispatchCompletions,
-- upkeep.ExpireLeases, upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits,
-- engine.CancelExecution, engine.WaitForChildren, operator.Replay, interop.ReclaimExecution,
-- engine.LockFlows, upkeep.CancelSiblings, upkeep.CancelFlows.
-- Locks: L0 waits (flow rows FOR NO KEY UPDATE in array order). The caller sorts by (partition_key, flow_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT
    f.flow_id,
    f.public_flow_state
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.flow_id,
        t.public_flow_state
    FROM ff_flow_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
    FOR NO KEY UPDATE
) AS f;

-- name: ShareFlowRows :exec
-- ShareFlowRows locks the rows of flows in share mode if the caller's transaction runs above READ COMMITTED: its
-- snapshot may be older than a structure change, and then the statement fails with 40001 instead of overlooking an
-- edge. At READ COMMITTED nothing is read.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- upkeep.DispatchCompletions, engine.WaitForChildren, engine.WaitForChildrenEach, engine.RecordStep,
-- engine.TakeSignal.
-- Locks: L0 waits (flow rows FOR SHARE in array order). The caller sorts by (partition_key, flow_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT 1
FROM input AS i
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_flow_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND current_setting('transaction_isolation') <> 'read committed'
    FOR SHARE
) AS f;

-- name: TryFlowsShared :many
-- TryFlowsShared is LockFlowsShared without waiting: the result has the flows whose lock was free. A flow is left out
-- if another transaction holds the lock exclusively, or waits for the lock.
--
-- Used by: engine.CompleteExecutions, engine.Claimer.CompleteAndClaim, upkeep.DispatchCompletions,
-- engine.WaitForChildrenEach, upkeep.Retain, upkeep.RepairQueue.
-- Locks: L0 skips (transaction-level advisory locks, shared).
SELECT k.flow_id::uuid AS flow_id
FROM (
    SELECT
        f.flow_id,
        ffx_flow_key(f.flow_id) AS key
    FROM (SELECT unnest(@flow_ids::uuid[]) AS flow_id) AS f
    ORDER BY 2
) AS k
WHERE pg_try_advisory_xact_lock_shared(k.key);

-- name: TryFlowsExclusive :many
-- TryFlowsExclusive is LockFlowsExclusive and LockFlowRows without waiting: the result has the flows for which both
-- locks were free. A flow without a row needs only the first.
--
-- Used by: engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases, upkeep.ExpireAttempts,
-- upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue, engine.CancelExecutions,
-- operator.CancelWhere, operator.ReplayWhere, engine.WaitForChildrenEach, upkeep.PurgeFlows, upkeep.CancelSiblings,
-- upkeep.RepairGroups, upkeep.CancelFlows.
-- Locks: L0 skips (transaction-level advisory locks, exclusive, then the flows' rows FOR NO KEY UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
),
tried AS MATERIALIZED (
    SELECT
        k.partition_key,
        k.flow_id
    FROM (
        SELECT
            i.partition_key,
            i.flow_id,
            ffx_flow_key(i.flow_id) AS key
        FROM input AS i
        ORDER BY 3
    ) AS k
    WHERE pg_try_advisory_xact_lock(k.key)
)
SELECT t.flow_id::uuid AS flow_id
FROM tried AS t
LEFT JOIN LATERAL (
    SELECT true AS stored
    FROM ff_flow_core AS c
    WHERE
        c.partition_key = t.partition_key
        AND c.flow_id = t.flow_id
    LIMIT 1
) AS s ON true
LEFT JOIN LATERAL (
    SELECT true AS taken
    FROM ff_flow_core AS c
    WHERE
        c.partition_key = t.partition_key
        AND c.flow_id = t.flow_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS r ON true
WHERE
    s.stored IS NULL
    OR r.taken;
