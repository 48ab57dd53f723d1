-- name: GetFlow :one
-- GetFlow returns a flow with the fan-in state of the downstream executions, by id, as a JSON array. staged counts
-- edges not applied yet. members counts the members by the facts their public state is derived from; a value without
-- effect on a state is "". No row: the flow does not exist.
--
-- Used by: engine.DescribeFlow.
-- Locks: none; one snapshot for the row, the groups and the members.
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
                            s.downstream_eid = g.downstream_eid
                            AND (s.partition_key = g.partition_key OR s.partition_key IS NULL)
                            AND s.flow_id = g.flow_id
                            AND s.policy -> 'applied_at_ms' = 'null'::jsonb
                    )
                )
                ORDER BY g.downstream_eid
            )
        FROM ff_edge_group AS g
        WHERE
            g.partition_key = f.partition_key
            AND g.flow_id = f.flow_id
    ), '[]')::jsonb AS edge_groups,
    coalesce((
        SELECT jsonb_agg(to_jsonb(c))
        FROM (
            SELECT
                m.lifecycle_phase,
                m.eligibility_state,
                m.public_state,
                coalesce(p.outcome, '') AS pointer_outcome,
                coalesce(traces.current_outcome, '') AS current_outcome,
                coalesce(traces.raw_terminal_outcome, '') AS raw_terminal_outcome,
                coalesce(traces.cancellation_reason, '') AS cancellation_reason,
                coalesce(traces.last_failure_message, '') AS last_failure_message,
                coalesce(traces.failure_reason, '') AS failure_reason,
                count(*) AS members
            FROM ff_exec_core AS m
            LEFT JOIN LATERAL (
                SELECT x.outcome
                FROM ff_attempt AS x
                WHERE
                    m.lifecycle_phase = 'terminal'
                    AND x.partition_key = m.partition_key
                    AND x.execution_id = m.execution_id
                    AND x.attempt_index = m.attempt_index
                LIMIT 1
            ) AS p ON true
            LEFT JOIN LATERAL (
                -- If neither the attempt nor the public state has the outcome, the fields of other programs have.
                SELECT
                    (
                        SELECT a.outcome
                        FROM ff_attempt AS a
                        WHERE
                            a.partition_key = m.partition_key
                            AND a.execution_id = m.execution_id
                            AND a.attempt_index <= m.attempt_index
                        ORDER BY a.attempt_index DESC
                        LIMIT 1
                    ) AS current_outcome,
                    m.raw_fields ->> 'terminal_outcome' AS raw_terminal_outcome,
                    m.cancellation_reason,
                    m.raw_fields ->> 'last_failure_message' AS last_failure_message,
                    m.raw_fields ->> 'failure_reason' AS failure_reason
                WHERE
                    m.lifecycle_phase = 'terminal'
                    AND m.public_state NOT IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
                OFFSET 0 -- otherwise the attempt is looked up for every member and discarded
            ) AS traces ON true
            WHERE
                m.partition_key = f.partition_key
                AND m.flow_id = f.flow_id
            GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
        ) AS c
    ), '[]')::jsonb AS members
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id;

-- name: GetFlowExists :one
-- GetFlowExists returns whether a flow exists.
--
-- Used by: engine.FlowMembers, engine.FlowEdges, engine.SetFlowTags, engine.FlowGraph.
-- Locks: none.
SELECT EXISTS (
    SELECT
    FROM ff_flow_core AS f
    WHERE
        f.partition_key = @partition_key
        AND f.flow_id = @flow_id
);

-- name: ListFlowMembers :many
-- ListFlowMembers pages through the members of a flow by id, from from_execution_id on, with the facts their outcome
-- is derived from.
--
-- Used by: engine.FlowMembers.
-- Locks: none. Reads the ids of all members for each page.
WITH members AS MATERIALIZED (
    SELECT m.execution_id
    FROM ff_exec_core AS m
    WHERE
        m.partition_key = @partition_key
        AND m.flow_id = @flow_id
)
SELECT
    e.partition_key,
    e.execution_id,
    e.flow_id,
    e.lane_id,
    coalesce(e.ffx_namespace, '')::text AS namespace,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    coalesce(e.raw_fields ->> 'ffx_node_key', '')::text AS node_key,
    coalesce(e.ffx_created_at_ms, e.created_at_ms)::bigint AS created_at_ms,
    e.terminal_at_ms,
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
FROM (
    SELECT m.execution_id
    FROM members AS m
    WHERE m.execution_id >= @from_execution_id::uuid
    ORDER BY m.execution_id
    LIMIT @page_size::integer
) AS page
CROSS JOIN LATERAL (
    SELECT
        x.partition_key,
        x.execution_id,
        x.flow_id,
        x.lane_id,
        x.ffx_namespace,
        x.raw_fields,
        x.created_at_ms,
        x.ffx_created_at_ms,
        x.terminal_at_ms,
        x.lifecycle_phase,
        x.eligibility_state,
        x.public_state,
        x.cancellation_reason,
        x.lease_reclaim_count,
        x.attempt_index
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = @partition_key
        AND x.execution_id = page.execution_id
    LIMIT 1
) AS e
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
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.execution_id = e.execution_id
        AND t.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
ORDER BY e.execution_id;

-- name: ListUpstreamResults :many
-- ListUpstreamResults returns, for one execution, the states and results of the upstreams, by upstream id. gone: the
-- upstream was pruned; only the key and the counted outcome are left.
--
-- Used by: engine.UpstreamResults.
-- Locks: none; one snapshot.
SELECT
    d.edge_id,
    d.upstream_eid AS execution_id,
    (u.execution_id IS NULL)::boolean AS gone,
    coalesce(d.policy ->> 'resolved_outcome', '')::text AS resolved_outcome,
    coalesce(u.raw_fields ->> 'execution_kind', '')::text AS execution_kind,
    coalesce(u.raw_fields ->> 'ffx_node_key', g.node_key, '')::text AS node_key,
    u.result,
    u.ffx_trace,
    coalesce(u.lifecycle_phase, '')::text AS lifecycle_phase,
    coalesce(u.eligibility_state, '')::text AS eligibility_state,
    coalesce(u.public_state, '')::text AS public_state,
    coalesce(u.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(u.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(u.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(u.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
FROM ff_exec_core AS e
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
        t.downstream_eid = e.execution_id
        AND (t.partition_key = e.partition_key OR t.partition_key IS NULL)
        AND t.flow_id = e.flow_id
    OFFSET 0
) AS d
LEFT JOIN ff_exec_core AS u
    ON u.partition_key = ANY (ARRAY[d.partition_key])
    AND u.execution_id = d.upstream_eid
LEFT JOIN LATERAL (
    SELECT t.node_key
    FROM ffx_pruned_member AS t
    WHERE
        t.partition_key = d.partition_key
        AND t.flow_id = d.flow_id
        AND t.execution_id = d.upstream_eid
    LIMIT 1
) AS g ON u.execution_id IS NULL
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
LEFT JOIN LATERAL (
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = u.partition_key
        AND t.execution_id = u.execution_id
        AND t.attempt_index = u.attempt_index
    LIMIT 1
) AS p ON true
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
ORDER BY d.upstream_eid;
