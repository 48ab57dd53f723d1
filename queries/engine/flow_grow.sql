-- name: LockGrowingFlow :one
-- LockGrowingFlow locks the row of a flow whose exclusive lock the caller holds, and returns the counters of growth. No
-- row: the flow does not exist.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.AddMembers, engine.StageEdges, engine.ApplyEdges,
-- engine.SetGroupPolicy.
-- Locks: L0 waits (the flow's row FOR NO KEY UPDATE).
SELECT
    f.public_flow_state,
    f.graph_revision,
    f.raw_fields
FROM ff_flow_core AS f
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id
FOR NO KEY UPDATE;

-- name: CountGrowth :one
-- CountGrowth adds members and edges to the counters of a flow, one revision each, and returns the new values. The row
-- of a flow is also written if the flow changed in another way, so a transaction with an older snapshot fails at the
-- flow's lock.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.AddMembers, engine.StageEdges, engine.ApplyEdges,
-- engine.SetGroupPolicy.
-- Locks: L0 held.
UPDATE ff_flow_core AS f
SET
    graph_revision = f.graph_revision + sqlc.arg(members)::bigint + sqlc.arg(edges)::bigint,
    raw_fields = f.raw_fields || jsonb_build_object(
        'node_count', sqlc.arg(node_count)::bigint + sqlc.arg(members)::bigint,
        'edge_count', sqlc.arg(edge_count)::bigint + sqlc.arg(edges)::bigint,
        'last_mutation_at_ms', @now_ms::bigint
    )
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id
RETURNING f.graph_revision;

-- name: JoinFlow :exec
-- JoinFlow makes executions outside any flow members of one. An empty node_key keeps the present key.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.AddMembers.
-- Locks: L1 held.
WITH input AS (
    SELECT
        @partition_key::smallint AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@node_keys::text[]) AS node_key
)
UPDATE ff_exec_core AS e
SET
    flow_id = @flow_id::uuid,
    raw_fields = CASE
        WHEN i.node_key = '' THEN e.raw_fields
        ELSE e.raw_fields || jsonb_build_object('ffx_node_key', i.node_key)
    END,
    ffx_last_mutation_at_ms = @now_ms::bigint
FROM input AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id
    AND (e.flow_id IS NULL) IS TRUE;

-- name: LockUndispatchedOf :many
-- LockUndispatchedOf returns the given ended members with an undispatched event. The dispatcher of the event counts
-- their edges, including edges added now. Events of executions that ended before joining the flow are left out: their
-- dispatcher looks for no edges. The rows are locked to let a transaction fail with 40001 if its snapshot still shows a
-- dispatched event as undispatched.
--
-- Used by: engine.CreateFlow, engine.GrowFlow, engine.StageEdges, engine.ApplyEdges.
-- Locks: L7 waits (event rows FOR SHARE: a dispatcher of another program holds one while counting). Reads all
-- undispatched events.
SELECT c.execution_id
FROM ff_completion_event AS c
WHERE
    c.dispatched_at_ms IS NULL
    AND c.event_id > 0
    AND c.partition_key = @partition_key
    AND c.outcome <> 'resumable'
    AND c.flow_id = @flow_id::uuid
    AND c.execution_id = ANY (@execution_ids::uuid[])
FOR SHARE;
