-- name: ListCleanUpEdges :many
-- ListCleanUpEdges returns the possible clean-ups of a flow: branches, which wait for the end of other members, and all
-- members reachable from branches, each with the upstreams the member waits for. k_target: how many upstreams must
-- succeed. held: dependencies block the member. open: the upstream's end is not counted yet. replay: only a replay of
-- the upstream can count. staged: the edge does not count yet. No row: the flow has no clean-up.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: none. The caller holds the flow's exclusive lock. Reads the groups of the flow, and the edges from and to the
-- returned members.
WITH RECURSIVE reached AS (
    SELECT g.downstream_eid AS execution_id
    FROM ff_edge_group AS g
    WHERE
        g.partition_key = @partition_key
        AND g.flow_id = @flow_id
        AND g.policy ? 'ffx_when'
    UNION
    SELECT d.downstream_eid
    FROM reached AS r
    CROSS JOIN LATERAL (
        SELECT t.downstream_eid
        FROM ff_edge AS t
        WHERE
            t.upstream_eid = ANY (ARRAY[r.execution_id])
            AND (t.partition_key = @partition_key OR t.partition_key IS NULL)
            AND (t.flow_id = @flow_id) IS TRUE
            AND t.policy <> 'null' -- this column is not in the index that covers the others
        OFFSET 0
    ) AS d
)
SELECT
    CAST(r.execution_id AS uuid) AS execution_id,
    coalesce(g.branch, false)::boolean AS branch,
    coalesce(g.k_target, 0)::integer AS k_target,
    coalesce(e.held, false)::boolean AS held,
    (d.upstream_eid IS NOT NULL)::boolean AS has_edge,
    coalesce(d.upstream_eid, r.execution_id)::uuid AS upstream_eid,
    coalesce(d.policy -> 'applied_at_ms' = 'null'::jsonb, false)::boolean AS staged,
    coalesce(NOT d.policy ? 'resolved_at_ms' AND u.ended IS NULL, false)::boolean AS open,
    coalesce(NOT d.policy ? 'resolved_at_ms' AND u.ended, false)::boolean AS replay
FROM reached AS r
LEFT JOIN LATERAL (
    SELECT
        t.policy ? 'ffx_when' AS branch,
        t.k_target
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = @partition_key
        AND t.flow_id = @flow_id
        AND t.downstream_eid = r.execution_id
    LIMIT 1
) AS g ON true
LEFT JOIN LATERAL (
    SELECT (t.eligibility_state = 'blocked_by_dependencies') AS held
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = r.execution_id
    LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT
        t.upstream_eid,
        t.policy
    FROM ff_edge AS t
    WHERE
        t.downstream_eid = ANY (ARRAY[r.execution_id])
        AND (t.partition_key = @partition_key OR t.partition_key IS NULL)
        AND (t.flow_id = @flow_id) IS TRUE
    OFFSET 0
) AS d ON true
LEFT JOIN LATERAL (
    -- An edge a replay opened also waits for the replay of an upstream which had ended before.
    SELECT true AS ended
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = @partition_key
        AND t.execution_id = d.upstream_eid
        AND t.lifecycle_phase IN ('terminal', 'cancelled')
        AND t.terminal_at_ms <= ffx_read_number(d.policy, 'reopened_at_ms')
    LIMIT 1
) AS u ON true;

-- name: ListUnended :many
-- ListUnended returns the unfinished members of a flow, in the order of their ids. No row: all have ended.
--
-- Used by: engine.CancelFlow, engine.RequestFlowCancel.
-- Locks: none.
SELECT f.execution_id
FROM (
    SELECT e.execution_id
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = @partition_key
        AND e.flow_id = @flow_id::uuid
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
    OFFSET 0
) AS f
ORDER BY f.execution_id
LIMIT @page_size::bigint;
