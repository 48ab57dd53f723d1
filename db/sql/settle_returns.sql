-- name: ReturnLeases :many
-- ReturnLeases returns running attempts unfinished: a later claim resumes the same attempt. waits_for is the condition
-- of the claim: '' only a worker, 'time' delay_until_ms, 'children' the end of the upstreams. With a delay_until_ms of
-- 0 the holder waited for upstreams, and did not delay. Returns the lanes with work to claim now.
--
-- Passages: lease_events.
-- Used by: engine.ReleaseLeases, engine.DelayExecution, engine.DelayExecutions, engine.WaitForChildren,
-- engine.WaitForChildrenEach.
-- Locks: L1 held; L2 held; L7 new.
WITH input AS (
    -- The attempts to give back.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@attempt_indexes::integer[]) AS attempt_index,
        unnest(@waits_fors::text[]) AS waits_for,
        nullif(unnest(@delays_until_ms::bigint[]), 0) AS delay_until_ms,
        nullif(unnest(@traces::text[]), '') AS trace
    LIMIT cardinality(@execution_ids::uuid[])
),
returned AS (
    -- Their executions: delayed, parked, claimable again, or before their gate.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = CASE
            WHEN i.waits_for = 'time' THEN 'not_eligible_until_time'
            WHEN i.waits_for = 'children' THEN 'blocked_by_dependencies'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'eligible_now'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN i.waits_for = 'time' THEN 'delayed'
            WHEN i.waits_for = 'children' THEN 'waiting_children'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting'
            ELSE 'rate_limited'
        END,
        attempt_state = 'attempt_interrupted',
        blocking_reason = CASE
            WHEN i.waits_for = 'time' THEN 'waiting_for_delay'
            WHEN i.waits_for = 'children' THEN 'waiting_for_children'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting_for_worker'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        attempt_index = i.attempt_index,
        deadline_at_ms = CASE
            WHEN i.waits_for = 'time' THEN least(
                i.delay_until_ms,
                nullif(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms), 0)
            )
            ELSE e.deadline_at_ms
        END,
        ffx_delay_until_ms = CASE WHEN i.waits_for = 'time' THEN i.delay_until_ms END,
        ffx_execution_deadline_ms = CASE
            WHEN i.waits_for = 'time' THEN coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms, 0)
            ELSE e.ffx_execution_deadline_ms
        END,
        ffx_gate_id = CASE WHEN i.waits_for = '' THEN coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1]) END,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = @now_ms::bigint,
        ffx_trace = coalesce(i.trace, e.ffx_trace)
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        e.lane_id,
        e.eligibility_state,
        i.attempt_index,
        i.waits_for,
        i.delay_until_ms,
        e.ffx_lease_epoch,
        e.ffx_namespace,
        e.ffx_instance_tag
),
returned_attempts AS (
    -- The attempts, parked and without a lease.
    UPDATE ff_attempt AS a
    SET
        outcome = CASE WHEN r.delay_until_ms IS NULL THEN 'waiting_children' ELSE 'interrupted' END,
        lease_expires_at_ms = NULL,
        ffx_timeout_at_ms = NULL,
        ffx_delay_until_ms = r.delay_until_ms
    FROM returned AS r
    WHERE
        a.partition_key = ANY (ARRAY[r.partition_key])
        AND a.execution_id = r.execution_id
        AND a.attempt_index = r.attempt_index
    RETURNING
        a.partition_key,
        a.execution_id,
        CASE
            WHEN a.lease_epoch = r.ffx_lease_epoch THEN a.ffx_lease_id::text
            ELSE a.raw_fields ->> 'lease_id'
        END AS lease_id,
        a.worker_instance_id,
        r.ffx_namespace,
        r.ffx_instance_tag
),
lease_events AS (
    -- The lease events.
    INSERT INTO ff_lease_event (
        -- Takes returned_attempts (partition_key, execution_id, lease_id, worker_instance_id, ffx_namespace, ffx_instance_tag).
        execution_id,
        lease_id,
        event_type,
        occurred_at_ms,
        partition_key,
        namespace,
        instance_tag,
        ffx_worker_instance_id,
        ffx_revoked_by
    )
    SELECT
        r.execution_id::text,
        r.lease_id,
        'revoked',
        @now_ms::bigint,
        r.partition_key,
        r.ffx_namespace,
        r.ffx_instance_tag,
        r.worker_instance_id,
        'backend'
    FROM returned_attempts AS r
    WHERE
        -- Without columns of r it is asked once, and a value that is not kept costs no scan.
        coalesce((SELECT o.kept FROM ffx_outbox_floor AS o WHERE o.outbox = 'lease'), 'all')
        IN ('all', CASE WHEN 'revoked' = 'expired' OR 'backend' IN ('operator', 'reconciler') THEN 'lost' END)
)
SELECT DISTINCT r.lane_id
FROM returned AS r
WHERE r.eligibility_state = 'eligible_now';

-- name: LockGroupsOf :exec
-- LockGroupsOf locks the groups executions wait for. A member without upstreams may have none.
--
-- Used by: engine.WaitForChildren, engine.WaitForChildrenEach, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, engine.SetGroupPolicy.
-- Locks: L3 waits (group rows FOR UPDATE in array order). The caller sorts by (partition_key, execution_id) and holds L0,
-- shared at least.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT 1
FROM input AS i
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_edge_group AS g
    WHERE
        g.partition_key = i.partition_key
        AND g.flow_id = i.flow_id
        AND g.downstream_eid = i.execution_id
    FOR UPDATE
) AS g;

-- name: ReadGroupsOf :many
-- ReadGroupsOf returns the groups executions wait for, by ord (from 0), with their present counters and the number of
-- staged edges not applied yet. No row: the execution has no group.
--
-- Used by: engine.WaitForChildren, engine.WaitForChildrenEach, upkeep.CancelSiblings, engine.CreateFlow,
-- engine.GrowFlow, engine.StageEdges, engine.ApplyEdges, engine.SetGroupPolicy.
-- Locks: none. The caller has locked the rows read.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    i.ord::integer AS ord,
    g.policy,
    g.success_count,
    g.fail_count,
    g.skip_count,
    g.running_count,
    (
        SELECT count(*)
        FROM ff_edge AS s
        WHERE
            s.downstream_eid = i.execution_id
            AND (s.partition_key = i.partition_key OR s.partition_key IS NULL)
            AND (s.flow_id = i.flow_id) IS TRUE
            AND s.policy -> 'applied_at_ms' = 'null'::jsonb
    )::bigint AS staged_count
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.policy,
        t.success_count,
        t.fail_count,
        t.skip_count,
        t.running_count
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND t.downstream_eid = i.execution_id
    LIMIT 1
) AS g;
