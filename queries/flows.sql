-- name: InsertFlow :execrows
-- InsertFlow creates the row of a flow. 0 rows: it exists already, and nothing of it is compared or changed.
--
-- Used by: engine.CreateFlow.
-- Locks: the inserted row; a concurrent creator of the same flow is waited for.
INSERT INTO ff_flow_core (
    partition_key,
    flow_id,
    graph_revision,
    public_flow_state,
    created_at_ms,
    raw_fields
)
VALUES (
    @partition_key,
    @flow_id,
    @graph_revision,
    'open',
    @created_at_ms,
    CAST(@raw_fields::text AS jsonb)
)
ON CONFLICT (partition_key, flow_id) DO NOTHING;

-- name: InsertAppliedEdges :exec
-- InsertAppliedEdges adds dependency edges that count from now on.
--
-- Used by: engine.CreateFlow.
-- Locks: none beyond the inserted rows; the flow is new or locked by the caller.
INSERT INTO ff_edge (
    partition_key,
    flow_id,
    edge_id,
    upstream_eid,
    downstream_eid,
    policy
)
SELECT
    @partition_key,
    @flow_id,
    i.edge_id,
    i.upstream_eid,
    i.downstream_eid,
    jsonb_build_object(
        'dependency_kind', i.dependency_kind,
        'satisfaction_condition', 'all_required',
        'data_passing_ref', i.data_passing_ref,
        'edge_state', 'applied',
        'created_at_ms', @now_ms::bigint,
        'created_by', 'engine',
        'staged_at_ms', @now_ms::bigint,
        'applied_at_ms', @now_ms::bigint
    )
FROM (
    SELECT
        unnest(@edge_ids::uuid[]) AS edge_id,
        unnest(@upstream_eids::uuid[]) AS upstream_eid,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@dependency_kinds::text[]) AS dependency_kind,
        unnest(@data_passing_refs::text[]) AS data_passing_ref
) AS i;

-- name: InsertEdgeGroups :exec
-- InsertEdgeGroups adds the fan-in state of downstream executions whose edges are all applied and open.
--
-- Used by: engine.CreateFlow.
-- Locks: none beyond the inserted rows; the flow is new or locked by the caller.
INSERT INTO ff_edge_group (
    partition_key,
    flow_id,
    downstream_eid,
    policy,
    k_target,
    running_count
)
SELECT
    @partition_key,
    @flow_id,
    i.downstream_eid,
    i.policy::jsonb,
    i.k_target,
    i.fan_in
FROM (
    SELECT
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@policies::text[]) AS policy,
        unnest(@k_targets::integer[]) AS k_target,
        unnest(@fan_ins::integer[]) AS fan_in
) AS i;

-- name: CountNewMembers :one
-- CountNewMembers adds members to the counters of a flow, one revision each, and returns how many it has.
--
-- Used by: engine.CreateExecutions for members.
-- Locks: the flow row, already locked by the caller.
UPDATE ff_flow_core AS f
SET
    graph_revision = f.graph_revision + @members::bigint,
    raw_fields = f.raw_fields || jsonb_build_object(
        'node_count', CASE WHEN f.raw_fields ->> 'node_count' ~ '^[0-9]{1,18}$' THEN (f.raw_fields ->> 'node_count')::bigint ELSE 0 END
            + @members::bigint,
        'last_mutation_at_ms', @now_ms::bigint
    )
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id
RETURNING (f.raw_fields ->> 'node_count')::bigint AS node_count;

-- name: GetFlow :one
-- GetFlow returns a flow with the fan-in state of its downstream executions, by id, as a JSON array.
-- staged counts edges that are not applied yet. No row: the flow does not exist.
--
-- Used by: engine.DescribeFlow.
-- Locks: none; one snapshot for the row and its groups.
SELECT
    f.graph_revision,
    f.public_flow_state,
    f.created_at_ms,
    f.terminal_at_ms,
    f.raw_fields,
    coalesce((
        SELECT
            jsonb_agg(
                jsonb_build_object(
                    'downstream_eid', g.downstream_eid,
                    'policy', g.policy,
                    'success_count', g.success_count,
                    'fail_count', g.fail_count,
                    'skip_count', g.skip_count,
                    'running_count', g.running_count,
                    'staged', (
                        SELECT count(*)
                        FROM ff_edge AS s
                        WHERE
                            s.partition_key = g.partition_key
                            AND s.flow_id = g.flow_id
                            AND s.downstream_eid = g.downstream_eid
                            AND s.policy -> 'applied_at_ms' = 'null'::jsonb
                    )
                )
                ORDER BY g.downstream_eid
            )
        FROM ff_edge_group AS g
        WHERE
            g.partition_key = f.partition_key
            AND g.flow_id = f.flow_id
    ), '[]')::jsonb AS edge_groups
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;

-- name: ListFlowMembers :many
-- ListFlowMembers pages through the members of a flow by id with what their outcome is derived from.
--
-- Used by: engine.ListFlowMembers.
-- Locks: none.
SELECT
    e.execution_id,
    e.lane_id,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    e.lifecycle_phase,
    e.eligibility_state,
    e.public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    e.lease_reclaim_count,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT c.outcome
    FROM ff_attempt AS c
    WHERE
        c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN ff_attempt AS p
    ON p.partition_key = e.partition_key
    AND p.execution_id = e.execution_id
    AND p.attempt_index = e.attempt_index
WHERE
    e.partition_key = @partition_key
    AND e.flow_id = @flow_id
    AND e.execution_id >= @from_execution_id
ORDER BY e.execution_id
LIMIT @page_size::integer;

-- name: ListUpstreamResults :many
-- ListUpstreamResults returns, for one execution, what each of its upstreams is and has left, by
-- upstream id. An edge whose upstream row is gone has no row.
--
-- Used by: engine.UpstreamResults.
-- Locks: none; one snapshot.
SELECT
    d.edge_id,
    u.execution_id,
    coalesce(u.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    u.result,
    u.lifecycle_phase,
    u.eligibility_state,
    u.public_state,
    coalesce(u.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(u.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(u.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(u.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM ff_exec_core AS e
JOIN ff_edge AS d
    ON d.partition_key = e.partition_key
    AND d.flow_id = e.flow_id
    AND d.downstream_eid = e.execution_id
JOIN ff_exec_core AS u
    ON u.partition_key = d.partition_key
    AND u.execution_id = d.upstream_eid
LEFT JOIN LATERAL (
    SELECT c.outcome
    FROM ff_attempt AS c
    WHERE
        c.partition_key = u.partition_key
        AND c.execution_id = u.execution_id
        AND c.attempt_index <= u.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN ff_attempt AS p
    ON p.partition_key = u.partition_key
    AND p.execution_id = u.execution_id
    AND p.attempt_index = u.attempt_index
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
ORDER BY u.execution_id;
