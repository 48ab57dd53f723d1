-- name: ListFlowGraph :many
-- ListFlowGraph returns the members of a flow by id, then the edges by id, at most max_rows: one more than the caller
-- accepts. The column with the phase of a member has the state of an edge; a column only the other kind has is "" or a
-- nil id. A member without upstreams has no policy.
--
-- Used by: engine.FlowGraph.
-- Locks: none; one snapshot.
SELECT
    false AS is_edge,
    e.execution_id AS row_id,
    '00000000-0000-0000-0000-000000000000'::uuid AS upstream_eid,
    '00000000-0000-0000-0000-000000000000'::uuid AS downstream_eid,
    coalesce(e.raw_fields ->> 'ffx_node_key', '')::text AS node_key,
    coalesce(e.raw_fields ->> 'execution_kind', '')::text AS kind,
    e.lane_id,
    e.lifecycle_phase AS phase,
    e.eligibility_state,
    e.public_state,
    coalesce(e.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(e.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(e.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(e.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome,
    coalesce(g.policy::text, '')::text AS policy
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT t.policy
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.flow_id = e.flow_id
        AND t.downstream_eid = e.execution_id
    LIMIT 1
) AS g ON true
LEFT JOIN LATERAL (
    SELECT c.outcome
    FROM ff_attempt AS c
    WHERE
        e.lifecycle_phase = 'terminal'
        AND c.partition_key = e.partition_key
        AND c.execution_id = e.execution_id
        AND c.attempt_index <= e.attempt_index
    ORDER BY c.attempt_index DESC
    LIMIT 1
) AS cur ON true
LEFT JOIN LATERAL (
    SELECT x.outcome
    FROM ff_attempt AS x
    WHERE
        e.lifecycle_phase = 'terminal'
        AND x.partition_key = e.partition_key
        AND x.execution_id = e.execution_id
        AND x.attempt_index = e.attempt_index
    LIMIT 1
) AS p ON true
WHERE
    e.partition_key = @partition_key
    AND e.flow_id = @flow_id::uuid
UNION ALL
SELECT
    true,
    d.edge_id,
    d.upstream_eid,
    d.downstream_eid,
    '',
    coalesce(d.policy ->> 'dependency_kind', ''),
    '',
    coalesce(d.policy ->> 'edge_state', ''),
    '',
    '',
    '',
    '',
    '',
    '',
    '',
    '',
    ''
FROM (
    SELECT
        x.edge_id,
        x.upstream_eid,
        x.downstream_eid,
        x.policy
    FROM ff_edge AS x
    WHERE
        x.partition_key = @partition_key
        AND x.flow_id = @flow_id::uuid
    ORDER BY x.edge_id -- by the primary key: other indexes look as good
) AS d
ORDER BY
    1,
    2
LIMIT @max_rows::integer;
