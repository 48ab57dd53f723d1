-- name: ListFairPlaces :many
-- ListFairPlaces returns the facts that decide the place of fair work in the queue. For each line, a lane at one rank,
-- a row with tenant false has the id and the place, in whole milliseconds, of the first waiting fair execution among
-- the next max_items entries from a place on. The caller knows all entries before are gone, so no claimed entry is read
-- again. place_ns is negative if there is none. A row with tenant true has the greatest place of a tenant and whether
-- the execution there has started, has moved or is gone. A tenant without a place has no row. The executions of
-- moved_executions come back to the queue, for new places, and their present places count as left.
--
-- Nothing is locked: of two concurrent transactions for a tenant, both may get the same places.
--
-- Passages: fair_waits.
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, engine.FailExecution,
-- engine.FailExecutions, upkeep.ExpireAttempts, upkeep.ExpireLeases, upkeep.PromoteDelayed.
-- Locks: none. Spans partitions.
WITH lines AS (
    SELECT
        unnest(@line_ords::integer[]) AS ord,
        unnest(@lane_ids::text[]) AS lane_id,
        unnest(@ranks::bigint[]) AS rank,
        unnest(@from_ms::bigint[]) AS from_ms
),
tenants AS (
    SELECT
        unnest(@tenant_ords::integer[]) AS ord,
        unnest(@fair_keys::bigint[]) AS fair_key
)
SELECT
    false AS tenant,
    l.ord::integer AS ord,
    coalesce(h.created_at_ms * 1000000, -1)::bigint AS place_ns,
    false AS started,
    coalesce(h.execution_id, '00000000-0000-0000-0000-000000000000')::uuid AS execution_id,
    ffx_now_ms(sqlc.narg(now_ms))::bigint AS now_ms
FROM lines AS l
LEFT JOIN LATERAL (
    SELECT
        r.created_at_ms,
        r.execution_id
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
        SELECT
        FROM ff_exec_core AS x
        WHERE
            x.partition_key = r.partition_key
            AND x.execution_id = r.execution_id
            -- Only fair work has this value.
            AND num_nulls(x.ffx_created_at_ms) = 0
            AND x.execution_id <> ALL (@moved_executions::uuid[])
            AND (
                -- Whether an execution holds a place of fair work: the execution waits for the first start or, after the pause, for a
                -- retry. Other returning work has an old place, which the lane served long ago.
                x.lifecycle_phase = 'runnable'
                AND (
                    x.attempt_state = 'pending_first_attempt'
                    OR x.attempt_state = 'pending_retry_attempt'
                    AND x.eligibility_state <> 'not_eligible_until_time'
                )
                AND x.created_at_ms = r.created_at_ms
            ) IS TRUE
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
    p.place_ns,
    num_nulls(w.waits) = 1,
    p.execution_id,
    0
FROM tenants AS t
CROSS JOIN LATERAL (
    SELECT
        x.place_ns,
        x.partition_key,
        x.execution_id
    FROM ffx_fair_place AS x
    WHERE x.fair_key = t.fair_key
    ORDER BY x.place_ns DESC
    LIMIT 1
) AS p
LEFT JOIN LATERAL (
    SELECT true AS waits
    FROM ff_exec_core AS x
    WHERE
        x.partition_key = p.partition_key
        AND x.execution_id = p.execution_id
        AND x.execution_id <> ALL (@moved_executions::uuid[])
        AND (
            -- Whether an execution holds a place of fair work: the execution waits for the first start or, after the pause, for a
            -- retry. Other returning work has an old place, which the lane served long ago.
            x.lifecycle_phase = 'runnable'
            AND (
                x.attempt_state = 'pending_first_attempt'
                OR x.attempt_state = 'pending_retry_attempt'
                AND x.eligibility_state <> 'not_eligible_until_time'
            )
            AND x.created_at_ms = p.place_ns / 1000000
        ) IS TRUE
    LIMIT 1
) AS w ON true;

-- name: EnsureFairPlaces :exec
-- EnsureFairPlaces records places the caller's transaction has assigned. An execution without the place, because the
-- execution existed before, is left out.
--
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, operator.Fork,
-- engine.FailExecution, engine.FailExecutions, upkeep.ExpireAttempts, upkeep.ExpireLeases, upkeep.PromoteDelayed.
-- Locks: fair new.
WITH input AS (
    SELECT
        unnest(@fair_keys::bigint[]) AS fair_key,
        unnest(@places_ns::bigint[]) AS place_ns,
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id
)
INSERT INTO ffx_fair_place (fair_key, place_ns, partition_key, execution_id)
SELECT
    i.fair_key,
    i.place_ns,
    e.partition_key,
    e.execution_id
FROM input AS i
CROSS JOIN LATERAL (
    SELECT
        t.partition_key,
        t.execution_id
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
        AND t.created_at_ms = i.place_ns / 1000000
    LIMIT 1
) AS e
ON CONFLICT DO NOTHING;

-- name: MoveFairExecutions :exec
-- MoveFairExecutions gives executions that come back to the queue new places, in milliseconds.
--
-- Used by: engine.FailExecution, engine.FailExecutions, upkeep.ExpireAttempts, upkeep.ExpireLeases, upkeep.PromoteDelayed.
-- Locks: L1 held; queue held.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@places_ms::bigint[]) AS place_ms
)
UPDATE ff_exec_core AS e
SET created_at_ms = i.place_ms
FROM input AS i
WHERE
    e.partition_key = ANY (ARRAY[i.partition_key])
    AND e.execution_id = i.execution_id;

-- name: DropLeftPlaces :exec
-- DropLeftPlaces deletes places of tenants from a place on, up to max_items of each, where no execution waits: the
-- execution has started, out of order or while the lane was empty, or has moved. Otherwise these places would hide the
-- lower ones assigned since.
--
-- Passages: fair_waits.
-- Used by: engine.CreateExecution, engine.CreateExecutions, engine.CreateFlow, engine.GrowFlow, operator.Fork,
-- engine.FailExecution, engine.FailExecutions, upkeep.ExpireAttempts, upkeep.ExpireLeases, upkeep.PromoteDelayed.
-- Locks: fair skips (rows FOR UPDATE, then DELETE).
WITH input AS (
    SELECT
        unnest(@fair_keys::bigint[]) AS fair_key,
        unnest(@froms_ns::bigint[]) AS from_ns
    LIMIT cardinality(@fair_keys::bigint[])
),
left_places AS (
    -- The places from there on at which nothing waits, locked.
    SELECT
        l.row_id,
        i.fair_key,
        l.place_ns,
        l.partition_key,
        l.execution_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.ctid::tid AS row_id,
            t.place_ns,
            t.partition_key,
            t.execution_id
        FROM ffx_fair_place AS t
        WHERE
            t.fair_key = i.fair_key
            AND t.place_ns >= i.from_ns
            AND NOT EXISTS (
                SELECT
                FROM ff_exec_core AS e
                WHERE
                    e.partition_key = t.partition_key
                    AND e.execution_id = t.execution_id
                    AND (
                        -- Whether an execution holds a place of fair work: the execution waits for the first start or, after the pause, for a
                        -- retry. Other returning work has an old place, which the lane served long ago.
                        e.lifecycle_phase = 'runnable'
                        AND (
                            e.attempt_state = 'pending_first_attempt'
                            OR e.attempt_state = 'pending_retry_attempt'
                            AND e.eligibility_state <> 'not_eligible_until_time'
                        )
                        AND e.created_at_ms = t.place_ns / 1000000
                    ) IS TRUE
                OFFSET 0
            )
        ORDER BY t.place_ns DESC
        LIMIT @max_items::integer
        FOR UPDATE SKIP LOCKED
    ) AS l
)
DELETE FROM ffx_fair_place AS t
USING left_places AS l
WHERE
    t.ctid = l.row_id
    AND (t.fair_key = l.fair_key) IS TRUE
    AND (t.place_ns = l.place_ns) IS TRUE
    AND (t.partition_key = l.partition_key) IS TRUE
    AND (t.execution_id = l.execution_id) IS TRUE;

-- name: DropPassedPlaces :one
-- DropPassedPlaces deletes places of fair work that have no effect any longer, among the next page of all from a
-- position on, which is inclusive: a place is deleted if the tenant has a greater one in the page, or if the place is
-- keep_ms old and the execution has started or is gone. Returns the last row of the page and how many places were
-- examined and deleted. Without rows the columns of the last one are zero.
--
-- Passages: fair_waits.
-- Used by: upkeep.ForgetFairPlaces.
-- Locks: fair skips (rows FOR UPDATE, then DELETE). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time before which places are old.
    SELECT (ffx_now_ms(sqlc.narg(now_ms)) - @keep_ms::bigint) * 1000000 AS old_ns
),
page AS MATERIALIZED (
    -- The rows of the page, and whether another one of the same tenant follows.
    SELECT
        r.fair_key,
        r.place_ns,
        r.partition_key,
        r.execution_id,
        coalesce(lead(r.fair_key) OVER (ORDER BY r.fair_key, r.place_ns, r.partition_key, r.execution_id) = r.fair_key, false) AS passed
    FROM (
        SELECT
            t.fair_key,
            t.place_ns,
            t.partition_key,
            t.execution_id
        FROM ffx_fair_place AS t
        WHERE (t.fair_key, t.place_ns) >= (@from_fair_key::bigint, @from_place_ns::bigint)
        ORDER BY
            t.fair_key,
            t.place_ns,
            t.partition_key,
            t.execution_id
        LIMIT @page_size::integer
    ) AS r
),
useless AS (
    -- The places without effect, locked.
    SELECT
        l.row_id,
        p.fair_key,
        p.place_ns,
        p.partition_key,
        p.execution_id
    FROM page AS p
    CROSS JOIN LATERAL (
        SELECT t.ctid::tid AS row_id
        FROM ffx_fair_place AS t
        WHERE
            t.fair_key = p.fair_key
            AND t.place_ns = p.place_ns
            AND t.partition_key = p.partition_key
            AND t.execution_id = p.execution_id
            -- CASE: executions are only looked up for old places.
            AND CASE
                WHEN p.passed THEN true
                WHEN p.place_ns > (SELECT old_ns FROM clock) THEN false
                ELSE NOT EXISTS (
                    SELECT
                    FROM ff_exec_core AS e
                    WHERE
                        e.partition_key = t.partition_key
                        AND e.execution_id = t.execution_id
                        AND (
                            -- Whether an execution holds a place of fair work: the execution waits for the first start or, after the pause, for a
                            -- retry. Other returning work has an old place, which the lane served long ago.
                            e.lifecycle_phase = 'runnable'
                            AND (
                                e.attempt_state = 'pending_first_attempt'
                                OR e.attempt_state = 'pending_retry_attempt'
                                AND e.eligibility_state <> 'not_eligible_until_time'
                            )
                            AND e.created_at_ms = t.place_ns / 1000000
                        ) IS TRUE
                )
            END
        FOR UPDATE SKIP LOCKED
    ) AS l
),
deleted AS (
    -- The places, deleted.
    DELETE FROM ffx_fair_place AS t
    USING useless AS u
    WHERE
        t.ctid = u.row_id
        AND t.fair_key = u.fair_key
        AND t.place_ns = u.place_ns
        AND t.partition_key = u.partition_key
        AND t.execution_id = u.execution_id
    RETURNING t.fair_key
)
SELECT
    coalesce(z.fair_key, 0)::bigint AS last_fair_key,
    coalesce(z.place_ns, 0)::bigint AS last_place_ns,
    (SELECT count(*) FROM page)::integer AS examined,
    (SELECT count(*) FROM deleted)::integer AS deleted
FROM clock
LEFT JOIN LATERAL (
    SELECT
        p.fair_key,
        p.place_ns
    FROM page AS p
    ORDER BY
        p.fair_key DESC,
        p.place_ns DESC
    LIMIT 1
) AS z ON true;
