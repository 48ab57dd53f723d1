-- name: TakeJobs :many
-- TakeJobs extends holder's hold on jobs by hold_ms, takes free jobs, and returns when each of the given jobs is next
-- due. With a hold_ms of 0 no job is taken, and nothing is written. ours: holder has the job, or the job is free but
-- the row is locked, so no process can take the job. due_at_ms: the instant of the first due item, past or future; the
-- last possible instant if there is none, or if no index can find one. Every row has the given lanes with entries in
-- the queue. Held jobs also store their last success and failure, of -1 or more milliseconds ago; -1: nothing new.
--
-- Used by: upkeep.TakeJobs.
-- Locks: jobs skips (FOR UPDATE, then the UPDATE; new rows). Spans partitions.
WITH clock AS MATERIALIZED (
    -- The time of the call, for all rows.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
asked AS (
    -- The jobs the process does.
    SELECT
        unnest(@names::text[]) AS name,
        nullif(unnest(@succeeded_ago_ms::bigint[]), -1) AS succeeded_ago_ms,
        nullif(unnest(@failed_ago_ms::bigint[]), -1) AS failed_ago_ms,
        nullif(unnest(@errors::text[]), '') AS error
),
free AS (
    -- The jobs the process holds, and free ones.
    SELECT j.name
    FROM ffx_job AS j
    WHERE
        @hold_ms::bigint > 0
        AND j.name = ANY (@names::text[])
        AND (
            j.holder = @holder::text
            OR j.held_until_ms <= (SELECT now_ms FROM clock)
        )
    ORDER BY j.name
    FOR UPDATE SKIP LOCKED
),
kept AS (
    -- The rows, updated.
    UPDATE ffx_job AS j
    SET
        holder = @holder::text,
        held_until_ms = (SELECT now_ms FROM clock) + @hold_ms::bigint,
        succeeded_at_ms = coalesce((SELECT now_ms FROM clock) - a.succeeded_ago_ms, j.succeeded_at_ms),
        failed_at_ms = coalesce((SELECT now_ms FROM clock) - a.failed_ago_ms, j.failed_at_ms),
        error = coalesce(a.error, j.error)
    FROM free AS f
    JOIN asked AS a ON a.name = f.name
    WHERE j.name = f.name
    RETURNING j.name
),
first AS (
    -- Jobs without any holder so far.
    INSERT INTO ffx_job (name, holder, held_until_ms)
    SELECT
        a.name,
        @holder::text,
        (SELECT now_ms FROM clock) + @hold_ms::bigint
    FROM asked AS a
    WHERE
        @hold_ms::bigint > 0
        AND NOT EXISTS (
            SELECT
            FROM ffx_job AS j
            WHERE j.name = a.name
        )
    ON CONFLICT (name) DO NOTHING
    RETURNING name
)
SELECT
    a.name::text AS name,
    (
        EXISTS (
            SELECT
            FROM kept AS k
            WHERE k.name = a.name
        )
        OR EXISTS (
            SELECT
            FROM first AS n
            WHERE n.name = a.name
        )
        OR NOT EXISTS (
            SELECT
            FROM ffx_job AS j
            WHERE
                j.name = a.name
                AND j.holder <> @holder::text
                AND j.held_until_ms > (SELECT now_ms FROM clock)
        )
    )::boolean AS ours,
    coalesce((
        SELECT j.held_until_ms
        FROM ffx_job AS j
        WHERE j.name = a.name
    ), 0)::bigint AS held_until_ms,
    coalesce(d.due_at_ms, 9223372036854775807)::bigint AS due_at_ms,
    (SELECT now_ms FROM clock)::bigint AS now_ms,
    coalesce((
        SELECT array_agg(l.lane_id)
        FROM unnest(@lane_ids::text[]) AS l (lane_id)
        WHERE EXISTS (
            SELECT
            FROM ffx_ready AS q
            WHERE q.lane_id = l.lane_id
        )
    ), '{}')::text[] AS queued_lanes
FROM asked AS a
CROSS JOIN LATERAL (
    -- include job_due
) AS d
ORDER BY a.name;

-- name: ReturnJobs :exec
-- ReturnJobs releases holder's jobs, so other processes can take the jobs at once.
--
-- Used by: upkeep.ReturnJobs.
-- Locks: jobs skips (FOR UPDATE, then the UPDATE).
UPDATE ffx_job AS j
SET held_until_ms = 0
FROM (
    SELECT h.name
    FROM ffx_job AS h
    WHERE h.holder = @holder::text
    ORDER BY h.name
    FOR UPDATE SKIP LOCKED
) AS f
WHERE j.name = f.name;

-- name: ListQueuedAmong :many
-- ListQueuedAmong returns the given lanes with entries in the queue.
--
-- Used by: engine.QueuedLanes.
-- Locks: none. Spans partitions.
SELECT l.lane_id::text AS lane_id
FROM unnest(@lane_ids::text[]) AS l (lane_id)
WHERE EXISTS (
    SELECT
    FROM ffx_ready AS q
    WHERE q.lane_id = l.lane_id
)
ORDER BY l.lane_id;
