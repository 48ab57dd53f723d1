-- name: ScanUndispatched :many
-- ScanUndispatched returns completion events whose dependents have not been resolved, after an event id.
--
-- Used by: upkeep.DispatchCompletions.
-- Locks: none. Spans partitions: the partial index holds nothing else.
SELECT
    c.event_id,
    c.partition_key,
    c.execution_id,
    c.flow_id,
    c.outcome
FROM ff_completion_event AS c
WHERE
    c.dispatched_at_ms IS NULL
    AND c.event_id > @after_event_id
ORDER BY c.event_id
LIMIT @page_size;

-- name: TakeUpstreams :many
-- TakeUpstreams locks the executions of undispatched events, and returns, by ord, for which the caller may act: taken
-- is false if another transaction holds the execution. A deleted one needs no lock. replayed: the execution was set to
-- run again since the event, and its next end counts instead.
--
-- Used by: upkeep.DispatchCompletions.
-- Locks: L1 skips (execution rows FOR NO KEY UPDATE in array order). The caller sorts by (partition_key,
-- execution_id).
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@execution_ids::uuid[]) AS execution_id,
        unnest(@ords::integer[]) AS ord
    LIMIT cardinality(@execution_ids::uuid[])
)
SELECT
    i.ord::integer AS ord,
    (
        e.replayed IS NOT NULL
        OR NOT EXISTS (
            SELECT
            FROM ff_exec_core AS g
            WHERE
                g.partition_key = i.partition_key
                AND g.execution_id = i.execution_id
        )
    )::boolean AS taken,
    coalesce(e.replayed, false)::boolean AS replayed
FROM input AS i
LEFT JOIN LATERAL (
    SELECT
        t.lifecycle_phase NOT IN ('terminal', 'cancelled', 'completed', 'failed', 'expired', 'skipped')
        AND (
            t.attempt_state = 'pending_replay_attempt'
            OR coalesce(t.raw_fields ->> 'replay_count', '') ~ '^[1-9]'
        ) AS replayed
    FROM ff_exec_core AS t
    WHERE
        t.partition_key = i.partition_key
        AND t.execution_id = i.execution_id
    FOR NO KEY UPDATE SKIP LOCKED
) AS e ON true;

-- name: ClaimCompletions :many
-- ClaimCompletions marks completion events as dispatched. No row: the event is dispatched already, or held by another
-- dispatcher.
--
-- Used by: upkeep.DispatchCompletions.
-- Locks: L7 skips (event rows FOR UPDATE, then the UPDATE).
WITH clock AS MATERIALIZED (
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@event_ids::bigint[]) AS event_id
    LIMIT cardinality(@event_ids::bigint[])
),
undispatched AS (
    SELECT
        c.partition_key,
        c.event_id
    FROM input AS i
    CROSS JOIN LATERAL (
        SELECT
            t.partition_key,
            t.event_id
        FROM ff_completion_event AS t
        WHERE
            t.event_id = i.event_id
            AND t.partition_key = i.partition_key
            AND t.dispatched_at_ms IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS c
)
UPDATE ff_completion_event AS c
SET dispatched_at_ms = (SELECT now_ms FROM clock)
FROM undispatched AS u
WHERE
    c.event_id = u.event_id
    AND c.partition_key = u.partition_key
RETURNING
    c.event_id,
    c.dispatched_at_ms::bigint AS now_ms;

-- name: LeaveCompletions :exec
-- LeaveCompletions removes the mark of ClaimCompletions from events whose dependents could not all be resolved.
--
-- Used by: upkeep.DispatchCompletions.
-- Locks: L7 held, since ClaimCompletions.
WITH input AS (
    SELECT
        unnest(@partition_keys::smallint[]) AS partition_key,
        unnest(@event_ids::bigint[]) AS event_id
    LIMIT cardinality(@event_ids::bigint[])
)
UPDATE ff_completion_event AS c
SET dispatched_at_ms = NULL
FROM input AS i
WHERE
    c.event_id = i.event_id
    AND c.partition_key = i.partition_key;
