-- name: ListUnsoundGroups :many
-- ListUnsoundGroups returns the groups in which ended executions cannot simply be counted. Either the group has no row,
-- or another program has replayed an upstream, may have counted the upstream's earlier end, and marked no edge.
--
-- Used by: upkeep.DispatchCompletions.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@execution_ids::uuid[]) AS execution_id
)
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
    OFFSET 0
) AS d
WHERE
    (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
    AND NOT d.policy ? 'resolved_at_ms'
    AND (
        (
            SELECT true
            FROM ff_edge_group AS g
            WHERE
                g.partition_key = d.partition_key
                AND g.flow_id = d.flow_id
                AND g.downstream_eid = d.downstream_eid
            LIMIT 1
        ) IS NULL
        OR (
            SELECT ffx_replayed_elsewhere(u.raw_fields)
            FROM ff_exec_core AS u
            WHERE
                u.partition_key = i.partition_key
                AND u.execution_id = i.execution_id
            LIMIT 1
        )
    )
ORDER BY
    d.partition_key,
    d.downstream_eid;

-- name: EnsureGroups :exec
-- EnsureGroups inserts the missing rows of groups, which need all their upstreams and have counted none.
--
-- Used by: upkeep.DispatchCompletions.
-- Locks: L3 waits (for a concurrent insert of the same row, in array order). The flows' exclusive locks are held.
INSERT INTO ff_edge_group (partition_key, flow_id, downstream_eid, policy)
SELECT
    i.partition_key,
    i.flow_id,
    i.downstream_eid,
    '{"kind": "all_of"}'
FROM (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid
) AS i
ON CONFLICT (partition_key, flow_id, downstream_eid) DO NOTHING;

-- name: TakeUnsoundGroups :many
-- TakeUnsoundGroups locks groups and returns the locked ones by ord. No row: another transaction holds the group, or
-- the group does not exist. held: the downstream execution waits only for dependencies. replayed: the same, after the
-- execution was set to run again.
--
-- Used by: upkeep.DispatchCompletions, upkeep.RepairGroups.
-- Locks: L3 skips (group rows FOR UPDATE in array order). The flows' exclusive locks are held. The caller sorts by
-- (partition_key, downstream_eid).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    g.policy,
    g.k_target,
    g.success_count,
    g.fail_count,
    g.skip_count,
    g.running_count,
    g.cancel_siblings_pending_flag,
    coalesce(e.held, false)::boolean AS held,
    coalesce(e.replayed, false)::boolean AS replayed
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.policy,
        t.k_target,
        t.success_count,
        t.fail_count,
        t.skip_count,
        t.running_count,
        t.cancel_siblings_pending_flag
    FROM ff_edge_group AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND t.downstream_eid = i.downstream_eid
    FOR UPDATE SKIP LOCKED
) AS g
LEFT JOIN LATERAL (
    SELECT
        (
            t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'blocked', 'eligible')
            AND t.ownership_state IN ('unowned', 'released')
            AND t.eligibility_state = 'blocked_by_dependencies'
        ) AS held,
        t.attempt_state = 'pending_replay_attempt' AS replayed
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.downstream_eid
    LIMIT 1
) AS e ON true;

-- name: ReadGroupEdges :many
-- ReadGroupEdges returns every edge of groups, by the group's ord and edge id. counted_as is the outcome an edge is
-- marked with, empty without a mark. An applied edge without a mark comes with the state and outcome of the upstream.
-- reopened_at_ms is -1 if the edge was never opened again. stored: the upstream has a row.
--
-- Used by: upkeep.DispatchCompletions, upkeep.RepairGroups.
-- Locks: none. Reads after the groups have been locked.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    d.edge_id,
    d.upstream_eid,
    ((d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE)::boolean AS applied,
    coalesce(d.policy ->> 'resolved_outcome', CASE WHEN d.policy ? 'resolved_at_ms' THEN 'failed' END, '')::text AS counted_as,
    coalesce(ffx_read_number(d.policy, 'reopened_at_ms'), -1)::bigint AS reopened_at_ms,
    (coalesce(d.policy ->> 'data_passing_ref', '') <> '')::boolean AS passes_data,
    (u.execution_id IS NOT NULL)::boolean AS stored,
    coalesce(u.replayed_elsewhere, false)::boolean AS replayed_elsewhere,
    coalesce(u.terminal_at_ms, 0)::bigint AS terminal_at_ms,
    coalesce(u.lifecycle_phase, '')::text AS lifecycle_phase,
    coalesce(u.public_state, '')::text AS public_state,
    coalesce(u.cancellation_reason, '')::text AS cancellation_reason,
    coalesce(u.raw_fields ->> 'terminal_outcome', '')::text AS raw_terminal_outcome,
    coalesce(u.raw_fields ->> 'last_failure_message', '')::text AS last_failure_message,
    coalesce(u.raw_fields ->> 'failure_reason', '')::text AS failure_reason,
    coalesce(cur.outcome, '')::text AS current_outcome,
    coalesce(p.outcome, '')::text AS pointer_outcome
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
        t.downstream_eid = i.downstream_eid
        AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
        AND t.flow_id = i.flow_id
    OFFSET 0
) AS d
LEFT JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id,
        t.terminal_at_ms,
        t.lifecycle_phase,
        t.public_state,
        t.cancellation_reason,
        t.raw_fields,
        t.attempt_index,
        ffx_replayed_elsewhere(t.raw_fields) AS replayed_elsewhere
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = d.partition_key
        AND t.execution_id = d.upstream_eid
        AND NOT d.policy ? 'resolved_at_ms'
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
    SELECT t.outcome
    FROM ff_attempt AS t
    WHERE
        t.partition_key = u.partition_key
        AND t.execution_id = u.execution_id
        AND t.attempt_index = u.attempt_index
    LIMIT 1
) AS p ON true
ORDER BY
    i.ord,
    d.edge_id;

-- name: RecountGroups :exec
-- RecountGroups sets the counters of locked groups from their edges, and marks unmarked edges.
--
-- Used by: upkeep.DispatchCompletions, upkeep.RepairGroups.
-- Locks: L3 held.
WITH input AS (
    -- The groups with their new counters.
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@success_counts::integer[]) AS success_count,
        unnest(@fail_counts::integer[]) AS fail_count,
        unnest(@skip_counts::integer[]) AS skip_count,
        unnest(@running_counts::integer[]) AS running_count,
        unnest(@k_targets::integer[]) AS k_target
),
marks AS (
    -- The edges to mark.
    SELECT
        unnest(@edge_partition_keys::smallint[]) AS partition_key,
        unnest(@edge_flow_ids::uuid[]) AS flow_id,
        unnest(@edge_upstream_eids::uuid[]) AS upstream_eid,
        unnest(@edge_ids::uuid[]) AS edge_id,
        unnest(@edge_outcomes::text[]) AS outcome
),
marked AS (
    -- The edges, marked.
    UPDATE ff_edge AS d
    SET
        policy = d.policy || jsonb_build_object(
            'edge_state', CASE WHEN m.outcome = 'success' THEN 'satisfied' ELSE 'impossible' END,
            'resolved_at_ms', @now_ms::bigint,
            'resolved_outcome', m.outcome
        )
    FROM marks AS m
    WHERE
        d.upstream_eid = ANY (ARRAY[m.upstream_eid])
        AND (d.partition_key = m.partition_key OR d.partition_key IS NULL)
        AND (d.flow_id = m.flow_id) IS TRUE
        AND (d.edge_id = m.edge_id) IS TRUE
)
UPDATE ff_edge_group AS g
SET
    success_count = i.success_count,
    fail_count = i.fail_count,
    skip_count = i.skip_count,
    running_count = i.running_count,
    k_target = i.k_target
FROM input AS i
WHERE
    g.partition_key = ANY (ARRAY[i.partition_key])
    AND g.flow_id = i.flow_id
    AND g.downstream_eid = i.downstream_eid;

-- name: ScanGroups :many
-- ScanGroups examines the first page_size groups after a place in the order of the primary key. Returned are the groups
-- whose downstream execution has not ended, and the last group in any case. held: the downstream execution waits only
-- for dependencies. page_rows: the number of examined groups.
--
-- Used by: upkeep.RepairGroups.
-- Locks: none. Spans partitions.
WITH page AS MATERIALIZED (
    SELECT
        g.partition_key,
        g.flow_id,
        g.downstream_eid,
        g.policy,
        g.success_count,
        g.fail_count,
        g.skip_count,
        g.running_count,
        row_number() OVER (ORDER BY g.partition_key, g.flow_id, g.downstream_eid) AS ord
    FROM ff_edge_group AS g
    WHERE
        (g.partition_key, g.flow_id, g.downstream_eid)
        > (@after_partition_key::smallint, @after_flow_id::uuid, @after_downstream_eid::uuid)
    ORDER BY
        g.partition_key,
        g.flow_id,
        g.downstream_eid
    LIMIT @page_size::integer
)
SELECT
    p.partition_key,
    p.flow_id,
    p.downstream_eid,
    p.policy,
    p.success_count,
    p.fail_count,
    p.skip_count,
    p.running_count,
    (e.execution_id IS NOT NULL)::boolean AS waits,
    coalesce(e.held, false)::boolean AS held,
    (SELECT count(*) FROM page)::integer AS page_rows
FROM page AS p
LEFT JOIN LATERAL (
    SELECT
        t.execution_id,
        (
            t.lifecycle_phase IN ('runnable', 'submitted', 'pending', 'blocked', 'eligible')
            AND t.ownership_state IN ('unowned', 'released')
            AND t.eligibility_state = 'blocked_by_dependencies'
        ) AS held
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = p.partition_key
        AND t.execution_id = p.downstream_eid
        AND (t.lifecycle_phase IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')) IS NOT TRUE
    LIMIT 1
) AS e ON true
WHERE
    e.execution_id IS NOT NULL
    OR p.ord = (SELECT count(*) FROM page)
ORDER BY p.ord;

-- name: ListLostEnds :many
-- ListLostEnds returns, by ord, the given groups whose counters are wrong: an upstream is not counted or not marked
-- although the upstream ended at least settle_ms ago, and after the edge was opened again, or was deleted; or more
-- upstreams are counted as running than open edges lead to the group.
--
-- Used by: upkeep.RepairGroups.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@running_counts::bigint[]) AS running_count,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        count(*) AS edges,
        coalesce(bool_or(
            u.lifecycle_phase IS NULL
            OR u.lifecycle_phase IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
            AND u.terminal_at_ms <= ffx_now_ms(sqlc.narg(now_ms)) - @settle_ms::bigint
            AND u.terminal_at_ms > coalesce(ffx_read_number(d.policy, 'reopened_at_ms'), -1)
        ), false) AS lost
    FROM ff_edge AS d
    LEFT JOIN LATERAL (
        SELECT
            t.lifecycle_phase,
            coalesce(t.terminal_at_ms, 0) AS terminal_at_ms
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = d.partition_key
            AND t.execution_id = d.upstream_eid
        LIMIT 1
    ) AS u ON true
    WHERE
        d.downstream_eid = i.downstream_eid
        AND (d.partition_key = i.partition_key OR d.partition_key IS NULL)
        AND (d.flow_id = i.flow_id) IS TRUE
        AND (d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE
        AND NOT d.policy ? 'resolved_at_ms'
) AS o
WHERE
    o.lost
    OR o.edges < i.running_count;
