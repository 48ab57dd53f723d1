-- name: EnsurePause :one
-- EnsurePause pauses a lane, for a time or until the pause is dropped, or drains a worker instance. If already paused or
-- drained, only the reason and the end change. ahead is false if the end has passed; then nothing changes.
--
-- Used by: operator.PauseLane, operator.DrainWorker.
-- Locks: pauses waits (the row, INSERT).
WITH clock AS MATERIALIZED (
    -- The time of the call.
    SELECT ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
),
paused AS (
    INSERT INTO ffx_pause AS p (subject, name, paused_at_ms, reason, until_ms)
    SELECT
        @subject,
        @name,
        c.now_ms,
        @reason,
        sqlc.narg(until_ms)::bigint
    FROM clock AS c
    WHERE (sqlc.narg(until_ms)::bigint <= c.now_ms) IS NOT TRUE
    ON CONFLICT (subject, name) DO UPDATE
    SET
        -- An ended pause may still have its row.
        paused_at_ms = CASE WHEN p.until_ms <= excluded.paused_at_ms THEN excluded.paused_at_ms ELSE p.paused_at_ms END,
        reason = excluded.reason,
        until_ms = excluded.until_ms
    WHERE
        (p.reason, p.until_ms) IS DISTINCT FROM (excluded.reason, excluded.until_ms)
        OR p.until_ms <= excluded.paused_at_ms
)
SELECT ((sqlc.narg(until_ms)::bigint <= c.now_ms) IS NOT TRUE)::boolean AS ahead
FROM clock AS c;

-- name: DropPause :execrows
-- DropPause ends the pause of a lane or the drain of a worker instance. 0 rows: there was none.
--
-- Used by: operator.ResumeLane, operator.ResumeWorker.
-- Locks: pauses waits (the row, DELETE).
DELETE FROM ffx_pause AS p
WHERE
    p.subject = @subject
    AND p.name = @name;

-- name: ListPauses :many
-- ListPauses pages through the paused lanes or the drained worker instances in byte order, strictly after a cursor.
-- until_ms is 0 without an end. Pauses that have ended are left out.
--
-- Used by: operator.PausedLanes, operator.DrainedWorkers.
-- Locks: none.
SELECT
    p.name,
    p.paused_at_ms,
    p.reason,
    coalesce(p.until_ms, 0)::bigint AS until_ms
FROM ffx_pause AS p
WHERE
    p.subject = @subject
    AND p.name > @after_name
    AND (p.until_ms <= ffx_now_ms(sqlc.narg(now_ms))) IS NOT TRUE
ORDER BY p.name
LIMIT @page_size::integer;

-- name: DrainWorkers :many
-- DrainWorkers drains the matching live workers, in byte order of their instances, and returns the instances. Drained
-- workers are left out. An empty namespace, worker id or lane means all.
--
-- Used by: operator.DrainWorkers.
-- Locks: pauses waits (for a concurrent drain of the same instance, in array order). Spans partitions.
INSERT INTO ffx_pause AS p (subject, name, paused_at_ms, reason)
SELECT
    'worker',
    c.worker_instance_id,
    c.now_ms,
    ''
FROM (
    SELECT DISTINCT
        w.worker_instance_id COLLATE "C" AS worker_instance_id,
        ffx_now_ms(sqlc.narg(now_ms)) AS now_ms
    FROM ff_worker_registry AS w
    WHERE
        w.last_heartbeat_ms + w.liveness_ttl_ms > ffx_now_ms(sqlc.narg(now_ms))
        AND (w.namespace = @namespace::text OR @namespace::text = '')
        AND (w.worker_id = @worker_id::text OR @worker_id::text = '')
        AND (@lane_id::text = ANY (w.lanes) OR @lane_id::text = '')
        AND NOT EXISTS (
            SELECT
            FROM ffx_pause AS h
            WHERE
                h.name = w.worker_instance_id
                AND h.subject = 'worker'
        )
    ORDER BY worker_instance_id
    LIMIT @batch_size::integer
) AS c
ORDER BY c.worker_instance_id
ON CONFLICT (subject, name) DO NOTHING
RETURNING p.name;

-- name: ResumeWorkers :many
-- ResumeWorkers ends the drains of the matching registered workers, live or not, and returns their instances. An empty
-- namespace, worker id or lane means all.
--
-- Used by: operator.ResumeWorkers.
-- Locks: pauses waits (FOR UPDATE in byte order of the instances, then the DELETE). Spans partitions.
WITH chosen AS (
    SELECT
        h.ctid::tid AS row_id,
        h.name
    FROM ffx_pause AS h
    WHERE
        h.subject = 'worker'
        AND EXISTS (
            SELECT
            FROM ff_worker_registry AS w
            WHERE
                w.worker_instance_id = h.name COLLATE "default"
                AND (w.namespace = @namespace::text OR @namespace::text = '')
                AND (w.worker_id = @worker_id::text OR @worker_id::text = '')
                AND (@lane_id::text = ANY (w.lanes) OR @lane_id::text = '')
        )
    ORDER BY h.name
    LIMIT @batch_size::integer
    FOR UPDATE
)
DELETE FROM ffx_pause AS p
USING chosen AS c
WHERE
    p.ctid = c.row_id
    AND (p.name = c.name) IS TRUE
    AND p.subject = 'worker'
RETURNING p.name;
