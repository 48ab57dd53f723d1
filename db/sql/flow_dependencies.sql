-- name: LockDownstreamGroups :execrows
-- LockDownstreamGroups locks the edge groups in which succeeded executions count, in one order. Concurrent successes
-- with several groups in common then queue instead of deadlocking. The counters are right even without this lock:
-- ResolveEdges locks the row of a counting group and starts from the last committed counters. No rows: nothing depends
-- on the executions, and there is nothing to resolve.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- upkeep.DispatchCompletions, operator.Replay, operator.ReplayWhere.
-- Locks: L3 waits (group rows FOR UPDATE by (partition_key, downstream_eid), in one statement).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
),
downstream AS (
    SELECT DISTINCT
        d.partition_key,
        d.flow_id,
        d.downstream_eid
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.flow_id,
            t.edge_id,
            t.upstream_eid,
            t.downstream_eid,
            t.policy
        FROM ff_edge AS t
        WHERE
            t.upstream_eid = i.execution_id
            AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
            AND t.flow_id = i.flow_id
            AND t.policy <> 'null' -- this column is not in the index that covers the others
        OFFSET 0
    ) AS d
    ORDER BY
        d.partition_key,
        d.downstream_eid
)
SELECT 1
FROM downstream AS d
LEFT JOIN LATERAL (
    SELECT 1
    FROM ff_edge_group AS g
    WHERE
        g.partition_key = d.partition_key
        AND g.flow_id = d.flow_id
        AND g.downstream_eid = d.downstream_eid
    FOR UPDATE
) AS g ON true;

-- name: ResolveEdges :many
-- ResolveEdges marks the open edges of ended executions as resolved and counts the edges in their groups. The mark
-- makes an edge count exactly once. Returns each changed group, with the new counters and the counted edges. marked:
-- how many edges were marked in all groups; larger than the number of counted edges if some were left out. A group
-- without a row is not returned, although its edges are marked; the edges of an execution another program has replayed
-- stay unchanged. The caller finds both by ListUncountedEdges.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L3 waits (edge and group rows, UPDATE: concurrent statements on one group queue, and each goes on from the
-- counters of the one before). For a success the groups are locked already, in order; otherwise the flow's exclusive
-- lock is held.
WITH input AS (
    -- The executions.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
),
replayed AS (
    -- The number of upstreams another program has replayed.
    SELECT count(*) AS executions
    FROM (
        SELECT
            unnest(@partition_keys::smallint[]) AS partition_key,
            unnest(@execution_ids::uuid[]) AS execution_id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT ffx_replayed_elsewhere(t.raw_fields) AS elsewhere
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
        LIMIT 1
    ) AS u
    WHERE u.elsewhere
),
resolved AS (
    -- Their open edges, resolved.
    UPDATE ff_edge AS d
    SET
        -- The same for all rows, so built once.
        policy = d.policy || (
            SELECT
                jsonb_build_object(
                    'edge_state', CASE WHEN @outcome::text = 'success' THEN 'satisfied' ELSE 'impossible' END,
                    'resolved_at_ms', @now_ms::bigint,
                    'resolved_outcome', @outcome::text
                )
        )
    FROM input AS i
    WHERE
        d.upstream_eid = ANY (ARRAY[i.execution_id])
        AND (d.partition_key = i.partition_key OR d.partition_key IS NULL)
        AND (d.flow_id = i.flow_id) IS TRUE
        -- An edge is applied if applied_at_ms is a number or the key is absent. JSON null means staged only.
        AND (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
        AND NOT d.policy ? 'resolved_at_ms'
        -- Another program has replayed the upstream and may have counted the earlier end: DispatchCompletions handles
        -- the edge.
        AND NOT (
            @looks_for_replays::boolean
            AND coalesce((
                SELECT ffx_replayed_elsewhere(u.raw_fields)
                FROM ff_exec_core AS u
                WHERE
                    u.partition_key = i.partition_key
                    AND u.execution_id = i.execution_id
                LIMIT 1
            ), false)
        )
    RETURNING
        d.partition_key,
        d.flow_id,
        d.edge_id,
        d.downstream_eid,
        coalesce(d.policy ->> 'data_passing_ref', '') <> '' AS passes_data
),
tally AS (
    -- The counted edges by group.
    SELECT
        r.partition_key,
        r.flow_id,
        r.downstream_eid,
        array_agg(r.edge_id) AS edge_ids,
        bool_or(r.passes_data) AS passes_data
    FROM resolved AS r
    GROUP BY
        r.partition_key,
        r.flow_id,
        r.downstream_eid
)
UPDATE ff_edge_group AS g
SET
    success_count = g.success_count + CASE WHEN @outcome::text = 'success' THEN cardinality(t.edge_ids) ELSE 0 END,
    fail_count = g.fail_count + CASE WHEN @outcome::text NOT IN ('success', 'skipped') THEN cardinality(t.edge_ids) ELSE 0 END,
    skip_count = g.skip_count + CASE WHEN @outcome::text = 'skipped' THEN cardinality(t.edge_ids) ELSE 0 END,
    running_count = greatest(g.running_count - cardinality(t.edge_ids), 0)
FROM tally AS t
WHERE
    g.partition_key = ANY (ARRAY[t.partition_key])
    AND g.flow_id = t.flow_id
    AND g.downstream_eid = t.downstream_eid
RETURNING
    g.partition_key,
    g.flow_id,
    g.downstream_eid,
    g.policy,
    g.success_count,
    g.fail_count,
    g.skip_count,
    g.running_count,
    g.cancel_siblings_pending_flag,
    t.edge_ids::uuid[] AS edge_ids,
    t.passes_data::boolean AS passes_data,
    (
        (SELECT count(*) FROM resolved)
        + CASE WHEN @looks_for_replays::boolean THEN (SELECT r.executions FROM replayed AS r) ELSE 0 END
    )::bigint AS marked;

-- name: ListUncountedEdges :many
-- ListUncountedEdges returns, by group, the edges of ended executions ResolveEdges marked although the group has no
-- row, and the upstreams of the edges left open. No rows: all edges were counted.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
)
SELECT
    d.partition_key,
    d.flow_id,
    d.downstream_eid,
    coalesce(array_agg(d.edge_id) FILTER (WHERE d.policy ? 'resolved_at_ms'), '{}')::uuid[] AS edge_ids,
    coalesce(array_agg(d.upstream_eid) FILTER (WHERE NOT d.policy ? 'resolved_at_ms'), '{}')::uuid[] AS open_upstreams
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.flow_id,
        t.edge_id,
        t.upstream_eid,
        t.downstream_eid,
        t.policy
    FROM ff_edge AS t
    WHERE
        t.upstream_eid = i.execution_id
        AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
        AND t.flow_id = i.flow_id
    OFFSET 0
) AS d
WHERE
    (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
    AND (
        NOT d.policy ? 'resolved_at_ms'
        OR (
            SELECT true
            FROM ff_edge_group AS g
            WHERE
                g.partition_key = d.partition_key
                AND g.flow_id = d.flow_id
                AND g.downstream_eid = d.downstream_eid
            LIMIT 1
        ) IS NULL
    )
GROUP BY
    d.partition_key,
    d.flow_id,
    d.downstream_eid;

-- name: LeaveEdges :many
-- LeaveEdges undoes ResolveEdges for edges into groups that cannot be decided now: the edges are open again, and not
-- counted. Returns their upstreams, whose completion events stay undispatched.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L3 held, since ResolveEdges.
WITH input AS (
    -- The groups that cannot be decided.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid
),
opened AS (
    -- Their edges resolved in the transaction, open again.
    UPDATE ff_edge AS d
    SET policy = (d.policy - 'resolved_at_ms' - 'resolved_outcome') || jsonb_build_object('edge_state', 'applied')
    FROM input AS i
    WHERE
        d.downstream_eid = ANY (ARRAY[i.downstream_eid])
        AND (d.partition_key = i.partition_key OR d.partition_key IS NULL)
        AND (d.flow_id = i.flow_id) IS TRUE
        AND (d.edge_id = ANY (@edge_ids::uuid[])) IS TRUE
    RETURNING
        d.partition_key,
        d.flow_id,
        d.upstream_eid,
        d.downstream_eid
),
tally AS (
    -- The number of edges, by group.
    SELECT
        o.partition_key,
        o.flow_id,
        o.downstream_eid,
        count(*)::integer AS edges
    FROM opened AS o
    GROUP BY
        o.partition_key,
        o.flow_id,
        o.downstream_eid
),
discounted AS (
    -- The groups without the edges.
    UPDATE ff_edge_group AS g
    SET
        success_count = g.success_count - CASE WHEN @outcome::text = 'success' THEN t.edges ELSE 0 END,
        fail_count = g.fail_count - CASE WHEN @outcome::text NOT IN ('success', 'skipped') THEN t.edges ELSE 0 END,
        skip_count = g.skip_count - CASE WHEN @outcome::text = 'skipped' THEN t.edges ELSE 0 END,
        running_count = g.running_count + t.edges
    FROM tally AS t
    WHERE
        g.partition_key = ANY (ARRAY[t.partition_key])
        AND g.flow_id = t.flow_id
        AND g.downstream_eid = t.downstream_eid
)
SELECT
    o.partition_key,
    o.upstream_eid
FROM opened AS o;

-- name: PassResults :exec
-- PassResults passes the results of succeeded upstreams to unstarted downstream executions, along edges that ask for
-- the result. If there are several, the greatest edge id wins.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- upkeep.DispatchCompletions, upkeep.RepairQueue, upkeep.RepairGroups.
-- Locks: L4 waits (execution rows, UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
),
passed AS (
    SELECT DISTINCT ON (d.partition_key, d.downstream_eid)
        d.partition_key,
        d.downstream_eid,
        u.result
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.flow_id,
            t.edge_id,
            t.upstream_eid,
            t.downstream_eid,
            t.policy
        FROM ff_edge AS t
        WHERE
            t.upstream_eid = i.execution_id
            AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
            AND t.flow_id = i.flow_id
        OFFSET 0
    ) AS d
    JOIN ff_exec_core AS u
        ON u.partition_key = ANY (ARRAY[i.partition_key])
        AND u.execution_id = i.execution_id
    WHERE
        d.policy ->> 'data_passing_ref' <> ''
        AND d.policy ->> 'resolved_outcome' = 'success'
        AND u.result IS NOT NULL
    ORDER BY
        d.partition_key,
        d.downstream_eid,
        d.edge_id DESC
)
UPDATE ff_exec_core AS e
SET
    payload = p.result,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM passed AS p
WHERE
    e.partition_key = ANY (ARRAY[p.partition_key])
    AND e.execution_id = p.downstream_eid
    AND e.lifecycle_phase IN ('submitted', 'pending', 'blocked', 'eligible', 'runnable')
    AND e.public_state <> 'resumable'
    AND e.started_at_ms IS NULL;

-- name: ReleaseDownstream :many
-- ReleaseDownstream makes downstream executions claimable whose dependencies are satisfied: at once, when their delay
-- has passed, or through the gate of their budget or quota. An execution not promoted yet becomes runnable. A row that
-- does not wait for dependencies stays unchanged and is not returned. The same holds if the number of staged edges not
-- applied yet is below staged_from, or not below staged_below: then the group was decided before, or is still
-- undecided.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L4 waits (execution rows FOR NO KEY UPDATE in array order, then the UPDATE). The caller sorts by
-- (partition_key, execution_id). A row failing the guard is not waited for.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@staged_from::integer[]) AS staged_from,
        unnest(@staged_below::integer[]) AS staged_below
),
blocked AS (
    SELECT
        e.partition_key,
        e.execution_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'blocked', 'eligible')
            AND t.ownership_state IN ('unowned', 'released')
            AND (
                t.eligibility_state = 'blocked_by_dependencies'
                OR t.lifecycle_phase <> 'runnable' AND t.started_at_ms IS NULL
            ) IS TRUE
        FOR NO KEY UPDATE
    ) AS e
    WHERE
        (i.staged_from = 0 AND i.staged_below = 2147483647)
        OR (
            SELECT count(*) >= i.staged_from AND count(*) < i.staged_below
            FROM ff_edge AS s
            WHERE
                s.downstream_eid = i.execution_id
                AND (s.partition_key = i.partition_key OR s.partition_key IS NULL)
                AND (s.flow_id = i.flow_id) IS TRUE
                AND s.policy -> 'applied_at_ms' = 'null'::jsonb
        )
)
UPDATE ff_exec_core AS e
SET
    lifecycle_phase = 'runnable',
    ownership_state = 'unowned',
    eligibility_state = CASE
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN 'not_eligible_until_time'
        WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'eligible_now'
        WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
        ELSE 'blocked_by_quota'
    END,
    public_state = CASE
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN 'delayed'
        WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'waiting'
        ELSE 'rate_limited'
    END,
    blocking_reason = CASE
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN 'waiting_for_delay'
        WHEN e.ffx_admitted OR (e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL) THEN 'waiting_for_worker'
        WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
        ELSE 'waiting_for_quota'
    END,
    attempt_state = CASE
        WHEN e.attempt_state IN ('none', '', 'pending') THEN 'pending_first_attempt'
        ELSE e.attempt_state
    END,
    ffx_gate_id = CASE
        WHEN e.ffx_delay_until_ms > @now_ms::bigint OR e.ffx_admitted THEN NULL
        ELSE coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1])
    END,
    deadline_at_ms = CASE
        WHEN e.ffx_delay_until_ms > @now_ms::bigint
            THEN least(e.ffx_delay_until_ms, CASE WHEN e.ffx_execution_deadline_ms > 0 THEN e.ffx_execution_deadline_ms END)
        WHEN e.ffx_execution_deadline_ms >= 0 THEN nullif(e.ffx_execution_deadline_ms, 0)
        ELSE e.deadline_at_ms
    END,
    ffx_delay_until_ms = CASE
        WHEN e.ffx_delay_until_ms > @now_ms::bigint THEN e.ffx_delay_until_ms
    END,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM blocked AS b
WHERE
    e.partition_key = ANY (ARRAY[b.partition_key])
    AND e.execution_id = b.execution_id
RETURNING
    e.partition_key,
    e.execution_id,
    e.lane_id,
    (e.eligibility_state = 'eligible_now')::boolean AS claimable,
    (e.ffx_gate_id IS NOT NULL)::boolean AS gated;

-- name: SkipDownstream :many
-- SkipDownstream ends downstream executions whose dependencies have become impossible. Only executions blocked on
-- dependencies or never started are skipped, in any phase before active. Other rows stay unchanged and are not
-- returned. staged_from and staged_below are as in ReleaseDownstream.
--
-- Passages: set_ended.
-- Used by: engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L4 waits (execution rows FOR NO KEY UPDATE in array order, then the UPDATE); L5 waits (their grants,
-- DELETE). The caller sorts by (partition_key, execution_id).
WITH input AS (
    -- The executions to skip, in lock order.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@staged_from::integer[]) AS staged_from,
        unnest(@staged_below::integer[]) AS staged_below
),
waiting AS (
    -- The executions still to be skipped, locked.
    SELECT
        e.partition_key,
        e.execution_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.execution_id
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.execution_id
            AND t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'blocked', 'eligible')
            AND t.ownership_state IN ('unowned', 'released')
            AND (
                t.eligibility_state = 'blocked_by_dependencies'
                OR t.started_at_ms IS NULL AND t.public_state <> 'resumable'
            ) IS TRUE
        FOR NO KEY UPDATE
    ) AS e
    WHERE
        (i.staged_from = 0 AND i.staged_below = 2147483647)
        OR (
            SELECT count(*) >= i.staged_from AND count(*) < i.staged_below
            FROM ff_edge AS s
            WHERE
                s.downstream_eid = i.execution_id
                AND (s.partition_key = i.partition_key OR s.partition_key IS NULL)
                AND (s.flow_id = i.flow_id) IS TRUE
                AND s.policy -> 'applied_at_ms' = 'null'::jsonb
        )
),
skipped AS (
    -- Their rows, ended.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'terminal',
        public_state = 'skipped',
        attempt_state = 'attempt_terminal',
        terminal_at_ms = coalesce(e.terminal_at_ms, @now_ms::bigint),
        -- The columns every end sets in an execution e.
        ownership_state = 'unowned',
        eligibility_state = 'not_applicable',
        blocking_reason = NULL,
        ffx_execution_deadline_ms = -abs(e.ffx_execution_deadline_ms),
        ffx_gate_id = NULL,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = @now_ms::bigint
    FROM waiting AS w
    WHERE
        e.partition_key = ANY (ARRAY[w.partition_key])
        AND e.execution_id = w.execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        e.flow_id,
        (e.started_at_ms IS NOT NULL) AS has_started
),
revoked_grants AS (
    -- Their claim grants, deleted.
    DELETE FROM ff_claim_grant AS g
    USING skipped AS s
    WHERE
        g.partition_key = s.partition_key
        AND g.execution_id = s.execution_id
)
SELECT
    s.partition_key,
    s.execution_id,
    s.flow_id,
    s.has_started::boolean AS has_started
FROM skipped AS s;

-- name: ListPassedOver :many
-- ListPassedOver returns, by ord, the downstream executions of decided groups that ReleaseDownstream or SkipDownstream
-- left unchanged although the decision concerns the execution. No row for an ended or started execution, which the
-- decision can no longer change; for an execution to be released that is already free to run; or if the group is
-- undecided because of staged edges. A row in an unknown state is returned.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@skips::boolean[]) AS skips,
        unnest(@staged_from::integer[]) AS staged_from,
        unnest(@staged_below::integer[]) AS staged_below,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.lifecycle_phase,
        t.eligibility_state = 'blocked_by_dependencies' AS blocked,
        t.started_at_ms IS NOT NULL AS started,
        t.public_state = 'resumable' AS resumable
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    OFFSET 0
) AS e
WHERE
    e.lifecycle_phase NOT IN (
        'terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped',
        'active', 'suspended'
    )
    AND (
        e.lifecycle_phase <> 'runnable'
        OR e.blocked
        OR i.skips AND NOT e.started AND NOT e.resumable
    )
    AND (
        (i.staged_from = 0 AND i.staged_below = 2147483647)
        OR (
            SELECT count(*) >= i.staged_from AND count(*) < i.staged_below
            FROM ff_edge AS s
            WHERE
                s.downstream_eid = i.execution_id
                AND (s.partition_key = i.partition_key OR s.partition_key IS NULL)
                AND (s.flow_id = i.flow_id) IS TRUE
                AND s.policy -> 'applied_at_ms' = 'null'::jsonb
        )
    );

-- name: EndSkippedAttempts :exec
-- EndSkippedAttempts settles the unfinished current attempts of skipped executions with an earlier run, under a raised
-- epoch.
--
-- Used by: engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L4 waits (attempt rows, UPDATE; the execution rows are locked since SkipDownstream).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
    LIMIT cardinality(@execution_ids::uuid[])
),
ended AS (
    UPDATE ff_attempt AS a
    SET
        outcome = 'skipped',
        terminal_at_ms = @now_ms::bigint,
        lease_expires_at_ms = NULL,
        ffx_timeout_at_ms = NULL,
        worker_instance_id = NULL,
        lease_epoch = 1 + greatest(coalesce(e.ffx_lease_epoch, 0), a.lease_epoch)
    FROM input AS i
    JOIN ff_exec_core AS e ON e.partition_key = ANY (ARRAY[i.partition_key]) AND e.execution_id = i.execution_id
    WHERE
        a.partition_key = i.partition_key
        AND a.execution_id = i.execution_id
        AND a.attempt_index = (
            SELECT max(c.attempt_index)
            FROM ff_attempt AS c
            WHERE
                c.partition_key = i.partition_key
                AND c.execution_id = i.execution_id
                AND c.attempt_index <= e.attempt_index
        )
        AND a.terminal_at_ms IS NULL
    RETURNING
        a.partition_key,
        a.execution_id,
        a.lease_epoch
)
UPDATE ff_exec_core AS e
SET ffx_lease_epoch = d.lease_epoch
FROM ended AS d
WHERE
    e.partition_key = ANY (ARRAY[d.partition_key])
    AND e.execution_id = d.execution_id;

-- name: EnqueueSiblingCancels :exec
-- EnqueueSiblingCancels lists the upstreams no longer needed by newly decided groups: unfinished ones that feed no
-- other undecided group. Later transactions cancel the upstreams. staged_from and staged_below are as in
-- ReleaseDownstream.
--
-- Used by: engine.CompleteExecution, engine.CompleteExecutions, engine.Claimer.CompleteAndClaim,
-- engine.FailExecution, engine.FailExecutions, upkeep.DispatchCompletions, upkeep.ExpireLeases,
-- upkeep.ExpireAttempts, upkeep.ExpireDeadlines, upkeep.ExpireWaits, upkeep.RepairQueue,
-- engine.CancelExecution, engine.CancelExecutions, operator.CancelWhere, engine.WaitForChildren,
-- engine.WaitForChildrenEach, interop.ReclaimExecution, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges, upkeep.CancelSiblings, upkeep.RepairGroups, engine.CancelFlow, engine.RequestFlowCancel,
-- upkeep.CancelFlows.
-- Locks: L3 held; L7 new.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@staged_from::integer[]) AS staged_from,
        unnest(@staged_below::integer[]) AS staged_below
    LIMIT cardinality(@partition_keys::smallint[])
),
flagged AS (
    UPDATE ff_edge_group AS g
    SET
        cancel_siblings_pending_flag = true,
        cancel_siblings_pending_members = ARRAY(
            -- From the edges to the executions, one by one: without OFFSET 0 the planner could begin at the other
            -- end, with every edge of the flow.
            SELECT u.execution_id::text
            FROM ff_edge AS d
            CROSS JOIN LATERAL (
                SELECT
                    t.execution_id,
                    t.lifecycle_phase
                FROM ff_exec_core AS t
                WHERE
                    t.partition_key = d.partition_key
                    AND t.execution_id = d.upstream_eid
                OFFSET 0
            ) AS u
            WHERE
                d.downstream_eid = ANY (ARRAY[g.downstream_eid])
                AND (d.partition_key = g.partition_key OR d.partition_key IS NULL)
                AND (d.flow_id = g.flow_id) IS TRUE
                AND d.policy <> 'null' -- this column is not in the index that covers the others
                AND u.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
                AND NOT EXISTS (
                    SELECT 1
                    FROM ff_edge AS o
                    CROSS JOIN LATERAL (
                        SELECT t.eligibility_state
                        FROM ff_exec_core AS t
                        WHERE
                            t.partition_key = o.partition_key
                            AND t.execution_id = o.downstream_eid
                        OFFSET 0
                    ) AS w
                    WHERE
                        o.upstream_eid = ANY (ARRAY[d.upstream_eid])
                        AND (o.partition_key = d.partition_key OR o.partition_key IS NULL)
                        AND (o.flow_id = d.flow_id) IS TRUE
                        AND o.policy <> 'null' -- this column is not in the index that covers the others
                        AND o.downstream_eid <> d.downstream_eid
                        AND w.eligibility_state = 'blocked_by_dependencies'
                    OFFSET 0
                )
            ORDER BY u.execution_id
        )
    FROM input AS i
    WHERE
        g.partition_key = ANY (ARRAY[i.partition_key])
        AND g.flow_id = i.flow_id
        AND g.downstream_eid = i.downstream_eid
        AND NOT g.cancel_siblings_pending_flag
        AND (
            (i.staged_from = 0 AND i.staged_below = 2147483647)
            OR (
                SELECT count(*) >= i.staged_from AND count(*) < i.staged_below
                FROM ff_edge AS s
                WHERE
                    s.downstream_eid = ANY (ARRAY[i.downstream_eid])
                    AND (s.partition_key = i.partition_key OR s.partition_key IS NULL)
                    AND (s.flow_id = i.flow_id) IS TRUE
                    AND s.policy -> 'applied_at_ms' = 'null'::jsonb
            )
        )
    RETURNING
        g.partition_key,
        g.flow_id,
        g.downstream_eid
)
INSERT INTO ff_pending_cancel_groups (partition_key, flow_id, downstream_eid, enqueued_at_ms)
SELECT
    f.partition_key,
    f.flow_id,
    f.downstream_eid,
    @now_ms::bigint
FROM flagged AS f
ON CONFLICT (partition_key, flow_id, downstream_eid) DO NOTHING;
