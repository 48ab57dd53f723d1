-- name: ListQueuedLanes :many
-- ListQueuedLanes returns up to max_items lanes with entries in the queue.
--
-- Used by: engine.WaitingKinds.
-- Locks: none. Spans partitions.
WITH RECURSIVE queued AS (
    SELECT
        0 AS ord,
        (
            SELECT q.lane_id
            FROM ffx_ready AS q
            ORDER BY q.lane_id
            LIMIT 1
        ) AS lane_id
    UNION ALL
    SELECT
        queued.ord + 1,
        (
            SELECT q.lane_id
            FROM ffx_ready AS q
            WHERE q.lane_id > queued.lane_id
            ORDER BY q.lane_id
            LIMIT 1
        )
    FROM queued
    WHERE
        queued.lane_id IS NOT NULL
        AND queued.ord < sqlc.arg(max_items)::integer - 1
)
SELECT l.lane_id::text AS lane_id
FROM queued AS l
WHERE l.lane_id IS NOT NULL
ORDER BY l.ord;

-- name: ListWaitingKinds :many
-- ListWaitingKinds returns the kinds whose next execution in a lane has been claimable for at least longer_ms, in the
-- given lanes, without the excepted kinds: up to page_size, by lane and kind. Only the first max_scanned entries of
-- each lane are examined; if there are more, at_least says the count may be too low.
--
-- Used by: engine.WaitingKinds.
-- Locks: none. Spans partitions.
WITH input AS (
    SELECT unnest(@lane_ids::text[]) AS lane_id
),
scanned AS (
    SELECT
        q.lane_id,
        q.kind,
        q.partition_key,
        q.execution_id,
        row_number() OVER (PARTITION BY q.lane_id, q.kind ORDER BY q.rank, q.created_at_ms, q.execution_id) AS nth,
        count(*) OVER (PARTITION BY q.lane_id, q.kind) AS waiting,
        count(*) OVER (PARTITION BY q.lane_id) AS scanned
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            r.lane_id,
            r.rank,
            r.created_at_ms,
            r.execution_id,
            r.partition_key,
            r.kind
        FROM ffx_ready AS r
        WHERE r.lane_id = i.lane_id
        ORDER BY
            r.rank,
            r.created_at_ms,
            r.execution_id
        LIMIT @max_scanned::integer
    ) AS q
)
SELECT
    s.lane_id::text AS lane_id,
    s.kind::text AS kind,
    s.waiting::bigint AS waiting,
    (s.scanned >= @max_scanned::integer)::boolean AS at_least,
    s.partition_key::smallint AS partition_key,
    CAST(s.execution_id AS uuid) AS execution_id,
    n.since_ms::bigint AS since_ms
FROM scanned AS s
CROSS JOIN LATERAL (
    SELECT coalesce(e.ffx_last_mutation_at_ms, e.created_at_ms) AS since_ms
    FROM ff_exec_core AS e
    WHERE
        e.partition_key = s.partition_key
        AND e.execution_id = s.execution_id
        AND e.lifecycle_phase = 'runnable'
        AND e.eligibility_state = 'eligible_now'
    OFFSET 0
) AS n
WHERE
    s.nth = 1
    AND (s.kind = ANY (@except_kinds::text[])) IS NOT TRUE
    AND n.since_ms <= ffx_now_ms(sqlc.narg(now_ms)) - @longer_ms::bigint
ORDER BY
    s.lane_id,
    s.kind
LIMIT @page_size::integer;
