-- name: ListInboundEdges :many
-- ListInboundEdges returns the edges into members of a flow. applied: the edge counts; otherwise the edge is only
-- staged. resolved_outcome: the outcome of the upstream, empty if the end is not counted.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges, engine.ApplyEdges, engine.SetGroupPolicy.
-- Locks: none. The caller holds the flow's exclusive lock.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid
    LIMIT cardinality(@downstream_eids::uuid[])
)
SELECT
    d.edge_id,
    d.upstream_eid,
    CAST(i.downstream_eid AS uuid) AS downstream_eid,
    coalesce(d.policy ->> 'dependency_kind', 'success_only')::text AS dependency_kind,
    coalesce(d.policy ->> 'data_passing_ref', '')::text AS data_passing_ref,
    ((d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE)::boolean AS applied,
    coalesce(d.policy ->> 'resolved_outcome', CASE WHEN d.policy ? 'resolved_at_ms' THEN 'failed' END, '')::text AS resolved_outcome,
    coalesce(d.policy -> 'allow_active_downstream' = 'true'::jsonb, false)::boolean AS allow_started
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.edge_id,
        t.upstream_eid,
        t.policy
    FROM ff_edge AS t
    WHERE
        t.downstream_eid = ANY (ARRAY[i.downstream_eid])
        AND (t.partition_key = i.partition_key OR t.partition_key IS NULL)
        AND (t.flow_id = i.flow_id) IS TRUE
    OFFSET 0
) AS d;

-- name: ListEdgesNamed :many
-- ListEdgesNamed returns edges of a flow by their ids. A missing edge has no row.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges, engine.ApplyEdges.
-- Locks: none. The caller holds the flow's exclusive lock.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        unnest(@edge_ids::uuid[]) AS edge_id
)
SELECT
    CAST(i.edge_id AS uuid) AS edge_id,
    d.upstream_eid,
    d.downstream_eid,
    coalesce(d.policy ->> 'dependency_kind', 'success_only')::text AS dependency_kind,
    coalesce(d.policy ->> 'data_passing_ref', '')::text AS data_passing_ref,
    ((d.policy -> 'applied_at_ms' = 'null'::jsonb) IS NOT TRUE)::boolean AS applied,
    coalesce(d.policy ->> 'resolved_outcome', CASE WHEN d.policy ? 'resolved_at_ms' THEN 'failed' END, '')::text AS resolved_outcome,
    coalesce(d.policy -> 'allow_active_downstream' = 'true'::jsonb, false)::boolean AS allow_started
FROM input AS i
CROSS JOIN LATERAL (
    -- In key order: otherwise any index with the flow in front looks as good in a small table.
    SELECT
        t.edge_id,
        t.upstream_eid,
        t.downstream_eid,
        t.policy
    FROM ff_edge AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND t.edge_id >= i.edge_id
    ORDER BY t.edge_id
    LIMIT 1
) AS d
WHERE d.edge_id = i.edge_id;

-- name: ListEdgesBelow :many
-- ListEdgesBelow returns every edge reachable from members of a flow.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges.
-- Locks: none. The caller holds the flow's exclusive lock. Reads all edges below the members.
WITH RECURSIVE reached AS (
    SELECT unnest(@execution_ids::uuid[]) AS execution_id
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
    CAST(r.execution_id AS uuid) AS upstream_eid,
    d.downstream_eid
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
) AS d;

-- name: InsertEdges :exec
-- InsertEdges adds dependency edges between members of a flow. Applied edges count from now on; staged edges only hold
-- the group of their downstream open until applied. outcome: for an applied edge, the outcome of the upstream if the
-- end is counted. Empty if the upstream has not ended, or if an undispatched event will count the end.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges.
-- Locks: L3 new. The caller holds the flow's exclusive lock.
INSERT INTO ff_edge (partition_key, flow_id, edge_id, upstream_eid, downstream_eid, policy)
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
        'edge_state', CASE
            WHEN NOT @applied::boolean THEN 'pending'
            WHEN i.outcome = '' THEN 'applied'
            WHEN i.outcome = 'success' THEN 'satisfied'
            ELSE 'impossible'
        END,
        'created_at_ms', @now_ms::bigint,
        'created_by', 'engine',
        'staged_at_ms', @now_ms::bigint,
        'applied_at_ms', CASE WHEN @applied::boolean THEN @now_ms::bigint END
    )
    || CASE WHEN i.allow_started THEN '{"allow_active_downstream": true}' ELSE '{}' END::jsonb
    || CASE
        WHEN i.outcome = '' THEN '{}'
        ELSE jsonb_build_object('resolved_at_ms', @now_ms::bigint, 'resolved_outcome', i.outcome)
    END
FROM (
    SELECT
        unnest(@edge_ids::uuid[]) AS edge_id,
        unnest(@upstream_eids::uuid[]) AS upstream_eid,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@dependency_kinds::text[]) AS dependency_kind,
        unnest(@data_passing_refs::text[]) AS data_passing_ref,
        unnest(@allow_started::boolean[]) AS allow_started,
        unnest(@outcomes::text[]) AS outcome
) AS i;

-- name: ApplyEdges :exec
-- ApplyEdges applies staged edges: from now on the edges count. outcome is as in InsertEdges.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges, engine.ApplyEdges.
-- Locks: L3 waits (edge rows FOR UPDATE, then the UPDATE). The caller holds the flow's exclusive lock.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        @flow_id::uuid AS flow_id,
        unnest(@edge_ids::uuid[]) AS edge_id,
        unnest(@outcomes::text[]) AS outcome
),
staged AS MATERIALIZED (
    SELECT
        d.row_id,
        i.partition_key,
        i.flow_id,
        i.edge_id,
        i.outcome
    FROM input AS i
    CROSS JOIN LATERAL (
        -- In key order: otherwise any index with the flow in front looks as good in a small table.
        SELECT
            t.ctid::tid AS row_id,
            t.edge_id,
            t.policy
        FROM ff_edge AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.flow_id = i.flow_id
            AND t.edge_id >= i.edge_id
        ORDER BY t.edge_id
        LIMIT 1
        FOR UPDATE
    ) AS d
    WHERE
        d.edge_id = i.edge_id
        AND d.policy -> 'applied_at_ms' = 'null'::jsonb
)
UPDATE ff_edge AS d
SET
    policy = d.policy
    || jsonb_build_object(
        'edge_state', CASE s.outcome WHEN '' THEN 'applied' WHEN 'success' THEN 'satisfied' ELSE 'impossible' END,
        'applied_at_ms', @now_ms::bigint
    )
    || CASE
        WHEN s.outcome = '' THEN '{}'
        ELSE jsonb_build_object('resolved_at_ms', @now_ms::bigint, 'resolved_outcome', s.outcome)
    END
FROM staged AS s
WHERE
    d.ctid = s.row_id
    AND d.partition_key = s.partition_key
    AND d.flow_id = s.flow_id
    AND (d.edge_id = s.edge_id) IS TRUE;

-- name: AddToGroups :exec
-- AddToGroups adds edges to the counters of groups and sets their policies and targets. Missing rows of groups are
-- created.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges, engine.ApplyEdges, engine.SetGroupPolicy.
-- Locks: L3 held.
INSERT INTO ff_edge_group AS g (
    partition_key, flow_id, downstream_eid, policy, k_target, success_count, fail_count, skip_count,
    running_count
)
SELECT
    @partition_key,
    @flow_id,
    i.downstream_eid,
    i.policy::jsonb,
    i.k_target,
    i.success_count,
    i.fail_count,
    i.skip_count,
    i.running_count
FROM (
    SELECT
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@policies::text[]) AS policy,
        unnest(@k_targets::integer[]) AS k_target,
        unnest(@success_counts::integer[]) AS success_count,
        unnest(@fail_counts::integer[]) AS fail_count,
        unnest(@skip_counts::integer[]) AS skip_count,
        unnest(@running_counts::integer[]) AS running_count
) AS i
ON CONFLICT (partition_key, flow_id, downstream_eid) DO UPDATE
SET
    policy = excluded.policy,
    k_target = excluded.k_target,
    success_count = g.success_count + excluded.success_count,
    fail_count = g.fail_count + excluded.fail_count,
    skip_count = g.skip_count + excluded.skip_count,
    running_count = g.running_count + excluded.running_count;

-- name: PassResultsAlong :exec
-- PassResultsAlong passes the results of upstreams to unstarted downstream executions, along edges just counted as
-- successes. If there are several into one execution, the greatest edge id wins.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges, engine.ApplyEdges.
-- Locks: L4 held (execution rows, UPDATE): the caller has locked or created the executions.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        unnest(@edge_ids::uuid[]) AS edge_id,
        unnest(@upstream_eids::uuid[]) AS upstream_eid,
        unnest(@downstream_eids::uuid[]) AS downstream_eid
),
passed AS (
    SELECT DISTINCT ON (i.downstream_eid)
        i.partition_key,
        i.downstream_eid,
        u.result
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT t.result
        FROM ff_exec_core AS t
        WHERE
            t.partition_key = i.partition_key
            AND t.execution_id = i.upstream_eid
        LIMIT 1
    ) AS u
    WHERE u.result IS NOT NULL
    ORDER BY
        i.downstream_eid,
        i.edge_id DESC
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
    AND (e.started_at_ms IS NULL) IS TRUE;
