-- name: LockFlowsShared :exec
-- LockFlowsShared takes the shared form of the locks of flows, ascending by key: successes of members
-- hold it, so that several may end at once while no structure change runs. It queues in order of arrival.
--
-- Used by: engine.CompleteExecutions.
-- Locks: transaction-level advisory locks, shared (L0).
SELECT pg_advisory_xact_lock_shared(k.key)
FROM (
    SELECT DISTINCT ffx_flow_key(f.flow_id) AS key
    FROM (SELECT unnest(@flow_ids::uuid[]) AS flow_id) AS f
    ORDER BY 1
) AS k;

-- name: LockFlowsExclusive :exec
-- LockFlowsExclusive takes the exclusive form of the locks of flows, ascending by key: whatever ends a
-- member without success, or changes a flow's structure, holds it.
--
-- Used by: engine.FailExecutions, engine.ExpireLeases, engine.CreateExecutions for members.
-- Locks: transaction-level advisory locks, exclusive (L0).
SELECT pg_advisory_xact_lock(k.key)
FROM (
    SELECT DISTINCT ffx_flow_key(f.flow_id) AS key
    FROM (SELECT unnest(@flow_ids::uuid[]) AS flow_id) AS f
    ORDER BY 1
) AS k;

-- name: LockFlowRows :many
-- LockFlowRows locks the rows of flows whose exclusive lock the caller holds. A missing flow has no row.
--
-- Used by: whoever used LockFlowsExclusive.
-- Locks: flow rows FOR NO KEY UPDATE in array order (L0): the caller sorts by (partition_key, flow_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@partition_keys::smallint[])
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
-- ShareFlowRows locks the rows of flows in share mode when the caller's transaction runs above READ
-- COMMITTED: its snapshot may be older than a structure change, and then this meets 40001 instead of
-- overlooking an edge. At READ COMMITTED it reads nothing.
--
-- Used by: engine.CompleteExecutions inside a caller's transaction.
-- Locks: flow rows FOR SHARE in array order (L0): the caller sorts by (partition_key, flow_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@partition_keys::smallint[])
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
