-- name: GetFlowTimersDue :one
-- GetFlowTimersDue tells whether a timer for flows is due.
--
-- Used by: engine.PurgeFlows.
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

-- name: ScanEmptyFlows :many
-- ScanEmptyFlows returns those of the next page_size flows after a position, in the order of the primary key, that have
-- no member in store, and the last of them in any case. No row: nothing follows.
--
-- Used by: engine.PurgeFlows.
-- Locks: none. Spans partitions.
WITH page AS MATERIALIZED (
    SELECT
        f.partition_key,
        f.flow_id
    FROM ff_flow_core AS f
    WHERE (f.partition_key, f.flow_id) > (@after_partition_key::smallint, @after_flow_id::uuid)
    ORDER BY
        f.partition_key,
        f.flow_id
    LIMIT @page_size::integer
)
SELECT
    p.partition_key,
    p.flow_id,
    NOT EXISTS (
        SELECT
        FROM ff_exec_core AS e
        WHERE
            e.partition_key = p.partition_key
            AND e.flow_id = p.flow_id
        OFFSET 0 -- else one read of all members may look cheaper than a look for each flow
    ) AS empty
FROM page AS p
ORDER BY
    p.partition_key,
    p.flow_id;

-- name: ReadPurgeable :many
-- ReadPurgeable returns what decides whether flows may be deleted, whose exclusive lock the caller holds: whether
-- anything of them is left to do (a member in store, a backlog, a pending cancel, or nothing ever begun), and when they
-- last changed. A missing flow has no row.
--
-- Used by: engine.PurgeFlows.
-- Locks: none.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
SELECT
    f.partition_key,
    f.flow_id,
    f.changed_at_ms::bigint AS changed_at_ms,
    (f.untouched OR m.stored IS NOT NULL)::boolean AS in_use,
    (b.listed IS NOT NULL OR p.pending IS NOT NULL)::boolean AS unfinished
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        c.partition_key,
        c.flow_id,
        greatest(
            c.created_at_ms,
            c.terminal_at_ms,
            CASE
                WHEN c.raw_fields ->> 'last_mutation_at_ms' ~ '^[0-9]{1,18}$'
                    THEN (c.raw_fields ->> 'last_mutation_at_ms')::bigint
            END
        ) AS changed_at_ms,
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
    SELECT true AS stored
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = i.partition_key
        AND e.flow_id = i.flow_id
    LIMIT 1
) AS m ON true
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
    FROM ff_pending_cancel_groups AS g
    WHERE
        g.partition_key = i.partition_key
        AND g.flow_id = i.flow_id
    LIMIT 1
) AS p ON true;

-- name: DropEdgesOf :exec
-- DropEdgesOf deletes the edges of flows that are about to be deleted.
--
-- Used by: engine.PurgeFlows.
-- Locks: L3 waits (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
DELETE FROM ff_edge
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND flow_id = ANY (@flow_ids::uuid[])
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_edge AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            -- Of three indexes this order has one, by which the flow is found and not only its partition.
            ORDER BY t.edge_id
            OFFSET 0
        ) AS x
    ));

-- name: DropEdgeGroupsOf :exec
-- DropEdgeGroupsOf deletes the groups of flows that are about to be deleted.
--
-- Used by: engine.PurgeFlows.
-- Locks: L3 waits (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
DELETE FROM ff_edge_group
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND flow_id = ANY (@flow_ids::uuid[])
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_edge_group AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            OFFSET 0
        ) AS x
    ));

-- name: DropCancelDispatchesOf :exec
-- DropCancelDispatchesOf deletes what the cancel outbox, which nothing writes, has of flows that are about to be deleted.
--
-- Used by: engine.PurgeFlows.
-- Locks: L0 held (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
DELETE FROM ff_cancel_dispatch_outbox
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND flow_id = ANY (@flow_ids::uuid[])
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_cancel_dispatch_outbox AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            OFFSET 0
        ) AS x
    ));

-- name: DropBacklogMembersOf :exec
-- DropBacklogMembersOf deletes what a backlog that is gone left behind of flows that are about to be deleted.
--
-- Used by: engine.PurgeFlows.
-- Locks: L0 held (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
DELETE FROM ff_cancel_backlog_member
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND flow_id = ANY (@flow_ids::uuid[])
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_cancel_backlog_member AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            OFFSET 0
        ) AS x
    ));

-- name: DropFlowSummariesOf :exec
-- DropFlowSummariesOf deletes the summaries of flows that are about to be deleted.
--
-- Used by: engine.PurgeFlows.
-- Locks: L0 held (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
DELETE FROM ff_flow_summary
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND flow_id = ANY (@flow_ids::uuid[])
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_flow_summary AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            OFFSET 0
        ) AS x
    ));

-- name: DropFlows :execrows
-- DropFlows deletes flows whose exclusive lock the caller holds, after all that belongs to them.
--
-- Used by: engine.PurgeFlows.
-- Locks: L0 held (DELETE).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id
    LIMIT cardinality(@flow_ids::uuid[])
)
DELETE FROM ff_flow_core
WHERE
    (partition_key = ANY (@partition_keys::smallint[])) IS TRUE
    AND flow_id = ANY (@flow_ids::uuid[])
    AND ctid = ANY (ARRAY(
        SELECT x.ctid
        FROM input AS i
        CROSS JOIN LATERAL (
            SELECT t.ctid
            FROM ff_flow_core AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
            OFFSET 0
        ) AS x
    ));
