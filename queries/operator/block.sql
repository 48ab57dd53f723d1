-- name: BlockExecution :exec
-- BlockExecution blocks an execution the caller has locked, for a reason, and withdraws the admission. The caller
-- deletes the grants.
--
-- Used by: operator.Block.
-- Locks: L1 held.
UPDATE ff_exec_core AS e
SET
    lifecycle_phase = 'runnable',
    ownership_state = 'unowned',
    eligibility_state = @eligibility_state::text,
    public_state = @public_state::text,
    blocking_reason = @blocking_reason::text,
    ffx_gate_id = CASE @eligibility_state::text
        WHEN 'blocked_by_budget' THEN e.ffx_budget_ids[1]
        WHEN 'blocked_by_quota' THEN e.ffx_limit_ids[1]
    END,
    ffx_admitted = NULL,
    raw_fields = (
        CASE WHEN jsonb_typeof(e.raw_fields) = 'object' THEN e.raw_fields - 'blocking_detail' ELSE '{}'::jsonb END
    ) || jsonb_strip_nulls(jsonb_build_object(
        'blocking_detail', nullif(@detail::text, ''),
        'last_mutation_at', (@now_ms::bigint)::text
    )),
    ffx_last_mutation_at_ms = @now_ms::bigint
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: UnblockExecution :exec
-- UnblockExecution makes a blocked execution the caller has locked claimable. An execution with a budget or quota need
-- not pass the gate again.
--
-- Used by: operator.Unblock.
-- Locks: L1 held.
UPDATE ff_exec_core AS e
SET
    lifecycle_phase = 'runnable',
    ownership_state = 'unowned',
    eligibility_state = 'eligible_now',
    public_state = 'waiting',
    blocking_reason = 'waiting_for_worker',
    ffx_gate_id = NULL,
    ffx_admitted = CASE
        WHEN e.ffx_budget_ids IS NOT NULL OR e.ffx_limit_ids IS NOT NULL THEN true
        ELSE e.ffx_admitted
    END,
    raw_fields = (
        CASE WHEN jsonb_typeof(e.raw_fields) = 'object' THEN e.raw_fields - 'blocking_detail' ELSE '{}'::jsonb END
    ) || jsonb_build_object('last_mutation_at', (@now_ms::bigint)::text),
    ffx_last_mutation_at_ms = @now_ms::bigint
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;

-- name: DropGrants :exec
-- DropGrants deletes the grants of an execution the caller has locked.
--
-- Used by: operator.Block.
-- Locks: L5 waits (DELETE).
DELETE FROM ff_claim_grant AS g
WHERE
    g.partition_key = @partition_key
    AND g.execution_id = @execution_id;

-- name: ListBlocked :many
-- ListBlocked pages through the executions blocked by route, lane or operator, up to a last lane. The rows are ordered
-- by lane, then the longest blocked first, strictly after a place, with one eligibility state or any.
--
-- Used by: operator.BlockedExecutions.
-- Locks: none. Spans partitions.
SELECT
    b.partition_key,
    b.execution_id,
    b.lane_id,
    b.blocked_at_ms,
    b.required_capabilities,
    e.blocking_reason,
    e.blocking_detail,
    e.execution_kind
FROM ffx_blocked AS b
-- Looked up one by one, in the order of the index.
CROSS JOIN LATERAL (
    SELECT
        coalesce(t.blocking_reason, '')::text AS blocking_reason,
        coalesce(t.raw_fields ->> 'blocking_detail', '')::text AS blocking_detail,
        coalesce(t.raw_fields ->> 'execution_kind', '')::text AS execution_kind
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = b.partition_key
        AND t.execution_id = b.execution_id
        AND t.eligibility_state = b.eligibility_state
    LIMIT 1
) AS e
WHERE
    (b.lane_id, b.blocked_at_ms, b.partition_key, b.execution_id)
    > (@after_lane_id::text, @after_blocked_at_ms::bigint, @after_partition_key::smallint, @after_execution_id::uuid)
    AND b.lane_id <= @last_lane_id
    AND (b.eligibility_state = sqlc.narg(eligibility_state)::text) IS NOT FALSE
ORDER BY
    b.lane_id,
    b.blocked_at_ms,
    b.partition_key,
    b.execution_id
LIMIT @page_size::integer;

-- name: UnblockRoutes :many
-- UnblockRoutes makes executions claimable that were blocked for want of a capable worker, if a live worker in the
-- registry serves the lane with the required capabilities: lane by lane, the longest blocked first. Returns their lanes
-- and whether each is claimable; an execution with a budget or quota goes to the gate.
--
-- Used by: upkeep.UnblockRoutes.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE, then the guarded UPDATE). Spans partitions.
WITH served AS MATERIALIZED (
    -- The capabilities of live workers, by lane.
    SELECT DISTINCT
        unnest(w.lanes) AS lane_id,
        string_to_array(w.capabilities_csv, ',') AS capabilities
    FROM ff_worker_registry AS w
    WHERE
        w.last_heartbeat_ms + w.liveness_ttl_ms > ffx_now_ms(sqlc.narg(now_ms))
        AND EXISTS (SELECT FROM ffx_blocked AS b WHERE b.eligibility_state = 'blocked_by_route')
),
due AS (
    -- The blocked executions the workers can run, locked.
    SELECT
        e.row_id,
        e.partition_key,
        e.execution_id
    FROM (SELECT DISTINCT s.lane_id FROM served AS s) AS l
    CROSS JOIN LATERAL (
        SELECT
            b.lane_id,
            b.partition_key,
            b.execution_id,
            b.required_capabilities
        FROM ffx_blocked AS b
        WHERE
            b.eligibility_state = 'blocked_by_route'
            AND b.lane_id = l.lane_id
            AND EXISTS (
                SELECT
                FROM served AS s
                WHERE
                    s.lane_id = l.lane_id
                    AND b.required_capabilities <@ s.capabilities
            )
        ORDER BY b.blocked_at_ms
    ) AS b
    CROSS JOIN LATERAL (
        SELECT
            t.ctid::tid AS row_id,
            t.partition_key,
            t.execution_id
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = b.partition_key
            AND t.execution_id = b.execution_id
            AND t.lane_id IS NOT DISTINCT FROM b.lane_id
            AND t.lifecycle_phase = 'runnable'
            AND t.eligibility_state = 'blocked_by_route'
            AND t.required_capabilities <@ b.required_capabilities
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS e
    LIMIT @batch_size::integer
),
unblocked AS (
    -- The executions, claimable or before their gate.
    UPDATE ff_exec_core AS e
    SET
        eligibility_state = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'eligible_now'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'waiting'
            ELSE 'rate_limited'
        END,
        blocking_reason = CASE
            WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'waiting_for_worker'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        ffx_gate_id = CASE
            WHEN e.ffx_admitted IS NOT TRUE THEN coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1])
        END,
        raw_fields = (
            CASE WHEN jsonb_typeof(e.raw_fields) = 'object' THEN e.raw_fields - 'blocking_detail' ELSE '{}'::jsonb END
        ) || jsonb_build_object('last_mutation_at', ffx_now_ms(sqlc.narg(now_ms))::text),
        ffx_last_mutation_at_ms = ffx_now_ms(sqlc.narg(now_ms))
    FROM due AS d
    WHERE
        e.ctid = d.row_id
        AND e.partition_key = d.partition_key
        AND e.execution_id = d.execution_id
    RETURNING
        e.lane_id,
        e.eligibility_state
)
SELECT
    u.lane_id,
    (u.eligibility_state = 'eligible_now')::boolean AS claimable
FROM unblocked AS u;
