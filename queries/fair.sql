-- name: ListFairPlaces :many
-- ListFairPlaces returns the facts that give fair work its place in the queue. For each line, a lane at one rank, a row
-- with tenant false has the place of the first fair execution that waits among the next max_items entries from a place
-- on; the caller knows that all before it are gone, so no claimed entry is walked over again. place_ns is negative if
-- there is none. A row with tenant true has the greatest place of a tenant and whether that execution has started. A
-- tenant without an execution has no row.
--
-- Nothing is locked: of two concurrent creations for a tenant, both may get the same places.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow.
-- Locks: none. Spans partitions.
WITH lines AS (
    SELECT
        unnest(@line_ords::integer[]) AS ord,
        unnest(@lane_ids::text[]) AS lane_id,
        unnest(@ranks::bigint[]) AS rank,
        unnest(@from_ms::bigint[]) AS from_ms
    LIMIT cardinality(@line_ords::integer[])
),
tenants AS (
    SELECT
        unnest(@tenant_ords::integer[]) AS ord,
        unnest(@fair_keys::bigint[]) AS fair_key
    LIMIT cardinality(@tenant_ords::integer[])
)
SELECT
    false AS tenant,
    l.ord::integer AS ord,
    coalesce(h.place_ns, -1)::bigint AS place_ns,
    false AS started,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM lines AS l
LEFT JOIN LATERAL (
    SELECT e.place_ns
    FROM (
        SELECT
            q.partition_key,
            q.execution_id,
            q.created_at_ms
        FROM ffx_ready AS q
        WHERE
            q.lane_id = l.lane_id
            AND q.rank = l.rank
            AND q.created_at_ms >= l.from_ms
        ORDER BY
            q.created_at_ms,
            q.execution_id
        LIMIT @max_items::integer
    ) AS r
    CROSS JOIN LATERAL (
        SELECT x.ffx_place_ns AS place_ns
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = r.partition_key
            AND x.execution_id = r.execution_id
            AND x.created_at_ms = r.created_at_ms
            AND num_nulls(x.ffx_place_ns) = 0
            -- Work that comes back has an old place, which the lane served long ago.
            AND x.attempt_state = 'pending_first_attempt'
        LIMIT 1
    ) AS e
    ORDER BY
        r.created_at_ms,
        r.execution_id
    LIMIT 1
) AS h ON true
UNION ALL
SELECT
    true,
    t.ord,
    e.place_ns,
    e.started,
    0
FROM tenants AS t
CROSS JOIN LATERAL (
    SELECT
        x.ffx_place_ns AS place_ns,
        x.lifecycle_phase <> 'runnable' OR x.attempt_state <> 'pending_first_attempt' AS started
    FROM ff_exec_core AS x
    WHERE x.ffx_fair_key = t.fair_key
    ORDER BY x.ffx_place_ns DESC
    LIMIT 1
) AS e;
