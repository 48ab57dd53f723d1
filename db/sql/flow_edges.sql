-- name: ListFlowEdges :many
-- ListFlowEdges pages through the edges of a flow by id, strictly after one.
--
-- Used by: engine.FlowEdges.
-- Locks: none.
SELECT
    d.edge_id,
    d.upstream_eid,
    d.downstream_eid,
    d.policy
FROM ff_edge AS d
WHERE
    d.partition_key = @partition_key
    AND d.flow_id = @flow_id
    AND d.edge_id > @after_edge_id::uuid
ORDER BY d.edge_id
LIMIT @page_size::integer;

-- name: ListEdgesInto :many
-- ListEdgesInto returns the edges into an execution, by id.
--
-- Used by: engine.EdgesInto.
-- Locks: none.
SELECT
    d.edge_id,
    d.upstream_eid,
    d.downstream_eid,
    d.policy
FROM (
    SELECT
        x.edge_id,
        x.upstream_eid,
        x.downstream_eid,
        x.policy
    FROM ff_edge AS x
    WHERE
        x.downstream_eid = @execution_id
        AND (x.partition_key = @partition_key OR x.partition_key IS NULL)
        AND x.flow_id = @flow_id
    OFFSET 0 -- otherwise the planner takes the order from the primary key and reads all edges of the flow
) AS d
ORDER BY d.edge_id;

-- name: ListEdgesFrom :many
-- ListEdgesFrom returns the edges from an execution, by id.
--
-- Used by: engine.EdgesFrom.
-- Locks: none.
SELECT
    d.edge_id,
    d.upstream_eid,
    d.downstream_eid,
    d.policy
FROM (
    SELECT
        x.edge_id,
        x.upstream_eid,
        x.downstream_eid,
        x.policy
    FROM ff_edge AS x
    WHERE
        x.upstream_eid = @execution_id
        AND (x.partition_key = @partition_key OR x.partition_key IS NULL)
        AND x.flow_id = @flow_id
    OFFSET 0 -- otherwise the planner takes the order from the primary key and reads all edges of the flow
) AS d
ORDER BY d.edge_id;

-- name: GetEdge :one
-- GetEdge returns an edge. No row: the flow has no such edge.
--
-- Used by: engine.DescribeEdge.
-- Locks: none.
SELECT
    d.edge_id,
    d.upstream_eid,
    d.downstream_eid,
    d.policy
FROM ff_edge AS d
WHERE
    d.partition_key = @partition_key
    AND d.flow_id = @flow_id
    AND d.edge_id >= @edge_id
    AND d.edge_id <= @edge_id
ORDER BY d.edge_id -- by the primary key: without statistics all indexes look alike
LIMIT 1;

-- name: GetExecutionFlow :one
-- GetExecutionFlow returns the flow of an execution, null outside a flow. No row: the execution does not exist.
--
-- Used by: engine.ExecutionFlow.
-- Locks: none.
SELECT e.flow_id
FROM ff_exec_core AS e
WHERE
    e.partition_key = @partition_key
    AND e.execution_id = @execution_id;
