-- name: EnsureLanes :exec
-- EnsureLanes registers lanes that executions were created on; a known lane is left as it is.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow.
-- Locks: lanes waits (for a concurrent insert of the same lane, in array order). The caller sorts.
INSERT INTO ff_lane_registry (
    lane_id,
    registered_at_ms,
    registered_by
)
SELECT
    i.lane_id,
    ffx_now_ms(sqlc.narg(now_ms)::bigint),
    'create_execution'
FROM (SELECT unnest(@lane_ids::text[]) AS lane_id) AS i
ON CONFLICT (lane_id) DO NOTHING;

-- name: ListLanes :many
-- ListLanes pages through the registered lanes in byte order, strictly after a cursor.
--
-- Used by: engine.ListLanes.
-- Locks: none.
SELECT l.lane_id
FROM ff_lane_registry AS l
WHERE l.lane_id COLLATE "C" > @after_lane_id::text
ORDER BY l.lane_id COLLATE "C"
LIMIT @page_size::integer;
