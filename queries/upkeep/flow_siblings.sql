-- name: ScanSiblingCancels :many
-- ScanSiblingCancels finds decided groups with upstreams to cancel, oldest first, after a position.
--
-- Used by: upkeep.CancelSiblings.
-- Locks: none. Spans partitions.
SELECT
    p.enqueued_at_ms,
    p.partition_key,
    p.flow_id,
    p.downstream_eid
FROM ff_pending_cancel_groups AS p
WHERE
    (p.enqueued_at_ms, p.partition_key, p.flow_id, p.downstream_eid)
    > (@after_enqueued_at_ms::bigint, @after_partition_key::smallint, @after_flow_id::uuid, @after_downstream_eid::uuid)
ORDER BY
    p.enqueued_at_ms,
    p.partition_key,
    p.flow_id,
    p.downstream_eid
LIMIT @page_size::integer;

-- name: TakeSiblingCancels :many
-- TakeSiblingCancels locks the given groups, by ord (from 0), on the list of pending cancels. No row: the list has no
-- entry for the group, or another transaction holds the entry.
--
-- Used by: upkeep.CancelSiblings.
-- Locks: L7 skips (rows of the list FOR UPDATE). The flows are locked by the caller, exclusively.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@ords::integer[]) AS ord
)
SELECT i.ord::integer AS ord
FROM input AS i
CROSS JOIN LATERAL (
    SELECT 1
    FROM ff_pending_cancel_groups AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.flow_id = i.flow_id
        AND t.downstream_eid = i.downstream_eid
    FOR UPDATE SKIP LOCKED
) AS p;

-- name: TakeGroups :many
-- TakeGroups locks the given groups and returns each, by ord (from 0), with the number of staged inbound edges not
-- applied yet. taken is false if another transaction holds the group; has_group is false if the group has no row.
--
-- Used by: upkeep.CancelSiblings.
-- Locks: L3 skips (group rows FOR UPDATE in array order). The caller sorts by (partition_key, downstream_eid), and holds
-- the flows exclusively.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@partition_keys::smallint[])
)
SELECT
    i.ord::integer AS ord,
    (g.policy IS NOT NULL)::boolean AS taken,
    (
        g.policy IS NOT NULL
        OR EXISTS (
            SELECT
            FROM ff_edge_group AS t
            WHERE
                t.partition_key = i.partition_key
                AND t.flow_id = i.flow_id
                AND t.downstream_eid = i.downstream_eid
        )
    )::boolean AS has_group,
    coalesce(g.policy, '{}')::jsonb AS policy,
    coalesce(g.success_count, 0)::integer AS success_count,
    coalesce(g.fail_count, 0)::integer AS fail_count,
    coalesce(g.skip_count, 0)::integer AS skip_count,
    coalesce(g.running_count, 0)::integer AS running_count,
    coalesce(g.cancel_siblings_pending_flag, false)::boolean AS flagged,
    (
        SELECT count(*)
        FROM ff_edge AS s
        WHERE
            s.downstream_eid = i.downstream_eid
            AND (s.partition_key = i.partition_key OR s.partition_key IS NULL)
            AND (s.flow_id = i.flow_id) IS TRUE
            AND s.policy -> 'applied_at_ms' = 'null'::jsonb
    )::bigint AS staged
FROM input AS i
LEFT JOIN LATERAL (
    SELECT
        t.policy,
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
) AS g ON true;

-- name: ListSiblings :many
-- ListSiblings returns the unfinished, uncounted upstreams of decided groups, by ord of the group, each with the other
-- dependent executions.
--
-- Used by: upkeep.CancelSiblings.
-- Locks: none. The flows are locked by the caller, exclusively: no upstream ends meanwhile.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid,
        unnest(@ords::integer[]) AS ord
)
SELECT
    i.ord::integer AS ord,
    u.execution_id,
    ARRAY(
        SELECT o.downstream_eid
        FROM ff_edge AS o
        CROSS JOIN LATERAL (
            SELECT t.lifecycle_phase
            FROM ff_exec_core AS t
            WHERE
                t.partition_key = o.partition_key
                AND t.execution_id = o.downstream_eid
            OFFSET 0
        ) AS w
        WHERE
            o.upstream_eid = d.upstream_eid
            AND (o.partition_key = d.partition_key OR o.partition_key IS NULL)
            AND (o.flow_id = d.flow_id) IS TRUE
            AND o.downstream_eid <> d.downstream_eid
            AND NOT o.policy ? 'resolved_at_ms'
            AND w.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
    )::uuid[] AS others
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
CROSS JOIN LATERAL (
    SELECT
        t.execution_id,
        t.lifecycle_phase
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = d.partition_key
        AND t.execution_id = d.upstream_eid
    OFFSET 0
) AS u
WHERE
    NOT d.policy ? 'resolved_at_ms'
    AND u.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
ORDER BY
    i.ord,
    u.execution_id;

-- name: ClearSiblingCancels :exec
-- ClearSiblingCancels removes groups from the list of pending cancels.
--
-- Used by: upkeep.CancelSiblings.
-- Locks: L3 held; L7 held. A group without a row has only an entry in the list.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@flow_ids::uuid[]) AS flow_id,
        unnest(@downstream_eids::uuid[]) AS downstream_eid
),
cleared AS (
    UPDATE ff_edge_group AS g
    SET
        cancel_siblings_pending_flag = false,
        cancel_siblings_pending_members = '{}'
    FROM input AS i
    WHERE
        g.partition_key = ANY (ARRAY[i.partition_key])
        AND g.flow_id = i.flow_id
        AND g.downstream_eid = i.downstream_eid
)
DELETE FROM ff_pending_cancel_groups AS p
USING input AS i
WHERE
    p.partition_key = i.partition_key
    AND p.flow_id = i.flow_id
    AND p.downstream_eid = i.downstream_eid;
