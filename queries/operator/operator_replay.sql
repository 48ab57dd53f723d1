-- name: ReplayExecution :one
-- ReplayExecution sets an ended execution the caller has locked back to run again, before the dependencies, before the
-- gate of the budget or quota, or claimable. The results of the last run are cleared, the input and the history kept.
-- If the caller asks, the attempt at the given index begins again under a raised epoch. Appends the operator event.
-- Returns the lane, the public state, and whether the lane has work now.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L1 held; L2 held; L7 new.
WITH replayed AS (
    -- The execution.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        ownership_state = 'unowned',
        eligibility_state = CASE
            WHEN @waits::boolean THEN 'blocked_by_dependencies'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'eligible_now'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'blocked_by_budget'
            ELSE 'blocked_by_quota'
        END,
        public_state = CASE
            WHEN @waits::boolean THEN 'waiting_children'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting'
            ELSE 'rate_limited'
        END,
        attempt_state = 'pending_replay_attempt',
        blocking_reason = CASE
            WHEN @waits::boolean THEN 'waiting_for_children'
            WHEN e.ffx_budget_ids IS NULL AND e.ffx_limit_ids IS NULL THEN 'waiting_for_worker'
            WHEN e.ffx_budget_ids IS NOT NULL THEN 'waiting_for_budget'
            ELSE 'waiting_for_quota'
        END,
        attempt_index = @attempt_index::integer,
        terminal_at_ms = NULL,
        result = NULL,
        cancellation_reason = NULL,
        cancelled_by = NULL,
        lease_reclaim_count = 0,
        deadline_at_ms = CASE
            WHEN abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms)) > @now_ms::bigint
                THEN abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms))
        END,
        raw_fields = (
            e.raw_fields
            - ARRAY['failure_reason', 'failure_category', 'failure_class', 'last_failure_message', 'terminal_outcome', 'retry_count', 'delay_until']
            - ARRAY(SELECT k.key FROM jsonb_object_keys(e.raw_fields) AS k (key) WHERE k.key LIKE 'pending\_%')
        ) || jsonb_build_object(
            'replay_count', @replay_count::bigint,
            'ffx_replay_count', @replay_count::bigint,
            'last_mutation_at', (@now_ms::bigint)::text
        ),
        ffx_execution_deadline_ms = CASE
            WHEN abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms)) > @now_ms::bigint
                THEN abs(coalesce(e.ffx_execution_deadline_ms, e.deadline_at_ms))
            ELSE 0
        END,
        ffx_delay_until_ms = NULL,
        ffx_gate_id = CASE
            WHEN NOT @waits::boolean THEN coalesce(e.ffx_budget_ids[1], e.ffx_limit_ids[1])
        END,
        ffx_admitted = NULL,
        ffx_retry_count = 0,
        ffx_lease_epoch = @raised_epoch::bigint,
        ffx_last_mutation_at_ms = @now_ms::bigint
    WHERE
        e.partition_key = @partition_key
        AND e.execution_id = @execution_id
    RETURNING
        e.partition_key,
        e.execution_id,
        e.attempt_index,
        e.lane_id,
        e.eligibility_state,
        e.public_state,
        e.ffx_namespace,
        e.ffx_instance_tag
),
begun_again AS (
    -- The attempt, as before the claim.
    UPDATE ff_attempt AS a
    SET
        outcome = NULL,
        terminal_at_ms = NULL,
        worker_id = NULL,
        worker_instance_id = NULL,
        lease_expires_at_ms = NULL,
        started_at_ms = NULL,
        lease_epoch = @raised_epoch::bigint,
        raw_fields = a.raw_fields - ARRAY['failure_reason', 'failure_category', 'failure_class', 'failure_detail'],
        ffx_delay_until_ms = NULL,
        ffx_timeout_at_ms = NULL,
        ffx_resumed_at_ms = NULL
    FROM replayed AS r
    WHERE
        a.partition_key = ANY (ARRAY[r.partition_key])
        AND a.execution_id = r.execution_id
        AND a.attempt_index = r.attempt_index
        AND @begins_again::boolean
),
operator_events AS (
    -- The operator event.
    INSERT INTO ff_operator_event (
        execution_id, event_type, details, occurred_at_ms, partition_key, namespace, instance_tag
    )
    SELECT
        r.execution_id::text,
        'replayed',
        (@details::text)::jsonb,
        @now_ms::bigint,
        r.partition_key,
        r.ffx_namespace,
        r.ffx_instance_tag
    FROM replayed AS r
)
SELECT
    r.lane_id,
    r.public_state,
    (r.eligibility_state = 'eligible_now')::boolean AS claimable
FROM replayed AS r;

-- name: ForgetSignalKeys :exec
-- ForgetSignalKeys deletes the ids and idempotency keys of the signals of a replayed execution, except for signals in
-- steps: a signal the replay drops may be sent again.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L5 waits (DELETE). The caller holds the execution, so none is added.
DELETE FROM ffx_signal_key AS k
WHERE
    k.partition_key = @partition_key
    AND k.execution_id = @execution_id
    AND k.signal_id::text NOT IN ( -- evaluated once, and hashed
        SELECT g.id #>> '{}'
        FROM ffx_step AS s
        CROSS JOIN LATERAL jsonb_path_query(
            CASE s.outcome WHEN 'signal' THEN ffx_read_json(s.result) ELSE s.taken END, '$.*[*].signal_id'
        ) AS g (id)
        WHERE
            s.partition_key = @partition_key
            AND s.execution_id = @execution_id
            AND jsonb_typeof(g.id) = 'string'
    );

-- name: DismissCompletions :execrows
-- DismissCompletions marks the undispatched events of a replayed execution as dispatched: the next end counts instead.
-- Returns how many there were.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L7 waits (event rows, UPDATE: a dispatcher of another program holds one while counting). Reads all
-- undispatched events.
UPDATE ff_completion_event AS c
SET dispatched_at_ms = @now_ms::bigint
WHERE
    c.dispatched_at_ms IS NULL
    AND c.event_id > 0
    AND c.partition_key = @partition_key
    AND (c.execution_id = @execution_id) IS TRUE;

-- name: TouchFlow :exec
-- TouchFlow writes the row of a flow whose member is replayed, so a transaction with an older snapshot fails at the
-- flow's lock instead of overlooking the member.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L0 held.
UPDATE ff_flow_core AS f
SET raw_fields = f.raw_fields || jsonb_build_object('last_mutation_at_ms', @now_ms::bigint)
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;

-- name: LockUnstartedDownstream :exec
-- LockUnstartedDownstream locks the executions waiting for an execution, or released by its end, and not claimed yet,
-- so none is claimed until the caller has committed.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L4 waits (execution rows FOR NO KEY UPDATE by execution_id). A row failing the guard is not waited for.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        @upstream_eid::uuid AS upstream_eid
    OFFSET 0
),
downstream AS (
    SELECT DISTINCT
        d.partition_key,
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
            t.upstream_eid = i.upstream_eid
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
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = d.partition_key
        AND t.execution_id = d.downstream_eid
        AND t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'blocked', 'eligible')
        AND t.started_at_ms IS NULL
        AND t.public_state <> 'resumable'
    FOR NO KEY UPDATE
) AS e;

-- name: ListDownstreamGroups :many
-- ListDownstreamGroups returns the applied edges from an execution, by downstream, each with the downstream's group:
-- how many edges of the group are marked as resolved, by bucket, how many are staged and not applied, and the facts
-- about the downstream execution. counted_as: the outcome the edge is marked with, empty without a mark. has_group: the
-- group has a row.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: none. The caller has locked the groups and the unstarted downstream executions.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        @upstream_eid::uuid AS upstream_eid
    OFFSET 0
)
SELECT
    d.edge_id,
    d.downstream_eid,
    coalesce(d.policy ->> 'resolved_outcome', CASE WHEN d.policy ? 'resolved_at_ms' THEN 'failed' END, '')::text AS counted_as,
    (g.policy IS NOT NULL)::boolean AS has_group,
    coalesce(g.policy, '{}')::jsonb AS policy,
    coalesce(g.success_count, 0)::integer AS success_count,
    coalesce(g.fail_count, 0)::integer AS fail_count,
    coalesce(g.skip_count, 0)::integer AS skip_count,
    coalesce(g.running_count, 0)::integer AS running_count,
    m.success::integer AS marked_success,
    m.fail::integer AS marked_fail,
    m.skip::integer AS marked_skip,
    m.staged::integer AS staged,
    coalesce(e.lifecycle_phase, '')::text AS lifecycle_phase,
    coalesce(e.ownership_state, '')::text AS ownership_state,
    coalesce(e.eligibility_state, '')::text AS eligibility_state,
    coalesce(e.public_state, '')::text AS public_state,
    (e.started_at_ms IS NOT NULL)::boolean AS has_started
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
        t.upstream_eid = i.upstream_eid
        AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
        AND t.flow_id = i.flow_id
    OFFSET 0
) AS d
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE s.policy ->> 'resolved_outcome' = 'success') AS success,
        count(*) FILTER (
            WHERE s.policy ? 'resolved_at_ms' AND coalesce(s.policy ->> 'resolved_outcome', '') NOT IN ('success', 'skipped')
        ) AS fail,
        count(*) FILTER (WHERE s.policy ->> 'resolved_outcome' = 'skipped') AS skip,
        count(*) FILTER (WHERE s.policy -> 'applied_at_ms' = 'null'::jsonb) AS staged
    FROM ff_edge AS s
    WHERE
        s.downstream_eid = d.downstream_eid
        AND (s.partition_key = d.partition_key OR s.partition_key IS NULL)
        AND (s.flow_id = d.flow_id) IS TRUE
) AS m
LEFT JOIN LATERAL (
    SELECT
        t.policy,
        t.success_count,
        t.fail_count,
        t.skip_count,
        t.running_count
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = d.partition_key
        AND t.flow_id = d.flow_id
        AND t.downstream_eid = d.downstream_eid
    LIMIT 1
) AS g ON true
LEFT JOIN LATERAL (
    SELECT
        t.lifecycle_phase,
        t.ownership_state,
        t.eligibility_state,
        t.public_state,
        t.started_at_ms
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = d.partition_key
        AND t.execution_id = d.downstream_eid
    LIMIT 1
) AS e ON true
WHERE (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
ORDER BY
    d.downstream_eid,
    d.edge_id;

-- name: ReopenEdges :exec
-- ReopenEdges opens edges from a replayed execution, and gives their groups the counters without the edges.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L3 held.
WITH input AS (
    -- The groups with their new counters.
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@success_counts::integer[]) AS success_count,
        unnest(@fail_counts::integer[]) AS fail_count,
        unnest(@skip_counts::integer[]) AS skip_count,
        unnest(@running_counts::integer[]) AS running_count
),
source AS (
    -- The executions the edges lead from.
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        @upstream_eid::uuid AS upstream_eid
    OFFSET 0
),
opened AS (
    -- The edges, open.
    UPDATE ff_edge AS d
    SET policy = (d.policy - 'resolved_at_ms' - 'resolved_outcome') || jsonb_build_object('edge_state', 'applied')
    FROM source AS s
    WHERE
        d.upstream_eid = ANY (ARRAY[s.upstream_eid])
        AND (d.partition_key = s.partition_key OR d.partition_key IS NULL)
        AND (d.flow_id = s.flow_id) IS TRUE
        AND (d.edge_id = ANY (@edge_ids::uuid[])) IS TRUE
)
UPDATE ff_edge_group AS g
SET
    success_count = i.success_count,
    fail_count = i.fail_count,
    skip_count = i.skip_count,
    running_count = i.running_count
FROM input AS i
WHERE
    g.partition_key = ANY (ARRAY[i.partition_key])
    AND g.flow_id = i.flow_id
    AND g.downstream_eid = i.downstream_eid;

-- name: MarkCountedEdges :exec
-- MarkCountedEdges marks edges from an execution as resolved if another program counted and did not mark the edges: the
-- execution's next end does not count there.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L3 held.
WITH source AS (
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        @upstream_eid::uuid AS upstream_eid
    OFFSET 0
)
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
FROM source AS s
WHERE
    d.upstream_eid = ANY (ARRAY[s.upstream_eid])
    AND (d.partition_key = s.partition_key OR d.partition_key IS NULL)
    AND (d.flow_id = s.flow_id) IS TRUE
    AND (d.edge_id = ANY (@edge_ids::uuid[])) IS TRUE;

-- name: BlockDownstream :many
-- BlockDownstream makes unclaimed executions wait for their dependencies again, and deletes their grants. Returns the
-- executions with limits. Claimed executions, and executions already blocked by dependencies, stay unchanged.
--
-- Used by: operator.Replay, operator.ReplayWhere, engine.CreateFlow, engine.GrowFlow, engine.StageEdges,
-- engine.ApplyEdges.
-- Locks: L4 held; L5 waits (their grants, DELETE).
WITH input AS (
    -- The executions.
    SELECT
        @partition_key::smallint AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
),
blocked AS (
    -- Their rows, blocked.
    UPDATE ff_exec_core AS e
    SET
        lifecycle_phase = 'runnable',
        eligibility_state = 'blocked_by_dependencies',
        blocking_reason = 'waiting_for_children',
        public_state = 'waiting_children',
        deadline_at_ms = CASE
            WHEN e.ffx_execution_deadline_ms >= 0 THEN nullif(e.ffx_execution_deadline_ms, 0)
            ELSE e.deadline_at_ms
        END,
        ffx_gate_id = NULL,
        ffx_admitted = NULL,
        ffx_last_mutation_at_ms = @now_ms::bigint
    FROM input AS i
    WHERE
        e.partition_key = ANY (ARRAY[i.partition_key])
        AND e.execution_id = i.execution_id
        AND e.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'blocked', 'eligible')
        AND e.ownership_state IN ('unowned', 'released')
        AND e.started_at_ms IS NULL
        AND e.public_state <> 'resumable'
        AND e.eligibility_state <> 'blocked_by_dependencies'
    RETURNING
        e.partition_key,
        e.execution_id,
        (e.ffx_limit_ids IS NOT NULL) AS has_limits
),
revoked_grants AS (
    -- Their claim grants, deleted.
    DELETE FROM ff_claim_grant AS g
    USING blocked AS b
    WHERE
        g.partition_key = b.partition_key
        AND g.execution_id = b.execution_id
)
SELECT b.execution_id
FROM blocked AS b
WHERE b.has_limits;

-- name: LockInboundGroup :one
-- LockInboundGroup locks and returns the group of an execution, with the number of inbound edges, applied or only
-- staged. No row: the execution never had dependencies.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L3 waits (the group row FOR UPDATE). The flow's exclusive lock is held.
SELECT
    g.policy,
    g.success_count,
    g.fail_count,
    g.skip_count,
    g.running_count,
    (
        SELECT count(*)
        FROM ff_edge AS d
        WHERE
            d.downstream_eid = g.downstream_eid
            AND (d.partition_key = g.partition_key OR d.partition_key IS NULL)
            AND (d.flow_id = g.flow_id) IS TRUE
            AND (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
    )::bigint AS applied,
    (
        SELECT count(*)
        FROM ff_edge AS d
        WHERE
            d.downstream_eid = g.downstream_eid
            AND (d.partition_key = g.partition_key OR d.partition_key IS NULL)
            AND (d.flow_id = g.flow_id) IS TRUE
            AND d.policy -> 'applied_at_ms' = 'null'::jsonb
    )::bigint AS staged
FROM ff_edge_group AS g
WHERE
    g.partition_key = @partition_key
    AND g.flow_id = @flow_id
    AND g.downstream_eid = @downstream_eid
FOR UPDATE;

-- name: ReopenInboundEdges :exec
-- ReopenInboundEdges opens the edges into a replayed execution, except from successes: each counts again when the
-- upstream, also replayed, ends. The group keeps the successes and counts all other upstreams as running.
--
-- Used by: operator.Replay, operator.ReplayWhere.
-- Locks: L3 held.
WITH opened AS (
    UPDATE ff_edge AS d
    SET
        policy = (d.policy - 'resolved_at_ms' - 'resolved_outcome') || jsonb_build_object(
            'edge_state', 'applied',
            'reopened_at_ms', @now_ms::bigint
        )
    WHERE
        d.downstream_eid = @downstream_eid
        AND (d.partition_key = @partition_key OR d.partition_key IS NULL)
        AND d.flow_id = @flow_id
        AND (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
        AND (
            d.policy ? 'resolved_at_ms' AND (d.policy ->> 'resolved_outcome' = 'success') IS NOT TRUE
            -- Another program does not mark counted edges.
            OR NOT d.policy ? 'resolved_at_ms' AND NOT EXISTS (
                SELECT
                FROM ff_exec_core AS u
                WHERE
                    u.partition_key = d.partition_key
                    AND u.execution_id = d.upstream_eid
                    AND u.lifecycle_phase = 'terminal'
                    AND (
                        u.public_state = 'completed'
                        OR EXISTS (
                            SELECT
                            FROM ff_attempt AS a
                            WHERE
                                a.partition_key = u.partition_key
                                AND a.execution_id = u.execution_id
                                AND a.attempt_index = u.attempt_index
                                AND a.outcome = 'success'
                            OFFSET 0
                        )
                    )
                OFFSET 0 -- otherwise the planner may read all executions and attempts into a hash table
            )
        )
)
UPDATE ff_edge_group AS g
SET
    fail_count = 0,
    skip_count = 0,
    running_count = @running_count::integer
WHERE
    g.partition_key = @partition_key
    AND g.flow_id = @flow_id
    AND g.downstream_eid = @downstream_eid;
