-- name: GetFlowTimersDue :one
-- GetFlowTimersDue returns whether a timer for flows is due.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: none. Spans partitions.
SELECT
    (SELECT count(*) FROM ffx_retention)::integer AS sources,
    EXISTS (
        SELECT
        FROM ffx_retention_timer AS t
        WHERE
            t.subject = 'flow'
            AND t.due_at_ms <= ffx_now_ms(sqlc.narg(now_ms))
    ) AS timers_due;

-- name: ScanFlowAges :many
-- ScanFlowAges returns the next page_size flows after a position, in the order of the primary key, and whether the last
-- change of each is older than the retention; members may have ended later. No row: nothing follows.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: none. Spans partitions.
SELECT
    f.partition_key,
    f.flow_id,
    (
        greatest(f.created_at_ms, f.terminal_at_ms, ffx_read_number(f.raw_fields, 'last_mutation_at_ms'))
        <= ffx_now_ms(sqlc.narg(now_ms)) - ffx_retention_of(f.raw_fields, NULL, @default_ms::bigint)
    )::boolean AS old
FROM ff_flow_core AS f
WHERE (f.partition_key, f.flow_id) > (@after_partition_key::smallint, @after_flow_id::uuid)
ORDER BY
    f.partition_key,
    f.flow_id
LIMIT @page_size::integer;

-- name: ReadPurgeable :many
-- ReadPurgeable returns the facts that decide whether flows may be deleted. in_use: a member has not ended, or the flow
-- has never had one. unfinished: the flow has a backlog or a pending cancel. changed_at_ms: the last change of the flow
-- or its members. retention_ms: how long the flow is kept. members: the number of stored members, unless in use. No
-- row: the flow does not exist.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: none. The facts hold once the caller has the exclusive locks of the flows.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
SELECT
    f.partition_key,
    f.flow_id,
    greatest(f.changed_at_ms, m.ended_at_ms, g.ended_at_ms)::bigint AS changed_at_ms,
    f.retention_ms::bigint AS retention_ms,
    coalesce(m.members, 0)::bigint AS members,
    (f.untouched OR u.unfinished IS NOT NULL)::boolean AS in_use,
    (b.listed IS NOT NULL OR p.pending IS NOT NULL)::boolean AS unfinished
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        c.partition_key,
        c.flow_id,
        greatest(c.created_at_ms, c.terminal_at_ms, ffx_read_number(c.raw_fields, 'last_mutation_at_ms')) AS changed_at_ms,
        ffx_retention_of(c.raw_fields, NULL, @default_ms::bigint) AS retention_ms,
        (
            c.public_flow_state NOT IN ('cancelled', 'completed', 'failed')
            AND coalesce(c.raw_fields ->> 'node_count', '0') !~ '[1-9]'
        ) AS untouched
    FROM ff_flow_core AS c
    WHERE
        c.partition_key = i.partition_key
        AND c.flow_id = i.flow_id
    LIMIT 1
) AS f
LEFT JOIN LATERAL (
    SELECT true AS unfinished
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = i.partition_key
        AND e.flow_id = i.flow_id
        AND e.lifecycle_phase NOT IN ('terminal', 'cancelled')
    LIMIT 1
) AS u ON true
LEFT JOIN LATERAL (
    -- All, unless one has not ended.
    SELECT
        count(*) AS members,
        max(e.terminal_at_ms) AS ended_at_ms
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = i.partition_key
        AND e.flow_id = i.flow_id
        AND u.unfinished IS NULL
) AS m ON true
LEFT JOIN LATERAL (
    SELECT max(e.ended_at_ms) AS ended_at_ms
    FROM ffx_pruned_member AS e
    WHERE
        e.partition_key = i.partition_key
        AND e.flow_id = i.flow_id
        AND u.unfinished IS NULL
) AS g ON true
LEFT JOIN LATERAL (
    SELECT true AS listed
    FROM ff_cancel_backlog AS l
    WHERE
        l.partition_key = i.partition_key
        AND l.flow_id = i.flow_id
    LIMIT 1
) AS b ON true
LEFT JOIN LATERAL (
    SELECT true AS pending
    FROM ff_pending_cancel_groups AS q
    WHERE
        q.partition_key = i.partition_key
        AND q.flow_id = i.flow_id
    LIMIT 1
) AS p ON true;

-- name: ListUndispatchedFlows :many
-- ListUndispatchedFlows returns the given flows with an undispatched completion event. Reads all undispatched events
-- once.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: none. Spans partitions.
SELECT DISTINCT u.flow_id::uuid AS flow_id
FROM ff_completion_event AS u
WHERE
    u.dispatched_at_ms IS NULL
    AND u.flow_id = ANY (@flow_ids::uuid[]);

-- name: TakeEndedMembers :many
-- TakeEndedMembers locks members of flows whose exclusive locks the caller holds, up to the entry of each flow in
-- max_items, and returns the members by ord of the flow. Missing members are locked by other transactions, or were
-- called, before joining the flow, by an execution still waiting for their result.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L1 skips (execution rows FOR UPDATE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@max_items::integer[]) AS max_items,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT t.execution_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND t.lifecycle_phase IN ('terminal', 'cancelled')
        AND NOT (
            -- include awaited: execution = t
        )
    LIMIT i.max_items
    FOR UPDATE SKIP LOCKED
) AS e;

-- name: CloseFlow :exec
-- CloseFlow makes a flow refuse new members and replays: the deletion takes several transactions.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L0 held.
UPDATE ff_flow_core AS f
SET public_flow_state = 'completed'
WHERE
    f.partition_key = @partition_key
    AND f.flow_id = @flow_id
    AND f.public_flow_state NOT IN ('cancelled', 'completed', 'failed');

-- name: DropPrunedMembersOf :exec
-- DropPrunedMembersOf deletes the records of pruned members of flows about to be deleted.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L0 held (DELETE).
-- include drop_of_flows: table = ffx_pruned_member

-- name: DropEdgesOf :exec
-- DropEdgesOf deletes the edges of flows about to be deleted.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L3 waits (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
)
DELETE FROM ff_edge
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND (flow_id = ANY (@flow_ids::uuid[])) IS TRUE
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_edge AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            -- Of three indexes only one has this order, and finds the flow, not only the partition.
            ORDER BY t.edge_id
        ) AS x
    ));

-- name: DropEdgeGroupsOf :exec
-- DropEdgeGroupsOf deletes the groups of flows about to be deleted.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L3 waits (DELETE).
-- include drop_of_flows: table = ff_edge_group

-- name: DropCancelDispatchesOf :exec
-- DropCancelDispatchesOf deletes the rows the cancel outbox, which has no writer, has for flows about to be deleted.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L0 held (DELETE).
-- include drop_of_flows: table = ff_cancel_dispatch_outbox

-- name: DropBacklogMembersOf :exec
-- DropBacklogMembersOf deletes backlog members left without a backlog, of flows about to be deleted.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L0 held (DELETE).
-- include drop_of_flows: table = ff_cancel_backlog_member

-- name: DropFlowSummariesOf :exec
-- DropFlowSummariesOf deletes the summaries of flows about to be deleted.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L0 held (DELETE).
-- include drop_of_flows: table = ff_flow_summary

-- name: DropFlows :execrows
-- DropFlows deletes flows whose exclusive lock the caller holds, after all their other rows.
--
-- Used by: upkeep.PurgeFlows.
-- Locks: L0 held (DELETE).
-- include drop_of_flows: table = ff_flow_core
