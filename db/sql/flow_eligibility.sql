-- name: ListInbound :many
-- ListInbound returns an execution, its group, and each inbound edge with the facts the outcome of the upstream is
-- derived from, by the key and id of the upstream. A single row without an edge: the execution has no upstreams. A
-- deleted upstream is not found. No row: the execution does not exist.
--
-- Used by: engine.Eligibility.
-- Locks: none; one snapshot.
SELECT
    e.lifecycle_phase,
    e.ownership_state,
    e.eligibility_state,
    e.public_state,
    coalesce(nullif(e.raw_fields ->> 'terminal_outcome', 'none'), '')::text AS noted_outcome,
    coalesce(jsonb_exists(e.raw_fields, 'replay_count'), false)::boolean AS replayed,
    coalesce(g.policy::text, '')::text AS policy,
    coalesce(g.success_count, 0)::integer AS success_count,
    coalesce(g.skip_count, 0)::integer AS skip_count,
    (d.edge_id IS NOT NULL)::boolean AS has_edge,
    coalesce(d.upstream_eid, e.execution_id)::uuid AS upstream_eid,
    coalesce(d.policy -> 'applied_at_ms' = 'null'::jsonb, false)::boolean AS staged,
    coalesce(d.policy ->> 'resolved_outcome', '')::text AS resolved_outcome,
    coalesce(d.policy ->> 'reopened_at_ms', '')::text AS reopened_at_ms,
    (u.execution_id IS NOT NULL)::boolean AS found,
    coalesce(u.raw_fields ->> 'ffx_node_key', '')::text AS node_key,
    coalesce(u.terminal_at_ms, 0)::bigint AS upstream_terminal_at_ms,
    coalesce(u.lifecycle_phase, '')::text AS upstream_phase,
    coalesce(u.eligibility_state, '')::text AS upstream_eligibility_state,
    coalesce(u.public_state, '')::text AS upstream_public_state,
    coalesce(u.cancellation_reason, '')::text AS upstream_cancellation_reason,
    coalesce(u.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(u.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(u.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS upstream_current_outcome,
    coalesce(p.outcome, '')::text AS upstream_pointer_outcome
FROM ff_exec_core AS e
LEFT JOIN LATERAL (
    SELECT
        t.policy,
        t.success_count,
        t.skip_count
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = e.partition_key
        AND t.flow_id = e.flow_id
        AND t.downstream_eid = e.execution_id
    LIMIT 1
) AS g ON true
LEFT JOIN LATERAL (
    SELECT
        x.edge_id,
        x.upstream_eid,
        x.policy
    FROM ff_edge AS x
    WHERE
        x.downstream_eid = e.execution_id
        AND (x.partition_key = e.partition_key OR x.partition_key IS NULL)
        AND (x.flow_id = e.flow_id) IS TRUE
) AS d ON true
LEFT JOIN LATERAL (
    SELECT
        y.partition_key,
        y.execution_id,
        y.attempt_index,
        y.raw_fields,
        y.terminal_at_ms,
        y.lifecycle_phase,
        y.eligibility_state,
        y.public_state,
        y.cancellation_reason
    FROM ff_exec_core AS y
    WHERE
        y.partition_key = e.partition_key
        AND y.execution_id = d.upstream_eid
    LIMIT 1
) AS u ON true
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
    SELECT q.outcome
    FROM ff_attempt AS q
    WHERE
        q.partition_key = u.partition_key
        AND q.execution_id = u.execution_id
        AND q.attempt_index = u.attempt_index
    LIMIT 1
) AS p ON true
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id
ORDER BY
    node_key,
    upstream_eid,
    d.edge_id;
