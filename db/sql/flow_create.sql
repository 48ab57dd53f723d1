-- name: InsertFlow :execrows
-- InsertFlow creates the row of a flow. 0 rows: the flow exists already, and is neither compared nor changed.
--
-- Used by: engine.CreateFlow.
-- Locks: L0 waits (for a concurrent insert of the same flow).
INSERT INTO ff_flow_core (
    partition_key, flow_id, graph_revision, public_flow_state, created_at_ms, raw_fields
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
-- InsertAppliedEdges adds dependency edges, which count from now on.
--
-- Used by: engine.CreateFlow.
-- Locks: L3 new: the flow is new.
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
-- Locks: L3 new: the flow is new.
INSERT INTO ff_edge_group (partition_key, flow_id, downstream_eid, policy, k_target, running_count)
SELECT
    @partition_key,
    @flow_id,
    i.downstream_eid,
    i.policy::jsonb,
    i.k_target,
    i.running_count
FROM (
    SELECT
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@policies::text[]) AS policy,
        unnest(@k_targets::integer[]) AS k_target,
        unnest(@running_counts::integer[]) AS running_count
) AS i;

-- name: CountNewMembers :one
-- CountNewMembers adds members to the counters of a flow, one revision each, and returns the number of members.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions.
-- Locks: L0 held.
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
